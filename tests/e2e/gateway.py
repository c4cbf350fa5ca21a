"""The gateway under test: its conf and policy files, its start and its end."""

import hashlib
import subprocess
import time

import jcs
from cases import POLICY, RESULT_LIMIT
from peers import Process, free_ports, request

TOKEN = "toolgate_e2e_key"
READY_TIMEOUT_S = 60
WRONG_PIN = "0" * 64
DECISIONS = {
    "read": {"class": "read"},
    "write": {"class": "write"},
    "blocked": {"class": "read", "status": "blocked"},
    "stale": {"class": "read"},
}


class Gateway:
    """A running `toolgate serve`."""

    def __init__(self, binary, folder, servers):
        self.binary, self.folder = binary, folder
        self.port, self.ops = free_ports(2)
        self.conf = folder / "toolgate.toml"
        (folder / "policy").mkdir()
        self.conf.write_text(conf(self.port, self.ops))
        (folder / "policy" / "e2e.toml").write_text(policy(servers))

    def check(self):
        """What `toolgate check` says against the conf: None when it accepts it."""
        command = [str(self.binary), "check", "--conf", str(self.conf)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        return None if result.returncode == 0 else f"exit {result.returncode}: {result.stdout}{result.stderr}"

    def start(self):
        """Starts it and returns once /readyz is 200."""
        self.process = Process("toolgate", [self.binary, "serve", "--conf", self.conf], self.folder / "toolgate.log")
        deadline = time.monotonic() + READY_TIMEOUT_S
        status = None
        while time.monotonic() < deadline and self.process.child.poll() is None:
            try:
                status, _, _ = request(self.ops, "GET", "/readyz")
            except OSError as error:
                status = error
            if status == 200:
                return
            time.sleep(0.1)
        raise RuntimeError(f"the gateway is not ready ({status}):\n{self.process.tail()}")

    def url(self, slug=None):
        """The aggregated endpoint, or one server's."""
        return f"http://127.0.0.1:{self.port}/gateway/{slug + '/' if slug else ''}mcp"


def conf(port, ops):
    """The conf file: ports of our own, loopback servers allowed, discovery often enough to see a drift soon."""
    return f"""\
[gateway]
listen = ["127.0.0.1:{port}"]

[ops]
listen = "127.0.0.1:{ops}"

[policy]
files = ["policy/*.toml"]

[egress]
allow_http = true
allow_networks = ["127.0.0.0/8"]

[discovery]
interval = "1s"

[log]
access = "access.log"
"""


def policy(servers):
    """Organization, key, servers, grants, and a pin for every tool that is to be decided on."""
    digest = hashlib.sha256(TOKEN.encode()).hexdigest()
    parts = [
        table("organization", id="e2e", plan="business", status="active", subscription="active"),
        table("project", id="tests", organization="e2e"),
        table("key", id="client", organization="e2e", project="tests", environment="test", sha256=digest),
    ]
    by_slug = {server.slug: server for server in servers} | {"slow": next(s for s in servers if s.slug == "modern")}
    for slug, server in by_slug.items():
        rules = POLICY[slug]
        limits = {"timeout": "1s"} if slug == "slow" else {"result_limit": RESULT_LIMIT}
        parts.append(table("server", organization="e2e", slug=slug, url=server.url, **limits))
        selection = {"tools": rules["tools"]} if "tools" in rules else {}
        parts.append(table("grant", key="client", server=slug, access=rules["access"], **selection))
        for kind, members in DECISIONS.items():
            for name in rules.get(kind, []):
                pin = WRONG_PIN if kind == "stale" else jcs.pin(server.tools[name])
                parts.append(table("approval", server=slug, tool=name, sha256=pin, labels=[], **members))
    return "\n".join(parts)


def table(kind, **members):
    """One TOML table of an array; strings and lists of strings are all that is needed."""
    lines = [
        f"{name} = {list(map(str, value)) if isinstance(value, list) else repr(value)}"
        for name, value in members.items()
    ]
    return "\n".join([f"[[{kind}]]", *lines, ""]).replace("'", '"')
