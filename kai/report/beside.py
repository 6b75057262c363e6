"""Several runs beside each other: their figures, how these change from the first run, and which jobs changed most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kai.report.drawing import DASHES, HUES, Figure, Frame, Key, label, layout, short
from kai.report.sections import Plot, Section, Table
from kai.report.waits import run_paints, runs_waits
from kai.virtual.results.comparison import compare_runs
from kai.virtual.results.figures import HEADLINES, figure
from kai.virtual.results.metrics import waited
from kai.virtual.results.result import JobResult, SimulationResult
from kai.wording import number_text, span_text

MOST_JOBS: Final = 20
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
_TINY: Final = 1e-9


def beside_each_other(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the comparison of runs; jobs are compared of the first two."""
    paints = run_paints(results)
    keys = [
        Key(label=result.policy, paint=paint, is_line=True, dash=paint.dash)
        for result, paint in zip(results, paints, strict=True)
    ]
    return Section(
        name="runs",
        question="What changes from one run to the other?",
        about=f"The same workload, cluster and seed unless the names say otherwise; the others are compared with "
        f"{results[0].policy}.",
        plots=(_slopes(results), runs_waits(results, frame), _changed(results)),
        keys=tuple(keys),
        table=_figures(results),
    )


def _figures(results: Sequence[SimulationResult]) -> Table:
    rows = [(name, *(figure(result.value(key), unit) for result in results)) for name, key, unit in HEADLINES]
    return Table(caption="Figures of each run", heads=("", *(result.policy for result in results)), rows=tuple(rows))


# --- Slopes --------------------------------------------------------------------------------------------------------


def _slopes(results: Sequence[SimulationResult]) -> Plot:
    """Return how figures change from the first run: each as a part of what it is there."""
    data: list[Figure] = []
    names = [result.policy for result in results]
    missing = []
    for at, (name, key, unit) in enumerate(HEADLINES):
        values = [result.value(key) for result in results]
        first = values[0]
        if first is None or abs(first) < _TINY:
            missing.append(name)
            continue
        parts = [None if value is None else short(100 * value / first) for value in values]
        data.append(
            {
                "mode": "lines+markers",
                "name": label(name),
                "x": [label(each) for each in names],
                "y": parts,
                "marker": {"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 9, "color": HUES[at % len(HUES)]},
                "line": {"width": 2, "color": HUES[at % len(HUES)], "dash": DASHES[at // len(HUES)]},
                "text": [figure(value, unit) for value in values],
                "hovertemplate": f"{label(name)}: %{{text}} (%{{y:.1f}}%)<extra></extra>",
            }
        )
    left = f" Not drawn, because the first run has none: {', '.join(missing)}." if missing else ""
    y = {"title": {"text": f"% of {label(names[0])}"}}
    wanted = layout(360, {"type": "category"}, y, hovermode="closest", showlegend=True)
    wanted["legend"] = {"orientation": "h", "y": -0.2, "yanchor": "top", "bgcolor": "rgba(0,0,0,0)"}
    wanted["margin"] = {**wanted["margin"], "b": 120}
    return Plot(
        title="How the figures change",
        finding=f"{_in_words(results)}{left}",
        figure={"data": data, "layout": wanted} if data else None,
    )


def _in_words(results: Sequence[SimulationResult]) -> str:
    """Return which of the first two runs is better by how many figures."""
    compared = compare_runs(results[0], results[1]).comparison
    sides = [each.better for each in compared.metrics]
    a, b = sides.count("a"), sides.count("b")
    if not a and not b:
        return f"No figure tells {compared.a} and {compared.b} apart."
    first = compared.first_divergence
    parted = ""
    if first is not None:
        times = [each["timeSeconds"] for each in (first.decision_a, first.decision_b) if each is not None]
        parted = f" Their decisions part at T+{span_text(float(str(min(map(str, times), key=float))))}."
    return (
        f"{compared.b} is better than {compared.a} by {b} figures and worse by {a}, those of queues among them.{parted}"
    )


# --- Jobs ----------------------------------------------------------------------------------------------------------


def _changed(results: Sequence[SimulationResult]) -> Plot:
    one, other = results[0], results[1]
    of_other = {f"{job.namespace}/{job.name}": job for job in other.jobs}
    pairs = [(job, of_other.get(f"{job.namespace}/{job.name}")) for job in one.jobs]
    changes = [
        (waited(theirs, other.horizon_seconds) - waited(mine, one.horizon_seconds), mine, theirs)
        for mine, theirs in pairs
        if theirs is not None
    ]
    moved = [each for each in changes if abs(each[0]) > _TINY]
    most = sorted(moved, key=lambda each: (-abs(each[0]), each[1].name))[:MOST_JOBS]
    sooner = sum(change < 0 for change, _, _ in moved)
    rows = tuple(
        (
            f"{mine.namespace}/{mine.name}",
            mine.queue,
            number_text(mine.gpus),
            _started(mine),
            _started(theirs),
            _by(change),
        )
        for change, mine, theirs in most
    )
    return Plot(
        title="Which jobs start at another time",
        finding=f"Under {other.policy}, of {len(changes):,} jobs {sooner:,} start sooner than under {one.policy} and "
        f"{len(moved) - sooner:,} later.",
        figure=None,
        table=Table(
            caption="The jobs whose first start changes most",
            heads=("job", "queue", "GPUs", f"starts under {one.policy}", f"under {other.policy}", "change"),
            rows=rows,
            words=frozenset({0, 1}),
        )
        if rows
        else None,
    )


def _started(job: JobResult) -> str:
    return "never" if job.start_seconds is None else f"T+{span_text(job.start_seconds)}"


def _by(change: float) -> str:
    return f"{'+' if change > 0 else '−'}{span_text(abs(change))}"
