#!/usr/bin/env python3
"""The client half of the conformance suite: how the gateway speaks to a server, judged by the suite's own servers.

    tests/conformance/client.py [--profile release|debug]        every scenario that can be asked of a gateway
    tests/conformance/client.py URL                              what the suite runs as the client: one scenario

For each scenario the suite starts a server and this script as its client, which starts a gateway before that server, registers
it through the management API, approves every tool that can be approved, and calls through the gateway what the scenario asks for.
A scenario that is in `LEFT_OUT` cannot be asked of a gateway; all others must pass.
"""

import base64
import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "tests" / "e2e")]

import peers  # noqa: E402
from run import conf  # noqa: E402

META = "io.modelcontextprotocol/"
BINARY = "TOOLGATE_BINARY"
TIMEOUT_S = 120
FAILED = ("FAILURE", "WARNING")
SCENARIOS = [  # scenario, revision
    ("initialize", "2025-06-18"),
    ("initialize", "2025-11-25"),
    ("tools_call", "2025-06-18"),
    ("tools_call", "2025-11-25"),
    ("tools_call", "2026-07-28"),
    ("request-metadata", "2026-07-28"),
    ("http-standard-headers", "2026-07-28"),
    ("http-custom-headers", "2026-07-28"),
    ("http-invalid-tool-headers", "2026-07-28"),
    ("sep-2322-client-request-state", "2026-07-28"),
    ("json-schema-ref-no-deref", "2026-07-28"),
    ("json-schema-2020-12-preservation", "2025-11-25"),
    ("json-schema-2020-12-preservation", "2026-07-28"),
]
EXPECTED = {  # checks that fail, and why; one that passes is a failure
    "http-custom-headers": {
        "sep-2243-client-omit-null": "the scenario's `null` does not match its own inputSchema, so the gateway refuses the call",
    },
}
LEFT_OUT = {
    "auth/*": "the gateway holds credentials, and signs in nowhere for a server",
    "elicitation-sep1034-client-defaults": "needs a request of the server to the client, which a gateway without sessions cannot pass on",
    "sse-retry": "needs a GET that takes a stream up again, which would run a call twice or for nobody",
}


class Gateway:
    """A gateway before one server, everything approved."""

    def __init__(self, url, folder):
        self.port, ops = peers.free_ports(2)
        self.folder = folder
        file = folder / "toolgate.toml"
        file.write_text(conf(self.port, ops, []))
        (folder / "policy.toml").write_text(
            '[[organization]]\nid = "suite"\nplan = "business"\nstatus = "active"\nsubscription = "active"\n'
            '[[project]]\nid = "suite"\norganization = "suite"\n'
        )
        self.process = peers.Process("toolgate", [os.environ[BINARY], "serve", "--conf", file], folder / "toolgate.log")
        self.process.await_port(self.port)
        self.process.await_ready(ops)
        self.open(url)

    def open(self, url):
        """Registers the server, approves its tools, makes a key."""
        wanted = ["resources", "prompts", "completion"]
        self.api("POST", "/v1/servers", {"slug": "mock", "url": url, "passthrough": wanted})
        for tool in self.api("GET", "/v1/servers/mock/tools")["tools"]:
            if not tool["fault"]:
                terms = {"expected_sha256": tool["sha256"], "class": "write", "labels": []}
                self.api("POST", f"/v1/servers/mock/tools/{tool['name']}/approve", terms)
        self.token = self.api("POST", "/v1/keys", {"id": "k", "project": "suite", "environment": "test"})["token"]
        self.api("PUT", "/v1/keys/k/grants/mock", {"access": "write"})

    def api(self, method, path, body=None):
        """One call of the management API, over its socket."""
        connection = http.client.HTTPConnection("toolgate")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(self.folder / "toolgate.sock"))
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, {"Content-Type": "application/json"} if text else {})
        answer = connection.getresponse()
        told = json.loads(answer.read())
        connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {told}")
        return told


class Client:
    """A client of either era."""

    def __init__(self, gateway, revision):
        self.gateway, self.revision, self.count = gateway, revision, 0
        self.modern = revision >= peers.MODERN

    def ask(self, method, params, name=None, headers=None):
        """One request; gives its result, or raises."""
        self.count += 1
        sent = {"Authorization": f"Bearer {self.gateway.token}"} | (headers or {})
        if self.modern:
            meta = {META + "protocolVersion": self.revision, META + "clientCapabilities": {"elicitation": {}}}
            params = params | {"_meta": meta}
            sent |= {"MCP-Protocol-Version": self.revision, "Mcp-Method": method} | ({"Mcp-Name": name} if name else {})
        message = {"jsonrpc": "2.0", "id": self.count, "method": method, "params": params}
        _, _, answer = peers.rpc(self.gateway.port, message, sent, "/gateway/mock/mcp")
        if "result" not in answer:
            raise RuntimeError(f"{method}: {answer}")
        return answer["result"]

    def call(self, tool, arguments):
        """A call of a tool, and again with answers when the server asks for input."""
        params = {"name": tool["name"], "arguments": arguments}
        headers = params_headers(tool["inputSchema"], arguments) if self.modern else {}
        result = self.ask("tools/call", params, tool["name"], headers)
        if result.get("resultType") == "input_required":
            answers = {key: {"action": "accept", "content": {"confirmed": True}} for key in result["inputRequests"]}
            state = {"requestState": result["requestState"]} if "requestState" in result else {}
            self.ask("tools/call", params | {"inputResponses": answers} | state, tool["name"], headers)


