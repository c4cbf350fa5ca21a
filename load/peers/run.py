#!/usr/bin/env python3
"""Other MCP gateways beside Toolgate, bare Pingora, nginx and a direct call, on the same cores in the same run: `make load-peers`.

Each peer is installed below `target/peers`, in an environment of its own, and speaks what all of them speak: the legacy era over
Streamable HTTP. `peers.toml` says how each is started and what it was set up to do.

    run.py [--only NAME]... [--install-only] [--quick]
"""

import os
import pathlib
import re
import subprocess
import sys
import time
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import report  # noqa: E402
import run  # noqa: E402
from stack import GATEWAY_CORE, free_address  # noqa: E402

PLACE = HERE.parent.parent / "target" / "peers"
ROUNDS, SECONDS = 5, 2.0
# Calls a second of the latency scenario: what the slowest can do, by half.
CONNECTIONS = 16


def install(name, peer):
    """The peer's environment; none if it cannot be installed here. What was installed is pinned by `name.lock`."""
    folder = PLACE / name
    done = folder / "installed"
    if done.exists():
        return folder / "bin"
    print(f"  installing {name} in {folder}", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    with open(PLACE / f"{name}.log", "ab") as log:
        try:
            if "pip" in peer:
                lock = HERE / f"{name}.lock"
                what = ["-r", str(lock)] if lock.exists() else peer["pip"]
                subprocess.run([sys.executable, "-m", "venv", folder], check=True, stdout=log, stderr=log)
                subprocess.run([folder / "bin" / "pip", "install", "-q", "--disable-pip-version-check", *what], check=True, stdout=log, stderr=log)
            else:
                subprocess.run(["cargo", "install", "--root", folder, *peer["cargo"]], check=True, stdout=log, stderr=log)
        except (subprocess.CalledProcessError, OSError) as error:
            print(f"  {name} cannot be installed here: {error}; see {log.name}", flush=True)
            return None
    done.touch()
    return folder / "bin"


def version(name, peer, bin_folder):
    """What was installed."""
    if "pip" in peer:
        package = re.split(r"[\[=<>]", peer["pip"][0])[0]
        shown = subprocess.run([bin_folder / "pip", "show", package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
        found = re.search(r"^Version: (\S+)", shown, re.MULTILINE)
        return found.group(1) if found else "?"
    return peer["cargo"][peer["cargo"].index("--version") + 1]


class Peer:
    """A peer that runs; or, with `fault`, one that does not."""

    def __init__(self, stack, name, peer, bin_folder):
        self.name, self.peer, self.fault = name, peer, None
        folder = stack.folder / name
        folder.mkdir()
        address = free_address()
        port = address.split(":")[1]
        marks = {"@PORT@": port, "@SERVER@": f"http://{stack.mock_address}/full/mcp", "@HERE@": str(HERE), "@BIN@": str(bin_folder),
                 "@FOLDER@": str(folder)}

        def filled(text):
            for mark, value in marks.items():
                text = text.replace(mark, value)
            return text

        for target, source in peer.get("files", {}).items():
            (folder / target).write_text(filled((HERE / source).read_text()))
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "NO_PROXY": "*", "HOME": str(folder)}
        environment |= {key: filled(value) for key, value in peer.get("environment", {}).items()}
        self.process = stack.start(name, [filled(part) for part in peer["command"]], GATEWAY_CORE, address, cwd=folder, env=environment)
        self.headers = peer.get("headers", [])
        if "setup" in peer:
            command = [filled(part) for part in peer["setup"]]
            done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120)
            if done.returncode != 0:
                raise RuntimeError(f"set-up of {name}: {done.stdout[-1500:]}")
            self.headers = (folder / "headers").read_text().splitlines()
        self.target = f"{address}/{peer['path']}"

    def arguments(self):
        headers = [part for header in self.headers for part in ("--header", header)]
        return self.process, ["--target", self.target, "--tool", self.peer["tool"], "--legacy", *headers]


class Peers(run.Runner):
    """A runner that knows the peers as targets too, and has all speak the legacy era."""

    def __init__(self, stack, quick, peers):
        super().__init__(stack, quick)
        self.peers = {peer.name: peer for peer in peers}

    def target(self, variant):
        if peer := self.peers.get(variant["target"]):
            return peer.arguments()
        process, arguments = super().target(variant)
        return process, [*arguments, "--legacy"]

    def works(self, name, seconds=60):
        """Whether calls through the peer come back verified; it may still be warming up."""
        end = time.monotonic() + seconds
        result = {}
        while time.monotonic() < end:
            result = self.once({"target": name, "arguments": ["--connections", "1"]}, {}, seconds=2)
            if result["all"]:
                return None
            time.sleep(1)
        return str(result.get("errors"))


def started(stack, wanted, peers):
    """Those that can be installed and started, and words for the others."""
    running, words = [], {}
    for name, peer in peers.items():
        if wanted and name not in wanted:
            continue
        bin_folder = install(name, peer)
        if bin_folder is None:
            words[name] = "could not be installed here"
            continue
        try:
            running.append(Peer(stack, name, peer, bin_folder))
            peer["version"] = version(name, peer, bin_folder)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            words[name] = f"does not start here: {str(error)[-600:]}"
    return running, words


def measure(runner, quick):
    plain = [{"name": "direct", "target": "direct"}, {"name": "nginx", "target": "nginx"}, {"name": "bare Pingora", "target": "bare"},
             {"name": "Toolgate", "target": "toolgate"}]
    variants = plain + [{"name": peer.peer["title"], "target": name} for name, peer in runner.peers.items()]
    scenario = {"title": f"As fast as it goes: {CONNECTIONS} connections, 1 KiB calls", "base": "bare Pingora", "rounds": ROUNDS,
                "seconds": SECONDS, "variant": variants}
    print("  throughput", flush=True)
    runner.compare("10-peers", scenario)
    taken = runner.results["10-peers"]["rounds"]
    # What its core allows, as a slow one may answer nothing within a round.
    costs = [report.middle(taken[variant["name"]], "cpu_us") for variant in variants]
    runner.maximum = max(20, 1e6 / max(cost for cost in costs if cost))
    print("  latency", flush=True)
    scenario = {"title": "At half of what the slowest can do, open loop", "base": "direct", "rate": 0.5, "rounds": 3, "seconds": 4.0,
                "variant": variants}
    runner.compare("20-peers-latency", scenario)


def table(peers, running, words):
    lines = ["| peer | version | set up to do | has no setting for |", "|---|---|---|---|"]
    for name, peer in peers.items():
        if name in words:
            lines.append(f"| {peer['title']} | {peer.get('version', '—')} | — | unsupported: {' '.join(words[name].split())[:300]} |")
        elif any(one.name == name for one in running):
            lines.append(f"| {peer['title']} | {peer['version']} | {peer['can']} | {peer['cannot']} |")
    return lines


def main():
    command = run.parser(__doc__)
    command.add_argument("--install-only", action="store_true")
    options = command.parse_args()
    peers = tomllib.loads((HERE / "peers.toml").read_text())
    if options.install_only:
        for name, peer in peers.items():
            if not options.only or name in options.only:
                install(name, peer)
        return

    def work(stack):
        running, words = started(stack, options.only, peers)
        runner = Peers(stack, options.quick, running)
        for peer in running:
            if fault := runner.works(peer.name):
                words[peer.name] = f"its calls fail: {fault}"
                del runner.peers[peer.name]
        measure(runner, options.quick)
        return runner.results, {"command": "make load-peers", "peers": table(peers, running, words)}

    run.measure(options, work, "-peers")


if __name__ == "__main__":
    sys.exit(main())
