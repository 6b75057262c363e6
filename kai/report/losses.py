"""A chart of who was evicted, by whom and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from kai.report.drawing import Figure, Frame, Key, label, layout
from kai.report.sections import Plot, Section, Table
from kai.virtual.results.figures import figure
from kai.virtual.results.result import EvictionResult, SimulationResult
from kai.wording import counted, first_of, number_text, span_text

MOST_ROWS: Final = 50
MOST_MARKS: Final = 3000
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "star")


def evicted_by_whom(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the evictions over time, by their causes."""
    by_run = [_jobs(result) for result in results]
    names = {job: by_job[job] for by_job in by_run for job in by_job}
    queues = sorted({names[each.job] for result in results for each in result.evictions if each.job in names})
    return Section(
        name="evictions",
        question="Who was evicted, for whom, and why?",
        about="Each mark is what one job lost at one instant by one cause; its area is the GPUs that it held, its "
        "colour the queue that it belongs to. Work that failed nodes and crashes made worthless is in the metrics.",
        plots=tuple(_plot(result, frame, several=len(results) > 1) for result in results),
        keys=tuple(Key(label=name, paint=frame.paint(name)) for name in queues),
    )


def _jobs(result: SimulationResult) -> dict[str, str]:
    """Return the queue of each job by its name."""
    return {f"{job.namespace}/{job.name}": job.queue for job in result.jobs}


def _plot(result: SimulationResult, frame: Frame, *, several: bool) -> Plot:
    together: dict[tuple[float, str, str], list[EvictionResult]] = defaultdict(list)
    for each in result.evictions:
        together[each.time_seconds, each.cause, each.job].append(each)
    ordered = sorted(together.values(), key=lambda group: -sum(each.gpus for each in group))
    return Plot(
        title=result.policy if several else "",
        finding=_in_words(result),
        figure=_figure(result, ordered[:MOST_MARKS], frame) if ordered else None,
        table=_table(ordered) if ordered else None,
    )


def _in_words(result: SimulationResult) -> str:
    if not result.evictions:
        return "No pod was evicted."
    gpus = sum(each.gpus for each in result.evictions)
    causes = {cause: sum(each.cause == cause for each in result.evictions) for cause in _causes(result)}
    counts = ", ".join(f"{count:,} by {cause}" for cause, count in causes.items())
    lost = figure(result.value("evictionCost"), "GPU-h")
    pods = counted(len(result.evictions), "pod")
    failed = ", that by failed nodes among them" if result.value("nodeFailures") else ""
    return f"{pods} with {counted(round(gpus, 2), 'GPU')} evicted: {counts}. GPU-hours of work lost{failed}: {lost}."


def _causes(result: SimulationResult) -> list[str]:
    return sorted({each.cause for each in result.evictions})


def _figure(result: SimulationResult, marks: Sequence[Sequence[EvictionResult]], frame: Frame) -> Figure:
    causes, queues = _causes(result), _jobs(result)
    largest = max(sum(each.gpus for each in mark) for mark in marks) or 1.0
    data: list[Figure] = []
    for row, cause in enumerate(causes):
        mine = [mark for mark in marks if mark[0].cause == cause]
        marker = {
            "symbol": _SYMBOLS[row % len(_SYMBOLS)],
            "size": [max(0.05, sum(each.gpus for each in mark)) for mark in mine],
            "sizemode": "area",
            "sizeref": 2 * largest / 28**2,
            "sizemin": 5,
            "color": [frame.paint(queues.get(mark[0].job, "")).hue for mark in mine],
            "opacity": 0.8,
        }
        data.append(
            {
                "mode": "markers",
                "name": label(cause),
                "x": [frame.at(mark[0].time_seconds) for mark in mine],
                "y": [row] * len(mine),
                "marker": marker,
                "text": [label(_told(mark)) for mark in mine],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    y = {"tickvals": list(range(len(causes))), "ticktext": [label(cause) for cause in causes]}
    y["range"] = [-0.6, len(causes) - 0.4]
    return {"data": data, "layout": layout(110 + 60 * len(causes), frame.time_axis, y, hovermode="closest")}


def _told(mark: Sequence[EvictionResult]) -> str:
    gpus = counted(round(sum(each.gpus for each in mark), 3), "GPU")
    gainers = _gainers(mark)
    gains = f", for {gainers}" if gainers else ""
    first = mark[0]
    return f"T+{span_text(first.time_seconds)}: {first.job}, {counted(len(mark), 'pod')}, {gpus}{gains}: {first.rule}"


def _gainers(mark: Sequence[EvictionResult]) -> str:
    return first_of(list(dict.fromkeys(each.aggressor for each in mark if each.aggressor is not None)), 2)


def _table(marks: Sequence[Sequence[EvictionResult]]) -> Table:
    shown = sorted(marks[:MOST_ROWS], key=lambda mark: mark[0].time_seconds)
    rows = tuple(
        (
            f"T+{span_text(mark[0].time_seconds)}",
            mark[0].cause,
            mark[0].rule,
            mark[0].job,
            _gainers(mark) or "-",
            f"{len(mark):,}",
            number_text(sum(each.gpus for each in mark)),
        )
        for mark in shown
    )
    left = len(marks) - len(shown)
    return Table(
        caption="Evictions, the largest of them",
        heads=("when", "cause", "rule", "whose", "for", "pods", "GPUs"),
        rows=rows,
        words=frozenset({0, 1, 2, 3, 4}),
        note=f"{left:,} smaller ones are left out here." if left else "",
    )
