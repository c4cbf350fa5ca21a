"""What runs in a load test: the mock server, nginx, bare Pingora and the gateway, each pinned to a core; and their processor time."""

import hashlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
TARGET = HERE.parent / "target" / "release"
GATEWAY_CORE, LOAD_CORE = "0", "1"
KEYS = 1000

# The ladder: what each organization of the policy asks for; every step adds one check.
LADDER = [
    ("key and grant", "plain", False, None),
    ("+ rate limits", "plain", True, None),
    ("+ schema in", "in", True, None),
    ("+ guardrails in", "in", True, "input"),
    ("+ guardrails out", "in", True, "both"),
    ("+ schema out: everything", "full", True, "both"),
]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Process:
    """A child of ours, pinned to a core; ended by its id."""

    def __init__(self, name, command, core, log):
        self.name, self.log = name, log
        pinned = ["taskset", "-c", core, *map(str, command)]
        self.child = subprocess.Popen(pinned, stdin=subprocess.DEVNULL, stdout=open(log, "ab"), stderr=subprocess.STDOUT)
        self.pid = self.child.pid

    def wait_for_port(self, port, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.child.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return self
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"{self.name} does not listen:\n{pathlib.Path(self.log).read_text()[-2000:]}")

    def pids(self):
        """The process and its children."""
        children = pathlib.Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        return [self.pid, *map(int, children)]

    def cpu_ns(self):
        """Nanoseconds on a processor, of every thread."""
        total = 0
        for pid in self.pids():
            for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
                try:
                    total += int((task / "schedstat").read_text().split()[0])
                except (OSError, IndexError):
                    pass
        return total

    def resident_kib(self):
        total = 0
        for pid in self.pids():
            found = re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{pid}/status").read_text())
            total += int(found.group(1)) if found else 0
        return total

    def end(self):
        if self.child.poll() is not None:
            return
        self.child.send_signal(signal.SIGTERM)
        try:
            self.child.wait(3)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Stack:
    """Everything that a run needs, started and ready."""

    def __init__(self, folder, many=True):
        self.folder, self.processes = folder, []
        folder.mkdir(parents=True, exist_ok=True)
        self.mock_address = f"127.0.0.1:{free_port()}"
        self.mock = self.start("mock", [TARGET / "toolgate-load-mock", self.mock_address], LOAD_CORE, self.mock_address)
        nginx = f"127.0.0.1:{free_port()}"
        text = (HERE / "nginx.conf").read_text()
        for mark, value in (("@LISTEN@", nginx), ("@UPSTREAM@", self.mock_address), ("@FOLDER@", str(folder))):
            text = text.replace(mark, value)
        (folder / "nginx.conf").write_text(text)
        self.nginx_address = nginx
        self.nginx = self.start("nginx", ["nginx", "-c", folder / "nginx.conf", "-p", folder], GATEWAY_CORE, nginx)
        self.bare_address = f"127.0.0.1:{free_port()}"
        bare = [TARGET / "toolgate-load-bare", self.bare_address, self.mock_address]
        self.bare = self.start("bare", bare, GATEWAY_CORE, self.bare_address)
        self.pins = {path: self.pins_of(path) for path in ("plain", "in", "full")}
        self.gateway = Gateway(self, "gateway", self.policy())
        self.many = Gateway(self, "many", self.policy_many(), discovery="1hour") if many else None

    def start(self, name, command, core, address):
        process = Process(name, command, core, self.folder / f"{name}.log")
        self.processes.append(process)
        return process.wait_for_port(int(address.split(":")[1]))

    def end(self):
        for process in reversed(self.processes):
            process.end()

    def pins_of(self, profile):
        command = [TARGET / "toolgate-load", "pins", f"{self.mock_address}/{profile}/mcp"]
        lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
        return [line.split() for line in lines]

    def policy(self):
        """An organization for each step of the ladder; the last one has further servers and many keys."""
        parts = []
        for n, (_, path, rates, stage) in enumerate(LADDER):
            parts += organization(f"step{n}", stage)
            parts += self.server(f"step{n}", f"s{n}", f"{path}/mcp", self.pins[path], rates)
            parts += key(f"step{n}", f"step{n}", token(n), [f"s{n}"], rates)
        last = f"step{len(LADDER) - 1}"
        for slug, path in (("sse", "sse"), ("slow", "slow/20000"), ("error", "error")):
            parts += self.server(last, slug, f"{path}/mcp", self.pins["full"], True)
        parts += self.server(last, "hidden", "full/mcp", self.pins["full"], True)
        dead = f"http://127.0.0.1:{free_port()}/mcp"
        parts += server_at(last, "dead", dead, self.pins["full"], True)
        for n in range(KEYS):
            parts += key(last, f"many{n}", token(f"many{n}"), [f"s{len(LADDER) - 1}"], True)
        parts += key(last, "all", token("all"), ["sse", "slow", "error", "dead"], True)
        return "\n".join(parts)

    def policy_many(self):
        """Ten thousand tools and keys under everything."""
        parts = organization("step5", "both")
        parts += self.server("step5", "s5", "many/mcp", self.pins_of("many"), True)
        for n in range(10 * KEYS):
            parts += key("step5", f"many{n}", token(f"many{n}"), ["s5"], True)
        return "\n".join(parts)

    def server(self, organization_id, slug, path, pins, rates):
        return server_at(organization_id, slug, f"http://{self.mock_address}/{path}", pins, rates)

    def keys_file(self, name, tokens):
        path = self.folder / f"keys-{name}"
        path.write_text("\n".join(tokens))
        return path


