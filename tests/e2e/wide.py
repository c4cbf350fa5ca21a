#!/usr/bin/env python3
"""The wide matrix: every client that we know against every server, through the gateway; a table of what passed.

    tests/e2e/wide.py [--profile release|debug] [--only TEXT] [--keep] [--write]

Beside the peers of run.py: the command lines of FastMCP and the Inspector and the bridge mcp-remote as clients; server-memory,
server-filesystem and mcp-server-time behind mcp-proxy, and the fixture of the conformance suite as servers. `--write` puts the table
into docs/clients.md.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time

import cases
import jcs
import peers
from gateway import TOKEN, WATCHED, Gateway, table
from install import HERE, Peers, done, fresh, install_python, run as install, say
from run import Driver

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs" / "clients.md"
START, END = "<!-- table -->\n", "<!-- /table -->"
AT_ONCE = 5  # clients on one server at one time
GONE_TIMEOUT_S = 30
FORBIDDEN = "e2e-forbidden"

CLIENTS = [*cases.CLIENTS, ("mcp-remote 0.15.1", "node", "remote.mjs", "", set())]
CLIENTS += [("fastmcp CLI 4.2.3", "modern", "command.py", "fastmcp", set())]
CLIENTS += [(f"inspector CLI 2.12.0 {e}", "modern", "command.py", f"inspector {e}", set()) for e in ("legacy", "auto", "modern")]
SILENT = ("fastmcp", "inspector")  # clients whose command line shows no progress

LETTERS = {
    "L": "lists its tools",
    "C": "calls one",
    "R": "reads a refusal of a tool without an `outputSchema`",
    "S": "reads one of a tool with an `outputSchema`",
    "P": "sees progress",
    "U": "goes on after the server was restarted between two calls",
    "X": "goes away in the middle of a call, which is then cancelled",
}

blocked = [("R", "echo", {"text": FORBIDDEN}, "guardrail_blocked")]
CASES = {  # slug: a good call, refusals, a call with progress, a call that lasts
    "fast": (
        cases.Case("add", {"a": 2, "b": 3}, ("structured", {"result": 5})),
        [*blocked, ("S", "forecast", {"city": FORBIDDEN}, "guardrail_blocked")],
        cases.Case("count", {"to": 5}, ("text", "counted to 5"), progress=5),
        ("stall", {"seconds": 25}),
    ),
    "every": (
        cases.Case("get-sum", {"a": 2, "b": 3}, ("text", "5")),
        [
            ("R", "echo", {"message": FORBIDDEN}, "guardrail_blocked"),
            ("S", "get-structured-content", {"location": FORBIDDEN}, "invalid_tool_arguments"),
        ],
        cases.Case("trigger-long-running-operation", {"duration": 1, "steps": 4}, ("text", "completed"), progress=4),
        ("trigger-long-running-operation", {"duration": 25, "steps": 1}),
    ),
    "modern": (
        cases.Case("add", {"a": 2, "b": 3}, ("structured", {"sum": 5})),
        [*blocked, ("S", "forecast", {"city": FORBIDDEN}, "guardrail_blocked")],
        cases.Case("count", {"to": 5}, ("text", "counted to 5"), progress=5),
        ("stall", {"seconds": 25}),
    ),
    "fixture": (
        cases.Case("test_simple_text", {}, ("text", "This is a simple text response")),
        [("R", "json_schema_2020_12_tool", {"name": FORBIDDEN, "phone": "+41", "email": "a@b.test", "contactMethod": "phone"}, "guardrail_blocked")],
        cases.Case("test_tool_with_progress", {}, ("text", ""), progress=3),
        None,
    ),
    "memory": (
        cases.Case("read_graph", {}, ("text", "entities")),
        [("S", "search_nodes", {"query": FORBIDDEN}, "guardrail_blocked")],
        None,
        None,
    ),
    "filesystem": (
        cases.Case("list_allowed_directories", {}, ("text", "files")),
        [("S", "read_text_file", {"path": FORBIDDEN}, "guardrail_blocked")],
        None,
        None,
    ),
    "time": (
        cases.Case("get_current_time", {"timezone": "UTC"}, ("text", "UTC")),
        [("R", "get_current_time", {"timezone": FORBIDDEN}, "guardrail_blocked")],
        None,
        None,
    ),
}
BRIDGED = ("memory", "filesystem", "time")


class Wide:
    """Where the further peers are."""

    def __init__(self, home):
        self.npm, self.bridge = home / "wide", home / "bridge"
        lock = (HERE / "wide" / "package-lock.json").read_text()
        if fresh(self.npm, lock):
            say("npm packages: mcp-remote, the Inspector, servers that speak stdio, the fixture's SDK, Node.js 22")
            self.npm.mkdir(parents=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "wide" / name, self.npm / name)
            # Not `npm ci`: an optional package of another system is in no registry, and so in no lock file.
            install(["npm", "install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], self.npm)
            done(self.npm, lock)
        install_python(self.bridge, HERE / "requirements-bridge.txt")
        shutil.copytree(ROOT / "tests/conformance/fixture", self.npm / "fixture", dirs_exist_ok=True)
        self.node = next(self.npm.glob("node_modules/node-linux-*/bin/node"), None)
        if self.node is None:
            sys.exit("e2e: npm has no Node.js 22 for this machine")


class Upstream:
    """A server behind the gateway that can be restarted where it is."""

    def __init__(self, slug, command, folder, url, env=None):
        self.slug, self.command, self.url, self.env = slug, command, url, env
        self.port, self.path = int(re.search(r":(\d+)", url)[1]), url.split(str(re.search(r":(\d+)", url)[1]), 1)[1]
        self.log = folder / f"{slug}.log"
        self.begin()

    def begin(self):
        self.process = peers.Process(self.slug, self.command, self.log, self.env)

    def ready(self):
        """Waits until it lists its tools."""
        self.process.await_port(self.port)
        deadline = time.monotonic() + peers.START_TIMEOUT_S
        while True:
            try:
                listed = peers.modern_tools(self.port, self.path) or peers.legacy_tools(self.port, self.path)
                self.tools = {tool["name"]: tool for tool in listed}
                return self
            except (OSError, KeyError) as error:
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{self.slug} lists nothing: {error!r}\n{self.process.tail()}") from error
                time.sleep(0.2)

    def restart(self):
        self.process.stop()
        self.begin()
        self.ready()


def start(installed, wide, folder):
    """Starts every server; gives it by slug."""
    ports = peers.free_ports(5)
    everything = installed.npm / "node_modules/@modelcontextprotocol/server-everything/dist/transports/streamableHttp.js"
    loopback = (installed.npm / "servers" / "loopback.mjs").as_uri()
    files = folder / "files"
    files.mkdir()
    stdio = wide.npm / "node_modules/@modelcontextprotocol"
    bridge = [wide.bridge / "bin/mcp-proxy", "--host", "127.0.0.1", "--port", ports[4]]
    for slug, command in (
        ("memory", f"{wide.node} {stdio}/server-memory/dist/index.js"),
        ("filesystem", f"{wide.node} {stdio}/server-filesystem/dist/index.js {files}"),
        ("time", f"{wide.bridge}/bin/mcp-server-time --local-timezone UTC"),
    ):
        bridge += ["--named-server", slug, command]
    at = [f"http://127.0.0.1:{port}/mcp" for port in ports]
    env = {"FASTMCP_CHECK_FOR_UPDATES": "off"}
    memory = {"MEMORY_FILE_PATH": str(folder / "memory.json")}
    one = Upstream("bridge", bridge, folder, f"http://127.0.0.1:{ports[4]}/servers/memory/mcp", memory)
    servers = {
        "fast": Upstream("fast", [installed.modern, HERE / "servers/fast.py", ports[0]], folder, at[0], env),
        "every": Upstream(
            "every", [installed.node, "--import", loopback, everything], folder, at[1], {"PORT": str(ports[1])}
        ),
        "modern": Upstream("modern", [installed.modern, HERE / "servers/modern.py", ports[2]], folder, at[2]),
        "fixture": Upstream("fixture", [wide.node, wide.npm / "fixture/server.ts", ports[3]], folder, at[3]),
    }
    for slug in BRIDGED:
        servers[slug] = Bridged(one, slug)
    return servers


class Bridged:
    """One of the servers behind the bridge: what is restarted is the bridge, and they with it."""

    def __init__(self, bridge, slug):
        self.bridge, self.slug = bridge, slug
        self.path = f"/servers/{slug}/mcp"
        self.url = f"http://127.0.0.1:{bridge.port}{self.path}"

    @property
    def process(self):
        return self.bridge.process

    def ready(self):
        self.bridge.ready()
        self.tools = {tool["name"]: tool for tool in peers.legacy_tools(self.bridge.port, self.path)}
        return self

    def restart(self):
        self.bridge.restart()
        self.ready()


class WideGateway(Gateway):
    """A gateway before all of them, every tool approved, one word forbidden."""

    def __init__(self, binary, folder, servers):
        super().__init__(binary, folder, wide_policy(servers), WATCHED)

    def count(self, metric, slug, more=""):
        """The value of a series of a server."""
        _, _, text = peers.request(self.ops, "GET", "/metrics")
        labels = f'server="{slug}"' + (f",{more}" if more else "")
        found = re.search(rf"^{metric}{{{labels}}} (\d+)", text, re.M)
        return int(found[1]) if found else 0

    def in_flight(self, slug):
        return self.count("toolgate_in_flight", slug)

    def gone(self, slug):
        """How many calls of a server ended because their client went away."""
        log = self.folder / "access.log"
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        return sum(line["server"] == slug and line["outcome"] == "http_499" for line in lines)


def wide_policy(servers):
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    parts = [
        table("organization", id="e2e", plan="business", status="active", subscription="active"),
        table("project", id="tests", organization="e2e"),
        table("key", id="client", organization="e2e", project="tests", environment="test", sha256=digest),
        table(
            "guardrail", name="word", organization="e2e", stage="input", detector="keywords", action="block", words=[FORBIDDEN]
        ),
    ]
    for slug, server in servers.items():
        parts.append(table("server", organization="e2e", slug=slug, url=server.url))
        parts.append(table("grant", key="client", server=slug, access="write"))
        for name, tool in server.tools.items():
            parts.append(table("approval", server=slug, tool=name, sha256=jcs.pin(tool), labels=[]))
    return "\n".join(parts)


class Cells:
    """What came of each client on each server: a letter, and what is wrong with it if it failed."""

    def __init__(self):
        self.cells, self.faults = {}, []

    def add(self, client, slug, letter, fault):
        self.cells.setdefault((client, slug), {})[letter] = fault is None
        if fault is not None:
            self.faults.append(f"{client} | {slug} | {LETTERS[letter]}: {fault}")

    def table(self):
        lines = ["| client | " + " | ".join(CASES) + " |", "|---|" + "---|" * len(CASES)]
        for client, *_ in CLIENTS:
            marks = [self.cells.get((client, slug), {}) for slug in CASES]
            cells = ["".join(f"{m}" if good else f"~~{m}~~" for m, good in cell.items()) or "-" for cell in marks]
            lines.append(f"| {client} | " + " | ".join(cells) + " |")
        return "\n".join(lines) + "\n"


def play(run, server):
    """Some clients at a time: list, calls, a restart of the server under them, another call; then each goes away in a call."""
    chosen = [client for client in CLIENTS if run.only in f"{client[0]} {server.slug}"]
    for at in range(0, len(chosen), AT_ONCE):
        drivers = [(client, *begin(run, server, client)) for client in chosen[at : at + AT_ONCE]]
        try:
            for client, plan, driver in drivers:
                follow(run, server, client, plan, driver)
            server.restart()
            for client, _, driver in drivers:
                driver.send("go")
                driver.answer()
                good = CASES[server.slug][0]
                run.cells.add(client[0], server.slug, "U", cases.judge(good, good.tool, driver.answer(), True))
        finally:
            for *_, driver in drivers:
                driver.stop()
    for client in chosen if CASES[server.slug][3] else []:
        run.cells.add(client[0], server.slug, "X", go_away(run, server, client))


def begin(run, server, client):
    """Starts a client with its script: gives what each call is, and the driver."""
    good, refusals, progress, _ = CASES[server.slug]
    plan = [("C", good)]
    plan += [(letter, cases.refused(tool, arguments, code)) for letter, tool, arguments, code in refusals]
    if progress and not client[3].startswith(SILENT):
        plan.append(("P", progress))
    call = lambda case: {"op": "call", "name": case.tool, "arguments": case.arguments, "progress": bool(case.progress)}
    steps = [{"op": "list"}, *[call(case) for _, case in plan], {"op": "wait"}, call(good)]
    return plan, driver_of(run, server, client, steps)


def driver_of(run, server, client, steps):
    session = {"url": run.gateway.url(server.slug), "token": TOKEN, "steps": steps}
    log = run.folder / f"client-{CLIENTS.index(client)}-{server.slug}.log"
    return Driver(run.installed, client, [session], log, group=True)


def follow(run, server, client, plan, driver):
    """Reads a client's answers up to the restart, and judges them."""
    driver.answer()
    listed = driver.answer()
    names, wanted = sorted(t["name"] for t in listed.get("tools", [])), callable_plainly(server)
    run.cells.add(client[0], server.slug, "L", None if names == wanted else f"{listed.get('error', names)}, not {wanted}")
    for letter, case in plan:
        run.cells.add(client[0], server.slug, letter, cases.judge(case, case.tool, driver.answer(), True))
    driver.answer()


