#!/usr/bin/env python3
"""The shipped dashboard and alerts on a running gateway: `dashboard.py TOOLGATE [--pictures FOLDER]`.

A real Prometheus scrapes the gateway while agents call through it and do what is refused. Then every expression of the dashboard, of
the alerts and of the recording rules is asked: each must find its metrics, and each panel must have something to show. With
`--pictures` the panels are drawn (`dashboard_pictures.py`).
"""

import contextlib
import hashlib
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse

import jcs
from peers import Process, free_ports, request
from smoke import ready

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "conf/grafana/toolgate.json"
RULES = ROOT / "conf/prometheus/toolgate.rules.yml"
# Metrics that a gateway without a shared store of rate limits does not have.
ABSENT = {"toolgate_rate_limit_store_up"}
# Panels that are empty while all is well.
QUIET = {"Fleet-wide store", "Servers' own limits"}
# Names in an expression that are no metric.
METRIC = re.compile(r"\b(?:toolgate|process)[a-z0-9_]*(?::[a-z0-9_:]+)?\b(?!=)|\bup\b")
RUN_S = int(os.environ.get("DASHBOARD_SECONDS", "25"))


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    pictures = pathlib.Path(sys.argv[3]) if "--pictures" in sys.argv else None
    with tempfile.TemporaryDirectory(prefix="toolgate-dashboard-") as folder, contextlib.ExitStack() as ends:
        world = World(binary, pathlib.Path(folder), ends)
        rows = [("the gateway is ready", world.start())]
        begun = time.time()
        world.call_for(RUN_S)
        prometheus = Prometheus(world.prometheus_port, begun, time.time())
        rows += [*panels(prometheus), *rules(prometheus)]
        if pictures:
            import dashboard_pictures

            rows.append((f"pictures in {pictures}", dashboard_pictures.draw(json.loads(DASHBOARD.read_text()), prometheus, pictures)))
    for name, fault in rows:
        print(f"{'ok    ' if fault is None else 'FAILED'} {name}{'' if fault is None else ': ' + fault}")
    failed = sum(fault is not None for _, fault in rows)
    print(f"{len(rows) - failed} passed, {failed} failed")
    return 1 if failed else 0


def panels(prometheus):
    """Each panel of the dashboard has what it is to show."""
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel.get("targets", []):
            name = f"panel: {panel['title']}"
            try:
                series = prometheus.range(target["expr"])
            except RuntimeError as why:
                yield name, str(why)
                continue
            missing = prometheus.missing(target["expr"])
            if missing:
                yield name, f"no such metric: {missing} in {target['expr']}"
            else:
                yield name, None if series or panel["title"] in QUIET else f"nothing to show: {target['expr']}"


def rules(prometheus):
    """Prometheus took every rule, and each finds its metrics."""
    for group in prometheus.get("/api/v1/rules")["groups"]:
        for rule in group["rules"]:
            missing = prometheus.missing(rule["query"])
            fault = rule.get("lastError") or (f"no such metric: {missing}" if missing else None)
            yield f"{rule['type']} rule: {rule['name']}", fault or (None if rule["health"] == "ok" else rule["health"])


class Prometheus:
    """Its HTTP API, over the time from `begun` to `ended`."""

    def __init__(self, port, begun, ended):
        self.port, self.begun, self.ended = port, begun, ended
        self.names = set(self.get("/api/v1/label/__name__/values"))

    def get(self, path, **query):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request("GET", f"{path}?{urllib.parse.urlencode(query)}")
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        if answer["status"] != "success":
            raise RuntimeError(f"{answer.get('error')}: {query}")
        return answer["data"]

    def range(self, expression):
        """The series of an expression as the dashboard would ask for it, those without a number left out."""
        for name, value in (("$__rate_interval", "8s"), ("$instance", ".*"), ("$server", ".*")):
            expression = expression.replace(name, value)
        data = self.get("/api/v1/query_range", query=expression, start=self.begun + 6, end=self.ended, step=1)
        numbers = lambda one: [(at, float(value)) for at, value in one["values"] if value != "NaN"]
        return [(one["metric"], numbers(one)) for one in data["result"] if numbers(one)]

    def missing(self, expression):
        """Names of metrics in an expression that Prometheus has not seen."""
        text = re.sub(r'"[^"]*"|\{[^}]*\}', "", expression)
        text = re.sub(r"\b(?:by|on|without|group_left|ignoring) *\([^)]*\)", "", text)
        return sorted(set(METRIC.findall(text)) - self.names - ABSENT)


