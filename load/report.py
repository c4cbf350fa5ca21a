#!/usr/bin/env python3
"""Turns the results of a run into `summary.json`, `report.md` and plots; and writes the README's table from them.

    report.py --again FOLDER              writes report.md and the plots of a result folder anew
    report.py --readme [FOLDER [PEERS]]   writes the tables of README.md and docs/speed.md from a run, and from one of load-peers;
                                          from the newest full ones if none is named
"""

import argparse
import datetime
import hashlib
import json
import math
import os
import pathlib
import platform
import statistics
import subprocess

import plot

HERE = pathlib.Path(__file__).resolve().parent


def machine():
    """Where and what was measured."""
    def said(*command):
        try:
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout.strip()
        except OSError:
            return ""

    cpu = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    memory = pathlib.Path("/proc/meminfo").read_text().split()[1]
    binary = HERE.parent / "target" / "release" / "toolgate"
    return {
        "utc": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H-%M-%SZ"),
        "commit": said("git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=10"),
        "binary_sha256": hashlib.sha256(binary.read_bytes()).hexdigest() if binary.exists() else None,
        "cpu": cpu[0] if cpu else platform.processor(), "cores": len(cpu), "memory_gib": round(int(memory) / 2**20, 1),
        "kernel": platform.release(), "rustc": said("rustc", "--version"), "nginx": said("nginx", "-v").removeprefix("nginx version: "),
        "load_before": os.getloadavg(),
    }


# Numbers of rounds.

def slope(points):
    """Least squares, per second."""
    mean_t, mean_v = (statistics.fmean(values) for values in zip(*points))
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread if spread else 0


def slope_interval(points):
    """The slope with its 95 % interval, by the standard error of the residuals."""
    found = slope(points)
    mean_t, mean_v = (statistics.fmean(values) for values in zip(*points))
    left = sum((v - mean_v - found * (t - mean_t)) ** 2 for t, v in points) / max(1, len(points) - 2)
    half = 1.96 * math.sqrt(left / (sum((t - mean_t) ** 2 for t, _ in points) or 1))
    return found - half, found, found + half


def dig(result, path):
    for name in path:
        result = result.get(name) if result else None
    return result


def middle(rounds, *path):
    values = [value for value in (dig(result, path) for result in rounds) if value is not None]
    return statistics.median(values) if values else None


def ratios(taken, label, base, *path):
    """The ratio to the base, round by round."""
    pairs = ((dig(one, path), dig(other, path)) for one, other in zip(taken[label], taken[base]))
    return [a / b for a, b in pairs if a and b]


def speeds(taken, label, base):
    """Calls per CPU second as ratios to the base, round by round."""
    return [1 / ratio for ratio in ratios(taken, label, base, "cpu_us")]


def added(taken, label, quantile, base="direct"):
    """What is added to the base's latency, round by round, in microseconds."""
    pairs = ((dig(one, ("latency_us", quantile)), dig(other, ("latency_us", quantile))) for one, other in zip(taken[label], taken[base]))
    return [a - b for a, b in pairs if a is not None and b is not None]


def errors(rounds):
    return sum(sum(result["errors"].values()) for result in rounds)


# Words of numbers.

def number(value, digits=0):
    return "—" if value is None else f"{value:,.{digits}f}"


def spread(values, digits=2):
    if not values:
        return "—"
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def calls_table(taken, base):
    """Calls a CPU second and a wall second, as ratios to the base of the same round."""
    lines = [f"Ratios to {base}.", "",
             "| | calls/s | µs CPU a call | calls per CPU second, ratio (range) | p50 µs | p99 µs | errors |", "|---|--:|--:|--:|--:|--:|--:|"]
    for label, rounds in taken.items():
        lines.append(
            f"| {label} | {number(middle(rounds, 'achieved_per_second'))} | {number(middle(rounds, 'cpu_us'), 1)} "
            f"| {spread(speeds(taken, label, base))} | {number(middle(rounds, 'latency_us', 'p50'))} "
            f"| {number(middle(rounds, 'latency_us', 'p99'))} | {errors(rounds)} |"
        )
    return lines