class Gateway:
    """A running gateway with one worker thread."""

    def __init__(self, stack, name, policy, discovery="60s"):
        self.folder = stack.folder / name
        self.folder.mkdir()
        port, self.ops = free_port(), free_port()
        self.address = f"127.0.0.1:{port}"
        self.access_log = self.folder / "access.log"
        (self.folder / "policy.toml").write_text(policy)
        (self.folder / "toolgate.toml").write_text(
            f"[gateway]\nlisten = ['{self.address}']\nthreads = 1\n[ops]\nlisten = '127.0.0.1:{self.ops}'\n"
            f"[store]\nurl = 'sqlite:toolgate.db'\n[policy]\nfiles = ['policy.toml']\n"
            f"[egress]\nallow_http = true\nallow_networks = ['127.0.0.0/8']\n[discovery]\ninterval = '{discovery}'\n"
            f"[limits]\nin_flight = 20000\n[log]\naccess = 'access.log'\n"
        )
        command = [TARGET / "toolgate", "serve", "--conf", self.folder / "toolgate.toml"]
        self.process = stack.start(name, command, GATEWAY_CORE, self.address)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if urllib.request.urlopen(f"http://127.0.0.1:{self.ops}/readyz", timeout=5).status == 200:
                    return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError(f"{name} does not get ready")

    def metrics(self):
        return urllib.request.urlopen(f"http://127.0.0.1:{self.ops}/metrics", timeout=30).read().decode()

    def reload(self):
        self.process.child.send_signal(signal.SIGHUP)

    def swaps(self):
        found = re.search(r'toolgate_snapshot_swaps_total\{result="applied"\} (\d+)', self.metrics())
        return int(found.group(1)) if found else 0

    def own_times_us(self, from_byte):
        """The gateway's own time in each request since that place of its access log."""
        with open(self.access_log, "rb") as log:
            log.seek(from_byte)
            return sorted(float(found) for found in re.findall(rb'"own_us":([0-9.]+)', log.read()))

    def log_bytes(self):
        return os.path.getsize(self.access_log) if self.access_log.exists() else 0


def token(name):
    return f"toolgate_load_{name}_" + hashlib.sha256(str(name).encode()).hexdigest()[:32]


def table(kind, **members):
    def text(value):
        return f"[{', '.join(map(text, value))}]" if isinstance(value, list) else f"'{value}'"

    return [f"[[{kind}]]", *(f"{name} = {text(value)}" for name, value in members.items() if value is not None)]


def organization(name, stage):
    parts = table("organization", id=name, plan="business", status="active", subscription="active")
    parts += table("project", id=f"{name}-project", organization=name)
    for detector in ("secrets", "personal_data") if stage else ():
        parts += table("guardrail", name=f"{name}-{detector}", organization=name, stage=stage, detector=detector, action="block")
    return parts


def server_at(organization_id, slug, url, pins, rates):
    parts = table("server", organization=organization_id, slug=slug, url=url, protocol="2026-07-28",
                  rate_limit="10000000/s" if rates else None)
    parts.append("max_in_flight = 20000")
    for name, pin in pins:
        parts += table("approval", organization=organization_id, server=slug, tool=name, sha256=pin, labels=[])
        parts.append("class = 'read'")
    return parts


def key(organization_id, name, secret, servers, rates):
    parts = table("key", id=name, organization=organization_id, project=f"{organization_id}-project", environment="load",
                  sha256=hashlib.sha256(secret.encode()).hexdigest(), rate_limit="10000000/s" if rates else None)
    for slug in servers:
        parts += table("grant", key=name, server=slug, access="read")
    return parts
