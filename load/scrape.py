#!/usr/bin/env python3
"""What a scrape costs with 1,000 tools on 100 servers and 1,000 keys: `scrape.py TOOLGATE`.

Every tool is called once before, by ten keys in turn, so that each series that traffic makes is there. Prints size, series, and the wall
and processor time of a scrape.
"""

import http.client
import json
import pathlib
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))

import gateway
import mock
from peers import request

SERVERS, TOOLS, KEYS, SCRAPES = 100, 10, 1000, 50


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    tools = [{"name": f"tool{n}", "inputSchema": {"type": "object"}} for n in range(TOOLS)]
    upstream = mock.Server(*tools, legacy=True)
    with tempfile.TemporaryDirectory(prefix="toolgate-scrape-") as folder:
        gate = gateway.Gateway(binary, pathlib.Path(folder), policy(upstream), '\n[log]\naccess = "off"\n')
        try:
            gate.start()
            until_listed(gate.ops)
            called = call_all(gate.port)
            print(json.dumps({"tools": SERVERS * TOOLS, "servers": SERVERS, "keys": KEYS, "called": called} | measure(gate)))
        finally:
            gate.stop()
            upstream.stop()


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


def measure(gate):
    text = request(gate.ops, "GET", "/metrics")[2]
    walls, before = [], processor(gate.process)
    for _ in range(SCRAPES):
        begun = time.perf_counter()
        request(gate.ops, "GET", "/metrics")
        walls.append((time.perf_counter() - begun) * 1e3)
    return {
        "bytes": len(text),
        "samples": sum(not line.startswith("#") for line in text.splitlines()),
        "wall_ms_p50": round(statistics.median(walls), 2),
        "wall_ms_max": round(max(walls), 2),
        "processor_ms": round((processor(gate.process) - before) * 1e3 / SCRAPES, 2),
    }


def processor(process):
    """Seconds that the process has used; exact to a hundredth."""
    fields = pathlib.Path(f"/proc/{process.child.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def policy(upstream):
    """Ten keys may use every server, each other key one."""
    text = gateway.standing() + "".join(gateway.key(f"k{n}", f"k{n}") for n in range(KEYS))
    for n in range(SERVERS):
        keys = [f"k{k}" for k in range(KEYS) if k < 10 or k % SERVERS == n]
        text += gateway.server(f"s{n}", f"http://127.0.0.1:{upstream.port}/{n}/mcp", upstream.tools.values(), keys)
    return text


if __name__ == "__main__":
    main()
