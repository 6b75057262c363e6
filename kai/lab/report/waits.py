"""Charts of waits and shares.

Waits: the fraction of all jobs that had started after a given wait, one line for each queue. Shares: what each leaf
queue used beside its fair share, one small panel for each.
"""

from __future__ import annotations

from math import ceil, log2, log10
from typing import TYPE_CHECKING, Final, TypeAlias

from kai.basics.wording import counted, number_text, span_text
from kai.lab.report.drawing import (
    DASHES,
    GREY,
    HUES,
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
    leaf_queues,
    short,
    steps,
)
from kai.lab.virtual.results.comparison import long_enough
from kai.lab.virtual.results.metrics import longest_wait, percentile, waited
from kai.lab.virtual.results.result import JobResult, QueueResult, SimulationResult, figure, headline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_PANELS: Final = 12
_OWED: Final = Paint(hue="#B0416B", pattern=1)


def got_shares(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return usage beside fair share and quota, shaded where a queue had less than its share while pods waited."""
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
        # In the order of the tree, and not of size: the same queue stays at its place from run to run.
        queues = [queue for queue in queues if queue in largest]
    return [_panel(result, queue, frame, several=several) for queue in queues]


def _most(result: SimulationResult, queue: str) -> float:
    return sum(column(result, f"used/{queue}")) + sum(column(result, f"waiting/{queue}"))


def _panel(result: SimulationResult, queue: QueueResult, frame: Frame, *, several: bool) -> Plot:
    used, waiting, fair = (column(result, f"{kind}/{queue.name}") for kind in ("used", "waiting", "fair"))
    # No more than a queue wanted: a share that it left idle is not owed.
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


Waited: TypeAlias = tuple[float, bool]
"""How long a job waited, and whether it then started."""

MOST_LINES: Final = 12
MOST_POINTS: Final = 500
_MARKS: Final = ((0.5, "circle"), (0.95, "diamond"))
_TICKS: Final = {1: "1s", 10: "10s", 60: "1m", 600: "10m", 3600: "1h", 6 * 3600: "6h", 86400: "1d", 7 * 86400: "7d"}
ABOUT: Final = (
    "For each wait, the part of the jobs that had started by then, from their arrival; the circle is the median, the "
    "diamond the 95th percentile. Waits of less than a second stand at 1s. A line that ends below 100% has jobs that "
    "never started; figures and tables count those as waiting until they ended or the run did. By size, the bar is the "
    "longest wait."
)


def how_long(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the waits of jobs by queue; with several runs, first those of all jobs on common axes."""
    plots = [_queues(result, frame, several=len(results) > 1) for result in results]
    named = {queue.name: frame.paint(queue.name) for result in results for queue in _shown(result)}
    keys = [Key(label=name, paint=paint, is_line=True, dash=paint.dash) for name, paint in named.items()]
    plots += [_by_size(result, frame, several=len(results) > 1) for result in results]
    return Section(name="waits", question="How long did jobs wait?", about=ABOUT, plots=tuple(plots), keys=tuple(keys))


def at_most(seconds: float | None) -> str:
    """Return a phrase for the longest wait of some jobs."""
    text = figure(seconds, "s")
    return "did not wait" if text == figure(0.0, "s") else f"waited {text} or less"


def runs_waits(results: Sequence[SimulationResult], frame: Frame) -> Plot:
    """Return the waits of all jobs, one line for each run."""
    paints = run_paints(results)
    lines = {result.policy: (_jobs(result), paint) for result, paint in zip(results, paints, strict=True)}
    rows = tuple((name, *_row([wait for wait, _ in jobs])) for name, (jobs, _) in lines.items())
    late = [headline(result, "queueingDelayP95") for result in results]
    texts = ", ".join(f"{value} under {result.policy}" for value, result in zip(late, results, strict=True))
    return Plot(
        title="How long all jobs waited",
        finding=f"95% of all jobs waited no longer than {texts}.",
        figure=_figure(lines, frame),
        table=Table(caption="Waits of all jobs", heads=("run", "jobs", "p50", "p95", "longest"), rows=rows),
    )


def run_paints(results: Sequence[SimulationResult]) -> list[Paint]:
    """Return the look of each run's line."""
    count = len(HUES)
    return [
        Paint(hue=HUES[at % count], pattern=at // count % len(DASHES)) if at < count * len(DASHES) else Paint(hue=GREY)
        for at in range(len(results))
    ]


def _queues(result: SimulationResult, frame: Frame, *, several: bool) -> Plot:
    queues = _shown(result)
    lines = {queue.name: (_jobs(result, queue.name), frame.paint(queue.name)) for queue in queues}
    never = sum(job.start_seconds is None for job in result.jobs)
    half, most = (at_most(result.value(name)) for name in ("queueingDelayP50", "queueingDelayP95"))
    waits = f"Half of all jobs {half}, 95% {most}"
    names = [queue.name for queue in leaf_queues(result)]
    left = len(names) - len(queues)
    return Plot(
        title=result.policy if several else "",
        finding=f"{waits}; {never:,} of {len(result.jobs):,} never started.",
        figure=_figure(lines, frame),
        table=Table(
            caption="Waits by queue",
            heads=("queue", "jobs", "p50", "p95", "longest"),
            rows=tuple(
                (queue.name, *_row([wait for wait, _ in _jobs(result, queue.name)])) for queue in leaf_queues(result)
            ),
            note=f"{MOST_LINES} queues are drawn, those with the most jobs; {left} more are here." if left else "",
        ),
    )


# --- By size -------------------------------------------------------------------------------------------------------


def _by_size(result: SimulationResult, frame: Frame, *, several: bool) -> Plot:
    """Return the waits by size of the job: in one chart of all jobs, the many small ones hide the large ones."""
    seconds, name = long_enough(result)
    sized: dict[str, list[JobResult]] = {}
    for job in sorted(result.jobs, key=lambda job: job.gpus):
        sized.setdefault(_size(job.gpus), []).append(job)
    waits = {size: sorted(longest_wait(job, result.horizon_seconds) for job in jobs) for size, jobs in sized.items()}
    late = {size: sum(wait > seconds for wait in each) for size, each in waits.items()}
    never = {size: sum(job.start_seconds is None for job in jobs) for size, jobs in sized.items()}
    rows = tuple((size, *_row(each), f"{late[size]:,}", f"{never[size]:,}") for size, each in waits.items())
    longest = max(waits, key=lambda size: percentile(waits[size], 0.95) or 0.0, default="")
    finding = (
        f"Of all sizes, jobs with {longest} waited longest: 95% of them {at_most(percentile(waits[longest], 0.95))}."
    )
    return Plot(
        title=f"{result.policy}: by size" if several else "By size",
        finding=finding if rows else "There were no jobs.",
        figure=_sizes(waits, frame) if rows else None,
        table=Table(
            caption="Waits by job size",
            heads=("GPUs of the job", "jobs", "p50", "p95", "longest", f"over {name}", "never started"),
            rows=rows,
            note="A wait is the longest one that a job had before a start, be it the first or a later one",
        ),
    )


def _size(gpus: float) -> str:
    """Return the size class of a job: no GPU, a fraction of one, or a range between powers of two."""
    if gpus <= 0:
        return "no GPU"
    if gpus < 1:
        return "less than 1 GPU"
    if gpus <= 2:
        return counted(ceil(gpus), "GPU")
    # Sizes that jobs ask for are mostly powers of two, so each class ends at one.
    most = 2 ** ceil(log2(gpus))
    return f"{most // 2 + 1} to {most} GPUs"


_MARGIN: Final = 0.06
"""Room at both ends of the axis as a part of it, so that a mark is whole on the screen of a phone, too."""


def _sizes(waits: Mapping[str, Sequence[float]], frame: Frame) -> Figure:
    """Return one row for each size, with its median, its 95th percentile and its longest wait."""
    data: list[Figure] = []
    for part, symbol, name in ((0.5, "circle", "median"), (0.95, "diamond", "95%"), (1.0, "line-ns-open", "longest")):
        data.append(
            {
                "mode": "markers",
                "name": name,
                "x": [max(1.0, short(percentile(each, part) or 0.0)) for each in waits.values()],
                "y": list(waits),
                "text": [figure(percentile(each, part), "s") for each in waits.values()],
                "marker": {"color": HUES[0], "size": 11, "symbol": symbol, "line": {"width": 2}},
                "hovertemplate": f"%{{y}}, {name}: %{{text}}<extra></extra>",
            }
        )
    span = log10(max(10.0, frame.horizon))
    margin = span * _MARGIN
    x = {**_log_axis(frame), "range": [short(-margin), short(span + margin)]}  # the same for each run
    y = {"type": "category", "autorange": "reversed"}
    return {"data": data, "layout": layout(90 + 34 * len(waits), x, y, hovermode="closest")}


def _log_axis(frame: Frame) -> Figure:
    """Return the logarithmic axis of waits."""
    ticks = {at: text for at, text in _TICKS.items() if at <= frame.horizon * 1.01}
    return {"type": "log", "title": {"text": "wait"}, "tickvals": list(ticks), "ticktext": list(ticks.values())}


# --- By queue ------------------------------------------------------------------------------------------------------


def _shown(result: SimulationResult) -> list[QueueResult]:
    queues = leaf_queues(result)
    most = sorted(queues, key=lambda queue: (-queue.jobs, queue.name))[:MOST_LINES]
    return [queue for queue in queues if queue in most]


def _jobs(result: SimulationResult, queue: str | None = None) -> list[Waited]:
    """Return how long each job waited, and whether it started; the shortest wait first."""
    jobs = (job for job in result.jobs if queue is None or job.queue == queue)
    return sorted((waited(job, result.horizon_seconds), job.start_seconds is not None) for job in jobs)


def _row(waits: Sequence[float]) -> tuple[str, ...]:
    return (f"{len(waits):,}", *(figure(percentile(waits, part), "s") for part in (0.5, 0.95, 1.0)))


def _figure(lines: Mapping[str, tuple[Sequence[Waited], Paint]], frame: Frame) -> Figure | None:
    if not any(jobs for jobs, _ in lines.values()):
        return None
    data: list[Figure] = []
    for name, (jobs, paint) in lines.items():
        data += _line(name, jobs, paint, frame)
    return {"data": data, "layout": layout(320, _log_axis(frame), {"title": {"text": "% of jobs"}, "range": [0, 103]})}


def _line(name: str, jobs: Sequence[Waited], paint: Paint, frame: Frame) -> list[Figure]:
    """Return the line of the jobs that started, with marks at the quantiles."""
    starts, whole = [wait for wait, is_started in jobs if is_started], len(jobs)
    count = len(starts)
    if not count:
        return []
    # Evenly among the jobs and with both ends, so that a line of many jobs costs no more than its shape needs.
    places = sorted({min(count - 1, at * count // MOST_POINTS) for at in range(MOST_POINTS)} | {0, count - 1})
    x = [1.0, *(max(1.0, short(starts[at])) for at in places), max(1.0, frame.horizon)]
    y = [0.0, *(short(100 * (at + 1) / whole) for at in places), short(100 * count / whole)]
    shown = {"name": label(name), "hovertemplate": f"{label(name)}: %{{y:.0f}}% within %{{x:.0f}}s<extra></extra>"}
    line = {"color": paint.hue, "width": 2.5, "dash": paint.dash, "shape": "hv"}
    waits = [wait for wait, _ in jobs]
    reached = [(percentile(waits, part) or 0.0, part, symbol) for part, symbol in _MARKS if part <= count / whole]
    marks: Figure = {
        **shown,
        "mode": "markers",
        "x": [max(1.0, wait) for wait, _, _ in reached],
        "y": [100 * part for _, part, _ in reached],
        "marker": {"color": paint.hue, "size": 10, "symbol": [symbol for _, _, symbol in reached]},
    }
    return [{**shown, "mode": "lines", "x": x, "y": y, "line": line}, marks]