def latency_table(taken, base="direct"):
    lines = ["| | offered/s | achieved/s | p50 µs | p90 | p99 | p99.9 | max | added p50 | added p99 | late start p99 | errors |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for label, rounds in taken.items():
        at = lambda q, of="latency_us": number(middle(rounds, of, q))
        more = lambda q: spread(added(taken, label, q, base), 0) if base in taken and label != base else "—"
        offered = statistics.median((result["offered"] or 0) / result["seconds"] for result in rounds)
        lines.append(
            f"| {label} | {number(offered)} | {number(middle(rounds, 'achieved_per_second'))} | {at('p50')} | {at('p90')} | {at('p99')} "
            f"| {at('p999')} | {at('max')} | {more('p50')} | {more('p99')} | {at('p99', 'late_start_us')} | {errors(rounds)} |"
        )
    return lines


def targets(results):
    """Contract §12, each with what was measured."""
    rows = []

    def row(what, goal, value, met):
        rows.append(f"| {what} | {goal} | {value} | {'—' if met is None else 'yes' if met else '**no**'} |")

    def half(values, most=None, least=None):
        return bool(values) and (statistics.median(values) <= most if most is not None else statistics.median(values) >= least)

    if found := results.get("10-throughput"):
        bare = speeds(found["rounds"], "Toolgate", "bare Pingora")
        row("calls per CPU second, of bare Pingora's: goal", "≥ 0.80", spread(bare), half(bare, least=0.80))
        row("the same: floor", "≥ 0.60", spread(bare), half(bare, least=0.60))
        nginx = ratios(found["rounds"], "Toolgate", "nginx", "cpu_us")
        row("CPU a call, of nginx's", "≤ 3.6", spread(nginx), half(nginx, most=3.6))
    if found := results.get("20-latency"):
        own = found["own_us"]
        for quantile, goal in (("p50", 60), ("p99", 200)):
            value = own[quantile]
            row(f"own time {quantile} at half of the maximum rate", f"≤ {goal} µs", f"{number(value, 1)} µs", value is not None and value <= goal)
    if found := results.get("60-policy-size"):
        for label in list(found["rounds"])[1:]:
            values = ratios(found["rounds"], label, found["base"], "cpu_us")
            row(f"CPU a call, {label}, to 1 key and few tools", "≤ 1.1", spread(values), half(values, most=1.1))
    if found := results.get("80-reload"):
        taken = found["rounds"]
        row(f"calls that fail under {found['swaps']:.0f} swaps of 10,000 tools", "0", str(errors(taken["swapping"])), errors(taken["swapping"]) == 0)
        values = ratios(taken, "swapping", "still", "latency_us", "p99")
        row("p99 under a swap each second, to without", "≤ 1.2", spread(values), half(values, most=1.2))
    if found := results.get("86-idle"):
        mib = found["resident_kib"].get("1000", found["resident_kib"].get(1000)) / 1024
        row("memory at rest with 1,000 tools", "≤ 40 MiB", f"{mib:.1f} MiB", mib <= 40)
    if found := results.get("90-soak"):
        value, interval = found["kib_an_hour"], found["kib_an_hour_interval"]
        words = "—" if value is None else f"{number(value)} KiB an hour ({number(interval[0])} to {number(interval[1])}), {found['seconds']:.0f} s of soak"
        row("growth of memory", "none", words, None)
    if found := results.get("84-open-calls"):
        row("memory of an open call", "documented", f"{found['kib_each']:.1f} KiB, {found['open']:,.0f} open", None)
    return ["| target (contract §12) | goal | median (range) | met |", "|---|---|---|---|", *rows] if rows else []


# The parts of the report, by kind of scenario.

def part_compare(found, out, name):
    if any(result.get("offered") for rounds in found["rounds"].values() for result in rounds):
        text = ["Latency from the moment at which a call was due.", "", *latency_table(found["rounds"], found["base"]), "", f"![{name}]({name}.svg)"]
        (out / f"{name}.svg").write_text(plot.curves({label: rounds[0]["curve_us"] for label, rounds in found["rounds"].items()}))
        if own := found.get("own_us"):
            text += ["", f"The gateway's own time in {own['calls']:,} calls, by its access log: p50 {number(own['p50'], 1)} µs, "
                         f"p90 {number(own['p90'], 1)}, p99 {number(own['p99'], 1)}, p99.9 {number(own['p999'], 1)}."]
        return text
    return calls_table(found["rounds"], found["base"])


def part_swaps(found, _out, _name):
    return [f"{found['swaps']:.0f} swaps, {found['swaps_rejected']:.0f} rejected.", "", *latency_table(found["rounds"], "still")]


def part_beside(found, _out, _name):
    return latency_table(found["rounds"], "alone")


def part_open(found, _out, _name):
    return [f"{found['open']:,.0f} calls open to the end, {found['kib_each']:.1f} KiB each; the others meanwhile:", "",
            *latency_table(found["rounds"], "alone")]


def part_idle(found, _out, _name):
    return ["| tools | resident MiB |", "|--:|--:|", *(f"| {int(size):,} | {kib / 1024:.1f} |" for size, kib in found["resident_kib"].items())]


def part_soak(found, out, name):
    (out / f"{name}.svg").write_text(plot.lines({"resident KiB": found["resident_kib"]}, "KiB"))
    return [*latency_table(found["rounds"]), "", f"![{name}]({name}.svg)"]


def part_wrk(found, _out, _name):
    return calls_table(found["rounds"], next(iter(found["rounds"])))


PARTS = {"compare": part_compare, "swaps": part_swaps, "beside": part_beside, "open": part_open, "idle": part_idle, "soak": part_soak,
         "wrk": part_wrk}


def write(folder, meta, results, suffix=""):
    """A new result folder."""
    meta["load_after"] = os.getloadavg()
    out = folder / f"{meta['utc']}-{meta['commit']}{suffix}"
    out.mkdir(parents=True)
    (out / "summary.json").write_text(json.dumps({"meta": meta, "results": results}) + "\n")
    render(out, meta, results)
    return out


def render(out, meta, results):
    command = meta.get("command", f"make load{' QUICK=1' if meta.get('quick') else ''}")
    text = [
        f"# Load test of {meta['commit']}, {meta['utc']}", "",
        f"{meta['cores']} cores of {meta['cpu']}, {meta['memory_gib']} GiB, Linux {meta['kernel']}; {meta['rustc']}; {meta['nginx']}. One core for what is "
        f"measured, one for the generator and the mock server. Load average before {meta['load_before'][0]:.1f}, after {meta['load_after'][0]:.1f}; "
        f"{meta['seconds']} s. Repeat with `{command}`.", "",
        "Every reply was verified by status, id and content. Ratios are taken between neighbours of one round and shown as median (least–most). "
        "Toolgate writes its access log and metrics; bare Pingora and nginx write nothing. `summary.json` holds every round, unrounded.", "",
    ]
    if table := targets(results):
        text += ["## Targets", "", *table, ""]
    if peers := meta.get("peers"):
        text += ["## Peers", "", "All speak the legacy era (2025-06-18) over Streamable HTTP, as that is what all of them can. Toolgate does all of its checks.", "",
                 *peers, ""]
    for name, found in results.items():
        text += [f"## {found['title']}", "", *PARTS[found["kind"] or "compare"](found, out, name), ""]
    if conf := meta.get("conf"):
        text += ["## Conf of the gateway", "", "```toml", conf.strip(), "```", ""]
    (out / "report.md").write_text("\n".join(text))


# README.md and docs/speed.md.

def newest(of_peers):
    """The newest results that are not of a quick run."""
    found = sorted(path for path in (HERE / "results").glob("*/summary.json") if path.parent.name.endswith("-peers") == of_peers)
    full = [path.parent for path in found if not json.loads(path.read_text())["meta"]["quick"]]
    return full[-1] if full else None


def load(folder):
    summary = json.loads((pathlib.Path(folder) / "summary.json").read_text())
    return summary["meta"], summary["results"]


def main_table(results, peers):
    """The one table that matters: calls per core and added latency, as ratios to bare Pingora of the same run."""
    through, latency = results["10-throughput"]["rounds"], results["20-latency"]["rounds"]
    rows = [(label, through, latency) for label in ("nginx", "bare Pingora", "Toolgate")]
    if peers:
        through, latency = peers["10-peers"]["rounds"], peers["20-peers-latency"]["rounds"]
        rows += [(label, through, latency) for label in through if label not in ("direct", "nginx", "bare Pingora", "Toolgate")]
    lines = ["| | calls per CPU second, of bare Pingora's | CPU a call | added p50 | added p99 |", "|---|--:|--:|--:|--:|"]
    for label, through, latency in rows:
        name = "**Toolgate, everything on**" if label == "Toolgate" else label
        lines.append(f"| {name} | {spread(speeds(through, label, 'bare Pingora'), 3 if label not in ('nginx', 'bare Pingora', 'Toolgate') else 2)} "
                     f"| {number(middle(through[label], 'cpu_us'))} µs | {micros(latency, label, 'p50')} | {micros(latency, label, 'p99')} |")
    return lines


def micros(taken, label, quantile):
    values = added(taken, label, quantile) if label in taken else []
    return f"{number(statistics.median(values))} µs" if values else "—"


def between(path, mark, lines):
    """Puts lines between the two comments of that mark."""
    text = path.read_text()
    begin, end = f"<!-- {mark}: written by load/report.py -->", f"<!-- /{mark} -->"
    head, rest = text.split(begin, 1)
    _, tail = rest.split(end, 1)
    path.write_text("\n".join([head + begin, *lines, end]) + tail)


def readme(folder, peers_folder):
    meta, results = load(folder)
    peers_meta, peers = load(peers_folder) if peers_folder else (None, None)
    root = HERE.parent
    where = pathlib.Path(folder).resolve().relative_to(root)
    commands = "`make load`" + (" and `make load-peers`" if peers else "")
    note = (f"One core of {meta['cpu']}, load average {meta['load_before'][0]:.1f}; medians (least–most) of interleaved rounds; the same 1 KiB call, "
            f"latency at half of Toolgate's maximum rate, added to a direct call. Repeat with {commands}; all of it: [{where}/report.md]({where}/report.md).")
    if peers:
        at = pathlib.Path(peers_folder).resolve().relative_to(root)
        note += (f" Peers do less than Toolgate, and their latency is taken at half of what the slowest of them can do: "
                 f"[{at}/report.md]({at}/report.md).")
    between(root / "README.md", "speed", [*main_table(results, peers), "", note])
    between(root / "docs" / "speed.md", "targets", targets(results))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--again", metavar="FOLDER", type=pathlib.Path)
    parser.add_argument("--readme", metavar="FOLDER", nargs="*", type=pathlib.Path)
    options = parser.parse_args()
    if options.again:
        render(options.again, *load(options.again))
    if options.readme is not None:
        folder, peers = [*options.readme, None, None][:2] if options.readme else (newest(False), newest(True))
        readme(folder or parser.error("no full results of `make load`"), peers)


if __name__ == "__main__":
    main()