def params_headers(schema, arguments):
    """The `Mcp-Param-*` headers of a call."""
    headers = {}
    for name, member in schema.get("properties", {}).items():
        value = arguments.get(name)
        if isinstance(member, dict) and "x-mcp-header" in member and value is not None:
            text = value if isinstance(value, str) else json.dumps(value)
            plain = text.isascii() and text.isprintable() and text == text.strip(" ")
            headers[f"Mcp-Param-{member['x-mcp-header']}"] = text if plain else encoded(text)
    return headers


def encoded(text):
    """A value that a header cannot carry as it is."""
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def sample(schema):
    """Arguments that a schema asks for."""
    kinds = {"string": "x", "number": 1, "integer": 1, "boolean": True, "object": {}, "array": [], "null": None}
    properties = schema.get("properties", {})
    return {name: kinds.get(properties.get(name, {}).get("type"), "x") for name in schema.get("required", [])}


def act(url):
    """Plays the client of one scenario."""
    scenario, revision = os.environ["MCP_CONFORMANCE_SCENARIO"], os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="toolgate-client-"))
    gateway = None
    try:
        gateway = Gateway(url.replace("//localhost", "//127.0.0.1"), folder)
        client = Client(gateway, revision)
        tools = {tool["name"]: tool for tool in client.ask("tools/list", {})["tools"]}
        if scenario == "json-schema-2020-12-preservation":
            focal, echo = tools.values() if "schema" in list(tools.values())[1]["inputSchema"]["properties"] else reversed(tools.values())
            client.call(echo, {"schema": focal["inputSchema"]})
            return
        wanted = context.get("toolCalls") or [{"name": n, "arguments": sample(t["inputSchema"])} for n, t in tools.items()]
        for one in wanted:
            client.call(tools[one["name"]], one["arguments"])
        if scenario == "http-standard-headers":
            for prompt in client.ask("prompts/list", {})["prompts"]:
                client.ask("prompts/get", {"name": prompt["name"]}, prompt["name"])
            for resource in client.ask("resources/list", {})["resources"]:
                client.ask("resources/read", {"uri": resource["uri"]}, resource["uri"])
    finally:
        if gateway:
            gateway.process.stop()
        shutil.rmtree(folder, ignore_errors=True)


def play(suite, scenario, revision, binary, folder):
    """Runs one scenario; gives how many checks passed, and what is wrong."""
    results = folder / f"{scenario}-{revision}"
    script = suite.home / "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    command = [suite.node, script, "client", "--command", f"{sys.executable} {HERE / 'client.py'}"]
    command += ["--scenario", scenario, "--spec-version", revision, "--timeout", TIMEOUT_S * 1000, "-o", results]
    done = subprocess.run(
        [str(part) for part in command],
        env=os.environ | {BINARY: str(binary)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TIMEOUT_S + 30,
    )
    checks = [check for file in results.glob("**/checks.json") for check in json.loads(file.read_text())]
    expected = EXPECTED.get(scenario, {})
    failed = {c["id"]: f"{c['status']} {c['id']}: {c.get('errorMessage')}" for c in checks if c["status"] in FAILED}
    bad = [words for check, words in failed.items() if check not in expected]
    bad += [f"{check} passes, though listed as failing ({why})" for check, why in expected.items() if check not in failed]
    good = sum(check["status"] == "SUCCESS" for check in checks)
    if (done.returncode != 0) != bool(expected) or not good:
        bad.append(f"the suite ended with {done.returncode}: {done.stdout[-1500:]}")
    return good, bad


def main(words):
    """Runs every scenario, or plays the client of one."""
    if words and not words[0].startswith("-"):
        return act(words[-1])
    from run import Suite

    profile = words[words.index("--profile") + 1] if "--profile" in words else "debug"
    binary = ROOT / "target" / profile / "toolgate"
    if not binary.exists():
        sys.exit(f"conformance: {binary} is not there: build it first")
    started = time.monotonic()
    suite, folder = Suite(ROOT / "target" / "conformance"), pathlib.Path(tempfile.mkdtemp(prefix="toolgate-conformance-"))
    passed, faults = 0, []
    print(f"\n{'as a client':34} {'revision':11} checks")
    for scenario, revision in SCENARIOS:
        good, bad = play(suite, scenario, revision, binary, folder)
        passed += not bad
        faults += [f"{scenario} {revision}: {fault}" for fault in bad]
        print(f"{scenario:34} {revision:11} {good}{'  FAILED' if bad else ''}", flush=True)
    for scenario, why in LEFT_OUT.items():
        print(f"{scenario:34} {'left out':11} {why}")
    for fault in faults:
        print(f"FAILED {fault}")
    print(f"\n{passed} passed, {len(SCENARIOS) - passed} failed")
    print(f"conformance: {time.monotonic() - started:.0f} s")
    shutil.rmtree(folder, ignore_errors=True)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
