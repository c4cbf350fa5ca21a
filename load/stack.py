"""What runs in a load test: the mock server, nginx, bare Pingora and the gateway, each pinned to a core; and their processor time."""

import functools
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "target" / os.environ.get("LOAD_PROFILE", "release")
GATEWAY_CORE, LOAD_CORE = "0", "1"
KEYS = 1000

# The ladder: what each organization of the policy asks for; every step adds one check.
LADDER = [
    ("key and grant", "plain", False, None),
    ("+ rate limits", "plain", True, None),
    ("+ schema in", "in", True, None),
    ("+ guardrails in", "in", True, "input"),
    ("+ guardrails out", "in", True, "both"),
    ("+ schema out: everything", "full", True, "both"),
]


def free_address():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


class Process:
    """A child of ours, pinned to a core; ended by its id."""

    def __init__(self, name, command, core, log, **options):
        self.name, self.log = name, log
        pinned = ["taskset", "-c", core, *map(str, command)]
        with open(log, "ab") as out:
            self.child = subprocess.Popen(pinned, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, **options)
        self.pid = self.child.pid

    def wait_for_port(self, port, seconds=180):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.child.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen:\n{pathlib.Path(self.log).read_text()[-2000:]}")

    def pids(self):
        """The process and its children."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def cpu_ns(self):
        """Nanoseconds on a processor, of every thread, those that ended too: the processes' own clocks (clock_getcpuclockid(3))."""
        return sum(time.clock_gettime_ns((~pid << 3) | 2) for pid in self.pids())

    def resident_kib(self):
        total = 0
        for pid in self.pids():
            found = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
            total += int(found.group(1)) if found else 0
        return total

    def end(self):
        if self.child.poll() is not None:
            return
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(3)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Stack:
    """Everything that a run needs, started and ready."""

    def __init__(self, folder):
        self.folder, self.processes = folder, []
        folder.mkdir(parents=True, exist_ok=True)

    def start_all(self):
        self.start_mock()
        self.nginx_address = free_address()
        text = (HERE / "nginx.conf").read_text()
        for mark, value in (("@LISTEN@", self.nginx_address), ("@UPSTREAM@", self.mock_address), ("@FOLDER@", str(self.folder))):
            text = text.replace(mark, value)
        (self.folder / "nginx.conf").write_text(text)
        command = ["nginx", "-c", self.folder / "nginx.conf", "-p", self.folder]
        self.nginx = self.start("nginx", command, GATEWAY_CORE, self.nginx_address)
        self.start_bare()
        self.gateway = Gateway(self, "gateway", self.policy())
        self.dying.end()  # its tools are approved, and then it is gone

    @functools.cached_property
    def many(self):
        """The gateway with 10,000 tools and keys, started when it is first asked for."""
        return Gateway(self, "many", self.policy_many(10 * KEYS, 10 * KEYS), discovery="1hour")

    def start_mock(self):
        self.mock_address = free_address()
        self.mock = self.start("mock", [TARGET / "toolgate-load-mock", self.mock_address], LOAD_CORE, self.mock_address)
        self.dead_address = free_address()
        self.dying = self.start("dying", [TARGET / "toolgate-load-mock", self.dead_address], LOAD_CORE, self.dead_address)
        self.pins = {path: self.pins_of(path) for path in ("plain", "in", "full")}

    def start_bare(self):
        """Bare Pingora in each of its shapes: process and address."""
        self.bare = {}
        for shape in ("pass", "filters", "held"):
            address = free_address()
            command = [TARGET / "toolgate-load-bare", address, self.mock_address, shape]
            self.bare[shape] = (self.start(f"bare-{shape}", command, GATEWAY_CORE, address), address)

    def start(self, name, command, core, address, **options):
        process = Process(name, command, core, self.folder / f"{name}.log", **options)
        self.processes.append(process)
        return process.wait_for_port(int(address.split(":")[1]))

    def end(self):
        for process in reversed(self.processes):
            process.end()

    def pins_of(self, profile):
        """Name and pin of each tool that the mock server lists there: SHA-256 of its definition by RFC 8785."""
        pins, cursor = [], None
        while True:
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"cursor": cursor} if cursor else {}})
            with urllib.request.urlopen(f"http://{self.mock_address}/{profile}/mcp", body.encode(), timeout=30) as answer:
                page = json.load(answer)["result"]
            for tool in page["tools"]:
                # Without fractions and with plain names this is its form by RFC 8785.
                text = json.dumps(tool, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
                pins.append((tool["name"], hashlib.sha256(text.encode()).hexdigest()))
            cursor = page.get("nextCursor")
            if cursor is None:
                return pins

    def policy(self):
        """An organization for each step of the ladder; the last one has further servers and many keys."""
        parts = []
        for n, (_, path, rates, stage) in enumerate(LADDER):
            parts += organization(f"step{n}", stage)
            parts += self.server(f"step{n}", f"s{n}", path, rates)
            parts += key(f"step{n}", f"step{n}", token(n), [f"s{n}"], rates)
        last = len(LADDER) - 1
        others = {"sse": "sse", "slow": "slow/40000", "error": "error", "lognormal": "lognormal/5", "drip": "drip", "stall": "stall"}
        for slug, path in others.items():
            parts += self.server(f"step{last}", slug, path, True, timeout={"slow": "60s", "stall": "500ms"}.get(slug))
        ten = [f"ten{n:05}" for n in range(9)]
        for slug in ten:
            parts += self.server(f"step{last}", slug, "full", True)
        parts += self.server(f"step{last}", "hidden", "full", True)
        parts += server_at(f"step{last}", "dead", f"http://{self.dead_address}/full/mcp", self.pins["full"], True)
        for n in range(KEYS):
            parts += key(f"step{last}", f"many{n}", token(f"many{n}"), [f"s{last}"], True)
        parts += key(f"step{last}", "all", token("all"), [*others, *ten, "dead"], True)
        return "\n".join(parts)

    def policy_many(self, tools, keys):
        """So many tools of one server and so many keys, with every check."""
        last = len(LADDER) - 1
        parts = organization(f"step{last}", "both")
        address = f"http://{self.mock_address}/many/{tools}/mcp"
        parts += server_at(f"step{last}", f"s{last}", address, self.pins_of(f"many/{tools}"), True)
        for n in range(keys):
            parts += key(f"step{last}", f"many{n}", token(f"many{n}"), [f"s{last}"], True)
        return "\n".join(parts)

    def server(self, organization_id, slug, path, rates, timeout=None):
        pins = self.pins.get(path, self.pins["full"])
        return server_at(organization_id, slug, f"http://{self.mock_address}/{path}/mcp", pins, rates, timeout)

    def keys_file(self, name, tokens):
        path = self.folder / f"keys-{name}"
        path.write_text("\n".join(tokens))
        return path


class Gateway:
    """A running gateway with one worker thread."""

    def __init__(self, stack, name, policy, discovery="60s"):
        self.folder = stack.folder / name
        self.folder.mkdir()
        self.address, self.ops = free_address(), free_address()
        self.access_log = self.folder / "access.log"
        (self.folder / "policy.toml").write_text(policy)
        self.conf = (
            f"[gateway]\nlisten = ['{self.address}']\nthreads = 1\n[ops]\nlisten = '{self.ops}'\n"
            f"[store]\nurl = 'sqlite:toolgate.db'\n[policy]\nfiles = ['policy.toml']\n"
            f"[egress]\nallow_http = true\nallow_networks = ['127.0.0.0/8']\n[discovery]\ninterval = '{discovery}'\n"
            f"[limits]\nin_flight = 20000\n[log]\naccess = 'access.log'\n"
        )
        (self.folder / "toolgate.toml").write_text(self.conf)
        command = [TARGET / "toolgate", "serve", "--conf", self.folder / "toolgate.toml"]
        self.process = stack.start(name, command, GATEWAY_CORE, self.address)
        self.wait_until_listed(policy.count("[[approval]]"))

    def wait_until_listed(self, tools, seconds=180):
        """Ready, and every tool was listed and is approved."""
        end, approved = time.monotonic() + seconds, 0
        while time.monotonic() < end and self.process.child.poll() is None:
            try:
                found = re.findall(r'^toolgate_tools{[^}]*state="approved"[^}]*} (\d+)', self.metrics(), re.MULTILINE)
                approved = sum(map(int, found))
                if approved >= tools:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        log = pathlib.Path(self.process.log).read_text()[-2000:]
        raise RuntimeError(f"{self.process.name} has {approved} approved tools of {tools}:\n{log}")

    def metrics(self):
        with urllib.request.urlopen(f"http://{self.ops}/metrics", timeout=30) as answer:
            return answer.read().decode()

    def reload(self):
        self.process.child.send_signal(signal.SIGHUP)

    def sample(self, series):
        found = re.search(rf"^{re.escape(series)} (\S+)", self.metrics(), re.MULTILINE)
        return float(found.group(1)) if found else 0

    def swaps(self):
        return {result: self.sample(f'toolgate_snapshot_swaps_total{{result="{result}"}}') for result in ("applied", "rejected")}

    def in_flight(self, server):
        return self.sample(f'toolgate_in_flight{{server="{server}"}}')

    def own_times_us(self, from_byte):
        """Percentiles of the gateway's own time in each request since that place of its access log."""
        with open(self.access_log, "rb") as log:
            log.seek(from_byte)
            own = sorted(float(found) for found in re.findall(rb'"own_us":([0-9.]+)', log.read()))
        at = lambda share: own[min(len(own) - 1, int(len(own) * share))] if own else None
        return {"calls": len(own), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999)}

    def log_bytes(self):
        return os.path.getsize(self.access_log) if self.access_log.exists() else 0


