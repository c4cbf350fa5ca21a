#!/usr/bin/env python3
"""The Debian package does what it says: `package.py PACKAGE.deb`. It is unpacked into a throw-away root, and a call goes through it."""

import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import gateway
import mock
from peers import Process, free_ports
from score import tell

TOKEN = "toolgate_package_key"
TOOL = {"name": "add", "description": "Adds.", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
UNIT = "usr/lib/systemd/system/toolgate.service"


def main():
    package = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="toolgate-package-") as folder:
        root = pathlib.Path(folder) / "root"
        subprocess.run(["dpkg-deb", "-x", str(package), str(root)], check=True)
        rows = [lintian(package), *control(package, root), *contents(root), *call(root, pathlib.Path(folder))]
    return tell(rows)


def lintian(package):
    """Debian's own checks find nothing."""
    command = ["lintian", "--fail-on", "error,warning", "--allow-root", str(package)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    return "lintian", None if result.returncode == 0 and not result.stdout.strip() else result.stdout + result.stderr


def control(package, root):
    """What dpkg is told: fields, conffiles, scripts that a shell can read, checksums."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-e", str(package), folder], check=True)
        info = pathlib.Path(folder)
        fields = dict(line.split(": ", 1) for line in (info / "control").read_text().splitlines() if not line.startswith(" "))
        wanted = {"Package", "Version", "Architecture", "Maintainer", "Description", "Depends"}
        yield "control has its fields", None if wanted <= fields.keys() else f"lacks {wanted - fields.keys()}"
        listed = set((info / "conffiles").read_text().split())
        there = {f"/{path.relative_to(root)}" for path in (root / "etc").rglob("*") if path.is_file()}
        yield "every file in /etc is a conffile", None if listed == there else f"{listed} and {there}"
        for script in ("postinst", "prerm", "postrm"):
            result = subprocess.run(["sh", "-n", info / script], capture_output=True, text=True)
            executable = os.access(info / script, os.X_OK)
            yield f"{script} is a script", None if result.returncode == 0 and executable else result.stderr or "not executable"
        result = subprocess.run(["md5sum", "--quiet", "-c", info / "md5sums"], cwd=root, capture_output=True, text=True)
        yield "md5sums are right", None if result.returncode == 0 else result.stdout


def contents(root):
    """Unit, manual, completions, docs."""
    unit = (root / UNIT).read_text()
    yield "the unit runs what is packaged", None if "ExecStart=/usr/bin/toolgate serve --conf /etc/toolgate/" in unit else unit
    # of another package, in a real root
    (root / "bin").mkdir(exist_ok=True)
    shutil.copy("/bin/kill", root / "bin/kill")
    command = ["systemd-analyze", "verify", "--man=no", f"--root={root}", "toolgate.service"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60)
    ours = [line for line in result.stderr.splitlines() if "toolgate" in line and "not found" not in line]
    yield "systemd-analyze verify", None if not ours else "\n".join(ours)
    pages = sorted((root / "usr/share/man/man1").glob("*.1.gz"))
    first = gzip.decompress((root / "usr/share/man/man1/toolgate.1.gz").read_bytes()).decode() if pages else ""
    yield "manual pages", None if len(pages) > 10 and ".TH toolgate 1" in first else f"{pages} {first[:200]}"
    for path, word in [
        ("usr/share/bash-completion/completions/toolgate", "complete -F _toolgate"),
        ("usr/share/zsh/vendor-completions/_toolgate", "#compdef toolgate"),
        ("usr/share/fish/vendor_completions.d/toolgate.fish", "complete -c toolgate"),
    ]:
        yield path, None if word in (root / path).read_text() else "is no completion"
    examples = root / "usr/share/doc/toolgate/examples"
    bom = json.loads((root / "usr/share/doc/toolgate/sbom.cdx.json").read_text())
    named = {one["name"] for one in bom["components"]}
    yield "the bill of materials names what is inside", None if {"pingora-core", "sqlx", "rustls"} <= named else f"{named}"
    for name in ("toolgate.schema.json", "policy.schema.json"):
        yield name, None if json.loads((examples / name).read_text()).get("properties") else "has no properties"
    yield "conf examples", None if (examples / "toolgate.toml").exists() else "missing"


def call(root, folder):
    """The packaged binary with the packaged conf, a policy of one server, and one call."""
    port, ops = free_ports(2)
    upstream = mock.Server(TOOL, legacy=True, answer=lambda tool, _: {"content": [{"type": "text", "text": f"called {tool}"}]})
    binary, etc = root / "usr/bin/toolgate", root / "etc/toolgate"
    environment = {"STATE_DIRECTORY": str(folder / "state"), "RUNTIME_DIRECTORY": str(folder / "run")}
    for path in environment.values():
        pathlib.Path(path).mkdir()
    checked = subprocess.run([binary, "check", "--conf", etc / "toolgate.toml"], capture_output=True, text=True)
    yield "the packaged conf is good", None if checked.returncode == 0 else checked.stderr
    conf = (etc / "toolgate.toml").read_text().replace(":8080", f":{port}").replace(":9902", f":{ops}")
    (etc / "toolgate.toml").write_text(conf + '\n[egress]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n')
    policy = gateway.standing() + gateway.key("k", TOKEN) + gateway.server("smoke", upstream.url, [TOOL], ["k"])
    (etc / "policy.d/smoke.toml").write_text(policy)
    process = Process("toolgate", [binary, "serve", "--conf", etc / "toolgate.toml"], folder / "log", environment)
    try:
        yield "it is ready", process.ready(ops)
        answer = gateway.call(port, "smoke_add", {"a": 1}, TOKEN)
        right = answer.get("content") == [{"type": "text", "text": "called add"}]
        yield "a call goes through", None if right else f"{answer}\n{process.tail()}"
        command = [binary, "status", "--conf", etc / "toolgate.toml", "--json"]
        status = subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment)
        yield "the CLI finds the socket by the conf", None if status.returncode == 0 else status.stderr
    finally:
        code = process.stop(60)
        upstream.stop()
    yield "it ends with 0", None if code == 0 else f"exit {code}"
    kept = (folder / "state/toolgate.db").exists()
    yield "its state is in the state folder alone", None if kept else "no store"


if __name__ == "__main__":
    sys.exit(main())
