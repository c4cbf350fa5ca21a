#!/usr/bin/env python3
"""Compares two result folders: `load/compare.py BEFORE AFTER`.

For every scenario and variant: the change of CPU a call and of p99, each relative to the scenario's own baseline of the same
round (bare Pingora, or the first variant), with a 95 % interval by bootstrap. Exits 1 where CPU a call got worse by more than
5 % and the interval excludes no change.
"""

import json
import pathlib
import random
import statistics
import sys

import report

WORSE = 1.05


def load(folder):
    return json.loads((pathlib.Path(folder) / "summary.json").read_text())


def relative(found, label, *path):
    """Round by round: the variant over the scenario's baseline; the baseline itself as it is."""
    taken = found["rounds"]
    base = found["base"] if found["base"] in taken else next(iter(taken))
    if label == base:
        return [value for value in (report.dig(result, path) for result in taken[label]) if value]
    return report.ratios(taken, label, base, *path)


def interval(before, after, times=4000):
    """Median of after over median of before, and its 95 % interval."""
    draw = random.Random(7)
    pick = lambda values: statistics.median(draw.choices(values, k=len(values)))
    drawn = sorted(pick(after) / pick(before) for _ in range(times))
    return statistics.median(after) / statistics.median(before), drawn[int(times * 0.025)], drawn[int(times * 0.975)]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    before, after = load(sys.argv[1]), load(sys.argv[2])
    worse = []
    print(f"{before['meta']['commit']} -> {after['meta']['commit']}; below 1 is better\n")
    print(f"{'scenario':<20} {'variant':<28} {'CPU a call':>24} {'p99':>24}")
    for name, found in after["results"].items():
        old = before["results"].get(name)
        for label in found["rounds"]:
            if old is None or label not in old["rounds"]:
                continue
            cells = []
            for path in (("cpu_us",), ("latency_us", "p99")):
                one, other = relative(old, label, *path), relative(found, label, *path)
                if not one or not other:
                    cells.append("—")
                    continue
                change, low, high = interval(one, other)
                cells.append(f"{change:.2f} ({low:.2f}–{high:.2f})")
                if path == ("cpu_us",) and change > WORSE and low > 1:
                    worse.append(f"{name}: {label}")
            print(f"{name:<20} {label:<28} {cells[0]:>24} {cells[1]:>24}")
    for what in worse:
        print(f"worse: {what}", file=sys.stderr)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
