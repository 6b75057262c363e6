"""Charts over time: who had the GPUs, idle GPUs by size, and evictions with beneficiary and cause."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final

from kai.basics.wording import counted, first_of, number_text, span_text
from kai.lab.report.drawing import (
    GREY,
    PATTERN,
    REST,
    Figure,
    Frame,
    Key,
    Paint,
    Plot,
    Section,
    Table,
    column,
    label,
    layout,
    named_and_rest,
    steps,
)
from kai.lab.virtual.results.result import EvictionResult, SimulationResult, figure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROWS: Final = 24
"""Rows of a table over time; each is the mean of an equal interval."""
_IDLE: Final = Paint(hue="#AEB6BF")
_PIECES: Final = {
    "idle/1": ("1 GPU at most", Paint(hue="#B0416B", pattern=2)),
    "idle/2": ("2 to 3 GPUs", Paint(hue="#D55E00", pattern=1)),
    "idle/4": ("4 to 7 GPUs", Paint(hue="#0072B2", pattern=3)),
    "idle/8": ("8 GPUs or more", Paint(hue="#009E73")),
}


def who_had(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return who had the GPUs: leaf queues stacked, idle GPUs on top, and the total."""
    named = {name: frame.paint(name) for result in results for name in _queues(result)}
    keys = [Key(label=name, paint=paint) for name, paint in named.items()]
    keys += [Key(label="idle", paint=_IDLE), Key(label="all GPUs", is_line=True, dash="dash")]
    return Section(
        name="who",
        question="Who had the GPUs?",
        about="GPUs that pods of each queue held, on each other. An allocated GPU may be idle: allocation is not "
        "activity. The dashed line is how many GPUs there were; it falls where nodes fail.",
        plots=tuple(_who(result, frame, several=len(results) > 1) for result in results),
        keys=tuple(keys),
    )


def _who(result: SimulationResult, frame: Frame, *, several: bool) -> Plot:
    held = _queues(result)
    capacity = column(result, "capacity")
    idle = [max(0.0, whole - sum(parts)) for whole, *parts in zip(capacity, *held.values(), strict=True)]
    areas = {name: (values, frame.paint(name)) for name, values in held.items()}
    data = [_area(result, frame, name, values, paint) for name, (values, paint) in areas.items()]
    data.append(_area(result, frame, "idle", idle, _IDLE))
    line = {"color": GREY, "width": 2, "dash": "dash", "shape": "hv"}
    data.append({**steps(result, frame, capacity), "name": "all GPUs", "line": line, **_hover("all GPUs")})
    return Plot(
        title=result.policy if several else "",
        finding=_who_in_words(result),
        figure={"data": data, "layout": layout(340, frame.time_axis, _gpus(frame), hovermode="x")},
        table=_over_time(result, {**held, "idle": idle, "all GPUs": capacity}, "GPUs of each queue"),
    )


def _queues(result: SimulationResult) -> dict[str, Sequence[float]]:
    """Return the columns of leaf queues; queues beyond the limit are summed."""
    named, rest = named_and_rest(result)
    found: dict[str, Sequence[float]] = {name: column(result, f"used/{name}") for name in named}
    if rest:
        columns = [column(result, f"used/{name}") for name in rest]
        found[REST] = [sum(values) for values in zip(*columns, strict=True)]
    return found


def _who_in_words(result: SimulationResult) -> str:
    whole = result.counts["gpuHours"]
    leaves = sorted((queue for queue in result.queues if queue.leaf), key=lambda queue: -queue.gpu_hours)
    if not leaves or not whole:
        return "There were no GPUs."
    most = leaves[0]
    used, kept = (figure(result.value(name), "%") for name in ("utilisation", "goodput"))
    return (
        f"{used} of {whole:,.1f} GPU-hours were allocated, {kept} for work that was kept; {most.name} had most of "
        f"them, {most.gpu_hours:,.1f} ({most.gpu_hours / whole:.1%})."
    )


