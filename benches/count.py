#!/usr/bin/env python3
"""Instructions of the cases of `benches/line.rs`, counted by callgrind, and the gate that compares them with the baseline.

    count.py                 prints instructions a call beside the baseline
    count.py --check         fails if a case costs more than 3 % more than its baseline, or is missing
    count.py --write         writes the counts as the new baseline
    count.py --guard         writes the table of docs/guardrails.md from the cases of `benches/guard.rs`, with the best times
    count.py --profile NAME  keeps callgrind's profile of one case in target/callgrind.NAME.out and prints its top

Counting starts after the case is made and warmed up, and only within `measured`. Valgrind shows the program a machine
without AVX-512 and SHA instructions, so the counts hold on any x86-64 with AVX2.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BASELINE = HERE / "baseline.json"
GUARDRAILS = HERE.parent / "docs" / "guardrails.md"
TOLERANCE = 0.03
TIMES = 512  # a multiple of the calls that go round
GATED = r"^(whole (10|1000|10000)|whole \d+, .*|ladder .*|stage .*)$"


def binary(bench="toolgate-bench-line"):
    """Builds the bench and finds its binary."""
    command = ["cargo", "build", "--release", "--locked", "--features", "load", "--bin", bench, "--message-format=json"]
    built = subprocess.run(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = [m["executable"] for m in map(json.loads, built.splitlines()) if m.get("executable") and bench in m["target"]["name"]]
    return found[-1]


def count(program, name, profile=None, times=TIMES):
    """Instructions of one call of the case."""
    with tempfile.TemporaryDirectory() as folder:
        out = profile or os.path.join(folder, "out")
        command = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--toggle-collect=toolgate_bench_*::measured*", f"--callgrind-out-file={out}"]
        if profile:
            command += ["--dump-instr=no", "--separate-threads=no"]
        run = subprocess.Popen(command + [program, "count", name, str(times)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
        if run.stdout.readline().strip() != "ready":
            sys.exit(f"{name}: {run.stderr.read()}")
        subprocess.run(["callgrind_control", "-i", "on", str(run.pid)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, errors = run.communicate("go\n")
        if run.returncode != 0:
            sys.exit(f"{name}: {errors}")
        text = pathlib.Path(out).read_text()
        total = re.search(r"^(?:totals|summary): (\d+)", text, re.MULTILINE)
        return round(int(total.group(1)) / times)


def guard(program):
    """Instructions and microseconds of a call's guardrails by kind of text and size, as the table of the docs."""
    names = subprocess.run([program, "list"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    lines = ["| text | KiB | instructions | a byte | µs |", "|---|--:|--:|--:|--:|"]
    for name in names:
        kind, size = name.rsplit(" ", 1)
        cost = count(program, name, times=8)
        times = [float(subprocess.run([program, "time", name], stdout=subprocess.PIPE, text=True, check=True).stdout) for _ in range(5)]
        lines.append(f"| {kind} | {size} | {cost:,} | {cost / 2 / 1024 / int(size):.1f} | {min(times):,.1f} |")
        print(lines[-1], flush=True)
    text = GUARDRAILS.read_text()
    start, end = "<!-- cost -->\n", "<!-- /cost -->"
    GUARDRAILS.write_text(text[: text.index(start) + len(start)] + "\n".join(lines) + "\n" + text[text.index(end):])


def table(counts, baseline):
    print(f"{'case':<40} {'instructions':>13} {'baseline':>10} {'change':>8}")
    over = []
    for name, value in counts.items():
        before = baseline.get(name)
        change = "" if not before else f"{(value / before - 1) * 100:+.1f} %"
        print(f"{name:<40} {value:>13,} {before or '-':>10} {change:>8}")
        if before and value > before * (1 + TOLERANCE):
            over.append(name)
    return over


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--profile")
    parser.add_argument("--all", action="store_true", help="also the policy of 100,000 tools")
    parser.add_argument("--guard", action="store_true", help="the guardrails' table")
    parser.add_argument("--program", help="a bench that is built already")
    parser.add_argument("filter", nargs="?", default="")
    options = parser.parse_args()
    program = options.program or binary("toolgate-bench-guard" if options.guard else "toolgate-bench-line")
    if options.guard:
        guard(program)
        return
    if options.profile:
        out = HERE.parent / "target" / f"callgrind.{options.profile.replace(' ', '-')}.out"
        print(f"{count(program, options.profile, str(out)):,} instructions a call; profile: {out}")
        subprocess.run(f"callgrind_annotate --auto=no --inclusive=no {out} | head -70", shell=True, check=False)
        return
    names = subprocess.run([program, "list"], stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    names = [name for name in names if options.filter in name and (options.all or re.match(GATED, name))]
    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    counts = {name: count(program, name) for name in names}
    over = table(counts, baseline)
    if options.write:
        BASELINE.write_text(json.dumps({**baseline, **counts} if options.filter else counts, indent=2) + "\n")
    if options.check:
        missing = sorted(set(baseline) ^ set(counts)) if not options.filter else []
        for name in over:
            print(f"count: `{name}` costs more than {TOLERANCE:.0%} more than its baseline", file=sys.stderr)
        for name in missing:
            print(f"count: `{name}` is only on one side; write the baseline anew", file=sys.stderr)
        print(f"{len(counts) - len(over)} passed, {len(over) + len(missing)} failed")
        sys.exit(1 if over or missing else 0)


if __name__ == "__main__":
    main()
