"""Ours against the target and the peer: a row for each workload on one logarithmic axis of time."""

from collections.abc import Iterator, Sequence

from benchmarks.charts.svg import (
    GOAL,
    GRID,
    MUTED,
    OURS,
    PAPER,
    PEER,
    LogScale,
    duration,
    picture,
    tag,
    text,
    titled,
)
from benchmarks.results import Summary

WIDTH = 1150.0
_ROW = 28.0
_TOP = 58.0
_LEFT, _RIGHT = 384.0, 1060.0


def versus_chart(summaries: Sequence[Summary]) -> str:
    """Draw the middle warm cycle with its spread, the cold cycle, the target and the peer."""
    values = [value for summary in summaries for value in _times(summary)]
    scale = LogScale.around(values, _LEFT, _RIGHT)
    height = _TOP + _ROW * len(summaries) + 30
    rows = [_row(summary, _TOP + _ROW * (index + 0.5), scale) for index, summary in enumerate(summaries)]
    return picture(
        WIDTH, height, *_axis(scale, height), _legend(), *rows, label="Cycle times of kai, its targets and its peer"
    )


def _times(summary: Summary) -> Iterator[float]:
    yield from (summary.warm.cpu_ms.min, summary.warm.cpu_ms.max, summary.cold.cpu_ms.median)
    if summary.range.target_ms:
        yield summary.range.target_ms
    yield from summary.peer_cycle_ms or ()


def _axis(scale: LogScale, height: float) -> Iterator[str]:
    for decade in scale.decades():
        x = scale(decade)
        yield tag("line", x1=x, y1=_TOP - 6, x2=x, y2=height - 24, stroke=GRID)
        yield text((x, height - 8), duration(decade), size=11, fill=MUTED, text_anchor="middle")


def _legend() -> str:
    y = 22.0
    parts = (
        (tag("circle", cx=_LEFT + 6, cy=y, r=5.5, fill=OURS), _LEFT + 18, "kai, warm (line: least to greatest)"),
        (_ring(_LEFT + 246, y), _LEFT + 258, "kai, first cycle"),
        (_goal(_LEFT + 372, y), _LEFT + 380, "target"),
        (_diamond(_LEFT + 446, y), _LEFT + 458, "KAI-Scheduler"),
    )
    drawn = [shape + text((x, y + 4), label, fill=MUTED) for shape, x, label in parts]
    return "".join([*drawn, text((_RIGHT + 14, y + 4), "faster by", size=11, fill=MUTED)])


def _row(summary: Summary, y: float, scale: LogScale) -> str:
    warm, target, peer = summary.warm.cpu_ms, summary.range.target_ms, summary.peer_cycle_ms
    shapes = [
        text((0, y + 4), summary.workload, font_weight=600),
        text((90, y + 4), _cut(summary.title, 50), size=11, fill=MUTED),
        tag("line", x1=_LEFT, y1=y, x2=_RIGHT, y2=y, stroke=GRID, stroke_dasharray="1 4"),
    ]
    if peer:
        shapes.append(
            tag("line", x1=scale(warm.median), y1=y, x2=scale(min(peer)), y2=y, stroke=PEER, stroke_opacity=0.25)
        )
    if target:
        shapes.append(titled(_goal(scale(target), y), title=f"target: {duration(target)}"))
    shapes.append(titled(_ring(scale(summary.cold.cpu_ms.median), y), title=_first(summary)))
    spread = {"y1": y, "y2": y, "stroke": OURS, "stroke_width": 3, "stroke_linecap": "round", "stroke_opacity": 0.45}
    shapes.append(tag("line", x1=scale(warm.min), x2=scale(warm.max), **spread))
    dot = tag("circle", cx=scale(warm.median), cy=y, r=5.5, fill=OURS)
    shapes.append(titled(dot, title=f"{summary.workload}: {duration(warm.median)} (least {duration(warm.min)})"))
    if peer:
        note = f" ({summary.peer_note})" if summary.peer_note else ""
        shapes.append(titled(_diamond(scale(min(peer)), y), title=f"KAI-Scheduler: {duration(min(peer))}{note}"))
    if summary.times_faster:
        shapes.append(text((_RIGHT + 14, y + 4), f"{summary.times_faster:,.0f} ×", font_weight=600))
    return "".join(shapes)


def _first(summary: Summary) -> str:
    return f"first cycle: {duration(summary.cold.cpu_ms.median)}"


def _ring(x: float, y: float) -> str:
    return tag("circle", cx=x, cy=y, r=4.5, fill=PAPER, stroke=OURS, stroke_width=1.6)


def _goal(x: float, y: float) -> str:
    return tag("rect", x=x - 1.5, y=y - 9, width=3, height=18, fill=GOAL)


def _diamond(x: float, y: float) -> str:
    corners = f"{x:.1f},{y - 6:.1f} {x + 6:.1f},{y:.1f} {x:.1f},{y + 6:.1f} {x - 6:.1f},{y:.1f}"
    return tag("polygon", points=corners, fill=PEER, stroke=PAPER)


def _cut(words: str, most: int) -> str:
    return words if len(words) <= most else f"{words[: most - 1].rstrip()}…"
