#!/usr/bin/env python3
"""The shipped dashboard and alerts on a running gateway: `dashboard.py TOOLGATE [--pictures FOLDER]`.

A real Prometheus scrapes the gateway while agents call through it and do what is refused. Then every expression of the dashboard, of
the alerts and of the recording rules is asked: each must find its metrics, and each panel must have something to show: not only zeros, but
where zeros are what all being well looks like. With `--pictures` the panels are drawn (`dashboard_pictures.py`).
"""

import base64
import contextlib
import http.client
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

import gateway
import mock
from peers import Process, free_ports
from score import tell

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "conf/grafana/toolgate.json"
RULES = ROOT / "conf/prometheus/toolgate.rules.yml"
# Metrics that only a node of a fleet has, and the panels that need one: on a single node they are empty.
OF_A_FLEET = {"toolgate_rate_limit_store_up", "toolgate_policy_store_up", "toolgate_policy_store_silence_seconds"}
NEED_A_FLEET = {"Fleet-wide stores"}
# Panels that show zeros as long as nothing goes wrong in the gateway itself, and nothing does here.
CALM = {"Own failures", "Lost and caught"}
# Names in an expression that are no metric.
METRIC = re.compile(r"\b(?:toolgate|process)[a-z0-9_]*(?::[a-z0-9_:]+)?\b(?!=)|\bup\b")
RUN_S = int(os.environ.get("DASHBOARD_SECONDS", "25"))


def main():
    binary = pathlib.Path(sys.argv[1]).resolve()
    pictures = pathlib.Path(sys.argv[3]) if "--pictures" in sys.argv else None
    with tempfile.TemporaryDirectory(prefix="toolgate-dashboard-") as folder, contextlib.ExitStack() as ends:
        world = World(binary, pathlib.Path(folder), ends)
        world.start()
        begun = time.time()
        world.call_for(RUN_S)
        prometheus = Prometheus(world.prometheus_port, begun, time.time())
        rows = [*panels(prometheus), *rules(prometheus)]
        if pictures:
            import dashboard_pictures

            rows.append((f"pictures in {pictures}", dashboard_pictures.draw(json.loads(DASHBOARD.read_text()), prometheus, pictures)))
    return tell(rows)


def panels(prometheus):
    """Each panel of the dashboard has what it is to show."""
    all_panels = [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]
    unknown = (NEED_A_FLEET | CALM) - {panel["title"] for panel in all_panels}
    yield "the panels that are named here are on the dashboard", f"not {unknown}" if unknown else None
    for panel in all_panels:
        try:
            yield f"panel: {panel['title']}", shown(prometheus, panel)
        except RuntimeError as why:
            yield f"panel: {panel['title']}", str(why)


def shown(prometheus, panel):
    """What is wrong with what a panel shows."""
    expressions = [target["expr"] for target in panel["targets"]]
    series = {expression: prometheus.range(expression) for expression in expressions}
    if missing := [metric for expression in expressions for metric in prometheus.missing(expression)]:
        return f"no such metric: {missing} in {expressions}"
    if panel["title"] in NEED_A_FLEET:
        return f"a single node shows {series}" if any(series.values()) else None
    if empty := [expression for expression, found in series.items() if not found]:
        return f"nothing to show: {empty}"
    moves = any(value for found in series.values() for _, values in found for _, value in values)
    if panel["title"] in CALM:
        return f"it shows a failure: {series}" if moves else None
    return None if moves else f"nothing but zeros: {expressions}"


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
        return sorted(set(METRIC.findall(text)) - self.names - OF_A_FLEET)