def token(name):
    return f"toolgate_load_{name}_" + hashlib.sha256(str(name).encode()).hexdigest()[:32]


def table(kind, **members):
    def text(value):
        return f"[{', '.join(map(text, value))}]" if isinstance(value, list) else f"'{value}'"

    return [f"[[{kind}]]", *(f"{name} = {text(value)}" for name, value in members.items() if value is not None)]


def organization(name, stage):
    parts = table("organization", id=name, plan="business", status="active", subscription="active")
    parts += table("project", id=f"{name}-project", organization=name)
    for detector in ("secrets", "personal_data") if stage else ():
        parts += table("guardrail", name=f"{name}-{detector}", organization=name, stage=stage, detector=detector, action="block")
    return parts


def server_at(organization_id, slug, url, pins, rates, timeout=None):
    parts = table("server", organization=organization_id, slug=slug, url=url, protocol="2026-07-28", timeout=timeout,
                  rate_limit="10000000/s" if rates else None)
    parts.append("max_in_flight = 20000")
    for name, pin in pins:
        parts += table("approval", organization=organization_id, server=slug, tool=name, sha256=pin, labels=[])
        parts.append("class = 'read'")
    return parts


def key(organization_id, name, secret, servers, rates):
    parts = table("key", id=name, organization=organization_id, project=f"{organization_id}-project", environment="load",
                  sha256=hashlib.sha256(secret.encode()).hexdigest(), rate_limit="10000000/s" if rates else None)
    for slug in servers:
        parts += table("grant", key=name, server=slug, access="read")
    return parts
