"""A Gantt chart of placements: rows are nodes, bars are jobs, as long as they ran and as high as their GPUs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.wording import counted, span_text
from kai.lab.report.drawing import PATTERN, Figure, Frame, Key, Plot, Section, Table, label, layout, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kai.lab.virtual.results.result import SimulationResult

MOST_NODES: Final = 40
MOST_BARS: Final = 3000
_ROW: Final = 22
"""Height of a row in pixels."""
_FILLED: Final = 0.86
"""The fraction of a row's height that bars may take."""
_TINY: Final = 1e-6


@attrs.frozen(kw_only=True)
class Bar:
    """Pods of a job on a node that came and went together.

    Units: seconds, GPUs.
    """

    job: int
    node: str
    start: float
    end: float
    gpus: float
    pods: int


def ran_where(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the section of placements, for the nodes with the most activity."""
    queues = {job.queue: frame.paint(job.queue) for result in results for job in result.jobs if job.gpus}
    return Section(
        name="where",
        question="What ran where?",
        about="Rows are nodes, bars are jobs; the height of a bar is its GPUs of that node. Pods without GPUs are left "
        "out.",
        plots=tuple(_plot(result, frame, several=len(results) > 1) for result in results),
        keys=tuple(Key(label=name, paint=paint) for name, paint in sorted(queues.items())),
    )


def _plot(result: SimulationResult, frame: Frame, *, several: bool) -> Plot:
    every = bars_of(result)
    busiest = Counter(bar.node for bar in every).most_common(MOST_NODES)
    nodes = sorted(node for node, _ in busiest)
    chosen = [bar for bar in every if bar.node in set(nodes)]
    drawn = sorted(chosen, key=lambda bar: bar.gpus * (bar.start - bar.end))[:MOST_BARS]
    where = {node: row for row, node in enumerate(nodes)}
    return Plot(
        title=result.policy if several else "",
        finding=_in_words(result, every, drawn, len(nodes)),
        figure=_figure(result, drawn, where, frame) if drawn else None,
        table=_table(every),
    )


def bars_of(result: SimulationResult) -> list[Bar]:
    """Return the stays of pods with GPUs, merging pods of a job that came and went together."""
    together: dict[tuple[int, str, float, float], list[float]] = defaultdict(list)
    for stay in result.stays:
        if stay.gpus > _TINY and stay.end_seconds > stay.start_seconds:
            together[stay.job, stay.node, stay.start_seconds, stay.end_seconds].append(stay.gpus)
    return [
        Bar(job=job, node=node, start=start, end=end, gpus=sum(gpus), pods=len(gpus))
        for (job, node, start, end), gpus in together.items()
    ]


def lanes_of(bars: Iterable[Bar]) -> dict[Bar, float]:
    """Return the offset of each bar from the ground of its node.

    Holds: bars of one node that overlap in time do not overlap in height.
    """
    found: dict[Bar, float] = {}
    there: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for bar in sorted(bars, key=lambda bar: (bar.start, bar.end, bar.job)):
        present = [each for each in there[bar.node] if each[2] > bar.start]
        at = 0.0
        for low, high, _ in sorted(present):
            if low - at >= bar.gpus - _TINY:
                break
            at = max(at, high)
        found[bar] = at
        there[bar.node] = [*present, (at, at + bar.gpus, bar.end)]
    return found


def _figure(result: SimulationResult, bars: Sequence[Bar], where: dict[str, int], frame: Frame) -> Figure:
    lanes = lanes_of(bars)
    highest = max(at + bar.gpus for bar, at in lanes.items())
    scale = _FILLED / highest
    by_queue: dict[str, list[Bar]] = defaultdict(list)
    for bar in bars:
        by_queue[result.jobs[bar.job].queue].append(bar)
    data: list[Figure] = []
    for queue in sorted(by_queue):
        paint, mine = frame.paint(queue), by_queue[queue]
        marker: Figure = {"color": paint.hue, "line": {"width": 0.5, "color": "#8889"}}
        if paint.shape:
            marker["pattern"] = {**PATTERN, "shape": paint.shape, "bgcolor": paint.hue}
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label(queue),
                "base": [frame.at(bar.start) for bar in mine],
                "x": [frame.length(bar.end - bar.start) for bar in mine],
                "y": [short(where[bar.node] + _FILLED / 2 - (lanes[bar] + bar.gpus / 2) * scale) for bar in mine],
                "width": [short(bar.gpus * scale) for bar in mine],
                "marker": marker,
                "text": [_hover_text(result, bar) for bar in mine],
                "textposition": "none",
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    y = {"tickvals": list(where.values()), "ticktext": [label(node) for node in where]}
    y |= {"range": [len(where) - 0.5, -0.5], "showgrid": False}
    height = 70 + _ROW * len(where)
    return {"data": data, "layout": layout(height, frame.time_axis, y, barmode="overlay", hovermode="closest")}


def _hover_text(result: SimulationResult, bar: Bar) -> str:
    job = result.jobs[bar.job]
    size = f"{counted(bar.pods, 'pod')}, {counted(round(bar.gpus, 3), 'GPU')}"
    span = f"T+{span_text(bar.start)} to T+{span_text(bar.end)}"
    return label(f"{job.namespace}/{job.name} ({job.queue}): {size} on {bar.node}, {span}")


def _in_words(result: SimulationResult, every: Sequence[Bar], drawn: Sequence[Bar], nodes: int) -> str:
    if not every:
        return "No pod with GPUs ran."
    used = len({bar.node for bar in every})
    text = f"{counted(len({bar.job for bar in every}), 'job')} ran on {counted(used, 'node')}."
    if used > nodes:
        text += f" Drawn are the {nodes} nodes with the most changes."
    if len(drawn) == MOST_BARS:
        text += f" The {MOST_BARS:,} largest bars of these nodes are drawn."
    if result.unkept:
        text += f" {result.unkept:,} stays and evictions are not listed, because there were too many."
    return text


def _table(every: Sequence[Bar]) -> Table:
    by_node: dict[str, list[Bar]] = defaultdict(list)
    for bar in every:
        by_node[bar.node].append(bar)
    most = sorted(sorted(by_node), key=lambda node: -len(by_node[node]))[:MOST_NODES]
    rows = tuple(
        (
            node,
            f"{len({bar.job for bar in by_node[node]}):,}",
            f"{sum(bar.pods for bar in by_node[node]):,}",
            f"{sum(bar.gpus * (bar.end - bar.start) for bar in by_node[node]) / 3600:,.1f}",
            span_text(min(bar.start for bar in by_node[node])),
            span_text(max(bar.end for bar in by_node[node])),
        )
        for node in sorted(most)
    )
    left = len(by_node) - len(most)
    return Table(
        caption="Nodes",
        heads=("node", "jobs", "pods", "GPU-hours", "first start", "last end"),
        rows=rows,
        note=f"{counted(left, 'more node')} with fewer changes." if left > 0 else "",
    )
