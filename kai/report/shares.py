"""Charts of whether each queue got its share: one small panel for each leaf queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kai.report.drawing import GREY, Figure, Frame, Key, Paint, column, layout, leaf_queues, steps
from kai.report.sections import Plot, Section, Table
from kai.virtual.results.figures import figure
from kai.virtual.results.result import QueueResult, SimulationResult
from kai.wording import counted, number_text, span_text

MOST_PANELS: Final = 12
_OWED: Final = Paint(hue="#B0416B", pattern=1)


def got_shares(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return what queues used beside their fair share and quota, shaded where they wanted more and had less."""
    shown = max((len(leaf_queues(result)) for result in results), default=0)
    left = ""
    if shown > MOST_PANELS:
        left = f" The {MOST_PANELS} queues that used or wanted most are drawn; the table has all."
    return Section(
        name="shares",
        question="Did each queue get its share?",
        about="What each queue used beside its fair share, which the scheduler computes anew as jobs come and go. "
        f"Shaded: it wanted more, and had less than its fair share.{left}",
        plots=tuple(plot for result in results for plot in _panels(result, frame, several=len(results) > 1)),
        keys=(
            Key(label="used", is_line=True),
            Key(label="fair share", is_line=True, dash="dash"),
            Key(label="quota", is_line=True, dash="dot"),
            Key(label="below the fair share while wanting", paint=_OWED),
        ),
        table=_table(results),
        small=True,
    )


def _panels(result: SimulationResult, frame: Frame, *, several: bool) -> list[Plot]:
    queues = leaf_queues(result)
    if len(queues) > MOST_PANELS:
        largest = sorted(queues, key=lambda queue: (-_most(result, queue.name), queue.name))[:MOST_PANELS]
        queues = [queue for queue in queues if queue in largest]
    return [_panel(result, queue, frame, several=several) for queue in queues]


def _most(result: SimulationResult, queue: str) -> float:
    return sum(column(result, f"used/{queue}")) + sum(column(result, f"waiting/{queue}"))


def _panel(result: SimulationResult, queue: QueueResult, frame: Frame, *, several: bool) -> Plot:
    used, waiting, fair = (column(result, f"{kind}/{queue.name}") for kind in ("used", "waiting", "fair"))
    owed = [max(have, min(share, have + want)) for have, want, share in zip(used, waiting, fair, strict=True)]
    highest = max([1.0, *used, *fair, queue.quota_gpus or 0.0])
    paint = frame.paint(queue.name)
    pattern = {"shape": "/", "fgcolor": _OWED.hue, "bgcolor": "rgba(0,0,0,0)", "size": 6, "solidity": 0.4}
    line = {"color": paint.hue, "width": 2.5, "shape": "hv"}
    data: list[Figure] = [
        {**steps(result, frame, used), "name": "used", "line": line},
        {
            **steps(result, frame, owed),
            "name": "owed",
            "line": {"width": 0, "shape": "hv", "color": _OWED.hue},
            "fill": "tonexty",
            "fillpattern": pattern,
            "hoverinfo": "skip",
        },
        {**steps(result, frame, fair), "name": "fair share", "line": _grey("dash")},
    ]
    if queue.quota_gpus is not None:
        quota = [queue.quota_gpus] * len(used)
        data.append({**steps(result, frame, quota), "name": "quota", "line": _grey("dot")})
    y = {"range": [0, highest * 1.08], "nticks": 5}
    below = queue.below_fair_share_seconds
    return Plot(
        title=f"{result.policy}: {queue.name}" if several else queue.name,
        finding=f"Below its fair share while wanting: {span_text(below)}." if below else "Never below its share.",
        figure={"data": data, "layout": layout(190, {**frame.time_axis, "title": {}}, y, hovermode="x")},
    )


def _grey(dash: str) -> Figure:
    return {"color": GREY, "width": 1.5, "dash": dash, "shape": "hv"}


def _table(results: Sequence[SimulationResult]) -> Table:
    several = len(results) > 1
    rows = [
        (
            *((result.policy,) if several else ()),
            queue.name,
            "unlimited" if queue.quota_gpus is None else number_text(queue.quota_gpus),
            f"{queue.gpu_hours:,.1f}",
            figure(queue.of_quota, "%"),
            f"{_mean(result, 'fair', queue.name):.1f}",
            f"{_mean(result, 'used', queue.name):.1f}",
            f"{_mean(result, 'waiting', queue.name):.1f}",
            span_text(queue.below_fair_share_seconds),
            f"{queue.evicted_pods:,}",
            f"{queue.lost_gpu_hours:,.1f}",
        )
        for result in results
        for queue in leaf_queues(result)
    ]
    heads = ("queue", "quota", "GPU-hours", "of quota", "fair share, mean", "used, mean", "wanted more, mean")
    heads = (*(("run",) if several else ()), *heads, "below fair share", "pods evicted", "GPU-hours lost")
    note = f"{counted(len(rows), 'leaf queue')}. Amounts are GPUs where nothing else is said."
    words = frozenset({0, 1} if several else {0})
    return Table(caption="Leaf queues with jobs", heads=heads, rows=tuple(rows), words=words, note=note)


def _mean(result: SimulationResult, kind: str, queue: str) -> float:
    values = column(result, f"{kind}/{queue}")
    return sum(values) / len(values) if values else 0.0
