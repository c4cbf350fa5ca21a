#!/usr/bin/env python3
"""Real MCP clients against real MCP servers, through the gateway: every pair, on both endpoints.

    tests/e2e/run.py [--profile release|debug] [--direct] [--only TEXT] [--keep]

Installs what is missing into target/e2e (npm ci, two Python environments), starts the servers and the gateway on free
loopback ports, and prints one table. `--direct` leaves the gateway out: it shows what the peers do among themselves.
"""

import argparse
import json
import pathlib
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time

import cases
import jcs
import peers
from gateway import TOKEN, WATCHED, Gateway, digest, table
from install import Peers

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER_TIMEOUT_S = 240
DRIFT_TIMEOUT_S = 30
WRONG_PIN = "0" * 64
DECISIONS = {
    "read": {"class": "read"},
    "write": {"class": "write"},
    "blocked": {"class": "read", "status": "blocked"},
    "stale": {"class": "read"},
}


class Score:
    """What passed and what failed, by row of the table."""

    def __init__(self):
        self.rows, self.faults = {}, []

    def add(self, row, label, fault):
        good, all_ = self.rows.get(row, (0, 0))
        self.rows[row] = (good + (fault is None), all_ + 1)
        if fault is not None:
            self.faults.append(f"{' | '.join(filter(None, row))} | {label}: {fault}")

    def show(self):
        """Prints the table and the closing line; gives the exit code."""
        print(f"\n{'client':26} {'server':8} {'endpoint':11} passed")
        for (client, server, endpoint), (good, all_) in self.rows.items():
            print(f"{client:26} {server:8} {endpoint:11} {good}/{all_}{'' if good == all_ else '  FAILED'}")
        for fault in self.faults:
            print(f"FAILED {fault}")
        passed = sum(good for good, _ in self.rows.values())
        failed = sum(all_ - good for good, all_ in self.rows.values())
        print(f"\n{passed} passed, {failed} failed")
        return 0 if failed == 0 and passed > 0 else 1


def policy(servers):
    """Organization, key, servers, grants, and a pin for every tool that is to be decided on."""
    parts = [
        table("organization", id="e2e", plan="business", status="active", subscription="active"),
        table("project", id="tests", organization="e2e"),
        table("key", id="client", organization="e2e", project="tests", environment="test", sha256=digest(TOKEN)),
    ]
    by_slug = {server.slug: server for server in servers} | {"slow": next(s for s in servers if s.slug == "modern")}
    for slug, server in by_slug.items():
        rules = cases.POLICY[slug]
        limits = {"timeout": "1s"} if slug == "slow" else {"result_limit": cases.RESULT_LIMIT}
        parts.append(table("server", organization="e2e", slug=slug, url=server.url, **limits))
        selection = {"tools": rules["tools"]} if "tools" in rules else {}
        parts.append(table("grant", key="client", server=slug, access=rules["access"], **selection))
        for kind, members in DECISIONS.items():
            for name in rules.get(kind, []):
                pin = WRONG_PIN if kind == "stale" else jcs.pin(server.tools[name])
                parts.append(table("approval", server=slug, tool=name, sha256=pin, labels=[], **members))
    return "".join(parts)


