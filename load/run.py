#!/usr/bin/env python3
"""Runs the load tests and writes a report: `make load`, or `make load QUICK=1` for a look.

What is run stands in `scenarios/*.toml`, in the order of their names; this file is how each kind of scenario is run. Every
comparison is taken in interleaved rounds on the same two cores in the same run: one for what is measured, one for the generator
and the mock server. Believe ratios, not absolute numbers. Results go to `load/results/<utc>-<commit>/`.
"""

import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import tomllib

import report
from stack import HERE, KEYS, LADDER, LOAD_CORE, TARGET, Gateway, Stack, token

FULL = len(LADDER) - 1
SCENARIOS = HERE / "scenarios"
# A quick run takes so much of the time, and not more rounds than these.
QUICK_SHARE, QUICK_ROUNDS = 0.35, 2


def scenarios(only):
    """The scenario files by name."""
    found = {path.stem: tomllib.loads(path.read_text()) for path in sorted(SCENARIOS.glob("*.toml"))}
    wanted = lambda name: not only or any(part in name for part in only)
    return {name: scenario for name, scenario in found.items() if wanted(name)}


class Runner:
    def __init__(self, stack, quick, soak=None):
        self.stack, self.quick, self.soak_seconds = stack, quick, soak
        self.results = {}
        self.maximum = None
        self.keys = {"all": stack.keys_file("all", [token("all")]),
                     "many": stack.keys_file("many", [token(f"many{n}") for n in range(KEYS)]),
                     "10k": stack.keys_file("10k", [token(f"many{n}") for n in range(10 * KEYS)])}
        self.keys |= {n: stack.keys_file(f"step{n}", [token(n)]) for n in range(len(LADDER))}

    def target(self, variant):
        """The process that is measured (none: nothing between generator and server), and the generator's arguments."""
        kind, path = variant["target"], variant.get("path", "full")
        plain = {"direct": (None, self.stack.mock_address), "nginx": (self.stack.nginx, self.stack.nginx_address),
                 "bare": self.stack.bare["pass"], "filters": self.stack.bare["filters"], "held": self.stack.bare["held"]}
        if kind in plain:
            process, address = plain[kind]
            return process, ["--target", f"{address}/{path}/mcp"]
        if kind == "many":
            gateway, step, keys = self.stack.many, FULL, "10k"
            tool = ["--tool", f"s{FULL}_work_{{n}}", "--spread", "9973"]
        else:
            gateway, step = self.stack.gateway, variant.get("step", FULL)
            keys = variant.get("keys", step)
            tool = ["--tool", variant.get("tool") or f"{variant.get('server', f's{step}')}_work"]
        keys = [] if keys == "none" else ["--keys", self.keys[keys]]
        return gateway.process, ["--target", f"{gateway.address}/gateway/mcp", *tool, *keys]

    def command(self, variant, scenario, seconds, warmup=0.25):
        """The generator's command line for a variant."""
        arguments = [*self.target(variant)[1], *scenario.get("arguments", []), *variant.get("arguments", [])]
        if rate := variant.get("rate", scenario.get("rate")):
            arguments += ["--rate", f"{max(20, rate * self.maximum):.0f}"]
        return list(map(str, ["taskset", "-c", LOAD_CORE, TARGET / "toolgate-load", *arguments,
                              "--seconds", seconds, "--warmup", warmup]))

    def once(self, variant, scenario, seconds=None):
        """One run of the generator, with the processor time that the target took a call."""
        process = self.target(variant)[0]
        before = process.cpu_ns() if process else 0
        command = self.command(variant, scenario, seconds or self.time(scenario))
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout)
        if process:
            result["cpu_us"] = (process.cpu_ns() - before) / 1e3 / max(1, result["all"])
            result["resident_kib"] = process.resident_kib()
        return result

    def time(self, scenario):
        return round(scenario["seconds"] * (QUICK_SHARE if self.quick else 1), 2)

    def rounds(self, scenario):
        return min(scenario["rounds"], QUICK_ROUNDS) if self.quick else scenario["rounds"]

    def keep(self, name, scenario, taken, **more):
        """Writes a scenario's rounds down: label to results."""
        fields = {field: scenario.get(field) for field in ("kind", "title", "base")}
        self.results[name] = {**fields, "rounds": taken, **more}

    def measure_maximum(self):
        """What Toolgate does at most, for the scenarios with a rate when throughput is not run."""
        found = self.once({"target": "toolgate"}, {}, seconds=0.5)
        self.maximum = max(100, found["achieved_per_second"])

    def run(self, only):
        for name, scenario in scenarios(only).items():
            if self.maximum is None and name != "10-throughput":
                self.measure_maximum()
            print(f"  {name}", flush=True)
            KINDS[scenario.get("kind", "compare")](self, name, scenario)

    def compare(self, name, scenario):
        """Interleaved rounds of each variant; for each of `sizes_kib`, if there are any."""
        for kib in scenario.get("sizes_kib", [None]):
            sized = dict(scenario)
            if kib:
                size = min(kib << 10, (256 << 10) - 256)
                sized["arguments"] = ["--request", size, "--answer", size]
                sized["title"] = scenario["title"].format(size=f"{kib} KiB")
            if "prelude" in scenario:
                self.once({"target": "toolgate", "keys": "none", "arguments": scenario["prelude"]}, {}, seconds=0.3)
            start = self.stack.gateway.log_bytes()
            taken = {variant["name"]: [] for variant in scenario["variant"]}
            for _ in range(self.rounds(scenario)):
                for variant in scenario["variant"]:
                    taken[variant["name"]].append(self.once(variant, sized))
            more = {}
            if scenario.get("own_time"):
                time.sleep(0.2)
                more["own_us"] = self.stack.gateway.own_times_us(start)
            self.keep(f"{name} {kib} KiB" if kib else name, sized, taken, **more)
        if name == "10-throughput":
            rates = sorted(result["achieved_per_second"] for result in taken["Toolgate"])
            self.maximum = max(100, rates[len(rates) // 2])

    def swaps(self, name, scenario):
        """The same calls without and with a swap of the policy in each interval."""
        taken, swaps, refused = {"still": [], "swapping": []}, 0, 0
        for _ in range(self.rounds(scenario)):
            taken["still"].append(self.once(scenario["variant"][0], scenario))
            before, stop = self.stack.many.swaps(), threading.Event()

            def swap():
                while not stop.wait(scenario["every"]):
                    self.stack.many.reload()

            with running(swap, stop):
                taken["swapping"].append(self.once(scenario["variant"][0], scenario))
            time.sleep(1)
            after = self.stack.many.swaps()
            swaps, refused = swaps + after["applied"] - before["applied"], refused + after["rejected"] - before["rejected"]
        self.keep(name, scenario, taken, swaps=swaps, swaps_rejected=refused)

    def beside(self, name, scenario):
        """The same calls alone and beside others."""
        taken = {"alone": [], "beside": [], **{other["name"]: [] for other in scenario["beside"]}}
        for _ in range(self.rounds(scenario)):
            taken["alone"].append(self.once(scenario["variant"][0], scenario))
            others = [threading.Thread(target=lambda other=other: taken[other["name"]].append(self.once(other, scenario)))
                      for other in scenario["beside"]]
            for other in others:
                other.start()
            taken["beside"].append(self.once(scenario["variant"][0], scenario))
            for other in others:
                other.join()
        self.keep(name, scenario, taken)

    def open(self, name, scenario):
        """Calls that wait: what each costs in memory, and what the others feel."""
        count = scenario["open"] // 10 if self.quick else scenario["open"]
        taken = {"alone": [], "beside": []}
        for _ in range(self.rounds(scenario)):
            taken["alone"].append(self.once(scenario["variant"][0], scenario))
        gateway = self.stack.gateway
        before = gateway.process.resident_kib()
        slow = {**scenario["beside"][0], "arguments": ["--connections", count]}
        holder = subprocess.Popen(self.command(slow, {}, 600), stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 30
            while gateway.in_flight("slow") < count and time.monotonic() < end:
                time.sleep(0.2)
            open_before = gateway.in_flight("slow")
            grown = gateway.process.resident_kib() - before
            for _ in range(self.rounds(scenario)):
                taken["beside"].append(self.once(scenario["variant"][0], scenario))
            open_after = gateway.in_flight("slow")
        finally:
            holder.kill()
            holder.wait()
        self.keep(name, scenario, taken, open=min(open_before, open_after), kib_each=grown / max(1, open_before))

    def idle(self, name, scenario):
        """Resident memory of a gateway that has just started with so many tools and a hundred keys."""
        taken = {}
        for size in scenario["sizes"]:
            gateway = Gateway(self.stack, f"idle-{size}", self.stack.policy_many(size, 100), discovery="1hour")
            time.sleep(1)
            taken[size] = gateway.process.resident_kib()
            gateway.process.end()
        self.keep(name, scenario, {}, resident_kib=taken)

    def soak(self, name, scenario):
        seconds = self.soak_seconds or self.time(scenario) / (6 if self.quick else 1)
        samples, stop = [], threading.Event()
        start = time.monotonic()

        def sample():
            while not stop.wait(0.5):
                samples.append((round(time.monotonic() - start, 1), self.stack.gateway.process.resident_kib()))

        with running(sample, stop):
            result = self.once(scenario["variant"][0], scenario, seconds)
        late = [(t, kib) for t, kib in samples if t > seconds / 3]
        low, slope, high = report.slope_interval(late) if len(late) > 4 else (None, None, None)
        more = {"kib_an_hour": slope and slope * 3600, "kib_an_hour_interval": slope and [low * 3600, high * 3600]}
        self.keep(name, scenario, {"soak": [result]}, seconds=seconds, resident_kib=samples, **more)

    def wrk(self, name, scenario):
        """The same calls by our generator and by wrk, in turn."""
        if not shutil.which("wrk"):
            print("  wrk is not installed", flush=True)
            return
        taken = {f"{variant['name']}, {tool}": [] for variant in scenario["variant"] for tool in ("ours", "wrk")}
        for _ in range(self.rounds(scenario)):
            for variant in scenario["variant"]:
                taken[f"{variant['name']}, ours"].append(self.once(variant, scenario))
                taken[f"{variant['name']}, wrk"].append(self.wrk_once(variant, max(1, round(self.time(scenario)))))
        self.keep(name, scenario, taken)

    def wrk_once(self, variant, seconds):
        process, arguments = self.target(variant)
        tool, key = (f"s{FULL}_work", token(FULL)) if variant["target"] == "toolgate" else ("work", "none")
        command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", "-c16", f"-d{seconds}", "-s", HERE / "wrk.lua",
                   f"http://{arguments[1]}", "--", tool, key]
        before = process.cpu_ns()
        out = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True).stdout
        calls, bad, micros, p50, p99 = map(int, [line for line in out.splitlines() if line.startswith("wrk ")][-1].split()[1:])
        return {"ok": calls, "all": calls, "errors": {"bad": bad} if bad else {}, "achieved_per_second": calls / micros * 1e6,
                "cpu_us": (process.cpu_ns() - before) / 1e3 / max(1, calls), "latency_us": {"p50": p50, "p99": p99}}


KINDS = {"compare": Runner.compare, "swaps": Runner.swaps, "beside": Runner.beside, "open": Runner.open, "idle": Runner.idle,
         "soak": Runner.soak, "wrk": Runner.wrk}


class running:
    """A thread while the block runs."""

    def __init__(self, work, stop):
        self.thread, self.stop = threading.Thread(target=work), stop

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def parser(doc):
    """What every command line here takes."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", action="append", help="part of the name of what is to run; may be repeated")
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results", help="where the folder of results is made")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and confs")
    return parser


def measure(options, work, suffix=""):
    """Starts everything, has `work(stack)` measure, and writes the report of the results and facts that it gives."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="toolgate-load-"))
    folder.chmod(0o755)  # nginx's worker is another user
    meta, started = report.machine(), time.monotonic()
    print("starting the mock server, nginx, bare Pingora and the gateways", flush=True)
    stack = Stack(folder / "stack")
    try:
        stack.start_all()
        results, facts = work(stack)
        meta |= {"quick": options.quick, "seconds": round(time.monotonic() - started), "conf": stack.gateway.conf, **facts}
        out = report.write(options.results, meta, results, suffix=suffix)
        print((out / "report.md").read_text())
        print(f"{out}/report.md")
    finally:
        stack.end()
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def main():
    command = parser(__doc__)
    command.add_argument("--soak", type=float, help="seconds of the soak")
    options = command.parse_args()

    def work(stack):
        runner = Runner(stack, options.quick, options.soak)
        runner.run(options.only)
        return runner.results, {"maximum_per_second": runner.maximum}

    measure(options, work)


if __name__ == "__main__":
    sys.exit(main())
