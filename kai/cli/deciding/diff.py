"""``kai diff``: compare two policies on one cluster or one workload, two saved results, or two snapshots."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kai.basics.errors import InputError
from kai.basics.wording import number_text
from kai.cli.arguments import cycles_option, refuse_given, refuse_of_traces
from kai.cli.console import Console, console_options
from kai.cli.deciding.runs import Wanted, carried_out, experiments_of, under
from kai.cli.failures import NO
from kai.cli.sources import adoption_options

if TYPE_CHECKING:
    from kai.lab.comparing.comparison import Comparison, JobState, Side
    from kai.lab.virtual.results.comparison import Compared
    from kai.lab.virtual.results.result import SimulationResult

    Sides = tuple[SimulationResult, SimulationResult]

_FEW = 20


def runs_under(a: str, b: str, place: str, wanted: Wanted) -> "Sides":
    """Run two policies on one workload and return both results.

    Raises: InputError and ConfigError that name what is wrong.
    """
    (base,) = experiments_of(place, wanted)
    one, other = carried_out([under(base, policy, wanted.beside) for policy in (a, b)], wanted)
    return _runs_titled(one.result, other.result, (a, b))


def saved_runs(a: dict[str, Any], b: dict[str, Any], names: tuple[str, str]) -> "Sides":
    """Return two saved results.

    Raises: InputError for a document that is no result.
    """
    from kai.lab.virtual.results.documents import result_of_document

    sides = [result_of_document(values, name) for values, name in zip((a, b), names, strict=True)]
    return _runs_titled(sides[0], sides[1], names)


def runs_text(compared: "Compared", console: Console) -> str:
    """Return the comparison of two runs as text."""
    from kai.basics.wording import span_text
    from kai.cli.tables import Column, table, wrapped
    from kai.lab.virtual.results.result import figure

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
        shows = bool(each.change) and cells[0] != cells[1]  # a change hidden by rounding makes neither side better
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
    """Return a table of changed jobs, with ``said`` of each side, and a count of the rows left out."""
    from kai.cli.tables import Column, table

    if not found.jobs:
        return []
    # The first rows are the ones that matter on a screen; a script reads them all with -o json.
    shown = found.jobs if console.wide else found.jobs[:_FEW]
    rows = [[each.job, *("-" if side is None else said(side) for side in (each.a, each.b))] for each in shown]
    heads = [Column(head="JOB"), Column(head=found.a, least=12), Column(head=found.b, least=12)]
    more = len(found.jobs) - len(shown)
    return [table(heads, rows, console.width), *([f"and {more} more jobs (-o wide)"] if more else [])]


def _said(decision: Any) -> str:  # noqa: ANN401 - a decision as plain values, or None
    return "decides nothing more" if decision is None else str(decision["text"])


def _runs_titled(a: "SimulationResult", b: "SimulationResult", names: tuple[str, str]) -> "Sides":
    """Return the results, renamed after their files if both have the same policy name."""
    if a.policy != b.policy:
        return a, b
    # Two files of one name in different folders keep their paths, or both columns would have one head.
    short = [Path(each).stem for each in names]
    one, other = short if short[0] != short[1] else names
    return attrs.evolve(a, policy=one), attrs.evolve(b, policy=other)


EPILOG = """\
A and B are clusters (snapshots, folders, scenarios), or documents that kai simulate or kai replay wrote
with -o json. With --on they are scheduler configurations for that cluster; default stands for its own.

\b
  kai diff monday.zip tuesday.zip
  kai diff default other.yaml --on now.zip --exit-code
  kai diff before.json after.json -o json
  kai diff default other.yaml --on workload/ --until 8h     over virtual time
