"""The servers behind the gateway: how each is started, asked for its tools, and ended."""

import http.client
import json
import os
import pathlib
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
START_TIMEOUT_S = 60
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = "io.modelcontextprotocol/"


class Process:
    """A child process on loopback, ended by its own handle."""

    def __init__(self, name, command, log, env=None):
        self.name, self.log = name, log
        with open(log, "wb") as sink:
            self.child = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=os.environ | (env or {}),
            )

    def await_port(self, port):
        """Returns once something listens on `port`."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.child.poll() is not None:
                break
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen:\n{self.tail()}")

    def ready(self, ops):
        """None once the gateway that this is says on /readyz that it is; else why not."""
        deadline, status = time.monotonic() + START_TIMEOUT_S, None
        while time.monotonic() < deadline and self.child.poll() is None:
            try:
                status, _, _ = request(ops, "GET", "/readyz")
            except OSError as error:
                status = error
            if status == 200:
                return None
            time.sleep(0.05)
        return f"{self.name} is not ready ({status}):\n{self.tail()}"

    def await_ready(self, ops):
        """Returns once it is ready."""
        if fault := self.ready(ops):
            raise RuntimeError(fault)

    def tail(self):
        """The end of what it printed."""
        return pathlib.Path(self.log).read_text(errors="replace")[-3000:]

    def stop(self, timeout=10):
        """Asks it to end, then ends it; returns its exit code."""
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(timeout)
            except subprocess.TimeoutExpired:
                self.child.kill()
        return self.child.wait()


class Server:
    """One upstream: `slug`, its URL, the tools that it lists."""

    def __init__(self, slug, command, folder, env=None, port=None):
        self.slug, self.port = slug, port
        self.url = f"http://127.0.0.1:{port}/mcp"
        self.process = Process(slug, command, folder / f"{slug}.log", env)

    def ready(self):
        """Waits until it listens, then lists its tools as it sends them."""
        self.process.await_port(self.port)
        self.tools = {tool["name"]: tool for tool in (modern_tools(self.port) or legacy_tools(self.port))}
        return self

    def post(self, path):
        """An empty POST to one of the test server's own paths."""
        status, _, body = request(self.port, "POST", path, {})
        if status != 200:
            raise RuntimeError(f"{self.slug}{path}: {status} {body}")

    def seen(self):
        """How often each tool ran, by the server's own count; None when it keeps none."""
        status, _, body = request(self.port, "GET", "/seen")
        return json.loads(body) if status == 200 else None


def start(peers, folder):
    """Starts every server."""
    everything = peers.npm / "node_modules/@modelcontextprotocol/server-everything/dist/transports/streamableHttp.js"
    loopback = (peers.npm / "servers" / "loopback.mjs").as_uri()
    ports = free_ports(3)
    servers = [
        Server(
            "fast",
            [peers.modern, HERE / "servers/fast.py", ports[0]],
            folder,
            {"FASTMCP_CHECK_FOR_UPDATES": "off"},
            ports[0],
        ),
        Server("every", [peers.node, "--import", loopback, everything], folder, {"PORT": str(ports[1])}, ports[1]),
        Server("modern", [peers.modern, HERE / "servers/modern.py", ports[2]], folder, None, ports[2]),
    ]
    return servers


def free_ports(count):
    """Loopback ports that nothing uses now."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def modern_tools(port, path="/mcp"):
    """All pages of `tools/list` in the modern era; None when the server does not speak it."""
    tools, cursor = [], None
    while True:
        meta = {
            META + "protocolVersion": MODERN,
            META + "clientCapabilities": {},
            META + "clientInfo": {"name": "e2e", "version": "1"},
        }
        params = {"_meta": meta} | ({"cursor": cursor} if cursor is not None else {})
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
        status, _, body = rpc(port, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}, headers, path)
        if status != 200 or "result" not in body:
            return None
        tools += body["result"]["tools"]
        cursor = body["result"].get("nextCursor")
        if cursor is None:
            return tools


def legacy_tools(port, path="/mcp"):
    """`tools/list` after `initialize`."""
    hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "e2e", "version": "1"}}
    _, headers, _ = rpc(port, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, {}, path)
    session = {"MCP-Protocol-Version": LEGACY, "Mcp-Session-Id": headers["mcp-session-id"]}
    rpc(port, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session, path)
    _, _, body = rpc(port, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, session, path)
    request(port, "DELETE", path, headers=session)
    return body["result"]["tools"]


def rpc(port, message, headers, path="/mcp"):
    """POSTs one message; gives status, headers and the JSON-RPC answer, from JSON or from an event stream."""
    status, got, text = request(port, "POST", path, message, headers)
    if "text/event-stream" in got.get("content-type", ""):
        events = [line[5:] for line in text.splitlines() if line.startswith("data:") and line[5:].strip()]
        text = next((event for event in events if "method" not in json.loads(event)), "{}")
    try:
        return status, got, json.loads(text or "{}")
    except ValueError:
        return status, got, {}


def request(port, method, path, body=None, headers=None):
    """One HTTP exchange on a connection of its own."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        common = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        connection.request(method, path, None if body is None else json.dumps(body), common | (headers or {}))
        response = connection.getresponse()
        text = response.read().decode("utf-8", "replace")
        return response.status, {name.lower(): value for name, value in response.getheaders()}, text
    finally:
        connection.close()