# --- What was idle -------------------------------------------------------------------------------------------------


def usable(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the idle GPUs by the largest gang on one node that they could hold."""
    return Section(
        name="idle",
        question="Was free capacity usable?",
        about="Whole idle GPUs, by how many of them are idle on the same node: eight on one node serve a pod of eight, "
        "eight on eight nodes do not. Parts of shared GPUs that are left over are not counted here.",
        plots=tuple(_idle(result, frame, several=len(results) > 1) for result in results),
        keys=tuple(Key(label=f"a node with {text}", paint=paint) for text, paint in _PIECES.values()),
    )


def _idle(result: SimulationResult, frame: Frame, *, several: bool) -> Plot:
    columns = {text: column(result, name) for name, (text, _) in _PIECES.items()}
    data = [_area(result, frame, text, column(result, name), paint) for name, (text, paint) in _PIECES.items()]
    highest = max([1.0, *(sum(values) for values in zip(*columns.values(), strict=True))])
    fragmentation = result.value("fragmentation")
    finding = (
        "No pod waited while GPUs were idle."
        if fragmentation is None
        else f"While pods waited, {fragmentation:.1%} of the idle GPUs were of no use to the largest of them."
    )
    return Plot(
        title=result.policy if several else "",
        finding=finding,
        figure={
            "data": data,
            "layout": layout(
                280, frame.time_axis, {"title": {"text": "idle GPUs"}, "range": [0, highest * 1.05]}, hovermode="x"
            ),
        },
        table=_over_time(result, columns, "Idle GPUs by how many are idle on the same node"),
    )


# --- Parts of charts -----------------------------------------------------------------------------------------------


def _area(result: SimulationResult, frame: Frame, name: str, values: Sequence[float], paint: Paint) -> Figure:
    filled: Figure = {"fillcolor": paint.hue}
    if paint.shape:
        filled = {"fillpattern": {**PATTERN, "shape": paint.shape, "bgcolor": paint.hue}}
    return {
        **steps(result, frame, values),
        "name": label(name),
        "stackgroup": "all",
        "line": {"width": 0, "shape": "hv", "color": paint.hue},
        **filled,
        **_hover(name),
    }


def _hover(name: str) -> Figure:
    return {"hovertemplate": f"{label(name)}: %{{y:.1f}} GPUs<extra></extra>"}


def _gpus(frame: Frame) -> Figure:
    return {"title": {"text": "GPUs"}, "range": [0, frame.gpus * 1.05]}


def _over_time(result: SimulationResult, columns: Mapping[str, Sequence[float]], caption: str) -> Table:
    """Return columns over time as a table of means over equal intervals."""
    count = len(result.series.start_seconds)
    rows = min(ROWS, count)
    lines = []
    for row in range(rows):
        first, last = row * count // rows, (row + 1) * count // rows
        means = [sum(values[first:last]) / (last - first) for values in columns.values()]
        start = result.series.start_seconds[first]
        lines.append((f"T+{span_text(start)}", *(f"{mean:.1f}" for mean in means)))
    bucket = span_text(result.series.bucket_seconds)
    note = f"Each row is a mean from its time to the next; points of the chart are means over {bucket}."
    if not lines:
        note = f"{counted(0, 'point')}: the run took no time."
    return Table(caption=caption, heads=("from", *columns), rows=tuple(lines), note=note)


MOST_ROWS: Final = 50
MOST_MARKS: Final = 3000
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "star")


def evicted_by_whom(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the evictions over time, by cause."""
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
                "text": [label(_hover_text(mark)) for mark in mine],
                "hovertemplate": "%{text}<extra></extra>",
            }
        )
    y = {"tickvals": list(range(len(causes))), "ticktext": [label(cause) for cause in causes]}
    y["range"] = [-0.6, len(causes) - 0.4]
    return {"data": data, "layout": layout(110 + 60 * len(causes), frame.time_axis, y, hovermode="closest")}


def _hover_text(mark: Sequence[EvictionResult]) -> str:
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
