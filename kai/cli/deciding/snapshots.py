"""``kai snapshot`` and ``kai replay``: save what the scheduler sees, and decide on it again.

A snapshot is a file to ask questions and decide on elsewhere. Replaying one shows the decisions as a plan, and compares
them with the recorded ones.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from kai.basics.errors import InputError, InvariantError
from kai.basics.wording import counted, found_by
from kai.cli.arguments import GivenPath, cycles_option
from kai.cli.console import Console, console_options
from kai.cli.failures import INPUT, NO, say_error
from kai.cli.sources import STANDARD_INPUT, Source, adoption_options, source_options

if TYPE_CHECKING:
    from kai.answers.cases.case import Case
    from kai.answers.cases.plan_document import Difference
    from kai.answers.offline.run import Outcome
    from kai.answers.outcomes.overview import Overview
    from kai.answers.outcomes.plan import Plan
    from kai.lab.comparing.comparison import Agreement
    from kai.lab.request import Result
    from kai.manifests.adoption import Adoption


_REPLAY = """\
Exit code 0, or 1 if the decisions differ from the recorded ones (with --expect: 4 if the snapshot
records none). Under another policy or with more cycles they differ, of course; kai diff says what it means.

\b
  kai replay now.zip
  kai replay now.zip --expect > /dev/null     is all as before the upgrade?
  kai replay now.zip --policy other.yaml
"""
_MOST = 10


@click.command(epilog=_REPLAY)
@click.argument("snapshot", type=click.Path(allow_dash=True, readable=False))
@click.option(
    "--policy", type=GivenPath(), metavar="FILE", help="Scheduler configuration in place of the snapshot's own."
)
@cycles_option
@click.option("--expect", is_flag=True, help="Fail if the snapshot records no decisions, or others than these.")
@adoption_options
@console_options()
def replay(
    snapshot: str,
    console: Console,
    policy: str | None,
    cycles: int | None,
    *,
    expect: bool,
    schedulers: tuple[str, ...],
    queue_from: str | None,
) -> int:
    """Decide once more on SNAPSHOT and show the decisions as a plan."""
    from kai.answers.cases.plan_document import differences
    from kai.answers.outcomes.plan import plan_of
    from kai.cli.deciding.policy import load_policy
    from kai.lab.comparing.comparison import agreement
    from kai.lab.request import Request, adoption_under

    chosen = load_policy(policy) if policy else None
    case = case_at(snapshot, adoption_under(chosen, schedulers, queue_from))
    request = Request.of(chosen, actions=None, cycles=cycles, now=None)
    result = request.decide(attrs.evolve(case, stable_cycles=0))
    for note in result.notes:
        console.talk(f"note: {snapshot}: {note}", level=1)
    for note in case.adopted:
        console.talk(f"note: {note}")
    outcome, seen = decided_on(case, result)
    plan = plan_of(outcome)
    found = None if case.recorded is None else differences(case.recorded, plan.document())
    theirs = agreement(outcome, seen)
    if console.is_for_machines:
        from kai.cli.console import write_kind
        from kai.cli.deciding.documents import replayed_plan

        write_kind(replayed_plan(plan, found, theirs), console, case.origin)
    else:
        _write(case, plan, found, console)
        if theirs is not None:
            console.write(_compared(theirs, console))
    if expect and found is None:
        say_error(f"{snapshot}: records no decisions, --expect has nothing to compare", "kai snapshot writes some")
        return INPUT
    return NO if found else 0


def decided_on(case: "Case", result: "Result") -> "tuple[Outcome, Overview]":
    """Return the outcome of a decided cluster, and its overview.

    Raises: InvariantError where there is none.
    """
    if result.outcome is None or result.overview is None:
        raise InvariantError(f"{case.name}: a cluster was decided without an outcome")
    return result.outcome, result.overview


def case_at(path: str, adoption: "Adoption | None" = None) -> "Case":
    """Return the cluster at a path.

    Raises: InputError for a path that holds no cluster.
    """
    from kai.answers.cases.case import cluster_of
    from kai.deciding.configuration.registry import Registry
    from kai.lab.sources.loading import read_case

    return cluster_of(read_case(path, Registry.installed(), adoption))


def _write(case: "Case", plan: "Plan", found: "tuple[Difference, ...] | None", console: Console) -> None:
    from kai.cli.deciding.report import plan_lines

    console.write(plan_lines(plan, console))
    if found is None:
        console.write(f"decisions {plan.digest}; {case.title} records none")
    elif not found:
        console.write(f"decisions {plan.digest}, as recorded")
    else:
        console.write(f"decisions {plan.digest}, {len(found)} differ from what is recorded:")
        shown = found if console.wide else found[:_MOST]
        console.write("\n".join(f"  cycle {each.cycle}  {each.pod}  {difference_text(each)}" for each in shown))
        if len(shown) < len(found):
            console.write(f"  and {len(found) - len(shown)} more (-o wide)")


def difference_text(difference: "Difference") -> str:
    """Return one difference as a sentence."""
    words = {"place": "starts on", "hold": "is promised", "evict": "is evicted from", "move": "moves from"}
    word = words[difference.kind]
    before, after = difference.recorded, difference.now
    if before is not None and after is not None and before.get("node") != after.get("node"):
        return f"recorded: {word} {before.get('node')}; now: {word} {after.get('node')}"
    if before is not None and after is not None:
        return f"{word} {after.get('node')}, for another reason or with other devices"
    if before is not None:
        return f"recorded: {word} {before.get('node')}; now: not"
    return f"recorded: not; now: {word} {(after or {}).get('node')}"


def _compared(theirs: "Agreement", console: Console) -> str:
    """Return the decisions that differ from those of the cluster's scheduler, each with its rule."""
    from kai.cli.tables import columns

    lines = [f"{theirs.summary}{':' if theirs.differences else ''}"]
    shown = theirs.differences if console.wide else theirs.differences[:_MOST]
    rows = []
    for each in shown:
        code = f" ({each.their_rule})" if each.their_rule else ""
        rows += [[f"  {each.job}", "there", f"{each.theirs}{code}"], ["", "here", f"{each.ours} ({each.rule})"]]
    lines += [columns(rows, width=console.width)] if rows else []
    if len(shown) < len(theirs.differences):
        lines.append(f"  and {len(theirs.differences) - len(shown)} more (-o wide)")
    return "\n".join(lines)