def callable_plainly(server):
    """The tools that the gateway must list: one that can only be called as a task cannot be called through it."""
    tasks = (tool.get("execution", {}).get("taskSupport") for tool in server.tools.values())
    return sorted(name for name, support in zip(server.tools, tasks) if support != "required")


def go_away(run, server, client):
    """Ends a client in the middle of a call; None once the gateway has cancelled it."""
    tool, arguments = CASES[server.slug][3]
    before = run.gateway.gone(server.slug)
    driver = driver_of(run, server, client, [{"op": "call", "name": tool, "arguments": arguments}])
    try:
        if not until(lambda: run.gateway.in_flight(server.slug) == 1):
            return f"the call never came: {driver.answer()}"
        os.killpg(driver.child.pid, signal.SIGKILL)
        over = lambda: run.gateway.in_flight(server.slug) == 0 and run.gateway.gone(server.slug) > before
        return None if until(over) else "the call goes on"
    finally:
        driver.stop()


def until(holds):
    """Whether it comes to hold in time."""
    deadline = time.monotonic() + GONE_TIMEOUT_S
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--profile", default="release", help="which binary below target/ to test")
    options.add_argument("--only", default="", metavar="TEXT", help="only pairs whose `client server` contains TEXT")
    options.add_argument("--keep", action="store_true", help="keep the logs and the conf, also of a good run")
    options.add_argument("--write", action="store_true", help="put the table into docs/clients.md")
    run = options.parse_args()
    binary = ROOT / "target" / run.profile / "toolgate"
    if not binary.exists():
        sys.exit(f"e2e: {binary} is not there: build it first (cargo build --profile {run.profile})")
    started = time.monotonic()
    home = ROOT / "target" / "e2e"
    run.installed, wide = Peers(home), Wide(home)
    os.environ["E2E_WIDE"], os.environ["E2E_NODE22"] = str(wide.npm), str(wide.node)
    run.folder = pathlib.Path(tempfile.mkdtemp(prefix="toolgate-e2e-wide-"))
    run.cells, run.gateway, servers = Cells(), None, {}
    try:
        servers = start(run.installed, wide, run.folder)
        for server in servers.values():
            server.ready()
        run.gateway = WideGateway(binary, run.folder, servers)
        run.gateway.start()
        for slug in servers:  # readiness does not wait for a server that is slow to list its tools
            if not until(lambda: run.gateway.count("toolgate_tools", slug, 'state="approved"')):
                raise RuntimeError(f"the tools of {slug} are never approved")
        for server in servers.values():
            play(run, server)
    except (RuntimeError, OSError, KeyError) as error:
        run.cells.faults.append(f"set-up: {type(error).__name__}: {error}")
    finally:
        for process in [s.process for s in servers.values()] + ([run.gateway.process] if run.gateway and run.gateway.process else []):
            process.stop()
    return tell(run, time.monotonic() - started)


def tell(run, seconds):
    """Prints the table and the closing line; gives the exit code."""
    print(f"\n{run.cells.table()}")
    for fault in run.cells.faults:
        print(f"FAILED {fault}")
    marks = [good for cell in run.cells.cells.values() for good in cell.values()]
    failed = len(run.cells.faults)
    print(f"\n{sum(marks)} passed, {failed} failed")
    print(f"e2e: {seconds:.0f} s" + (f", logs in {run.folder}" if failed or run.keep else ""))
    if run.write and not failed and not run.only:
        before, rest = DOCS.read_text().split(START)
        DOCS.write_text(f"{before}{START}{run.cells.table()}{END}{rest.split(END)[1]}")
    if not failed and not run.keep:
        shutil.rmtree(run.folder, ignore_errors=True)
    return 1 if failed or not marks else 0


if __name__ == "__main__":
    sys.exit(main())
