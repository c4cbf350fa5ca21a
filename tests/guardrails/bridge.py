"""Gateway, Presidio bridge and a server, for real: `bridge.py TOOLGATE` (make guardrail-bridge). Installs Presidio below target/.

An allowed call passes in both directions, a blocked one never reaches the server, a blocked result never leaves, and with the bridge
gone `on_engine_error` decides.
"""

import hashlib
import http.server
import json
import pathlib
import subprocess
import sys
import tempfile
import threading

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PRESIDIO = ROOT / "conf/guardrails/presidio"
sys.path.insert(0, str(HERE.parent / "e2e"))

import install  # noqa: E402
import jcs  # noqa: E402
from peers import Process, free_ports, request  # noqa: E402
from smoke import ready  # noqa: E402

TOKEN = "toolgate_bridge_test"
CARD = "4" + "1" * 15
TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "say": {"type": "string"}}}}
BRIDGE_START_S = 300


class Server(http.server.BaseHTTPRequestHandler):
    """An MCP server of revision 2026-07-28 with one tool, which answers what it is told to say."""

    protocol_version = "HTTP/1.1"
    calls = []

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if message["method"] == "tools/call":
            arguments = message["params"]["arguments"]
            self.calls.append(arguments)
            result = {"content": [{"type": "text", "text": arguments.get("say", "done")}]}
        else:
            result = {"tools": [TOOL], "ttlMs": 0, "cacheScope": "private"}
        body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"resultType": "complete", **result}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    python = ROOT / "target/guardrails/presidio"
    install.install_python(python, PRESIDIO / "requirements.txt")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    bridge = subprocess.Popen([python / "bin/python", PRESIDIO / "bridge.py", "0"], stdout=subprocess.PIPE, text=True)
    watch = threading.Timer(BRIDGE_START_S, bridge.kill)
    watch.start()
    try:
        line = next((line for line in bridge.stdout if line.startswith("presidio bridge: ")), None)
        watch.cancel()
        if line is None:
            sys.exit("bridge: it did not start")
        with tempfile.TemporaryDirectory(prefix="toolgate-bridge-") as folder:
            rows = list(play(binary, pathlib.Path(folder), (server.server_port, line.split()[-1]), bridge))
    finally:
        watch.cancel()
        bridge.kill()
        bridge.wait()
        server.shutdown()
    for name, fault in rows:
        print(f"{'ok    ' if fault is None else 'FAILED'} {name}{'' if fault is None else ': ' + fault}")
    failed = sum(fault is not None for _, fault in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    sys.exit(1 if failed else 0)


def play(binary, folder, addresses, bridge):
    port, ops = free_ports(2)
    (folder / "policy.toml").write_text(policy(*addresses))
    conf = folder / "toolgate.toml"
    conf.write_text(
        f'[gateway]\nlisten = ["127.0.0.1:{port}"]\n[ops]\nlisten = "127.0.0.1:{ops}"\n[policy]\nfiles = ["policy.toml"]\n'
        '[egress]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n'
    )
    gateway = Process("toolgate", [binary, "serve", "--conf", conf], folder / "toolgate.log")
    try:
        fault = ready(gateway, ops)
        yield "the gateway is ready", fault
        if fault:
            return
        answer = call(port, {"text": "nothing of the kind"})
        yield "an allowed call passes", None if says(answer) == "done" else f"{answer}"
        reached = len(Server.calls)
        answer = call(port, {"text": f"pay {CARD}"})
        yield "a card in the arguments is blocked", None if code(answer) == "guardrail_blocked" else f"{answer}"
        yield "and the server is never asked", None if len(Server.calls) == reached else f"{Server.calls}"
        yield "and the message does not repeat it", None if CARD not in json.dumps(answer) else f"{answer}"
        answer = call(port, {"say": "write to ann@mail.example.com"})
        yield "an address in the result is blocked", None if code(answer) == "guardrail_blocked" else f"{answer}"
        yield "and does not leave", None if "ann@" not in json.dumps(answer) else f"{answer}"
        bridge.kill()
        bridge.wait()
        reached = len(Server.calls)
        answer = call(port, {"text": "nothing of the kind"})
        yield "with the bridge gone a call is refused", None if code(answer) == "guardrail_unavailable" else f"{answer}"
        yield "and the server is not asked then either", None if len(Server.calls) == reached else f"{Server.calls}"
    except OSError as error:
        yield "the gateway answers", f"{error!r}\n{gateway.tail()}"
    finally:
        gateway.stop(60)


def policy(port, bridge):
    """The policy that is shipped beside the bridge, with the bridge's address, and what a call needs."""
    shipped = (PRESIDIO / "policy.toml").read_text().replace("http://127.0.0.1:8089/", bridge).replace('"1s"', '"20s"')
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    return f"""{shipped}
[[organization]]
id = "acme"
plan = "business"
status = "active"
subscription = "active"
[[project]]
id = "support"
[[key]]
id = "bot"
project = "support"
environment = "test"
sha256 = "{digest}"
[[server]]
slug = "demo"
url = "http://127.0.0.1:{port}/mcp"
protocol = "2026-07-28"
[[grant]]
key = "bot"
server = "demo"
access = "read"
[[approval]]
server = "demo"
tool = "echo"
sha256 = "{jcs.pin(TOOL)}"
class = "read"
labels = []
"""


def call(port, arguments):
    """The result of a call of the tool."""
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "demo_echo", "arguments": arguments}}
    headers = {"Authorization": f"Bearer {TOKEN}", "MCP-Protocol-Version": "2025-11-25"}
    status, _, body = request(port, "POST", "/gateway/mcp", message, headers)
    return json.loads(body)["result"] if status == 200 else {"status": status, "body": body}


def says(result):
    return (result.get("content") or [{}])[0].get("text")


def code(result):
    return ((result.get("structuredContent") or {}).get("error") or {}).get("code")


if __name__ == "__main__":
    main()
