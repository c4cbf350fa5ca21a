#!/usr/bin/env python3
"""Schemathesis over the OpenAPI document of the management API: `api.py TOOLGATE`.

What it makes up from the document is sent to a running gateway: no answer is a 5xx, none is one that the document does not know.
The gateway serves to the end, and starts again on what the calls left in its store.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import install
import mock
from peers import Process, free_ports, request

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOKENS = {role: f"api-test-{role}" for role in ("viewer", "approver", "admin")}
READY_TIMEOUT_S = 60
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,unsupported_method,allow_header_conformance"
)
# Each run: who calls, for how long at most, and what else. The second knows names that exist; what would take them away is left out.
RUNS = [
    ("free", "admin", 70, ["--max-examples", "40"]),
    ("names that exist", "admin", 50, ["--max-examples", "30", "--exclude-method", "DELETE", "--exclude-path-regex", "revoke"]),
    ("a viewer", "viewer", 15, ["--max-examples", "10", "--phases", "coverage,fuzzing"]),
]
NAMES = """\
[parameters]
"path.slug" = "demo"
"path.tool" = "echo"
"""
POLICY = """\
[[organization]]
id = "files"
plan = "business"
status = "active"
subscription = "active"
"""


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    home = ROOT / "target" / "api"
    install.install_python(home / "venv", HERE / "requirements-api.txt")
    upstream = mock.Server({"name": "echo", "inputSchema": {"type": "object"}}, {"name": "other", "inputSchema": {"type": "object"}})
    with tempfile.TemporaryDirectory(prefix="toolgate-api-") as folder:
        rows = list(play(binary, home, pathlib.Path(folder), upstream.url))
    failed = sum(not right for _, right in rows)
    for name, right in rows:
        print(f"{'ok    ' if right else 'FAILED'} {name}")
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


def play(binary, home, folder, upstream):
    ports = free_ports(3)
    conf = write(folder, ports)
    gateway = start(binary, conf, folder, ports)
    try:
        seed(ports[2], upstream)
        before = newest(ports[2])
        for name, role, seconds, more in RUNS:
            began = time.monotonic()
            right = schemathesis(home, folder, ports[2], (name, role, seconds, more))
            yield f"Schemathesis, {name}: {time.monotonic() - began:.0f} s", right
        made = newest(ports[2]) - before
        yield f"it made {made} changes", made > 0
        yield "the gateway still serves", call(ports[2], "GET", "/v1/status")[0] == 200
        yield "the policy still compiles", call(ports[2], "POST", "/v1/reload")[0] == 200
        yield "it ends with 0", gateway.stop(60) == 0
        gateway = start(binary, conf, folder, ports)
        yield "it starts on what the calls left", call(ports[2], "GET", "/v1/status")[0] == 200
        log = (folder / "toolgate.log").read_text()
        yield "nothing panicked", "panicked" not in log
    finally:
        gateway.stop(60)


def schemathesis(home, folder, port, run):
    name, role, seconds, more = run
    config = folder / "schemathesis.toml"
    config.write_text(NAMES if "names" in name else "")
    command = [home / "venv/bin/st", "--config-file", config, "run", f"http://127.0.0.1:{port}/v1/openapi.json"]
    command += ["--header", f"Authorization: Bearer {TOKENS[role]}", "--checks", CHECKS, "--max-time", seconds]
    command += ["--generation-deterministic", "--continue-on-failure", "--no-color"]
    # An upgrade puts another process in the gateway's place; the suite's `life` tries it.
    command += ["--exclude-path", "/v1/upgrade", "--request-timeout", "60", "--no-shrink", "--warnings", "off", *more]
    result = subprocess.run(list(map(str, command)), cwd=folder, capture_output=True, text=True, timeout=20 * 60)
    (home / f"{name.replace(' ', '-')}.txt").write_text(result.stdout + result.stderr)
    if result.returncode != 0:
        print(result.stdout[-6000:], result.stderr[-2000:])
    return result.returncode == 0


def write(folder, ports):
    digest = lambda token: hashlib.sha256(token.encode()).hexdigest()
    tokens = ", ".join(f'{{ name = "{r}", role = "{r}", sha256 = "{digest(t)}" }}' for r, t in TOKENS.items())
    (folder / "policy.toml").write_text(POLICY)
    (folder / "secrets").mkdir()
    (folder / "secrets" / "name").write_text("a secret")
    conf = folder / "toolgate.toml"
    conf.write_text(
        f'[gateway]\nlisten = ["127.0.0.1:{ports[0]}"]\n[ops]\nlisten = "127.0.0.1:{ports[1]}"\n'
        f'[admin]\nlisten = "127.0.0.1:{ports[2]}"\nsecrets = "secrets"\ntokens = [{tokens}]\n'
        '[egress]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n[log]\naccess = "off"\n'
        '[discovery]\ninterval = "1h"\nmax_age = "2h"\n[rate_limits]\nfailed_auth = "off"\n'
    )
    return conf


def start(binary, conf, folder, ports):
    gateway = Process("toolgate", [binary, "serve", "--conf", conf], folder / "toolgate.log")
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and gateway.child.poll() is None:
        try:
            if request(ports[1], "GET", "/readyz")[0] == 200:
                return gateway
        except OSError:
            pass
        time.sleep(0.1)
    raise RuntimeError(f"the gateway is not ready:\n{gateway.tail()}")


def call(port, method, path, body=None):
    status, _, text = request(port, method, path, body, {"Authorization": f"Bearer {TOKENS['admin']}"})
    return status, json.loads(text)


def newest(port):
    """The number of the newest audit record."""
    last, path = 0, "/v1/audit?limit=1000"
    while path:
        _, page = call(port, "GET", path)
        last, path = (page["audit"] or [{"seq": last}])[-1]["seq"], page.get("next")
    return last


def seed(port, upstream):
    """Something of each kind."""
    organization = {"id": "acme", "plan": "business", "status": "active", "subscription": "active"}
    server = {"slug": "demo", "organization": "acme", "url": upstream}
    key = {"id": "bot", "organization": "acme", "project": "support", "environment": "production"}
    rule = {"name": "rule", "organization": "acme", "stage": "input", "detector": "secrets", "action": "observe"}
    for method, path, body in [
        ("POST", "/v1/organizations", organization),
        ("POST", "/v1/projects", {"id": "support", "organization": "acme"}),
        ("POST", "/v1/servers", server),
        ("POST", "/v1/keys", key),
        ("PUT", "/v1/keys/bot/grants/demo", {"access": "read"}),
        ("POST", "/v1/guardrails", rule),
    ]:
        status, answer = call(port, method, path, body)
        if status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {status} {answer}")


if __name__ == "__main__":
    sys.exit(main())
