"""``kai snapshot``: write what the scheduler sees into a file, to ask questions and decide on elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click

from kai.basics.errors import InputError
from kai.basics.wording import counted, found_by
from kai.cli.console import Console
from kai.cli.selectors import GivenPath
from kai.cli.sources import STANDARD_INPUT, Source, source_options

if TYPE_CHECKING:
    from kai.answers.cases.case import Case
    from kai.lab.request import Result

EPILOG = """\
What is in config maps, and secrets, are never in a snapshot, nor images, commands and environment variables.
Annotations that kai does not read are left out unless --redact=none is given; --redact=names hides all names
as well and leaves the decisions the same. Labels and requests of every pod are in it: treat it as confidential.

\b
  kai snapshot now.zip                      the cluster of the current context
  kai snapshot theirs.zip --redact=names    to be sent to strangers
  kai snapshot old.zip --compat -f lab/     what KAI-Scheduler's tools read
  kai why train --from now.zip
"""


@click.command(epilog=EPILOG)
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
        from kai.lab.sources.redaction import without_annotations, without_names

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