class Driver:
    """A client process that plays a script of sessions and answers a line a step."""

    def __init__(self, installed, client, sessions, log, group=False):
        _, interpreter, script, mode, _ = client
        folder = installed.npm / "clients"
        self.log = open(log, "wb")
        self.child = subprocess.Popen(
            [str(getattr(installed, interpreter)), str(folder / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            start_new_session=group,
        )
        self.lines, self.deadline = queue.Queue(), time.monotonic() + DRIVER_TIMEOUT_S
        threading.Thread(target=self.read, daemon=True).start()
        self.send(json.dumps({"mode": mode, "sessions": sessions}))

    def read(self):
        for line in self.child.stdout:
            self.lines.put(json.loads(line))
        self.lines.put(None)

    def send(self, line):
        try:
            self.child.stdin.write(line + "\n")
            self.child.stdin.flush()
        except OSError:
            pass  # the process is gone: the answers that it owes are missing, and counted

    def answer(self):
        """The next answer, or why there is none."""
        try:
            line = self.lines.get(timeout=max(0.0, self.deadline - time.monotonic()))
        except queue.Empty:
            line = None
            self.child.kill()
        if line is None:
            self.lines.put(None)
            return {"error": {"code": None, "message": "the client ended or hung without an answer"}}
        return line

    def stop(self):
        try:
            self.child.stdin.close()
            self.child.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.child.kill()
            self.child.wait()
        self.log.close()


def play(run, servers):
    """Every client on every server at one time: lists and calls on both endpoints; then each drift, seen by all."""
    drivers = []
    try:
        for server in servers:
            drivers += start(run, server)
        for server, name, sessions, driver in drivers:
            follow(run, name, server, sessions, driver)
        for server in servers if run.gateway else []:
            waiting = [(name, driver) for behind, name, _, driver in drivers if behind is server]
            if server.slug in cases.DRIFTING and waiting:
                drift(run, server, waiting)
    finally:
        for *_, driver in drivers:
            driver.stop()


def start(run, server):
    """Starts each client that is to talk to `server`."""
    drivers = []
    for number, client in enumerate(cases.CLIENTS):
        if run.only not in f"{client[0]} {server.slug}":
            continue
        if not run.gateway and not client[4] & cases.ERAS[server.slug]:
            print(f"e2e: {client[0]} and {server.slug} share no era: no direct pair")
            continue
        sessions = plan(run, server, client[0])
        log = run.folder / f"client-{number}-{server.slug}.log"
        drivers.append(
            (server, client[0], sessions, Driver(run.installed, client, [s["script"] for s in sessions], log))
        )
    return drivers


def drift(run, server, waiting):
    """The server changes a definition; once the gateway has seen it, each waiting client calls the tool it listed."""
    server.post("/flip")
    run.score.add(("(gateway)", server.slug, "drift"), "noticed", await_drift(run.gateway, server.slug))
    for name, driver in waiting:
        driver.send("go")
        driver.answer()
        fault = cases.judge(cases.DRIFT, cases.DRIFT.tool, driver.answer(), True)
        run.score.add((name, server.slug, "per server"), cases.DRIFT.label(), fault)


def plan(run, server, client):
    """The sessions of one client on one server: each a script, and how its answers are judged."""
    slug = server.slug
    if not run.gateway:
        rows = [(case, case.tool) for case in cases.CASES[slug] if not case.gate]
        return [session("direct", server.url, "none", sorted(server.tools), rows)]
    shared = [(case, f"{slug}_{case.tool}") for case in cases.CASES[slug]]
    everything = sorted(f"{s}_{name}" for s in cases.POLICY for name in cases.listed(s))
    if slug == "modern" and client in cases.STALLED_CLIENTS:
        shared += [(case, f"slow_{case.tool}") for case in cases.CASES["slow"]]
    own = [(case, case.tool) for case in cases.CASES[slug]]
    stranger = session("bad key", run.gateway.url(), "not_a_key", None, [])
    aggregated = session("aggregated", run.gateway.url(), TOKEN, everything, shared)
    single = session("per server", run.gateway.url(slug), TOKEN, cases.listed(slug), own)
    if slug in cases.DRIFTING:
        drift = {"op": "call", "name": cases.DRIFT.tool, "arguments": cases.DRIFT.arguments}
        single["script"]["steps"] += [{"op": "wait"}, drift]
    return [stranger, aggregated, single]


def session(endpoint, url, token, names, rows):
    """A list, then the calls."""
    calls = [{"op": "call", "name": name, "arguments": c.arguments, "progress": bool(c.progress)} for c, name in rows]
    script = {"url": url, "token": token, "steps": [{"op": "list"}, *calls]}
    return {"endpoint": endpoint, "script": script, "names": names, "rows": rows}


def follow(run, name, server, sessions, driver):
    """Reads one client's answers up to the drift and judges them."""
    for one in sessions:
        row = (name, server.slug, one["endpoint"])
        connected, listed = driver.answer(), driver.answer()
        if one["names"] is None:
            refused = "error" in connected or "error" in listed
            run.score.add(row, "refused", None if refused else f"let in: {connected} {listed}")
            continue
        run.score.add(row, "connect", None if "error" not in connected else str(connected["error"]))
        names = sorted(tool["name"] for tool in listed.get("tools", []))
        run.score.add(
            row, "list", None if names == one["names"] else f"{listed.get('error', names)} instead of {one['names']}"
        )
        for case, exposed in one["rows"]:
            run.score.add(row, case.label(), cases.judge(case, exposed, driver.answer(), bool(run.gateway)))
        if any(step["op"] == "wait" for step in one["script"]["steps"]):
            waiting = driver.answer()
            run.score.add(row, "waits", None if "waiting" in waiting else str(waiting))


def await_drift(gateway, slug):
    """Returns once the gateway refuses the changed tool; the fault when it never does."""
    meta = {peers.META + "protocolVersion": peers.MODERN, peers.META + "clientCapabilities": {}}
    params = {"name": cases.DRIFT.tool, "arguments": cases.DRIFT.arguments, "_meta": meta}
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "MCP-Protocol-Version": peers.MODERN,
        "Mcp-Method": "tools/call",
        "Mcp-Name": cases.DRIFT.tool,
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    deadline = time.monotonic() + DRIFT_TIMEOUT_S
    while time.monotonic() < deadline:
        _, _, body = peers.rpc(gateway.port, message, headers, f"/gateway/{slug}/mcp")
        if cases.judge(cases.DRIFT, cases.DRIFT.tool, body, True) is None:
            return None
        time.sleep(0.2)
    return f"still not refused after {DRIFT_TIMEOUT_S} s: {body}"


def untouched(run, servers):
    """The servers' own count of what must never have reached them: tools always refused, the caller's key."""
    for server in servers:
        seen = server.seen() if server.slug in cases.DRIFTING else None
        if seen is not None:
            came = {name: seen[name] for name in cases.NEVER_SEEN if seen.get(name)}
            run.score.add(("(gateway)", server.slug, "refused"), "never reached", f"came: {came}" if came else None)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--profile", default="release", help="which binary below target/ to test")
    options.add_argument("--direct", action="store_true", help="leave the gateway out")
    options.add_argument("--only", default="", metavar="TEXT", help="only pairs whose `client server` contains TEXT")
    options.add_argument("--keep", action="store_true", help="keep the logs and the conf, also of a good run")
    run = options.parse_args()
    binary = ROOT / "target" / run.profile / "toolgate"
    if not run.direct and not binary.exists():
        sys.exit(f"e2e: {binary} is not there: build it first (cargo build --profile {run.profile})")
    started = time.monotonic()
    run.installed = Peers(ROOT / "target" / "e2e")
    run.folder = pathlib.Path(tempfile.mkdtemp(prefix="toolgate-e2e-"))
    run.score, run.gateway, servers = Score(), None, []
    for fault in jcs.faults() or [None]:
        run.score.add(("(runner)", "", ""), "RFC 8785", fault)
    try:
        servers = peers.start(run.installed, run.folder)
        for server in servers:
            server.ready()
        if not run.direct:
            run.gateway = Gateway(binary, run.folder, policy(servers), WATCHED)
            run.score.add(("(gateway)", "", ""), "toolgate check", run.gateway.check())
            run.gateway.start()
        play(run, servers)
        if run.gateway:
            untouched(run, servers)
            code = run.gateway.process.stop(60)
            run.score.add(("(gateway)", "", ""), "ends on SIGTERM", None if code == 0 else f"exit {code}")
    except (RuntimeError, OSError, KeyError) as error:
        run.score.add(("(runner)", "", ""), "set-up", f"{type(error).__name__}: {error}")
    finally:
        for process in [s.process for s in servers] + (
            [run.gateway.process] if run.gateway and run.gateway.process else []
        ):
            process.stop()
    code = run.score.show()
    print(f"e2e: {time.monotonic() - started:.0f} s" + (f", logs in {run.folder}" if code or run.keep else ""))
    if code == 0 and not run.keep:
        shutil.rmtree(run.folder, ignore_errors=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