class World:
    """A gateway with three servers behind it, agents that call, and a Prometheus."""

    def __init__(self, binary, folder, ends):
        self.binary, self.folder, self.ends = binary, folder, ends
        self.port, self.ops, self.prometheus_port = free_ports(3)
        self.servers = [Upstream(slug, *how) for slug, how in SERVERS.items()]

    def start(self):
        for server in self.servers:
            self.ends.callback(server.shutdown)
            threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, text in self.files().items():
            (self.folder / name).write_text(text)
        gateway = Process("toolgate", [self.binary, "serve", "--conf", self.folder / "toolgate.toml"], self.folder / "log")
        self.ends.callback(gateway.stop)
        fault = ready(gateway, self.ops)
        prometheus = Process(
            "prometheus",
            [
                "prometheus",
                f"--config.file={self.folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={self.folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.prometheus_port}",
            ],
            self.folder / "prometheus.log",
        )
        self.ends.callback(prometheus.stop)
        prometheus.await_port(self.prometheus_port)
        return fault

    def files(self):
        scrape = (ROOT / "conf/prometheus/scrape.yml").read_text()
        scrape = scrape.replace("127.0.0.1:9902", f"127.0.0.1:{self.ops}").replace("toolgate.rules.yml", str(RULES))
        scrape = re.sub(r"(interval|timeout): \d+s", r"\1: 1s", scrape)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90"]
            + ["-subj", "/CN=localhost", "-keyout", self.folder / "key.pem", "-out", self.folder / "cert.pem"],
            check=True,
            capture_output=True,
        )
        tls = free_ports(1)[0]
        conf = f"""
[gateway]
listen = ["127.0.0.1:{self.port}", {{ address = "127.0.0.1:{tls}", tls = {{ certificate = "cert.pem", key = "key.pem" }} }}]
[ops]
listen = "127.0.0.1:{self.ops}"
[egress]
allow_http = true
allow_networks = ["127.0.0.0/8"]
[discovery]
interval = "2s"
[log]
access = "off"
"""
        return {"toolgate.toml": conf, "policy.toml": policy(self.servers), "prometheus.yml": scrape}

    def call_for(self, seconds):
        """Agents call, each in its way; a reload, a broken reload and a changed tool come in between."""
        end = time.monotonic() + seconds
        agents = [threading.Thread(target=self.agent, args=(n, end)) for n in range(4)]
        for agent in agents:
            agent.start()
        time.sleep(seconds * 0.3)
        self.command("reload")
        time.sleep(seconds * 0.2)
        good = (self.folder / "policy.toml").read_text()
        (self.folder / "policy.toml").write_text(good + "\n[[nonsense]]\n")
        self.command("reload")
        (self.folder / "policy.toml").write_text(good)
        self.servers[0].tools[2]["description"] = "Does something else now."
        for agent in agents:
            agent.join()

    def command(self, *words):
        subprocess.run([self.binary, *words, "--conf", self.folder / "toolgate.toml"], capture_output=True, timeout=60, check=False)

    def agent(self, seed, end):
        chance = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        while time.monotonic() < end:
            name, arguments, key = chance.choices(
                [
                    (f"crm_{chance.choice(['find', 'read', 'note'])}", {"n": 1}, "agent"),
                    ("git_search", {"n": 2}, "agent"),
                    ("files_list", {"n": 3}, "agent"),
                    ("crm_find", {"n": "two"}, "agent"),
                    ("crm_find", {"n": 1, "text": "call me: ann@example.com"}, "agent"),
                    ("crm_delete", {}, "agent"),
                    ("crm_find", {"n": 1}, "nobody"),
                    ("crm_find", {"n": 1}, "slow"),
                    ("no_such", {}, "agent"),
                ],
                [60, 20, 15, 3, 3, 3, 1, 2, 1],
            )[0]
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", "MCP-Protocol-Version": "2025-11-25"}
            try:
                connection.request("POST", "/gateway/mcp", json.dumps(body), headers)
                connection.getresponse().read()
            except (http.client.HTTPException, OSError):
                connection.close()
            time.sleep(chance.expovariate(1 / 0.02))


def tool(name):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return {"name": name, "description": f"Tool {name}.", "inputSchema": schema}


# Tools, and how the server behaves: seconds that an answer takes, the share of calls that fail.
SERVERS = {
    "crm": (["find", "read", "note", "delete"], 0.002, 0),
    "git": (["search", "blame"], 0.03, 0.08),
    "files": (["list"], 0.008, 0),
}


def policy(servers):
    digest = lambda token: hashlib.sha256(token.encode()).hexdigest()
    text = """
[[organization]]
id = "acme"
plan = "business"
status = "active"
subscription = "active"
[[project]]
id = "p"
organization = "acme"
[[guardrail]]
name = "no-addresses"
organization = "acme"
stage = "input"
detector = "personal_data"
types = ["email"]
action = "redact"
"""
    for key, more in (("agent", ""), ("slow", 'rate_limit = "10/min"\n')):
        text += f'[[key]]\nid = "{key}"\norganization = "acme"\nproject = "p"\nenvironment = "test"\nsha256 = "{digest(key)}"\n{more}'
        for server in servers:
            text += f'[[grant]]\nkey = "{key}"\nserver = "{server.slug}"\naccess = "read"\n'
    for server in servers:
        text += f'[[server]]\norganization = "acme"\nslug = "{server.slug}"\nurl = "http://127.0.0.1:{server.server_port}/mcp"\n'
        for tool in [one for one in server.tools if one["name"] != "blame"]:
            kind = "write" if tool["name"] == "delete" else "read"
            text += (
                f'[[approval]]\nserver = "{server.slug}"\ntool = "{tool["name"]}"\nsha256 = "{jcs.pin(tool)}"\nclass = "{kind}"\nlabels = []\n'
            )
    return text


class Upstream(http.server.ThreadingHTTPServer):
    """An MCP server of 2025-11-25 with sessions."""

    daemon_threads = True
    handle_error = staticmethod(lambda *_: None)  # connections that the gateway drops at its end

    def __init__(self, slug, tools, seconds, failing):
        super().__init__(("127.0.0.1", 0), Handler)
        self.slug, self.seconds, self.failing = slug, seconds, failing
        self.tools = [tool(name) for name in tools]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in message:
            return self.answer(202, b"")
        if message["method"] == "tools/call":
            time.sleep(random.expovariate(1 / self.server.seconds))
            if random.random() < self.server.failing:
                return self.answer(500, b"{}")
        hello = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
        result = {
            "initialize": hello,
            "tools/list": {"tools": self.server.tools},
            "tools/call": {"content": [{"type": "text", "text": "done"}]},
        }.get(message["method"])
        tail = {"result": result} if result else {"error": {"code": -32601, "message": "Method not found"}}
        return self.answer(200, json.dumps({"jsonrpc": "2.0", "id": message["id"]} | tail).encode())

    def do_DELETE(self):
        self.answer(200, b"")

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Mcp-Session-Id", "s1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    sys.exit(main())
