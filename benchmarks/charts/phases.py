"""Where the time of a warm cycle goes: a bar of phases for each workload, all of one length."""

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.charts.svg import GRID, INK, MUTED, duration, picture, tag, text, titled
from benchmarks.results import Summary

WIDTH = 1150.0
_ROW = 28.0
_TOP = 50.0
_LEFT, _RIGHT = 90.0, 1070.0
_WIDE = 46.0

COLOURS: Final[Mapping[str, str]] = {
    "deltas": "#9ecae1",
    "snapshot": "#4292c6",
    "open": "#08519c",
    "allocate": "#e6a100",
    "consolidation": "#f29b84",
    "reclaim": "#d6604d",
    "preempt": "#9b2f2f",
    "stalegangeviction": "#8c96a3",
    "close": "#b9c0c9",
    "encode": "#4d9a6a",
}
_OTHER: Final = "#d5d9df"
_DARK: Final = frozenset({"snapshot", "open", "reclaim", "preempt", "encode", "stalegangeviction"})


def phase_chart(summaries: Sequence[Summary]) -> str:
    """Draw how the middle warm cycle of each workload divides into phases."""
    names = [name for name in COLOURS if any(name in summary.warm.phases_ms for summary in summaries)]
    rows = [_row(summary, _TOP + _ROW * index) for index, summary in enumerate(summaries)]
    return picture(WIDTH, _TOP + _ROW * len(summaries) + 6, _legend(names), *rows, label="Phases of a warm cycle")


def _legend(names: Sequence[str]) -> str:
    x, drawn = _LEFT, []
    for name in names:
        drawn.append(tag("rect", x=x, y=12, width=12, height=12, rx=2, fill=COLOURS[name]))
        drawn.append(text((x + 17, 22), name, size=11, fill=MUTED))
        x += 17 + 6.3 * len(name) + 16
    return "".join(drawn)


def _row(summary: Summary, y: float) -> str:
    phases = summary.warm.phases_ms
    total = sum(phases.values()) or 1.0
    x = _LEFT
    shapes = [
        text((0, y + 16), summary.workload, font_weight=600),
        tag("rect", x=_LEFT, y=y + 2, width=_RIGHT - _LEFT, height=20, rx=2, fill=GRID),
    ]
    for name, took in phases.items():
        width = took / total * (_RIGHT - _LEFT)
        shapes.append(_segment(name, took, took / total, (x, y + 2), width))
        x += width
    shapes.append(text((_RIGHT + 12, y + 16), duration(summary.warm.cpu_ms.median), font_weight=600, fill=INK))
    return "".join(shapes)


def _segment(name: str, took: float, share: float, at: tuple[float, float], width: float) -> str:
    x, y = at
    shape = tag("rect", x=x, y=y, width=max(width - 0.6, 0.2), height=20, fill=COLOURS.get(name, _OTHER))
    said = f"{name}: {duration(took)}, {share:.0%}"
    if width < _WIDE:
        return titled(shape, title=said)
    fill = "#ffffff" if name in _DARK else "#1c2430"
    return titled(
        shape, text((x + width / 2, y + 14), duration(took), size=11, fill=fill, text_anchor="middle"), title=said
    )
