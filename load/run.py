#!/usr/bin/env python3
"""Runs the load tests and writes a report: `make load`, or `make load QUICK=1` for a minute's worth.

Every comparison is taken in interleaved rounds on the same two cores in the same run: one for what is measured, one for the
generator and the mock server. Believe ratios, not absolute numbers. Results go to load/results/<utc>-<commit>/.
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

import report
from stack import HERE, KEYS, LADDER, LOAD_CORE, TARGET, Stack, token

FULL = len(LADDER) - 1


class Runner:
    def __init__(self, stack, quick):
        self.stack, self.quick = stack, quick
        self.rounds = 3 if quick else 5
        self.seconds = 0.6 if quick else 1.6
        self.results = {}
        self.one_key = {n: stack.keys_file(f"step{n}", [token(n)]) for n in range(len(LADDER))}
        self.many_keys = stack.keys_file("many", [token(f"many{n}") for n in range(KEYS)])
        self.all_key = stack.keys_file("all", [token("all")])

    # What is called: (process, generator arguments).
    def direct(self, path="full"):
        return None, ["--target", f"{self.stack.mock_address}/{path}/mcp"]

    def nginx(self, path="full"):
        return self.stack.nginx, ["--target", f"{self.stack.nginx_address}/{path}/mcp"]

    def bare(self, path="full"):
        return self.stack.bare, ["--target", f"{self.stack.bare_address}/{path}/mcp"]

    def toolgate(self, step=FULL, slug=None, keys=None):
        target = f"{self.stack.gateway.address}/gateway/mcp"
        tool = f"{slug or f's{step}'}_work"
        return self.stack.gateway.process, ["--target", target, "--tool", tool, "--keys", keys or self.one_key[step]]

    def many(self):
        target = f"{self.stack.many.address}/gateway/mcp"
        keys = ["--keys", self.stack.keys_file("many10k", [token(f"many{n}") for n in range(10 * KEYS)])]
        return self.stack.many.process, ["--target", target, "--tool", "s5_work_{n}", "--spread", "9973", *keys]

    def once(self, what, *extra, seconds=None, warmup=0.25):
        """One run of the generator, with the processor time that the target took a call."""
        process, arguments = what
        command = ["taskset", "-c", LOAD_CORE, TARGET / "toolgate-load", "run", *arguments, *extra,
                   "--seconds", seconds or self.seconds, "--warmup", warmup]
        before = process.cpu_ns() if process else 0
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True)
        result = json.loads(done.stdout)
        if process:
            result["cpu_us"] = (process.cpu_ns() - before) / 1e3 / max(1, result["all"])
            result["resident_kib"] = process.resident_kib()
        return result

    def compare(self, name, variants, *extra, rounds=None, seconds=None):
        """Interleaved rounds of each variant."""
        print(f"  {name}", flush=True)
        taken = {label: [] for label in variants}
        for _ in range(rounds or self.rounds):
            for label, what in variants.items():
                more = what[2] if len(what) > 2 else []
                taken[label].append(self.once(what[:2], *extra, *more, seconds=seconds))
        self.results[name] = taken
        return taken

    def run(self):
        self.throughput()
        self.latency()
        few = 2 if self.quick else 3
        ladder = {"bare Pingora": self.bare()}
        ladder |= {step[0]: self.toolgate(n) for n, step in enumerate(LADDER)}
        self.compare("ladder", ladder, rounds=few)
        for kib in (1, 16, 64, 256):
            size = min(kib << 10, (256 << 10) - 256)
            both = ["--request", size, "--answer", size]
            variants = {"nginx": self.nginx(), "bare Pingora": self.bare(), "Toolgate": self.toolgate()}
            self.compare(f"size {kib} KiB", variants, *both, rounds=2, seconds=0.4 if self.quick else 1)
        streams = {"bare Pingora, JSON": self.bare(), "Toolgate, JSON": self.toolgate(),
                   "bare Pingora, SSE": self.bare("sse"), "Toolgate, SSE": self.toolgate(slug="sse", keys=self.all_key)}
        self.compare("streams", streams, rounds=2)
        sizes = {"1 key": self.toolgate(), f"{KEYS:,} keys": self.toolgate(keys=self.many_keys)}
        if self.stack.many:
            sizes["10,000 tools, 10,000 keys"] = self.many()
        self.compare("policy size", sizes, rounds=few)
        self.refusals()
        if self.stack.many:
            self.reload()
        self.dead_server()
        self.open_calls()
        self.soak()
        self.cross_check()

    def throughput(self):
        variants = {"direct": self.direct(), "nginx": self.nginx(), "bare Pingora": self.bare(), "Toolgate": self.toolgate()}
        taken = self.compare("throughput", variants)
        rates = sorted(result["achieved_per_second"] for result in taken["Toolgate"])
        self.half = max(50, rates[len(rates) // 2] / 2)

    def latency(self):
        """Open loop, everything at half of what Toolgate can do."""
        variants = {"direct": self.direct(), "nginx": self.nginx(), "bare Pingora": self.bare(), "Toolgate": self.toolgate()}
        start = self.stack.gateway.log_bytes()
        seconds = 1 if self.quick else 2.5
        self.compare("latency", variants, "--rate", f"{self.half:.0f}", rounds=2 if self.quick else 3, seconds=seconds)
        time.sleep(0.1)
        own = self.stack.gateway.own_times_us(start)
        at = lambda share: own[min(len(own) - 1, int(len(own) * share))] if own else None
        self.results["own time"] = {"calls": len(own), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "p999": at(0.999)}

    def refusals(self):
        gateway = self.toolgate()
        nobody = (gateway[0], gateway[1][:2])
        # Past `rate_limits.failed_auth` of an address its failing attempts are told to wait: spend that first.
        self.once(nobody, "--expect", "http:401", seconds=0.3)
        variants = {
            "allowed": gateway,
            "no key, 429": (*nobody, ["--expect", "http:429"]),
            "tool_not_allowed": (*self.toolgate(slug="hidden"), ["--expect", "refusal:tool_not_allowed"]),
            "invalid_tool_arguments": (*gateway, ["--expect", "refusal:invalid_tool_arguments", "--broken"]),
        }
        self.compare("refusals", variants, rounds=2)

    def reload(self):
        """A swap each second of 10,000 tools, beside the same time without."""
        print("  reload", flush=True)
        seconds, rate = (3 if self.quick else 8), ["--rate", f"{self.half:.0f}"]
        still = self.once(self.many(), *rate, seconds=seconds)
        before, stop = self.stack.many.swaps(), threading.Event()

        def swap():
            while not stop.wait(1):
                self.stack.many.reload()

        swapper = threading.Thread(target=swap)
        swapper.start()
        swapping = self.once(self.many(), *rate, seconds=seconds)
        stop.set()
        swapper.join()
        time.sleep(1)
        swapping["swaps"] = self.stack.many.swaps() - before
        self.results["reload"] = {"still": [still], "a swap each second": [swapping]}

    def dead_server(self):
        """Calls to a live server while others call a dead one."""
        print("  one dead server", flush=True)
        seconds, rate = (1 if self.quick else 3), ["--rate", f"{self.half / 2:.0f}"]
        alone = self.once(self.toolgate(), *rate, seconds=seconds)
        dead = self.toolgate(slug="dead", keys=self.all_key)
        thread = threading.Thread(target=lambda: self.once(dead, "--connections", 4, "--rate", f"{self.half / 8:.0f}",
                                                           "--expect", "refusal:upstream_unavailable", seconds=seconds))
        thread.start()
        beside = self.once(self.toolgate(), *rate, seconds=seconds)
        thread.join()
        self.results["one dead server"] = {"alone": [alone], "beside a dead server": [beside]}

    def open_calls(self):
        """Thousands of calls that wait for a slow server: what each costs in memory, and what the others feel."""
        count = 500 if self.quick else 5000
        print(f"  {count} open calls", flush=True)
        process = self.stack.gateway.process
        before = process.resident_kib()
        process_, arguments = self.toolgate(slug="slow", keys=self.all_key)
        command = ["taskset", "-c", LOAD_CORE, TARGET / "toolgate-load", "run", *arguments, "--connections", count, "--seconds", 600]
        holder = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 15
            while time.monotonic() < end:
                found = [line for line in self.stack.gateway.metrics().splitlines() if line.startswith('toolgate_in_flight{server="slow"}')]
                if found and float(found[0].split()[1]) >= count:
                    break
                time.sleep(0.2)
            open_now = float(found[0].split()[1]) if found else 0
            grown = process.resident_kib() - before
            beside = self.once(self.toolgate(), "--rate", f"{self.half / 2:.0f}", seconds=1 if self.quick else 3)
        finally:
            holder.kill()
            holder.wait()
        self.results["open calls"] = {"open": open_now, "kib_each": grown / max(1, open_now), "beside": beside}

    def soak(self):
        """Half the maximum for a while; the slope of resident memory over the last two thirds."""
        seconds = self.soak_seconds
        print(f"  soak, {seconds} s", flush=True)
        samples, stop = [], threading.Event()
        start = time.monotonic()

        def sample():
            while not stop.wait(0.5):
                samples.append((time.monotonic() - start, self.stack.gateway.process.resident_kib()))

        sampler = threading.Thread(target=sample)
        sampler.start()
        result = self.once(self.toolgate(keys=self.many_keys), "--rate", f"{self.half:.0f}", seconds=seconds)
        stop.set()
        sampler.join()
        late = [(t, kib) for t, kib in samples if t > seconds / 3]
        slope = report.slope(late) * 3600 if len(late) > 2 else None
        self.results["soak"] = {"seconds": seconds, "run": result, "resident_kib": samples, "kib_an_hour": slope}

    def cross_check(self):
        """The same call from wrk, if it is here: our generator should see about the same."""
        if not shutil.which("wrk"):
            return
        print("  wrk", flush=True)
        taken = {}
        for label, (process, arguments), key in (("bare Pingora", self.bare(), "none"), ("Toolgate", self.toolgate(), token(FULL))):
            tool = f"s{FULL}_work" if label == "Toolgate" else "work"
            seconds = 1 if self.quick else 2
            command = ["taskset", "-c", LOAD_CORE, "wrk", "-t1", "-c16", f"-d{seconds}", "-s", HERE / "wrk.lua",
                       f"http://{arguments[1]}", "--", tool, key]
            before = process.cpu_ns()
            out = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True, check=True).stdout
            calls, bad, micros = map(int, [line for line in out.splitlines() if line.startswith("wrk ")][-1].split()[1:])
            taken[label] = {"calls": calls, "bad": bad, "per_second": calls / micros * 1e6,
                            "cpu_us": (process.cpu_ns() - before) / 1e3 / max(1, calls)}
        self.results["wrk"] = taken


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--soak", type=float, help="seconds of the soak (default 20, quick 4)")
    parser.add_argument("--only", action="append", help="scenario methods to run, such as throughput or latency")
    parser.add_argument("--keep", action="store_true", help="keep the folder with logs and confs")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    folder = pathlib.Path(tempfile.mkdtemp(prefix="toolgate-load-"))
    meta = report.machine()
    started = time.monotonic()
    print("starting the mock server, nginx, bare Pingora and the gateways", flush=True)
    stack = None
    try:
        stack = Stack(folder / "stack", many=not options.only)
        runner = Runner(stack, options.quick)
        runner.soak_seconds = options.soak or (4 if options.quick else 20)
        if options.only:
            runner.half = 1000
            for name in options.only:
                getattr(runner, name)()
        else:
            runner.run()
        meta |= {"quick": options.quick, "seconds": round(time.monotonic() - started), "half_rate": runner.half}
        meta |= {"resident_kib_idle": stack.many.process.resident_kib() if stack.many else None}
        out = report.write(HERE / "results", meta, runner.results)
        print(f"{out}/report.md")
        print((out / "report.md").read_text())
    finally:
        if stack:
            stack.end()
        if options.keep:
            print(f"kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
