#!/usr/bin/env python3
"""Schemathesis over the OpenAPI document of the management API: `api.py TOOLGATE`.

What it makes up from the document is sent to a running gateway: no answer is a 5xx, none is one that the document does not know.
The gateway serves to the end, and starts again on what the calls left in its store.
"""

import pathlib
import subprocess
import sys
import tempfile
import time

import install
import mock
from gateway import Gateway, table
from score import tell

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TOKENS = {role: f"api-test-{role}" for role in ("viewer", "approver", "admin")}
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
QUIET = """
[log]
access = "off"

[discovery]
interval = "1h"
max_age = "2h"

[rate_limits]
failed_auth = "off"
"""


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    home = ROOT / "target" / "api"
    install.install_python(home / "venv", HERE / "requirements-api.txt")
    upstream = mock.Server({"name": "echo", "inputSchema": {"type": "object"}}, {"name": "other", "inputSchema": {"type": "object"}})
    with tempfile.TemporaryDirectory(prefix="toolgate-api-") as folder:
        rows = list(play(binary, home, pathlib.Path(folder), upstream.url))
    return tell((name, None if right else "it does not") for name, right in rows)


def play(binary, home, folder, upstream):
    (folder / "secrets").mkdir()
    (folder / "secrets" / "name").write_text("a secret")
    policy = table("organization", id="files", plan="business", status="active", subscription="active")
    gateway = Gateway(binary, folder, policy, QUIET, roles=TOKENS, admin_more='secrets = "secrets"').start()
    call = gateway.manage
    try:
        seed(call, upstream)
        before = newest(call)
        for name, role, seconds, more in RUNS:
            began = time.monotonic()
            right = schemathesis(home, folder, gateway.admin, (name, role, seconds, more))
            yield f"Schemathesis, {name}: {time.monotonic() - began:.0f} s", right
        made = newest(call) - before
        yield f"it made {made} changes", made > 0
        yield "the gateway still serves", call("GET", "/v1/status")[0] == 200
        yield "the policy still compiles", call("POST", "/v1/reload")[0] == 200
        yield "it ends with 0", gateway.stop() == 0
        gateway.start()
        yield "it starts on what the calls left", call("GET", "/v1/status")[0] == 200
        log = (folder / "toolgate.log").read_text()
        yield "nothing panicked", "panicked" not in log
    finally:
        gateway.stop()


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


def newest(call):
    """The number of the newest audit record."""
    last, path = 0, "/v1/audit?limit=1000"
    while path:
        _, page = call("GET", path)
        last, path = (page["audit"] or [{"seq": last}])[-1]["seq"], page.get("next")
    return last


def seed(call, upstream):
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
        status, answer = call(method, path, body)
        if status not in (200, 201):
            raise RuntimeError(f"{method} {path}: {status} {answer}")


if __name__ == "__main__":
    sys.exit(main())
