"""Comparison of several runs: their figures, the changes from the first run, and the jobs that changed most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kai.basics.wording import number_text, span_text
from kai.lab.report.drawing import Figure, Frame, Key, Paint, Plot, Section, Table, label, layout, short
from kai.lab.report.waits import run_paints, runs_waits
from kai.lab.virtual.results.comparison import compare_runs
from kai.lab.virtual.results.metrics import goodput_text, waited
from kai.lab.virtual.results.result import BETTER_HIGH, HEADLINES, JobResult, SimulationResult, figure

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_JOBS: Final = 20
_SYMBOLS: Final = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star", "hexagon")
_TINY: Final = 1e-9


def beside_each_other(results: Sequence[SimulationResult], frame: Frame) -> Section:
    """Return the comparison of runs; only the first two are compared job by job."""
    paints = run_paints(results)
    keys = [
        Key(label=result.policy, paint=paint, is_line=True, dash=paint.dash)
        for result, paint in zip(results, paints, strict=True)
    ]
    return Section(
        name="runs",
        question="What changes from one run to the other?",
        about=f"The same workload, cluster and seed unless the names say otherwise; the others are compared with "
        f"{results[0].policy}.{_parting(results)} {goodput_text(results[0])}",
        plots=(
            _changes(results, paints, high=True),
            _changes(results, paints, high=False),
            runs_waits(results, frame),
            _changed(results),
        ),
        keys=tuple(keys),
        table=_figures(results),
    )


def _figures(results: Sequence[SimulationResult]) -> Table:
    rows = [(name, *(figure(result.value(key), unit) for result in results)) for name, key, unit in HEADLINES]
    return Table(caption="Figures of each run", heads=("", *(result.policy for result in results)), rows=tuple(rows))


# --- Changes -------------------------------------------------------------------------------------------------------


def _changes(results: Sequence[SimulationResult], paints: Sequence[Paint], *, high: bool) -> Plot:
    """Return figures relative to the first run: either those where high is better, or those where low is.

    One chart of both would show a rise that is a gain beside a rise that is a loss.
    """
    chosen = [each for each in HEADLINES if (each[1] in BETTER_HIGH) is high]
    drawn = [each for each in chosen if abs(results[0].value(each[1]) or 0.0) > _TINY]
    missing = [name for name, key, _ in chosen if (name, key) not in {each[:2] for each in drawn}]
    data: list[Figure] = []
    for at, (result, paint) in enumerate(zip(results, paints, strict=True)):
        parts = [_part(result.value(key), results[0].value(key)) for _, key, _ in drawn]
        data.append(
            {
                "mode": "markers",
                "name": label(result.policy),
                "x": parts,
                "y": [label(name) for name, _, _ in drawn],
                "marker": {"symbol": _SYMBOLS[at % len(_SYMBOLS)], "size": 11, "color": paint.hue},
                "text": [figure(result.value(key), unit) for _, key, unit in drawn],
                "hovertemplate": f"{label(result.policy)}: %{{y}} %{{text}} (%{{x:.1f}}%)<extra></extra>",
            }
        )
    left = f" Not drawn, because {results[0].policy} has none: {', '.join(missing)}." if missing else ""
    x = {"title": {"text": f"% of {label(results[0].policy)}"}, "rangemode": "tozero"}
    y = {"type": "category", "autorange": "reversed"}
    sides = ("right", "left") if high else ("left", "right")
    return Plot(
        title=f"Figures that are better {'high' if high else 'low'}",
        finding=f"{_in_words(results, chosen)} Marks to the {sides[0]} of 100% are better than {results[0].policy}, "
        f"marks to the {sides[1]} worse.{left}",
        figure={"data": data, "layout": layout(90 + 34 * len(drawn), x, y, hovermode="closest")} if drawn else None,
    )


def _part(value: float | None, first: float | None) -> float | None:
    return None if value is None or not first else short(100 * value / first)


def _in_words(results: Sequence[SimulationResult], chosen: Sequence[tuple[str, str, str]]) -> str:
    """Return a sentence on the figures in which the second run is better than the first, and worse."""
    one, other = results[:2]
    better: list[str] = []
    worse: list[str] = []
    for name, key, unit in chosen:
        mine, theirs = one.value(key), other.value(key)
        texts = figure(mine, unit), figure(theirs, unit)
        if mine is None or theirs is None or texts[0] == texts[1]:
            continue
        gains = (theirs > mine) is (key in BETTER_HIGH)
        (better if gains else worse).append(f"{name} ({texts[0]} to {texts[1]})")
    if not better and not worse:
        return f"None of them differs between {one.policy} and {other.policy}."
    parts = [f"{side} in {', '.join(names)}" for side, names in (("better", better), ("worse", worse)) if names]
    return f"{other.policy} is {'; '.join(parts)}."


def _parting(results: Sequence[SimulationResult]) -> str:
    """Return a sentence on when the decisions of the first two runs diverge."""
    first = compare_runs(results[0], results[1]).comparison.first_divergence
    if first is None:
        return ""
    times = [each["timeSeconds"] for each in (first.decision_a, first.decision_b) if each is not None]
    return (
        f" The decisions of {results[0].policy} and {results[1].policy} part at "
        f"T+{span_text(float(str(min(map(str, times), key=float))))}."
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