_SNAPSHOT = """\
What is in config maps, and secrets, are never in a snapshot, nor images, commands and environment variables.
Annotations that kai does not read are left out unless --redact=none is given; --redact=names hides all names
as well and leaves the decisions the same. Labels and requests of every pod are in it: treat it as confidential.

\b
  kai snapshot now.zip                      the cluster of the current context
  kai snapshot theirs.zip --redact=names    to be sent to strangers
  kai snapshot old.zip --compat -f lab/     what KAI-Scheduler's tools read
  kai why train --from now.zip
"""


@click.command(epilog=_SNAPSHOT)
@click.argument("file", type=GivenPath(dir_okay=False))
@click.option(
    "--redact",
    type=click.Choice(("annotations", "names", "none")),
    default="annotations",
    is_flag=False,
    flag_value="annotations",
    help="What to leave out: annotations that kai does not read (default), names as well, or neither.",
)
@click.option("--compat", is_flag=True, help="Write KAI-Scheduler's archive, without what only kai reads.")
@source_options(("table", "json", "yaml"), watch=False)
def snapshot(file: str, source: Source, console: Console, redact: str, *, compat: bool) -> int:
    """Save the state that the scheduler sees, with the decisions that it leads to, in FILE."""
    from kai.roles.scheduler.cycle.dump import packed

    if file == STANDARD_INPUT:  # a file of that name would be hard to read again, and hard to delete
        raise click.UsageError("FILE: found -, expected the path of a file: a snapshot is an archive")
    # A snapshot carries the plan of an unlimited search: `kai replay` searches without limits too, and compares.
    result = source.decide(attrs.evolve(source.request, searches=None))
    case = source.case_of(result)
    document = written(case, result)
    if redact != "none":
        from kai.lab.sources.archive import without_annotations, without_names

        document = without_annotations(document)
        if redact == "names":
            document = without_names(document)
    if compat:
        document.pop("kai")
    try:
        Path(file).write_bytes(packed(document))
    except OSError as error:
        raise InputError(f"{file}: found {found_by(error)}, expected a file that can be written") from None
    _say(file, case, document, console, redact=redact)
    return 0


def written(case: "Case", result: "Result") -> dict[str, Any]:
    """Return the document of a snapshot, with the plan decided on it."""
    from kai.answers.outcomes.plan import plan_of
    from kai.roles.scheduler.cycle.cycle_input import CycleInput
    from kai.roles.scheduler.cycle.dump import archive_document
    from kai.roles.scheduler.settings import SchedulerSettings

    given = CycleInput(objects=case.objects, now=case.now, cycle=1, past=case.past)
    settings = SchedulerSettings(configuration=case.configuration, document=case.document, intake=case.settings)
    document = archive_document(given, settings)
    if result.outcome is not None:
        document["kai"] = {**document["kai"], "plan": plan_of(result.outcome).document()}
    return document


def _say(file: str, case: "Case", document: dict[str, Any], console: Console, *, redact: str) -> None:
    """Report what the file holds."""
    for note in case.adopted:
        console.talk(f"note: {note}")
    counts = {key: len(items) for key, items in document["rawObjects"].items() if items}
    if console.output != "table":
        from kai.answers.documents.listings import Snapshot
        from kai.cli.console import write_kind

        write_kind(Snapshot(file=file, redacted=redact, counts=counts), console, case.origin)
        return
    sizes = " · ".join(
        counted(counts.get(key, 0), name)
        for key, name in (("nodes", "node"), ("pods", "pod"), ("podGroups", "job"), ("queues", "queue"))
    )
    console.write(f"saved {file}: {sizes}")
    plan = (document.get("kai") or {}).get("plan")
    if plan:
        console.write(f"decisions {plan['decisionHash']}; again: kai replay {file} --expect")