"""
OWN = "default"
_RESULTS = ("SimulationResult", "Plan")
_OVER_TIME: Final = {
    "until": "--until",
    "cluster": "--cluster",
    "seed": "--seed",
    "skips_bad_rows": "--skip-bad-rows",
    "since": "--since",
}
_REPORT: Final = {"report": "--report"}
_CYCLES: Final = {"cycles": "--cycles"}
_ADOPTED: Final = {"schedulers": "--scheduler-name", "queue_from": "--queue-from"}
_AS_THEY_ARE: Final = "they are compared as they are"


@click.command(epilog=EPILOG)
@click.argument("a")
@click.argument("b")
@click.option("--on", "on", default="", metavar="SOURCE", help="Decide on this cluster; A and B are policies.")
@cycles_option
@click.option("--until", metavar="DURATION", help="Let virtual time pass for so long on what --on names: 8h, 7d.")
@click.option("--cluster", type=click.Path(), help="The cluster over time: a cluster file, nodes as CSV, a snapshot.")
@click.option("--seed", type=click.IntRange(min=0), default=0, help="Seed of all that is drawn by chance over time.")
@click.option("--skip-bad-rows", "skips_bad_rows", is_flag=True, help="Leave out rows of a trace that cannot be used.")
@click.option("--since", metavar="TIME", help="Begin a trace at this time, as sacct -S, with the jobs that ran then.")
@click.option("--report", type=click.Path(dir_okay=False), help="Write a page with charts of both runs over time.")
@click.option("--exit-code", "wants_code", is_flag=True, help="Leave with 1 if something changes.")
@adoption_options
@console_options()
def diff(
    a: str,
    b: str,
    console: Console,
    on: str,
    cycles: int | None,
    *,
    wants_code: bool,
    **over_time: Any,  # noqa: ANN401 - the flags of runs over time, by the names of the fields of Wanted
) -> int:
    """Compare two policies, two results or two snapshots: what changes from A to B."""
    from kai.cli.deciding.runs import Wanted
    from kai.lab.comparing.comparison import compare_sides

    wanted = Wanted(**over_time)
    runs = _runs(a, b, on, wanted)
    if runs is not None:
        again = wanted.again("diff", a, b, *(("--on", on) if on else ()))
        return _compare_runs(runs, wanted, again, console, wants_code=wants_code)
    if on:
        refuse_given({**_OVER_TIME, **_REPORT}, "without virtual time", "give --until, --cluster or a trace")
        sides = [_under(each, on, cycles, wanted) for each in (a, b)]
    else:
        sides = _sides(a, b, cycles, wanted)
    found = compare_sides(*_titled(sides))
    return _write(found, lambda: _text(found, console), console, wants_code=wants_code)


def _runs(a: str, b: str, on: str, wanted: "Wanted") -> "Sides | None":
    """Return two runs over virtual time; None where the comparison is of one moment."""
    from kai.cli.deciding.runs import asked_again, result_in
    from kai.cli.deciding.runsfiles import check_places

    if not on:
        refuse_given(_OVER_TIME, "without --on", "--on names what two policies run on")
        if OWN in {a, b} and not Path(OWN).exists():
            raise click.UsageError(f"{OWN} is a policy, and no cluster is named\n--on names what two policies run on")
        saved = (result_in(Path(a)), result_in(Path(b)))
        if saved[0] is None or saved[1] is None:
            _refuse_a_run_beside(*((a, b) if saved[1] is None else (b, a)), is_run=saved != (None, None))
            return None
        refuse_given(_CYCLES, "with results that were saved", _AS_THEY_ARE)
        check_places(wanted.out, wanted.report, wanted.engine)
        return saved_runs(saved[0], saved[1], (a, b))
    on, wanted = asked_again(on, wanted)
    if not wanted.is_over_time(on):
        return None
    refuse_given(_CYCLES, "with virtual time", "the time for which it passes is given with --until")
    refuse_of_traces(on)
    check_places(wanted.out, wanted.report, wanted.engine)
    return runs_under(a, b, on, wanted)


def _refuse_a_run_beside(run: str, other: str, *, is_run: bool) -> None:
    """Refuse to compare the result of a run over time with anything else.

    Raises: InputError.
    """
    if is_run and not Path(other).exists():
        raise InputError(f"{other}: no such file or folder")
    if is_run:
        wanted = "such a result as well: kai simulate --until writes one with -o json"
        raise InputError(f"{other}: found no result of a run over time, as {run} is one, expected {wanted}")


def _compare_runs(runs: "Sides", wanted: "Wanted", again: str, console: Console, *, wants_code: bool) -> int:
    from kai.lab.virtual.results.comparison import compare_runs

    compared = compare_runs(*runs)
    if wanted.report is not None:
        from kai.cli.deciding.runsfiles import write_report

        write_report(wanted.report, runs, again, console)
    return _write(compared.comparison, lambda: runs_text(compared, console), console, wants_code=wants_code)


def _write(found: "Comparison", text: Callable[[], str], console: Console, *, wants_code: bool) -> int:
    if console.is_for_machines:
        from kai.answers.documents.document import as_json, enveloped
        from kai.cli.console import write_document

        write_document(enveloped("Comparison", as_json(found)), console)
    else:
        console.write(text())
    return NO if wants_code and not found.is_equal else 0


def _under(policy: str, place: str, cycles: int | None, wanted: "Wanted") -> "Side":
    """Return the decisions of a policy on a cluster; the policy file is also looked for beside the cluster."""
    from kai.cli.deciding.policy import load_policy

    beside = Path(place) / policy
    path = policy if Path(policy).exists() or not beside.exists() else str(beside)
    return _decided(Path(policy).stem, place, cycles, None if policy == OWN else load_policy(path), wanted)


def _sides(a: str, b: str, cycles: int | None, wanted: "Wanted") -> "list[Side]":
    """Return saved results as they are, and decide on saved clusters.

    Raises: UsageError for flags that do not apply to saved results.
    """
    from kai.cli.deciding.runs import document_in
    from kai.lab.comparing.comparison import side_of_document

    refuse_given(_REPORT, "with what is of one moment", "give two results of runs over time, or --on and --until")
    documents = [document_in(Path(path)) for path in (a, b)]
    saved = [None if each is None or each.get("kind") not in _RESULTS else each for each in documents]
    if None not in saved:
        refuse_given({**_CYCLES, **_ADOPTED}, "with results that were saved", _AS_THEY_ARE)
    return [
        _decided(path, path, cycles, None, wanted) if found is None else side_of_document(path, found)
        for path, found in zip((a, b), saved, strict=True)
    ]


def _titled(sides: "list[Side]") -> "list[Side]":
    """Return the sides named by the stems of their files, if those differ."""
    short = [Path(each.title).stem or each.title for each in sides]
    if len(set(short)) < len(short):
        return sides
    return [attrs.evolve(each, title=title) for each, title in zip(sides, short, strict=True)]


def _decided(
    title: str,
    place: str,
    cycles: int | None,
    policy: Any,  # noqa: ANN401 - Policy, whose import costs numpy
    wanted: "Wanted",
) -> "Side":
    from kai.cli.deciding.snapshots import case_at, decided_on
    from kai.lab.comparing.comparison import side_of
    from kai.lab.request import Request, adoption_under

    request = Request.of(policy, actions=None, cycles=cycles, now=None)
    adoption = adoption_under(policy, wanted.schedulers, wanted.queue_from)
    case = attrs.evolve(case_at(place, adoption), stable_cycles=0)
    return side_of(title, *decided_on(case, request.decide(case)))


# --- For people ----------------------------------------------------------------------------------------------------


def _text(found: "Comparison", console: Console) -> str:
    from kai.cli.tables import Column, table, wrapped

    if found.is_equal:
        return "nothing changes: the same decisions, jobs and figures"
    shown = [each for each in found.metrics if console.wide or each.change or not each.name.startswith("queue ")]
    names = {"a": found.a, "b": found.b, "equal": "", "unclear": ""}
    heads = [
        Column(head=""),
        Column(head=found.a, right=True),
        Column(head=found.b, right=True),
        Column(head="better", drop=1),
    ]
    rows = [[each.name, _figure(each.a, each.unit), _figure(each.b, each.unit), names[each.better]] for each in shown]
    parts = [table(heads, rows, console.width)]
    parts += changed_jobs(found, _state, console)
    first = found.first_divergence
    if first is not None:
        one, other = _decision(first.decision_a), _decision(first.decision_b)
        pod = (first.decision_a or first.decision_b or {}).get("pod")
        text = f"first divergence: cycle {first.cycle}, {pod}: {found.a} {one}, {found.b} {other}"
        parts.append(wrapped(text, console.width, indent="  "))
    return "\n\n".join(parts)


def _figure(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}%" if unit == "%" else number_text(value)


def _state(job: "JobState") -> str:
    where = f" {' '.join(job.nodes)}" if job.nodes else ""
    why = f" ({job.reason})" if job.reason else ""
    return f"{job.state} {job.placed}/{job.wanted}{where}{why}"


def _decision(item: Any) -> str:  # noqa: ANN401 - a decision as plain values, or None
    if item is None:
        return "decides nothing about it"
    gains = f" for {item['aggressor']} ({item['cause']})" if item.get("aggressor") else ""
    words = {"place": "starts it on", "hold": "promises it", "evict": "evicts it from", "move": "moves it from"}
    devices = f" ({', '.join(item['slots'])})" if item.get("slots") else ""
    return f"{words[item['kind']]} {item.get('node')}{devices}{gains}"