class World:
    """A gateway with four servers behind it and an issuer of tokens, agents that call, and a Prometheus."""

    def __init__(self, binary, folder, ends):
        self.folder, self.ends = folder, ends
        self.prometheus_port, tls = free_ports(2)
        self.servers = {slug: upstream(*how) for slug, how in SERVERS.items()}
        self.issuer = mock.Server()
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "90"]
            + ["-subj", "/CN=localhost", "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
            check=True,
            capture_output=True,
        )
        self.issuer.pages["/keys"] = {"keys": [public_key(folder / "key.pem")]}
        listen = f'{{ address = "127.0.0.1:{tls}", tls = {{ certificate = "cert.pem", key = "key.pem" }} }}'
        conf = CONF.replace("@ISSUER@", f"http://127.0.0.1:{self.issuer.port}")
        self.gateway = gateway.Gateway(binary, folder, policy(self.servers), conf, [listen])

    def start(self):
        for server in [*self.servers.values(), self.issuer]:
            self.ends.callback(server.stop)
        self.ends.callback(self.gateway.stop)
        self.gateway.start()
        scrape = (ROOT / "conf/prometheus/scrape.yml").read_text()
        scrape = scrape.replace("127.0.0.1:9902", f"127.0.0.1:{self.gateway.ops}").replace("toolgate.rules.yml", str(RULES))
        (self.folder / "prometheus.yml").write_text(re.sub(r"(interval|timeout): \d+s", r"\1: 1s", scrape))
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

    def call_for(self, seconds):
        """Agents call, each in its way; a reload, a broken one, a changed tool, a faulty listing and a server that goes away come in between."""
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
        self.servers["crm"].set(tool("note", "Does something else now."))
        self.servers["git"].set({"description": "A tool without a name."})
        time.sleep(seconds * 0.2)
        self.servers["files"].stop()
        for agent in agents:
            agent.join()

    def command(self, *words):
        subprocess.run([self.gateway.binary, *words, "--conf", self.gateway.conf], capture_output=True, timeout=60, check=False)

    def agent(self, seed, end):
        chance = random.Random(seed)
        connection = http.client.HTTPConnection("127.0.0.1", self.gateway.port, timeout=30)
        while time.monotonic() < end:
            name, arguments, key = chance.choices(
                [
                    (f"crm_{chance.choice(['find', 'read', 'note'])}", {"n": 1}, "agent"),
                    ("git_search", {"n": 2}, "agent"),
                    ("files_list", {"n": 3}, "agent"),
                    ("mail_fetch", {"n": 4}, "agent"),
                    ("crm_find", {"n": "two"}, "agent"),
                    ("crm_find", {"n": 1, "text": "call me: ann@example.com"}, "agent"),
                    ("crm_delete", {}, "agent"),
                    ("crm_find", {"n": 1}, "nobody"),
                    ("crm_find", {"n": 1}, "slow"),
                    ("no_such", {}, "agent"),
                ],
                [50, 20, 15, 10, 3, 3, 3, 1, 2, 1],
            )[0]
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
            headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", "MCP-Protocol-Version": "2025-11-25"}
            try:
                connection.request("POST", "/gateway/mcp", json.dumps(body), headers)
                connection.getresponse().read()
            except (http.client.HTTPException, OSError):
                connection.close()
            time.sleep(chance.expovariate(1 / 0.02))


def tool(name, description=None):
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}
    return {"name": name, "description": description or f"Tool {name}.", "inputSchema": schema}


# Tools, and how the server behaves: seconds that an answer takes, the share of calls that fail.
SERVERS = {
    "crm": (["find", "read", "note", "delete"], 0.002, 0),
    "git": (["search", "blame"], 0.03, 0.08),
    "files": (["list"], 0.008, 0),
    "mail": (["fetch"], 0.004, 0),
}
# What more of a server the policy says.
LIMITS = {"mail": {"rate_limit": "20/min"}}
CONF = """
[discovery]
interval = "2s"

[auth]
resource = "http://127.0.0.1/gateway"
issuers = [{ issuer = "@ISSUER@", jwks_url = "@ISSUER@/keys", organization = "acme" }]

[log]
access = "off"
"""


def public_key(file):
    """The public half of a key on P-256, as an issuer publishes it."""
    command = ["openssl", "pkey", "-in", file, "-pubout", "-outform", "DER"]
    point = subprocess.run(command, check=True, capture_output=True).stdout[-64:]
    number = lambda part: base64.urlsafe_b64encode(part).decode().rstrip("=")
    return {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": "1", "x": number(point[:32]), "y": number(point[32:])}


def upstream(tools, seconds, failing):
    """A server of 2025-11-25 with sessions."""

    def answer(*_):
        time.sleep(random.expovariate(1 / seconds))
        return 500 if random.random() < failing else {"content": [{"type": "text", "text": "done"}]}

    return mock.Server(*map(tool, tools), legacy=True, session="s1", answer=answer)


def policy(servers):
    text = gateway.standing() + gateway.key("agent", "agent") + gateway.key("slow", "slow", rate_limit="10/min")
    text += gateway.table(
        "guardrail",
        name="no-addresses",
        organization="acme",
        stage="input",
        detector="personal_data",
        types=["email"],
        action="redact",
    )
    for slug, server in servers.items():
        pinned = [one for one in server.tools.values() if one["name"] != "blame"]
        text += gateway.server(slug, server.url, pinned, ["agent", "slow"], ["delete"], **LIMITS.get(slug, {}))
    return text


if __name__ == "__main__":
    sys.exit(main())
