"""Draws the dashboard's panels from what a real Prometheus holds, one picture for all of them: what an operator will see, without Grafana."""

import datetime
import re

COLUMNS = 4


def draw(dashboard, prometheus, folder):
    """Writes `dashboard.png`; None, or what went wrong."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from PIL import Image

    rows, row = [], []
    for panel in dashboard["panels"]:
        if panel["type"] == "row" or len(row) == COLUMNS:
            rows.append(row)
            row = []
        if panel["type"] == "row":
            rows.append(panel["title"])
        else:
            row.append(panel)
    rows = [one for one in [*rows, row] if one]
    heights = [0.12 if isinstance(one, str) else 0.45 if one[0]["type"] == "stat" else 1 for one in rows]
    figure = pyplot.figure(figsize=(22, sum(heights) * 2.7), dpi=80, facecolor="#f7f8fa", layout="constrained")
    grid = figure.add_gridspec(len(rows), COLUMNS, height_ratios=heights)
    for y, one in enumerate(rows):
        if isinstance(one, str):
            axes = figure.add_subplot(grid[y, :])
            axes.axis("off")
            axes.text(0, 0.2, one, fontsize=14, fontweight="bold", transform=axes.transAxes)
            continue
        for x, panel in enumerate(one):
            show(figure.add_subplot(grid[y, x]), panel, [(t, prometheus.range(t["expr"])) for t in panel["targets"]])
    folder.mkdir(parents=True, exist_ok=True)
    figure.savefig(folder / "dashboard.png")
    with Image.open(folder / "dashboard.png") as full:
        few = full.convert("RGB").quantize(64)
    few.save(folder / "dashboard.png", optimize=True)
    return None


def show(axes, panel, found):
    """One panel, as its type says."""
    axes.set_facecolor("white")
    axes.set_title(panel["title"], fontsize=10, loc="left")
    unit = panel.get("fieldConfig", {}).get("defaults", {}).get("unit", "short")
    lines = [(label(target, labels), values) for target, series in found for labels, values in series]
    if panel["type"] in ("stat", "table") or not lines:
        axes.axis("off")
        size = 20 if panel["type"] == "stat" else 9
        words = [f"{'' if panel['type'] == 'stat' else name + '   '}{number(values[-1][1], unit)}" for name, values in lines[:9]]
        said = axes.text(0.02, 0.5, "\n".join(words) or "(nothing)", fontsize=size, va="center", transform=axes.transAxes, color="#1f5fa8")
        said.set_in_layout(False)
        return
    if panel["type"] == "heatmap":
        heatmap(axes, found[0][1])
        return
    for name, values in lines[:14]:
        times = [datetime.datetime.fromtimestamp(at) for at, _ in values]
        axes.plot(times, [value for _, value in values], label=name, linewidth=1.4)
    axes.yaxis.set_major_formatter(lambda value, _: number(value, unit))
    axes.tick_params(labelsize=7)
    axes.set_xticks(axes.get_xlim())
    axes.set_xticklabels([])
    axes.margins(y=0.15)
    axes.set_ylim(bottom=min(0, axes.get_ylim()[0]))
    axes.grid(alpha=0.25)
    axes.legend(fontsize=6, loc="upper left", framealpha=0.6)


def heatmap(axes, series):
    """Buckets from below to above, time from left to right."""
    rows = sorted(((float(labels["le"].replace("+Inf", "inf")), dict(values)) for labels, values in series), key=lambda one: one[0])
    times = sorted({at for _, values in rows for at in values})
    counts, below = [], dict.fromkeys(times, 0)
    for _, values in rows:
        counts.append([values.get(at, 0) - below[at] for at in times])
        below = {at: values.get(at, 0) for at in times}
    axes.pcolormesh(counts, cmap="YlOrRd")
    axes.set_yticks([n + 1 for n in range(0, len(rows), 3)])
    axes.set_yticklabels([number(rows[n][0], "s") for n in range(0, len(rows), 3)], fontsize=7)
    axes.set_xticks([])


def label(target, labels):
    """The legend as Grafana writes it."""
    form = target.get("legendFormat") or ""
    if form in ("", "__auto"):
        return ", ".join(short(value) for name, value in labels.items() if name != "__name__") or "value"
    return re.sub(r"\{\{ *(\w+) *\}\}", lambda match: short(labels.get(match[1], "")), form)


def short(value):
    """A path by its last part."""
    return value.rsplit("/", 1)[-1] if value.startswith("/") else value


def number(value, unit):
    """A value with its unit, short."""
    if unit == "percentunit":
        return f"{value * 100:.3g} %"
    if unit in ("s", "dtdurations"):
        if value >= 86_400:
            return f"{value / 86_400:.3g} d"
        for size, name in ((1, "s"), (1e-3, "ms"), (1e-6, "µs")):
            if value >= size:
                return f"{value / size:.3g} {name}"
        return f"{value:.3g} s"
    if unit in ("bytes", "decbytes"):
        return f"{value / 2**20:.4g} MiB"
    return f"{value:.4g}" + {"reqps": " req/s", "cps": " /s", "ops": " /s"}.get(unit, "")
