#!/usr/bin/env python3
"""Three nodes of conf/fleet behind HAProxy, PostgreSQL and Redis, all on loopback: an upgrade and a policy roll through them under load,
and no call is lost or runs twice. fleet.py TOOLGATE [--soak SECONDS]

With --soak, calls go on for so long while PostgreSQL and Redis fail in turn, one each 20 s.
"""

import argparse
import glob
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

from peers import Process, free_ports

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLEET = ROOT / "conf" / "fleet"
NODES = ("node-1", "node-2", "node-3")
TOOL = {"name": "echo", "description": "Says it again.", "inputSchema": {"type": "object"}}
PIN = hashlib.sha256(json.dumps(TOOL, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
META = "io.modelcontextprotocol/"
LIMIT_S = 60
FAIL_EVERY_S = 20


class Upstream(http.server.BaseHTTPRequestHandler):
    """A legacy MCP server with sessions, which counts how often each call ran."""

    protocol_version = "HTTP/1.1"
    ran, sessions, lock = {}, [], threading.Lock()

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, session = message.get("method"), self.headers.get("Mcp-Session-Id")
        if method == "initialize":
            with self.lock:
                self.sessions.append(f"s{len(self.sessions)}")
            server = {"name": "counts", "version": "1"}
            result = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": server}
            return self.answer(message, result, {"Mcp-Session-Id": self.sessions[-1]})
        if method == "tools/list":
            return self.answer(message, {"tools": [TOOL]})
        if method == "tools/call":
            if session not in self.sessions:
                return self.send(404, b"", {})
            with self.lock:
                number = message["params"]["arguments"]["n"]
                self.ran[number] = self.ran.get(number, 0) + 1
            return self.answer(message, {"content": [{"type": "text", "text": str(number)}]})
        if "id" in message:
            error = {"code": -32601, "message": "no such method"}
            return self.send(200, json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode(), {})
        return self.send(202, b"", {})

    def do_DELETE(self):
        self.send(200, b"", {})

    def answer(self, message, result, headers=None):
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()
        self.send(200, body, {"Content-Type": "application/json"} | (headers or {}))

    def send(self, status, body, headers):
        self.send_response(status)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Node(threading.Thread):
    """A node, started again whenever it ends, as systemd would."""

    def __init__(self, binary, name, folder, env):
        super().__init__(daemon=True)
        self.command = [binary, "serve", "--conf", folder / "toolgate.toml"]
        self.name, self.folder, self.env, self.ends = name, folder, env, False
        self.pid_file, self.codes = folder / f"{name}.pid", []
        self.start_once()
        self.start()

    def start_once(self):
        self.process = Process(self.name, self.command, self.folder / f"{self.name}-{len(self.codes)}.log", self.env)
        new = self.pid_file.with_suffix(".new")
        new.write_text(str(self.process.child.pid))
        new.rename(self.pid_file)

    def run(self):
        while True:
            code = self.process.child.wait()
            if self.ends:
                return
            self.codes.append(code)
            self.start_once()

    def stop(self):
        self.ends = True
        self.process.stop(timeout=40)


class Load(threading.Thread):
    """One agent: call after call until it is told to stop."""

    def __init__(self, port, token, numbers):
        super().__init__(daemon=True)
        self.port, self.token, self.numbers = port, token, numbers
        self.right, self.wrong, self.stops = [], [], False

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        while not self.stops:
            number = next(self.numbers)
            try:
                answer = call(connection, self.token, number)
            except (OSError, http.client.HTTPException) as why:
                answer = repr(why)
                connection.close()
            if answer == str(number):
                self.right.append(number)
            else:
                self.wrong.append((number, answer))
            time.sleep(0.005)


def call(connection, token, number):
    """What the tool said; anything else as text."""
    meta = {META + "protocolVersion": "2026-07-28", META + "clientCapabilities": {}, META + "clientInfo": {"name": "fleet", "version": "1"}}
    params = {"name": "counts_echo", "arguments": {"n": number}, "_meta": meta}
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Authorization": f"Bearer {token}",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "counts_echo",
    }
    body = json.dumps({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
    connection.request("POST", "/gateway/mcp", body, headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    if reply.status != 200:
        return f"{reply.status} {text}"
    result = json.loads(text).get("result", {})
    return text if result.get("isError") else result["content"][0]["text"]


def policy(upstream, tokens):
    """The policy file of every node."""
    keys = "".join(
        f'[[key]]\nid = "{name}"\nproject = "support"\nenvironment = "production"\n'
        f'sha256 = "{hashlib.sha256(token.encode()).hexdigest()}"\nrate_limit = "100000/s"\n'
        f'[[grant]]\nkey = "{name}"\nserver = "counts"\naccess = "write"\n'
        for name, token in tokens.items()
    )
    server = f'[[server]]\nslug = "counts"\nurl = "http://127.0.0.1:{upstream}/mcp"\n'
    approval = f'[[approval]]\nserver = "counts"\ntool = "echo"\nsha256 = "{PIN}"\nlabels = []\n'
    return (FLEET / "policy.toml").read_text() + server + keys + approval


class Postgres:
    """A PostgreSQL of its own; as the user `postgres` where this runs as root, which PostgreSQL refuses."""

    def __init__(self, folder, port):
        self.bin = pathlib.Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
        self.folder, self.port, self.prefix = folder / "postgres", port, []
        self.folder.mkdir()
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)
            folder.chmod(0o755)
            self.prefix = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
        data = ["--pgdata", self.folder / "data", "--username=gate", "--auth=trust", "--encoding=UTF8", "--no-sync"]
        subprocess.run([*self.prefix, self.bin / "initdb", *data], check=True, stdout=subprocess.DEVNULL, cwd=self.folder)
        self.begin()

    def begin(self):
        options = ["-p", self.port, "-k", self.folder, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off"]
        command = [*self.prefix, self.bin / "postgres", "-D", self.folder / "data", *options]
        self.process = Process("postgres", command, self.folder.with_suffix(".log"))
        self.process.await_port(self.port)

    def signal(self, number):
        self.process.child.send_signal(number)

    def end(self):
        self.signal(signal.SIGINT)
        self.process.child.wait(30)

    @property
    def url(self):
        return f"postgres://gate@127.0.0.1:{self.port}/postgres"


class Redis:
    """A Redis of its own."""

    def __init__(self, folder, port):
        self.folder, self.port = folder, port
        self.begin()

    def begin(self):
        command = ["redis-server", "--bind", "127.0.0.1", "--port", self.port, "--save", "", "--dir", self.folder]
        self.process = Process("redis", command, self.folder / "redis.log")
        self.process.await_port(self.port)

    def signal(self, number):
        self.process.child.send_signal(number)

    def end(self):
        self.process.stop()


class Fleet:
    """Everything, started; ended by its own processes' ids."""

    def __init__(self, binary, folder):
        self.folder = folder
        self.upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
        threading.Thread(target=self.upstream.serve_forever, daemon=True).start()
        ports = free_ports(9)
        self.front, self.gateways, self.ops = ports[0], ports[1:4], ports[4:7]
        self.postgres, self.redis = Postgres(folder, ports[7]), Redis(folder, ports[8])
        self.tokens = {name: f"tgk_{name}_{os.urandom(16).hex()}" for name in ("ann", "bob")}
        # The server behind is on loopback.
        egress = '[egress]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n'
        (folder / "toolgate.toml").write_text((FLEET / "toolgate.toml").read_text() + egress)
        self.policy = folder / "policy.toml"
        self.write_policy("ann")
        self.nodes = [self.node(binary, at) for at in range(3)]
        for at in range(3):
            self.until(f"{NODES[at]} is ready", lambda at=at: self.ask(at, "/readyz").startswith("ready"))
        self.socket = folder / "haproxy.sock"
        env = {"FRONT": f"127.0.0.1:{self.front}", "SOCKET": str(self.socket)}
        for at in range(3):
            env |= {f"NODE_{at + 1}": f"127.0.0.1:{self.gateways[at]}", f"OPS_{at + 1}": str(self.ops[at])}
        self.haproxy = Process("haproxy", ["haproxy", "-db", "-f", FLEET / "haproxy.cfg"], folder / "haproxy.log", env)
        self.haproxy.await_port(self.front)

    def write_policy(self, *names):
        port = self.upstream.server_address[1]
        self.policy.write_text(policy(port, {name: self.tokens[name] for name in names}))

    def node(self, binary, at):
        state = self.folder / NODES[at]
        state.mkdir()
        env = {
            "NODE": NODES[at],
            "GATEWAY": f"127.0.0.1:{self.gateways[at]}",
            "OPS": f"127.0.0.1:{self.ops[at]}",
            "STORE_URL": self.postgres.url,
            "REDIS_URL": f"redis://127.0.0.1:{self.redis.port}",
            "POLICY": str(self.policy),
            "STATE_DIRECTORY": str(state),
            "RUNTIME_DIRECTORY": str(state),
        }
        return Node(binary, NODES[at], self.folder, env)

    def ask(self, at, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.ops[at]}{path}", timeout=5) as answer:
                return answer.read().decode()
        except OSError:
            return ""

    def metric(self, at, name):
        lines = (line for line in self.ask(at, "/metrics").splitlines() if line.startswith(name + " "))
        return float(next(lines, "nan nan").split(" ")[1])

    def until(self, what, holds, limit=LIMIT_S):
        end = time.monotonic() + limit
        while not holds():
            if time.monotonic() > end:
                logs = "\n".join(node.process.tail()[-1500:] for node in getattr(self, "nodes", []))
                raise RuntimeError(f"not within {limit} s: {what}\n{logs}")
            time.sleep(0.1)

    def roll(self, what, command):
        nodes = [f"{name}=127.0.0.1:{ops}" for name, ops in zip(NODES, self.ops)]
        return subprocess.run(
            [sys.executable, FLEET / "roll.py", what, *nodes, "--haproxy", self.socket, "--command", command],
            capture_output=True,
            text=True,
            timeout=300,
        )

    def stop(self):
        for node in getattr(self, "nodes", []):
            node.stop()
        for process in (getattr(self, "haproxy", None), self.redis.process):
            if process:
                process.stop()
        self.postgres.signal(signal.SIGCONT)
        self.postgres.end()
        self.upstream.shutdown()


def agents(fleet, count, token):
    """Agents that call at once, each call under a number of its own."""
    numbers = iter(range(1 << 60))
    lock = threading.Lock()

    class Locked:
        def __next__(self):
            with lock:
                return next(numbers)

    loads = [Load(fleet.front, token, Locked()) for _ in range(count)]
    for load in loads:
        load.start()
    return loads


def settle(loads):
    """Ends the load; the faults of what was answered, by what the server saw."""
    for load in loads:
        load.stops = True
    for load in loads:
        load.join(LIMIT_S)
    right = [number for load in loads for number in load.right]
    wrong = [pair for load in loads for pair in load.wrong]
    twice = [number for number, count in Upstream.ran.items() if count > 1]
    lost = [number for number in right if number not in Upstream.ran]
    print(f"{len(right)} calls answered, {len(wrong)} failed, {len(twice)} ran twice")
    if wrong or twice or lost or not right:
        return f"failed: {wrong[:3]}; ran twice: {twice[:3]}; never ran: {lost[:3]}"
    return None


def rows(fleet):
    """The checks, in their order: name and fault."""
    pid = f"{fleet.folder}/{{node}}.pid"
    restart = f"p=$(cat {pid}); kill -TERM $p; while [ $(cat {pid}) = $p ]; do sleep 0.05; done"
    loads = agents(fleet, 4, fleet.tokens["ann"])
    done = fleet.roll("restart", restart)
    fault = None if done.returncode == 0 else done.stdout + done.stderr
    fault = fault or (None if [node.codes for node in fleet.nodes] == [[0]] * 3 else "a node did not end with 0")
    yield "an upgrade rolls through the nodes", fault
    fleet.write_policy("ann", "bob")
    done = fleet.roll("reload", f"kill -HUP $(cat {pid})")
    yield "a policy rolls through the nodes", None if done.returncode == 0 else done.stdout + done.stderr
    connection = http.client.HTTPConnection("127.0.0.1", fleet.front, timeout=LIMIT_S)
    answers = [call(connection, fleet.tokens["bob"], -1 - n) for n in range(6)]
    yield "every node has the policy", None if answers == [str(-1 - n) for n in range(6)] else str(answers)
    fleet.policy.write_text("nonsense")
    done = fleet.roll("reload", f"kill -HUP $(cat {pid})")
    stopped = done.returncode != 0 and "node-1 rejected" in done.stderr and "node-2" not in done.stdout
    fleet.write_policy("ann", "bob")
    yield "a policy with faults goes no further than the first node", None if stopped else done.stdout + done.stderr
    yield "no call was lost or ran twice", settle(loads)
    sessions = len(Upstream.sessions)
    # Discovery opens one at each start and each interval; the keys have one each, on all nodes together.
    print(f"{sessions} sessions were opened")


def soak(fleet, seconds):
    """Calls go on while the engines fail in turn."""
    loads, end, number = agents(fleet, 4, fleet.tokens["ann"]), time.monotonic() + seconds, 0
    memory = [fleet.metric(at, "process_resident_memory_bytes") for at in range(3)]
    faults = [
        (fleet.redis.end, fleet.redis.begin),
        (fleet.postgres.end, fleet.postgres.begin),
        (lambda: fleet.redis.signal(signal.SIGSTOP), lambda: fleet.redis.signal(signal.SIGCONT)),
        (lambda: fleet.postgres.signal(signal.SIGSTOP), lambda: fleet.postgres.signal(signal.SIGCONT)),
    ]
    while time.monotonic() < end:
        begin, finish = faults[number % len(faults)]
        begin()
        time.sleep(FAIL_EVERY_S / 2)
        finish()
        time.sleep(FAIL_EVERY_S / 2)
        number += 1
    print(f"the engines failed {number} times")
    yield f"no call was lost or ran twice in {seconds} s", settle(loads)
    for at in range(3):
        for metric in ("toolgate_policy_store_up", "toolgate_rate_limit_store_up"):
            fleet.until(f"{NODES[at]}: {metric}", lambda at=at, metric=metric: fleet.metric(at, metric) == 1)
    now = [fleet.metric(at, "process_resident_memory_bytes") for at in range(3)]
    print("memory, MiB:", [f"{a / 2**20:.1f} -> {b / 2**20:.1f}" for a, b in zip(memory, now)])
    grown = [b / a for a, b in zip(memory, now)]
    yield "memory is flat", None if max(grown) < 1.5 else f"it grew by {grown}"


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("binary", type=pathlib.Path)
    arguments.add_argument("--soak", type=int)
    given = arguments.parse_args()
    for program in ("haproxy", "redis-server"):
        if not shutil.which(program):
            print(f"0 passed, 1 failed: {program} is not on this machine")
            return 1
    failed = passed = 0
    with tempfile.TemporaryDirectory(prefix="toolgate-fleet-") as folder:
        fleet = Fleet(given.binary.resolve(), pathlib.Path(folder))
        try:
            for name, fault in soak(fleet, given.soak) if given.soak else rows(fleet):
                print(f"{'ok    ' if fault is None else 'FAILED'} {name}{'' if fault is None else ': ' + fault}", flush=True)
                passed, failed = passed + (fault is None), failed + (fault is not None)
        finally:
            fleet.stop()
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
