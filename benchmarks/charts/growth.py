"""How cost grows: time against size on two logarithmic axes, with the exponent of the line through the points."""

from collections.abc import Iterator, Sequence

from benchmarks.charts.svg import GRID, INK, MUTED, OURS, PAPER, LogScale, amount, duration, picture, tag, text, titled
from benchmarks.growth import Curve, Fit

WIDTH, HEIGHT = 520.0, 330.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 370.0, 42.0, 282.0
_COLOURS = (OURS, "#e6a100", "#4d9a6a", "#d6604d", "#8c96a3")
_GAP = 15.0


def growth_chart(curve: Curve) -> str:
    """Draw the lines of ``curve``: the whole cycle and the phases that matter, each with its exponent."""
    lines = curve.lines()
    across = LogScale.around([float(point.size) for point in curve.points], _LEFT, _RIGHT)
    up = LogScale.around([value for line in lines for value in line.values], _BOTTOM, _TOP)
    drawn = [_line(line, _COLOURS[index % len(_COLOURS)], across, up) for index, line in enumerate(lines)]
    return picture(
        WIDTH, HEIGHT, *_axes(curve, across, up), *drawn, *_labels(lines, up), label=f"{curve.title}: how cost grows"
    )


def _axes(curve: Curve, across: LogScale, up: LogScale) -> Iterator[str]:
    yield text((0, 18), curve.title, size=13, font_weight=600)
    for decade in up.decades():
        y = up(decade)
        yield tag("line", x1=_LEFT, y1=y, x2=_RIGHT, y2=y, stroke=GRID)
        yield text((_LEFT - 8, y + 4), duration(decade), size=11, fill=MUTED, text_anchor="end")
    for point in curve.points:
        x = across(point.size)
        yield tag("line", x1=x, y1=_BOTTOM, x2=x, y2=_BOTTOM + 4, stroke=MUTED)
        yield text((x, _BOTTOM + 18), amount(point.size), size=11, fill=MUTED, text_anchor="middle")
    yield tag("line", x1=_LEFT, y1=_BOTTOM, x2=_RIGHT, y2=_BOTTOM, stroke=MUTED)
    yield text(((_LEFT + _RIGHT) / 2, _BOTTOM + 38), curve.axis, size=11, fill=MUTED, text_anchor="middle")


def _line(line: Fit, colour: str, across: LogScale, up: LogScale) -> str:
    places = [(across(size), up(value)) for size, value in zip(line.sizes, line.values, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    first, last = line.sizes[0], line.sizes[-1]
    ends = {"x1": across(first), "y1": up(line.at(first)), "x2": across(last), "y2": up(line.at(last))}
    marks = [
        titled(
            tag("circle", cx=x, cy=y, r=3.6, fill=colour, stroke=PAPER),
            title=f"{line.name} at {size:,}: {duration(value)}",
        )
        for (x, y), size, value in zip(places, line.sizes, line.values, strict=True)
    ]
    return "".join(
        [
            tag("line", **ends, stroke=colour, stroke_dasharray="3 4", stroke_opacity=0.7),
            tag("polyline", points=path, fill="none", stroke=colour, stroke_width=1.8, stroke_linejoin="round"),
            *marks,
        ]
    )


def _labels(lines: Sequence[Fit], up: LogScale) -> Iterator[str]:
    """Write each line's name and exponent beside its end, from the top down and none over another."""
    order = sorted(range(len(lines)), key=lambda index: up(lines[index].values[-1]))
    least = _TOP - _GAP
    for index in order:
        line = lines[index]
        y = least = max(least + _GAP, up(line.values[-1]) + 4)
        yield text((_RIGHT + 12, y), f"{line.name}", size=11, fill=_COLOURS[index % len(_COLOURS)], font_weight=600)
        yield text((WIDTH - 2, y), f"n^{line.exponent:.2f}", size=11, fill=INK, text_anchor="end")
