#!/usr/bin/env python3
"""The release binary does what a first look shows: `smoke.py TOOLGATE`.

It serves, refuses a stranger, ends cleanly; and the demo plays.
"""

import pathlib
import signal
import socket
import subprocess
import sys
import tempfile

from peers import Process, free_ports, request
from score import tell

READY_TIMEOUT_S = 30
DEMO_TIMEOUT_S = 120


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="toolgate-smoke-") as folder:
        rows = [
            version(binary),
            *serve(binary, pathlib.Path(folder)),
            demo(binary),
            interrupted(binary, pathlib.Path(folder)),
        ]
    return tell(rows)


def version(binary):
    """`--version` names the product."""
    result = subprocess.run([str(binary), "--version"], capture_output=True, text=True, timeout=10)
    return "toolgate --version", None if result.stdout.startswith("toolgate ") else f"{result}"


def serve(binary, folder):
    """`serve` with no server at all: ready, a 401 for a stranger, exit 0 on SIGTERM."""
    port, ops = free_ports(2)
    (folder / "policy.toml").write_text("")
    conf = folder / "toolgate.toml"
    conf.write_text(f'[gateway]\nlisten = ["127.0.0.1:{port}"]\n\n[ops]\nlisten = "127.0.0.1:{ops}"\n')
    notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notices.bind(str(folder / "notify"))
    notices.settimeout(READY_TIMEOUT_S)
    command = [binary, "serve", "--conf", conf]
    process = Process("toolgate", command, folder / "toolgate.log", {"NOTIFY_SOCKET": str(folder / "notify")})
    try:
        yield "readyz is 200 with no server at all", process.ready(ops)
        notice = notices.recv(4096).decode()
        yield "systemd is told that it is ready", None if "READY=1" in notice else notice
        status, headers, body = request(port, "POST", "/gateway/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"})
        right = (
            status == 401
            and headers.get("www-authenticate") == "Bearer"
            and headers.get("x-request-id", "").startswith("req_")
        )
        yield "a request without a key is 401", None if right else f"{status} {headers} {body}"
        status, _, body = request(ops, "GET", "/metrics")
        yield (
            "metrics are served",
            None if status == 200 and "toolgate_build_info" in body else f"{status} {body[:500]}",
        )
    except OSError as error:
        yield "serve answers", f"{error!r}\n{process.tail()}"
    finally:
        code = process.stop(60)
    notices.settimeout(0)
    notice = next(iter(received(notices)), "nothing")
    notices.close()
    yield "systemd is told that it stops", None if "STOPPING=1" in notice else notice
    yield "serve ends with 0 on SIGTERM", None if code == 0 else f"exit {code}\n{process.tail()}"


def received(notices):
    """What has come on a datagram socket and was not read yet."""
    try:
        while True:
            yield notices.recv(4096).decode()
    except OSError:
        return


def demo(binary):
    """`demo --once` plays every step and exits 0."""
    try:
        result = subprocess.run(
            [str(binary), "demo", "--once"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=DEMO_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired as hang:
        return "toolgate demo --once", f"hangs: {hang.stdout}"
    return (
        "toolgate demo --once",
        None if result.returncode == 0 else f"exit {result.returncode}\n{result.stdout[-4000:]}",
    )


def interrupted(binary, folder):
    """Ctrl-C ends the demo with 0, and its own folder is gone."""
    name = "toolgate demo ends cleanly on Ctrl-C"
    scratch = folder / "demo"
    scratch.mkdir()
    (port,) = free_ports(1)
    command = [binary, "demo", "--listen", f"127.0.0.1:{port}"]
    process = Process("toolgate demo", command, folder / "demo.log", {"TMPDIR": str(scratch)})
    try:
        process.await_port(port)
        process.child.send_signal(signal.SIGINT)
        code = process.child.wait(60)
    except (RuntimeError, subprocess.TimeoutExpired) as error:
        return name, str(error)
    finally:
        process.stop()
    left = [path.name for path in scratch.iterdir()]
    return name, None if code == 0 and not left else f"exit {code}, left {left}\n{process.tail()}"


if __name__ == "__main__":
    sys.exit(main())
