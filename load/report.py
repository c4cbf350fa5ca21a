"""Turns the results of a run into `summary.json`, `report.md` and plots."""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


def machine():
    """Where and what was measured."""
    def said(*command):
        try:
            return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False).stdout.strip()
        except OSError:
            return ""

    cpu = [line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "utc": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H-%M-%SZ"),
        "commit": said("git", "-C", str(HERE), "describe", "--always", "--dirty", "--abbrev=10"),
        "cpu": cpu[0] if cpu else platform.processor(), "cores": len(cpu), "kernel": platform.release(),
        "rustc": said("rustc", "--version"), "nginx": said("nginx", "-v"), "load_before": os.getloadavg(),
    }


def slope(points):
    """Least squares, per second."""
    mean_t, mean_v = (statistics.fmean(values) for values in zip(*points))
    spread = sum((t - mean_t) ** 2 for t, _ in points)
    return sum((t - mean_t) * (v - mean_v) for t, v in points) / spread if spread else 0


def middle(rounds, *path):
    values = [value for value in (dig(result, path) for result in rounds) if value is not None]
    return statistics.median(values) if values else None


def dig(result, path):
    for name in path:
        result = result.get(name) if result else None
    return result


def ratios(taken, label, base, *path):
    """The ratio to the base, round by round."""
    pairs = ((dig(one, path), dig(other, path)) for one, other in zip(taken[label], taken[base]))
    return [a / b for a, b in pairs if a and b]


def errors(rounds):
    return sum(sum(result["errors"].values()) for result in rounds)


def number(value, digits=0):
    return "—" if value is None else f"{value:,.{digits}f}"


def spread(values, digits=2):
    if not values:
        return "—"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def calls_table(taken, base):
    """Calls a CPU second and a wall second, as ratios to the base of the same round."""
    lines = ["| | calls/s | µs CPU a call | calls per CPU second, ratio (range) | p50 µs | p99 µs | errors |", "|---|--:|--:|--:|--:|--:|--:|"]
    for label, rounds in taken.items():
        cpu = [1 / ratio for ratio in ratios(taken, label, base, "cpu_us")] if base in taken else []
        lines.append(
            f"| {label} | {number(middle(rounds, 'achieved_per_second'))} | {number(middle(rounds, 'cpu_us'), 1)} | {spread(cpu)} "
            f"| {number(middle(rounds, 'latency_us', 'p50'))} | {number(middle(rounds, 'latency_us', 'p99'))} | {errors(rounds)} |"
        )
    return lines


