"""``kai diff`` over virtual time: two policies on one workload, or two results that were saved."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from kai.cli.console import Console
from kai.cli.deciding.runs import Wanted, carried_out, experiments_of, under

if TYPE_CHECKING:
    from collections.abc import Callable

    from kai.simulation.comparing.documents import Comparison, JobState
    from kai.virtual.results.comparison import Compared
    from kai.virtual.results.result import SimulationResult

    Sides = tuple[SimulationResult, SimulationResult]

_FEW = 20


def runs_under(a: str, b: str, place: str, wanted: Wanted) -> "Sides":
    """Return the results of two policies on a workload, which run side by side.

    Raises: InputError and ConfigError that name what is wrong.
    """
    (base,) = experiments_of(place, wanted)
    one, other = carried_out([under(base, policy, wanted.beside) for policy in (a, b)], wanted)
    return _titled(one.result, other.result, (a, b))


def saved_runs(a: dict[str, Any], b: dict[str, Any], names: tuple[str, str]) -> "Sides":
    """Return two results that were saved.

    Raises: InputError for a document that is none.
    """
    from kai.virtual.results.documents import result_of_document

    sides = [result_of_document(values, name) for values, name in zip((a, b), names, strict=True)]
    return _titled(sides[0], sides[1], names)


def runs_text(compared: "Compared", console: Console) -> str:
    """Return a comparison of two runs for people."""
    from kai.cli.tables import Column, table, wrapped
    from kai.virtual.results.figures import figure
    from kai.wording import span_text

    found = compared.comparison
    if found.is_equal:
        return "nothing changes: the same decisions, jobs and figures"
    heads = [
        Column(head=""),
        Column(head=found.a, right=True),
        Column(head=found.b, right=True),
        Column(head="better", drop=1),
        Column(head="", drop=2),
    ]
    names = {"a": found.a, "b": found.b, "equal": "", "unclear": ""}
    units = {"part": "%", "jobs": "n", "pods": "n"}
    rows = []
    for each in found.metrics:
        cells = [figure(value, units.get(each.unit, each.unit)) for value in (each.a, each.b)]
        shows = bool(each.change) and cells[0] != cells[1]  # less than what is shown makes neither side better
        note = compared.notes.get(each.name, "") if shows else ""
        rows.append([each.name, *cells, names[each.better] if shows else "", note])
    parts = [f"{table(heads, rows, console.width)}\n{wrapped(compared.assumed, console.width)}"]
    parts += changed_jobs(found, lambda job: job.reason, console)
    first = found.first_divergence
    if first is not None:
        one, other = (_said(each) for each in (first.decision_a, first.decision_b))
        times = [each["timeSeconds"] for each in (first.decision_a, first.decision_b) if each is not None]
        text = f"first divergence: T+{span_text(min(times))}: {found.a} {one}, {found.b} {other}"
        parts.append(wrapped(text, console.width, indent="  "))
    return "\n\n".join(parts)


def changed_jobs(found: "Comparison", said: "Callable[[JobState], str]", console: Console) -> list[str]:
    """Return a table of the jobs that change, with what is ``said`` of each on either side, and how many more do."""
    from kai.cli.tables import Column, table

    if not found.jobs:
        return []
    shown = found.jobs if console.wide else found.jobs[:_FEW]
    rows = [[each.job, *("-" if side is None else said(side) for side in (each.a, each.b))] for each in shown]
    heads = [Column(head="JOB"), Column(head=found.a, least=12), Column(head=found.b, least=12)]
    more = len(found.jobs) - len(shown)
    return [table(heads, rows, console.width), *([f"and {more} more jobs (-o wide)"] if more else [])]


def _said(decision: Any) -> str:  # noqa: ANN401 - a decision as plain values, or None
    return "decides nothing more" if decision is None else str(decision["text"])


def _titled(a: "SimulationResult", b: "SimulationResult", names: tuple[str, str]) -> "Sides":
    """Return results that are called differently."""
    if a.policy != b.policy:
        return a, b
    short = [Path(each).stem for each in names]
    one, other = short if short[0] != short[1] else names
    return attrs.evolve(a, policy=one), attrs.evolve(b, policy=other)
