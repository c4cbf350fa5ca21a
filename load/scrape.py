#!/usr/bin/env python3
"""What a scrape costs with 1,000 tools on 100 servers and 1,000 keys: `scrape.py TOOLGATE`.

Every tool is called once before, by ten keys in turn, so that each series that traffic makes is there. Prints size, series, and the wall
and processor time of a scrape.
"""

import hashlib
import http.client
import http.server
import json
import pathlib
import statistics
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))

import jcs
from peers import Process, free_ports, request
from smoke import ready

SERVERS, TOOLS, KEYS, SCRAPES = 100, 10, 1000, 50


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    port, ops = free_ports(2)
    upstream = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    upstream.handle_error = lambda *_: None  # connections that the gateway drops at its end
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(prefix="toolgate-scrape-") as folder:
        folder = pathlib.Path(folder)
        (folder / "policy.toml").write_text(policy(upstream.server_port))
        (folder / "toolgate.toml").write_text(
            f'[gateway]\nlisten = ["127.0.0.1:{port}"]\n[ops]\nlisten = "127.0.0.1:{ops}"\n'
            '[egress]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n[log]\naccess = "off"\n'
        )
        gateway = Process("toolgate", [binary, "serve", "--conf", folder / "toolgate.toml"], folder / "log")
        try:
            fault = ready(gateway, ops)
            if fault:
                raise RuntimeError(fault)
            until_listed(ops)
            called = call_all(port)
            print(json.dumps({"tools": SERVERS * TOOLS, "servers": SERVERS, "keys": KEYS, "called": called} | measure(gateway, ops)))
        finally:
            gateway.stop(30)
            upstream.shutdown()


def until_listed(ops):
    """Readiness waits ten seconds for the servers at most; this waits for all of them."""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        lines = request(ops, "GET", "/metrics")[2].splitlines()
        approved = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("toolgate_tools{") and 'state="approved"' in line)
        if approved == SERVERS * TOOLS:
            return
        time.sleep(0.2)
    raise RuntimeError("not every server was listed")


def call_all(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    good = 0
    for n in range(SERVERS * TOOLS):
        params = {"name": f"s{n // TOOLS}_tool{n % TOOLS}", "arguments": {}}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer k{n % 10}", "MCP-Protocol-Version": "2025-11-25"}
        connection.request("POST", "/gateway/mcp", json.dumps({"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": params}), headers)
        answer = json.loads(connection.getresponse().read())
        good += answer.get("result", {}).get("isError") is not True
    return good


def measure(gateway, ops):
    text = request(ops, "GET", "/metrics")[2]
    walls, before = [], processor(gateway)
    for _ in range(SCRAPES):
        begun = time.perf_counter()
        request(ops, "GET", "/metrics")
        walls.append((time.perf_counter() - begun) * 1e3)
    return {
        "bytes": len(text),
        "samples": sum(not line.startswith("#") for line in text.splitlines()),
        "wall_ms_p50": round(statistics.median(walls), 2),
        "wall_ms_max": round(max(walls), 2),
        "processor_ms": round((processor(gateway) - before) * 1e3 / SCRAPES, 2),
    }


def processor(gateway):
    """Seconds that the process has used; exact to a hundredth."""
    fields = pathlib.Path(f"/proc/{gateway.child.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def tool(n):
    return {"name": f"tool{n}", "inputSchema": {"type": "object"}}


def policy(port):
    text = '[[organization]]\nid = "acme"\nplan = "business"\nstatus = "active"\nsubscription = "active"\n[[project]]\nid = "p"\norganization = "acme"\n'
    for n in range(SERVERS):
        text += f'[[server]]\norganization = "acme"\nslug = "s{n}"\nurl = "http://127.0.0.1:{port}/{n}/mcp"\n'
        for m in range(TOOLS):
            pin = jcs.pin(tool(m))
            text += f'[[approval]]\nserver = "s{n}"\ntool = "tool{m}"\nsha256 = "{pin}"\nclass = "read"\nlabels = []\n'
    for n in range(KEYS):
        digest = hashlib.sha256(f"k{n}".encode()).hexdigest()
        text += f'[[key]]\nid = "k{n}"\norganization = "acme"\nproject = "p"\nenvironment = "test"\nsha256 = "{digest}"\n'
        servers = range(SERVERS) if n < 10 else [n % SERVERS]
        text += "".join(f'[[grant]]\nkey = "k{n}"\nserver = "s{m}"\naccess = "read"\n' for m in servers)
    return text


class Handler(http.server.BaseHTTPRequestHandler):
    """An MCP server of 2025-11-25 without sessions."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        result = {
            "initialize": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}},
            "tools/list": {"tools": [tool(n) for n in range(TOOLS)]},
            "tools/call": {"content": []},
        }.get(message["method"])
        tail = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id")} | tail).encode() if "id" in message else b""
        self.send_response(200 if body else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    main()
