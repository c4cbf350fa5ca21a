"""Gateway, Presidio bridge and a server, for real: `bridge.py TOOLGATE` (make guardrail-bridge). Installs Presidio below target/.

An allowed call passes in both directions, a blocked one never reaches the server, a blocked result never leaves, and with the bridge
gone `on_engine_error` decides.
"""

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

import gateway  # noqa: E402
import install  # noqa: E402
import mock  # noqa: E402
from score import tell  # noqa: E402

TOKEN = "toolgate_bridge_test"
CARD = "4" + "1" * 15
TOOL = {"name": "echo", "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}, "say": {"type": "string"}}}}
BRIDGE_START_S = 300


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    python = ROOT / "target/guardrails/presidio"
    install.install_python(python, PRESIDIO / "requirements.txt")
    calls = []

    def answer(_, arguments):
        calls.append(arguments)
        return {"content": [{"type": "text", "text": arguments.get("say", "done")}]}

    server = mock.Server(TOOL, answer=answer)
    bridge = subprocess.Popen([python / "bin/python", PRESIDIO / "bridge.py", "0"], stdout=subprocess.PIPE, text=True)
    watch = threading.Timer(BRIDGE_START_S, bridge.kill)
    watch.start()
    try:
        line = next((line for line in bridge.stdout if line.startswith("presidio bridge: ")), None)
        watch.cancel()
        if line is None:
            sys.exit("bridge: it did not start")
        with tempfile.TemporaryDirectory(prefix="toolgate-bridge-") as folder:
            gate = gateway.Gateway(binary, pathlib.Path(folder), policy(server.url, line.split()[-1]))
            rows = list(play(gate, calls, bridge))
    finally:
        watch.cancel()
        bridge.kill()
        bridge.wait()
        server.stop()
    sys.exit(tell(rows))


def play(gate, calls, bridge):
    def call(arguments):
        return gate.call("demo_echo", arguments, TOKEN)

    try:
        gate.start()
        answer = call({"text": "nothing of the kind"})
        yield "an allowed call passes", None if says(answer) == "done" else f"{answer}"
        reached = len(calls)
        answer = call({"text": f"pay {CARD}"})
        yield "a card in the arguments is blocked", None if code(answer) == "guardrail_blocked" else f"{answer}"
        yield "and the server is never asked", None if len(calls) == reached else f"{calls}"
        yield "and the message does not repeat it", None if CARD not in json.dumps(answer) else f"{answer}"
        answer = call({"say": "write to ann@mail.example.com"})
        yield "an address in the result is blocked", None if code(answer) == "guardrail_blocked" else f"{answer}"
        yield "and does not leave", None if "ann@" not in json.dumps(answer) else f"{answer}"
        bridge.kill()
        bridge.wait()
        reached = len(calls)
        answer = call({"text": "nothing of the kind"})
        yield "with the bridge gone a call is refused", None if code(answer) == "guardrail_unavailable" else f"{answer}"
        yield "and the server is not asked then either", None if len(calls) == reached else f"{calls}"
    except OSError as error:
        yield "the gateway answers", f"{error!r}\n{gate.process.tail()}"
    finally:
        gate.stop()


def policy(url, bridge):
    """The policy that is shipped beside the bridge, with the bridge's address, and what a call needs."""
    shipped = (PRESIDIO / "policy.toml").read_text().replace("http://127.0.0.1:8089/", bridge).replace('"1s"', '"20s"')
    return shipped + gateway.standing() + gateway.key("bot", TOKEN) + gateway.server("demo", url, [TOOL], ["bot"], protocol="2026-07-28")


def says(result):
    return (result.get("content") or [{}])[0].get("text")


def code(result):
    return ((result.get("structuredContent") or {}).get("error") or {}).get("code")


if __name__ == "__main__":
    main()
