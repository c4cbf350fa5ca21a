#!/usr/bin/env python3
"""What managing 10,000 tools on 500 servers costs: `manage.py TOOLGATE`.

Every tool is approved by a policy file. A start, then through the management API: one more server of 20 tools is registered, one of its
tools is approved, a page of 1,000 tools and all of them are listed, the diff of a changed tool is shown. Prints milliseconds, the middle
and the largest of some rounds each, and how many commits the start took.
"""

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

SERVERS, TOOLS, ROUNDS, START_TIMEOUT_S = 500, 20, 10, 300
QUIET = '\n[discovery]\ninterval = "1h"\n[log]\naccess = "off"\nlevel = "warn"\n'


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    tools = [tool(n) for n in range(TOOLS)]
    upstream, new = mock.Server(*tools), mock.Server(*tools)
    with tempfile.TemporaryDirectory(prefix="toolgate-manage-") as folder:
        servers = "".join(gateway.server(f"s{n}", upstream.url, tools, []) for n in range(SERVERS))
        policy = gateway.standing() + servers
        gate = gateway.Gateway(binary, pathlib.Path(folder), policy, QUIET, roles={"admin": "of-the-measurement"})
        try:
            begun = time.perf_counter()
            gate.start()
            until_approved(gate)
            figures = {"tools": SERVERS * TOOLS, "servers": SERVERS, "start_ms": since(begun)}
            figures["commits_of_the_start"] = ask(gate, "GET", "/v1/status")["revision"]
            print(json.dumps(figures | measure(gate, new)))
        finally:
            gate.stop()
            upstream.stop()
            new.stop()


def since(begun):
    return round((time.perf_counter() - begun) * 1e3, 1)


def ask(gate, *call):
    status, answer = gate.manage(*call)
    if status not in (200, 201):
        raise RuntimeError(f"{call}: {status} {answer}")
    return answer


def until_approved(gate):
    """Readiness waits ten seconds for the servers at most; this waits until each tool was listed."""
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        lines = request(gate.ops, "GET", "/metrics")[2].splitlines()
        approved = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("toolgate_tools{") and 'state="approved"' in line)
        if approved == SERVERS * TOOLS:
            return
        time.sleep(0.05)
    raise RuntimeError("not every server was listed")


def measure(gate, new):
    figures = {name: [] for name in ("register", "approve", "page", "all", "diff")}

    def timed(name, *call):
        begun = time.perf_counter()
        answer = ask(gate, *call)
        figures[name].append(since(begun))
        return answer

    page = {}
    for n in range(ROUNDS):
        timed("register", "POST", "/v1/servers", {"slug": f"new{n}", "url": new.url})
        at = f"/v1/servers/new{n}/tools/tool_3"
        terms = {"expected_sha256": ask(gate, "GET", at)["sha256"], "class": "read", "labels": []}
        timed("approve", "POST", f"{at}/approve", terms)
        page = timed("page", "GET", f"/v1/tools?limit=1000&after=acme%2Fs{n % 4}")
        listed = timed("all", "GET", "/v1/tools")["tools"]
        if len(listed) != (SERVERS + n + 1) * TOOLS or len(page["tools"]) != 1000:
            raise RuntimeError(f"{len(listed)} tools are listed, {len(page['tools'])} on a page")
    new.set(tool(3) | {"description": "Changed since."})
    ask(gate, "POST", "/v1/servers/new0/discover")
    for _ in range(ROUNDS):
        if not timed("diff", "GET", "/v1/servers/new0/tools/tool_3")["diff"]:
            raise RuntimeError("nothing differs")
    middle = {f"{name}_ms": [round(statistics.median(ms), 1), max(ms)] for name, ms in figures.items()}
    return middle | {"page_bytes": len(json.dumps(page, separators=(",", ":")))}


def tool(n):
    """A tool of a common size."""
    properties = {name: {"type": "string", "description": f"What {name} is for.", "maxLength": 200} for name in ("title", "body", "owner", "branch")}
    schema = {"type": "object", "properties": properties, "required": ["title"], "additionalProperties": False}
    return {"name": f"tool_{n}", "description": f"Does the thing of number {n}, and says what came of it.", "inputSchema": schema}


if __name__ == "__main__":
    main()
