"""Plots as SVG, without a library."""

import math

COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377"]


def curves(by_label):
    """Latency by percentile, logarithmic: one nine a step."""
    points = {label: [(-math.log10(max(1e-5, 1 - q)), math.log10(max(1, us))) for q, us in curve] for label, curve in by_label.items()}
    ticks_x = [(n, text) for n, text in enumerate(["0", "90 %", "99 %", "99.9 %", "99.99 %"])]
    ticks_y = [(n, f"{10 ** n:,} µs") for n in range(1, 7)]
    return svg(points, ticks_x, ticks_y)


def lines(by_label, unit):
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
