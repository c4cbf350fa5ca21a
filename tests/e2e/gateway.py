"""The gateway under test: its conf and policy files, its start and its end, and what is asked of it."""

import hashlib
import json
import subprocess

import jcs
from peers import LEGACY, Process, free_ports, request

TOKEN = "toolgate_e2e_key"
# Discovery often enough to see a drift soon, and an access log to look into.
WATCHED = """
[discovery]
interval = "1s"

[log]
access = "access.log"
"""


class Gateway:
    """A `toolgate serve` in a folder of its own, on ports of its own, before servers on loopback.

    `more` is conf, as TOML, beside addresses and egress; `listen` are more listeners; `roles` the tokens of the management API by role,
    which listens then, and `admin_more` more of its section.
    """

    def __init__(self, binary, folder, policy, more="", listen=(), roles=None, admin_more=""):
        self.binary, self.folder, self.roles, self.process = binary, folder, roles or {}, None
        self.port, self.ops, self.admin = free_ports(3)
        self.conf = folder / "toolgate.toml"
        (folder / "policy.toml").write_text(policy)
        listeners = ", ".join([f'"127.0.0.1:{self.port}"', *listen])
        text = f'[gateway]\nlisten = [{listeners}]\n\n[ops]\nlisten = "127.0.0.1:{self.ops}"\n\n'
        text += '[egress]\nallow_http = true\nallow_networks = ["127.0.0.0/8"]\n'
        if self.roles:
            tokens = [f'{{ name = "{role}", role = "{role}", sha256 = "{digest(token)}" }}' for role, token in self.roles.items()]
            text += f'\n[admin]\nlisten = "127.0.0.1:{self.admin}"\ntokens = [{", ".join(tokens)}]\n{admin_more}\n'
        self.conf.write_text(text + more)

    def check(self):
        """What `toolgate check` says against the conf: None when it accepts it."""
        command = [str(self.binary), "check", "--conf", str(self.conf)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        return None if result.returncode == 0 else f"exit {result.returncode}: {result.stdout}{result.stderr}"

    def start(self):
        """Starts it and returns once /readyz is 200."""
        self.process = Process("toolgate", [self.binary, "serve", "--conf", self.conf], self.folder / "toolgate.log")
        self.process.await_ready(self.ops)
        return self

    def stop(self):
        """Ends it; gives its exit code, None if it never ran."""
        return self.process.stop(60) if self.process else None

    def url(self, slug=None):
        """The aggregated endpoint, or one server's."""
        return f"http://127.0.0.1:{self.port}/gateway/{slug + '/' if slug else ''}mcp"

    def call(self, tool, arguments, token=TOKEN):
        """The result of a call by a legacy client."""
        return call(self.port, tool, arguments, token)

    def manage(self, method, path, body=None, role="admin"):
        """Status and answer of the management API."""
        status, _, text = request(self.admin, method, path, body, {"Authorization": f"Bearer {self.roles[role]}"})
        return status, json.loads(text)


def call(port, tool, arguments, token):
    """The result of a call by a legacy client; status and body of any other answer."""
    message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
    headers = {"Authorization": f"Bearer {token}", "MCP-Protocol-Version": LEGACY}
    status, _, body = request(port, "POST", "/gateway/mcp", message, headers)
    answer = json.loads(body) if status == 200 else {}
    return answer.get("result", {"status": status, "body": body})


def digest(token):
    """A token as files name it."""
    return hashlib.sha256(token.encode()).hexdigest()


def standing(organization="acme", project="p"):
    """An organization in good standing, with a project."""
    return table("organization", id=organization, plan="business", status="active", subscription="active") + table(
        "project", id=project, organization=organization
    )


def key(name, token, **more):
    """A key of `acme`."""
    return table("key", id=name, organization="acme", project="p", environment="test", sha256=digest(token), **more)


def server(slug, url, tools, keys, write=(), **more):
    """A server of `acme`, its tools approved, those in `write` as such, and granted to keys to read."""
    text = table("server", organization="acme", slug=slug, url=url, **more)
    for one in tools:
        kind = "write" if one["name"] in write else "read"
        text += table("approval", server=slug, tool=one["name"], sha256=jcs.pin(one), labels=[], **{"class": kind})
    return text + "".join(table("grant", key=one, server=slug, access="read") for one in keys)


def table(kind, **members):
    """One TOML table of an array; strings, and lists of them, are all that is needed."""
    return "\n".join([f"[[{kind}]]", *(f"{name} = {json.dumps(value)}" for name, value in members.items()), "", ""])
