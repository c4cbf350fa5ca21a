#!/usr/bin/env python3
"""What managing 10,000 tools on 500 servers costs: `manage.py TOOLGATE`.

Every tool is approved by a policy file. A start, then through the management API: one more server of 20 tools is registered, one of its
tools is approved, a page of 1,000 tools and all of them are listed, the diff of a changed tool is shown. Prints milliseconds, the middle
and the largest of some rounds each, and what the start committed.
"""

import http.client
import json
import pathlib
import socket
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "e2e"))

import jcs
import mock
from peers import Process, free_ports, request

SERVERS, TOOLS, ROUNDS, START_TIMEOUT_S = 500, 20, 10, 300


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    upstream, new = mock.Server(*map(tool, range(TOOLS))), mock.Server(*map(tool, range(TOOLS)))
    ops, port = free_ports(2)
    with tempfile.TemporaryDirectory(prefix="toolgate-manage-") as folder:
        folder = pathlib.Path(folder)
        (folder / "policy.toml").write_text(policy(upstream.url))
        (folder / "toolgate.toml").write_text(
            f'[gateway]\nlisten = ["127.0.0.1:{port}"]\n[ops]\nlisten = "127.0.0.1:{ops}"\n[admin]\nsocket = "{folder}/socket"\n'
            f'[store]\nurl = "sqlite:{folder}/store.db"\n[discovery]\ninterval = "1h"\n'
            '[egress]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n[log]\naccess = "off"\nlevel = "warn"\n'
        )
        begun = time.perf_counter()
        gateway = Process("toolgate", [binary, "serve", "--conf", folder / "toolgate.toml"], folder / "log")
        try:
            until_approved(gateway, ops)
            start_ms = (time.perf_counter() - begun) * 1e3
            api = Api(folder / "socket")
            revision = api.call("GET", "/v1/status")["revision"]
            print(json.dumps({"tools": SERVERS * TOOLS, "servers": SERVERS, "start_ms": round(start_ms), "commits_of_the_start": revision} | measure(api, new)))
        finally:
            gateway.stop(60)


def until_approved(gateway, ops):
    """Until each tool of the files was listed and is callable."""
    end = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < end:
        if gateway.child.poll() is not None:
            raise RuntimeError(f"the gateway ended:\n{gateway.tail()}")
        try:
            lines = request(ops, "GET", "/metrics")[2].splitlines()
        except OSError:
            lines = []
        approved = sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("toolgate_tools{") and 'state="approved"' in line)
        if approved == SERVERS * TOOLS:
            return
        time.sleep(0.05)
    raise RuntimeError("not every server was listed")


def measure(api, new):
    figures = {name: [] for name in ("register", "approve", "page", "all", "diff")}

    def timed(name, *call):
        begun = time.perf_counter()
        answer = api.call(*call)
        figures[name].append((time.perf_counter() - begun) * 1e3)
        return answer

    sizes = {}
    for n in range(ROUNDS):
        timed("register", "POST", "/v1/servers", {"slug": f"new{n}", "url": new.url})
        at = f"/v1/servers/new{n}/tools/tool_3"
        sha256 = api.call("GET", at)["sha256"]
        timed("approve", "POST", f"{at}/approve", {"expected_sha256": sha256, "class": "read", "labels": []})
        sizes["page_bytes"] = len(json.dumps(timed("page", "GET", f"/v1/tools?limit=1000&after=acme%2Fs{n}"), separators=(",", ":")))
        listed = timed("all", "GET", "/v1/tools")["tools"]
        assert len(listed) == (SERVERS + n + 1) * TOOLS
    new.set(tool(3) | {"description": "Changed since."})
    api.call("POST", "/v1/servers/new0/discover")
    for _ in range(ROUNDS):
        assert timed("diff", "GET", "/v1/servers/new0/tools/tool_3")["diff"]
    return {f"{name}_ms": [round(statistics.median(ms), 1), round(max(ms), 1)] for name, ms in figures.items()} | sizes


class Api:
    """The management API over its socket."""

    def __init__(self, path):
        self.path = str(path)

    def call(self, method, path, body=None):
        connection = http.client.HTTPConnection("toolgate", timeout=120)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.connect(self.path)
        try:
            connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
        finally:
            connection.close()
        if response.status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {response.status} {answer}")
        return answer


def tool(n):
    """A tool of a common size."""
    properties = {name: {"type": "string", "description": f"What {name} is for.", "maxLength": 200} for name in ("title", "body", "owner", "branch")}
    schema = {"type": "object", "properties": properties, "required": ["title"], "additionalProperties": False}
    return {"name": f"tool_{n}", "description": f"Does the thing of number {n}, and says what came of it.", "inputSchema": schema}


def policy(url):
    text = '[[organization]]\nid = "acme"\nplan = "business"\nstatus = "active"\nsubscription = "active"\n'
    pins = [(n, jcs.pin(tool(n))) for n in range(TOOLS)]
    for s in range(SERVERS):
        text += f'[[server]]\nslug = "s{s}"\nurl = "{url}"\n'
        text += "".join(f'[[approval]]\nserver = "s{s}"\ntool = "tool_{n}"\nsha256 = "{pin}"\nclass = "read"\nlabels = []\n' for n, pin in pins)
    return text


if __name__ == "__main__":
    main()