def latency_table(taken):
    lines = ["| | offered/s | achieved/s | p50 µs | p90 | p99 | p99.9 | max | added p50 | added p99 | late start p99 | errors |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for label, rounds in taken.items():
        at = lambda q, of="latency_us": middle(rounds, of, q)
        direct = taken.get("direct")
        added = lambda q: number(at(q) - middle(direct, "latency_us", q)) if direct else "—"
        offered = statistics.median(result["offered"] / result["seconds"] for result in rounds)
        lines.append(
            f"| {label} | {number(offered)} | {number(middle(rounds, 'achieved_per_second'))} | {number(at('p50'))} | {number(at('p90'))} "
            f"| {number(at('p99'))} | {number(at('p999'))} | {number(at('max'))} | {added('p50')} | {added('p99')} "
            f"| {number(at('p99', 'late_start_us'))} | {errors(rounds)} |"
        )
    return lines


def targets(results, meta):
    """Contract §12, each with what was measured."""
    rows = []

    def row(what, goal, value, met):
        rows.append(f"| {what} | {goal} | {value} | {'—' if met is None else 'yes' if met else '**no**'} |")

    if taken := results.get("throughput"):
        bare = [1 / ratio for ratio in ratios(taken, "Toolgate", "bare Pingora", "cpu_us")]
        row("calls per CPU second, of bare Pingora's", "0.80, floor 0.60", spread(bare), statistics.median(bare) >= 0.60)
        nginx = ratios(taken, "Toolgate", "nginx", "cpu_us")
        row("CPU a call, of nginx's", "≤ 3.6", spread(nginx), statistics.median(nginx) <= 3.6)
    if own := results.get("own time"):
        row("own time p50", "≤ 60 µs", number(own["p50"], 1), own["p50"] is not None and own["p50"] <= 60)
        row("own time p99 at half of the maximum rate", "≤ 200 µs", number(own["p99"], 1), own["p99"] is not None and own["p99"] <= 200)
    if taken := results.get("policy size"):
        for label in list(taken)[1:]:
            values = ratios(taken, label, "1 key", "cpu_us")
            row(f"CPU a call, {label} to 1 key and few tools", "≤ 1.1", spread(values), statistics.median(values) <= 1.1)
    if taken := results.get("reload"):
        swapping, still = taken["a swap each second"], taken["still"]
        row(f"calls that fail under {swapping[0]['swaps']} swaps of 10,000 tools", "0", str(errors(swapping)), errors(swapping) == 0)
        ratio = middle(swapping, "latency_us", "p99") / middle(still, "latency_us", "p99")
        row("p99 under a swap each second, to without", "≤ 1.2", number(ratio, 2), ratio <= 1.2)
    if soak := results.get("soak"):
        value = soak["kib_an_hour"]
        row(f"growth of memory, soak of {soak['seconds']} s", "none", f"{number(value)} KiB an hour", None)
    if opened := results.get("open calls"):
        row("memory of an open call", "documented", f"{opened['kib_each']:.1f} KiB, {opened['open']:.0f} open", None)
    return ["| target (contract §12) | goal | measured | met |", "|---|---|---|---|", *rows]


def write(folder, meta, results):
    meta["load_after"] = os.getloadavg()
    out = folder / f"{meta['utc']}-{meta['commit']}"
    out.mkdir(parents=True)
    (out / "summary.json").write_text(json.dumps({"meta": meta, "results": results}, indent=1) + "\n")
    text = [
        f"# Load test of {meta['commit']}, {meta['utc']}", "",
        f"{meta['cores']} cores of {meta['cpu']}, Linux {meta['kernel']}; {meta['rustc']}; {meta['nginx']}. One core for what is measured, one for the "
        f"generator and the mock server. Load average before {meta['load_before'][0]:.1f}, after {meta['load_after'][0]:.1f}; "
        f"{meta['seconds']} s{', quick' if meta['quick'] else ''}. Repeat with `make load{' QUICK=1' if meta['quick'] else ''}`.", "",
        "Every reply was verified by status, id and content. Ratios are taken between neighbours of one round, and shown as median (least–most). "
        "Toolgate writes its access log and metrics; bare Pingora and nginx write nothing.", "",
        "## Targets", "", *targets(results, meta), "",
    ]
    titles = {"throughput": "## As fast as it goes: 16 connections, 1 KiB calls", "ladder": "## What each check costs", "streams": "## JSON and SSE",
              "policy size": "## Keys and tools", "refusals": "## Refusals"}
    for name, taken in results.items():
        title = titles.get(name) or (f"## Bodies of {name.removeprefix('size ')}" if name.startswith("size ") else None)
        if title:
            base = next((label for label in ("bare Pingora", "bare Pingora, JSON", "allowed", "1 key") if label in taken), None)
            text += [title, "", f"Ratios to {base}.", "", *calls_table(taken, base), ""]
    if taken := results.get("latency"):
        text += ["## At half of Toolgate's maximum rate, open loop", "", "Latency from the moment at which a call was due.", "", *latency_table(taken), "",
                 "![latency](latency.svg)", ""]
        (out / "latency.svg").write_text(curves({label: rounds[0]["curve_us"] for label, rounds in taken.items()}))
    if own := results.get("own time"):
        text += [f"Own time of {own['calls']:,} calls, from the access log: p50 {number(own['p50'], 1)} µs, p90 {number(own['p90'], 1)}, "
                 f"p99 {number(own['p99'], 1)}, p99.9 {number(own['p999'], 1)}.", ""]
    for name, title in (("reload", "## A swap of 10,000 tools each second"), ("one dead server", "## One dead server")):
        if taken := results.get(name):
            text += [title, "", *latency_table(taken), ""]
    if opened := results.get("open calls"):
        text += ["## Calls that wait", "", f"{opened['open']:.0f} calls open at a slow server; the others meanwhile:", "",
                 *latency_table({"beside": [opened["beside"]]}), ""]
    if soak := results.get("soak"):
        text += ["## Soak", "", *latency_table({"soak": [soak["run"]]}), "", "![memory](memory.svg)", ""]
        (out / "memory.svg").write_text(lines_svg({"resident KiB": soak["resident_kib"]}, "seconds", "KiB"))
    if taken := results.get("wrk"):
        text += ["## Cross-check by wrk", "", "| | calls/s | µs CPU a call | bad |", "|---|--:|--:|--:|"]
        text += [f"| {label} | {number(r['per_second'])} | {number(r['cpu_us'], 1)} | {r['bad']} |" for label, r in taken.items()] + [""]
    (out / "report.md").write_text("\n".join(text))
    return out


COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"]


def curves(by_label):
    """Latency by percentile, logarithmic: one nine a step."""
    import math
    points = {label: [(-math.log10(max(1e-5, 1 - q)), math.log10(max(1, us))) for q, us in curve] for label, curve in by_label.items()}
    ticks_x = [(n, text) for n, text in enumerate(["0", "90 %", "99 %", "99.9 %", "99.99 %"])]
    ticks_y = [(n, f"{10 ** n:,} µs") for n in range(1, 7)]
    return svg(points, ticks_x, ticks_y)


def lines_svg(by_label, _x, unit):
    values = [point for line in by_label.values() for point in line]
    if not values:
        return svg({}, [], [])
    top, right = max(v for _, v in values) * 1.1, max(t for t, _ in values)
    ticks = lambda most, text: [(most * n / 4, text(most * n / 4)) for n in range(5)]
    return svg(by_label, ticks(right, lambda t: f"{t:.0f} s"), ticks(top, lambda v: f"{v:,.0f} {unit}"))


def svg(by_label, ticks_x, ticks_y, width=720, height=360):
    xs = [x for line in by_label.values() for x, _ in line] + [t for t, _ in ticks_x] or [0]
    ys = [y for line in by_label.values() for _, y in line] or [0]
    left, bottom, low = 90, height - 40, min([*ys, *([t for t, _ in ticks_y] if not ys else [])])
    low = min(low, 0) if ticks_y and ticks_y[0][0] == 0 else int(low)
    high = max(ys) + (max(ys) - low) * 0.05 + 1e-9
    px = lambda x: left + (x - min(xs)) / ((max(xs) - min(xs)) or 1) * (width - left - 140)
    py = lambda y: bottom - (y - low) / ((high - low) or 1) * (bottom - 20)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">',
             f'<rect width="{width}" height="{height}" fill="white"/>']
    for at, text in ticks_x:
        parts.append(f'<text x="{px(at):.0f}" y="{height - 18}" text-anchor="middle">{text}</text>')
    for at, text in ticks_y:
        if low <= at <= high:
            parts.append(f'<text x="{left - 8}" y="{py(at) + 4:.0f}" text-anchor="end">{text}</text>'
                         f'<line x1="{left}" x2="{width - 140}" y1="{py(at):.0f}" y2="{py(at):.0f}" stroke="#ddd"/>')
    for n, (label, line) in enumerate(by_label.items()):
        colour = COLOURS[n % len(COLOURS)]
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
                     f'<text x="{width - 132}" y="{30 + 18 * n}" fill="{colour}">{label}</text>')
    return "\n".join([*parts, "</svg>", ""])
