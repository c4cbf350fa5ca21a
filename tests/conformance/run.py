#!/usr/bin/env python3
"""The official MCP conformance suite, through the gateway, against a server that has everything the suite names.

    tests/conformance/run.py [--profile release|debug] [--direct] [--only TEXT] [--keep]

Installs the suite, the TypeScript SDK and a Node.js into target/conformance, starts the fixture server twice (once as a server
of every era, once as one of the older eras only) and the gateway before both, and runs the suite for each revision on each
server's endpoint. expected/*.yaml says which scenarios fail, and why: one that fails and is not listed is a failure, and so is
one that is listed and passes. `--direct` leaves the gateway out, to show what the fixture does by itself.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

import jcs  # noqa: E402
import peers  # noqa: E402
from install import done, fresh, run as install  # noqa: E402

REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18"]
SERVERS = {"modern": [], "legacy": ["legacy"]}  # slug, and how the fixture is told
TOKEN = "toolgate_conformance_key"
SUITE_TIMEOUT_S = 300
FAULT_CHARS_MAX = 300


class Suite:
    """The installed suite and fixture, and the Node.js that runs them."""

    def __init__(self, home):
        self.home = home / "npm"
        lock = (HERE / "package-lock.json").read_text()
        if fresh(self.home, lock):
            print("conformance: installing the suite, the SDK and Node.js from npm", flush=True)
            self.home.mkdir(parents=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, self.home / name)
            install(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], self.home)
            done(self.home, lock)
        self.node = next(self.home.glob("node_modules/node-linux-*/bin/node"), None)
        if self.node is None:
            sys.exit("conformance: npm has no Node.js for this machine")
        for name in ("fixture", "bearer.ts"):  # beside node_modules, where Node.js looks for packages
            (shutil.copytree if (HERE / name).is_dir() else shutil.copy)(
                HERE / name, self.home / name, **({"dirs_exist_ok": True} if (HERE / name).is_dir() else {})
            )

    def run(self, url, revision, expected, results):
        """Runs every scenario of a revision; gives the suite's exit code and its words."""
        script = self.home / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
        command = [self.node, script, "server", "--url", url, "--suite", "all", "--spec-version", revision, "-o", results]
        if expected is not None:
            command += ["--expected-failures", expected]
        result = subprocess.run(
            [str(part) for part in command],
            env=os.environ | {"PATH": f"{self.node.parent}{os.pathsep}{os.environ['PATH']}"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SUITE_TIMEOUT_S,
        )
        return result.returncode, result.stdout


class Stand:
    """The processes of one run: fixtures, gateway, and what brings the key."""

    def __init__(self, suite, folder):
        self.suite, self.folder, self.processes = suite, folder, []

    def start(self, name, command, port):
        process = peers.Process(name, command, self.folder / f"{name}.log")
        self.processes.append(process)
        process.await_port(port)
        return process

    def fixtures(self):
        """Starts both; gives their ports by slug."""
        ports = dict(zip(SERVERS, peers.free_ports(len(SERVERS))))
        for slug, words in SERVERS.items():
            self.start(slug, [self.suite.node, self.suite.home / "fixture/server.ts", ports[slug], *words], ports[slug])
        return ports

    def gateway(self, binary, fixtures):
        """Starts the gateway before the fixtures, every tool approved; gives the URL for the suite by slug."""
        port, ops, *bearers = peers.free_ports(2 + len(SERVERS))
        bearers = dict(zip(SERVERS, bearers))
        (self.folder / "toolgate.toml").write_text(conf(port, ops, bearers.values()))
        (self.folder / "policy.toml").write_text(policy(fixtures))
        self.start("toolgate", [binary, "serve", "--conf", self.folder / "toolgate.toml"], port).await_ready(ops)
        for slug, own in bearers.items():
            target = f"http://127.0.0.1:{port}/gateway/{slug}/mcp"
            self.start(f"bearer-{slug}", [self.suite.node, self.suite.home / "bearer.ts", own, target, TOKEN], own)
        return {slug: f"http://127.0.0.1:{own}/mcp" for slug, own in bearers.items()}

    def stop(self):
        for process in reversed(self.processes):
            process.stop()


def conf(port, ops, bearers):
    """The suite sends the address that it was given as its `Origin`."""
    origins = json.dumps([f"http://127.0.0.1:{own}" for own in bearers])
    return f"""\
[gateway]
listen = ["127.0.0.1:{port}"]
allowed_origins = {origins}

[ops]
listen = "127.0.0.1:{ops}"

[admin]
socket = "toolgate.sock"

[policy]
files = ["policy.toml"]

[egress]
allow_http = true
allow_networks = ["127.0.0.0/8"]

[discovery]
interval = "300ms"

[log]
access = "access.log"
"""


def policy(fixtures):
    """One key that may write on both servers, and a pin for every tool that they list."""
    parts = [
        '[[organization]]\nid = "suite"\nplan = "business"\nstatus = "active"\nsubscription = "active"',
        '[[project]]\nid = "suite"\norganization = "suite"',
        '[[key]]\nid = "suite"\norganization = "suite"\nproject = "suite"\nenvironment = "test"\n'
        f'sha256 = "{hashlib.sha256(TOKEN.encode()).hexdigest()}"',
    ]
    for slug, port in fixtures.items():
        parts.append(
            f'[[server]]\norganization = "suite"\nslug = "{slug}"\nurl = "http://127.0.0.1:{port}/mcp"\n'
            'passthrough = ["resources", "prompts", "completion"]'
        )
        parts.append(f'[[grant]]\nkey = "suite"\nserver = "{slug}"\naccess = "write"')
        for tool in peers.modern_tools(port) or peers.legacy_tools(port):
            name, pin = json.dumps(tool["name"]), jcs.pin(tool)
            parts.append(f'[[approval]]\nserver = "{slug}"\ntool = {name}\nsha256 = "{pin}"\nlabels = []')
    return "\n\n".join(parts) + "\n"


def expectation(slug, revision):
    """The baseline of a run: a scenario, or `scenario:check`, to the reason why it fails."""
    file = HERE / "expected" / f"{slug}-{revision}.yaml"
    listed = {}
    for line in file.read_text().splitlines():
        if item := re.fullmatch(r"  - (\S+)\s+# (.+)", line):
            listed[item[1]] = item[2]
        elif line.strip() and not line.startswith("#") and line not in ("server:", "server: []"):
            sys.exit(f"conformance: {file}: a line without a scenario and its reason: {line}")
    return file, listed


def against(listed, name, faults):
    """What of a scenario's outcome the baseline does not say; None when it says all of it."""
    if name in listed:
        return None if faults else f"passes, though listed as failing ({listed[name]})"
    checks = {entry.split(":")[1] for entry in listed if entry.startswith(f"{name}:")}
    new = [words for check, words in faults if check not in checks]
    stale = checks - {check for check, _ in faults}
    return "; ".join(new + [f"{check} passes, though listed as failing" for check in sorted(stale)]) or None


def outcomes(results):
    """What each scenario came to: its checks by status, and the ids and words of those that did not pass."""
    scenarios = {}
    for file in sorted(results.glob("*/checks.json")):
        name = re.fullmatch(r"server-(.+)-\d{4}-\d\d-\d\dT.*", file.parent.name)[1]
        checks = json.loads(file.read_text())
        counts = {}
        for check in checks:
            counts[check["status"]] = counts.get(check["status"], 0) + 1
        faults = [
            (check["id"], f"{check['status']} {check['id']}: {(check.get('errorMessage') or '')[:FAULT_CHARS_MAX]}")
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        ]
        scenarios[name] = (counts, faults)
    return scenarios


def play(suite, folder, url, slug, revision, direct):
    """One run of the suite: its row of the table, and what was not as expected."""
    file, listed = (None, {}) if direct else expectation(slug, revision)
    results = folder / f"{slug}-{revision}"
    code, words = suite.run(url, revision, file, results)
    (folder / f"{slug}-{revision}.log").write_text(words)
    scenarios = outcomes(results)
    wrong = {name: against(listed, name, faults) for name, (_, faults) in scenarios.items()}
    wrong |= {name: "listed, but not run" for name in {entry.split(":")[0] for entry in listed} - scenarios.keys()}
    unexpected = [f"{slug} {revision} {name}: {why}" for name, why in wrong.items() if why]
    if code != 0 and not unexpected:
        unexpected.append(f"{slug} {revision}: the suite ended with {code}:\n{words[-2000:]}")
    clean = sum(not faults for _, faults in scenarios.values())
    checks = {s: sum(counts.get(s, 0) for counts, _ in scenarios.values()) for s in ("SUCCESS", "FAILURE", "WARNING")}
    row = (slug, revision, f"{clean}/{len(scenarios)}", *checks.values(), len(listed), len(unexpected))
    return row, len(scenarios) - len(unexpected), unexpected


def runs(chosen):
    """The pairs of server and revision to run. By itself a server of the older eras has nothing to say to a newer client."""
    pairs = [(slug, revision) for slug in SERVERS for revision in REVISIONS if chosen.only in f"{slug} {revision}"]
    return [pair for pair in pairs if not (chosen.direct and pair == ("legacy", "2026-07-28"))]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--profile", default="debug", help="which binary below target/ to test")
    options.add_argument("--direct", action="store_true", help="leave the gateway out")
    options.add_argument("--only", default="", metavar="TEXT", help="only runs whose `server revision` contains TEXT")
    options.add_argument("--keep", action="store_true", help="keep the logs and results, also of a good run")
    chosen = options.parse_args()
    binary = ROOT / "target" / chosen.profile / "toolgate"
    if not chosen.direct and not binary.exists():
        sys.exit(f"conformance: {binary} is not there: build it first")
    started = time.monotonic()
    suite = Suite(ROOT / "target" / "conformance")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="toolgate-conformance-"))
    stand, rows, passed, unexpected = Stand(suite, folder), [], 0, []
    try:
        ports = stand.fixtures()
        urls = {slug: f"http://127.0.0.1:{port}/mcp" for slug, port in ports.items()}
        if not chosen.direct:
            urls = stand.gateway(binary, ports)
        for slug, revision in runs(chosen):
            row, good, bad = play(suite, folder, urls[slug], slug, revision, chosen.direct)
            rows, passed, unexpected = [*rows, row], passed + good, unexpected + bad
    except (RuntimeError, OSError, subprocess.TimeoutExpired) as error:
        unexpected.append(f"{type(error).__name__}: {error}")
    finally:
        stand.stop()
    print(f"\n{'server':7} {'revision':11} {'scenarios':9} {'checks':>6} {'failed':>6} {'warned':>6} {'listed':>6} unexpected")
    for slug, revision, clean, good, bad, warned, listed, wrong in rows:
        print(f"{slug:7} {revision:11} {clean:>9} {good:6} {bad:6} {warned:6} {listed:6} {wrong or '-'}")
    for fault in unexpected:
        print(f"FAILED {fault}")
    print(f"\n{passed} passed, {len(unexpected)} failed")
    failed = bool(unexpected) or passed == 0
    print(f"conformance: {time.monotonic() - started:.0f} s" + (f", logs in {folder}" if failed or chosen.keep else ""))
    if not failed and not chosen.keep:
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
