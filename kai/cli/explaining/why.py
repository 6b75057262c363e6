"""``kai why``: why a job waits, why a queue has its share, why a node is empty, and who evicted whom."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from kai.basics.errors import UnreachableError
from kai.cli.arguments import GivenPath, split_subject
from kai.cli.completing import complete_subjects
from kai.cli.console import Console
from kai.cli.explaining.subjects import NoSubjectError, find_subject
from kai.cli.explaining.whyjobs import Asked, JobAnswer, WaitingAnswer, explained_by_service, is_for_service
from kai.cli.failures import NO
from kai.cli.sources import Source, source_options
from kai.cli.views import View, Ways, show, show_view

if TYPE_CHECKING:
    from kai.answers.documents.explanations import EvidenceItem, ExplanationItem
    from kai.answers.offline.run import Outcome
    from kai.answers.outcomes.job_lines import JobLine
    from kai.answers.outcomes.overview import Overview
    from kai.answers.why.explanation import Fold, JobExplanation
    from kai.answers.why.own_jobs import OwnJob, OwnJobs
    from kai.cli.serving import Served
    from kai.lab.request import Result
    from kai.lab.virtual.experiments import Reached
    from kai.manifests import Finding


TRIED: Final = 8
"""About how many changes are tried, each by a decision of its own, for one waiting job."""
EPILOG = """\
NAME is a job, the owner of a job, a pod, a queue or a node; a kind before it says which, as with kubectl.
A change marked with a tick was decided again and starts the job now; ~ helps, and says what comes next.

\b
  kai why train
  kai why deployment/chat
  kai why queue/vision
  kai why node/gpu-07
  kai why --all
  kai why 1119 --at 3d --from result
  kai why --evicted
  kai why train --evicted --decision-log decisions.jsonl
"""

_MOST_JOBS = 3
"""Read no events for more jobs than this: each job takes requests of its own."""


@click.command(epilog=EPILOG)
@click.argument("name", required=False, default="", shell_complete=complete_subjects)
@click.option("--all", "everything", is_flag=True, help="Explain all jobs that wait, by reason.")
@click.option("--evicted", is_flag=True, help="Show which pods went or have to go, for whom, and what allows it.")
@click.option(
    "--decision-log",
    "log",
    type=GivenPath(),
    help="With --evicted: the file that kai run --decision-log writes; it goes back further than events.",
)
@click.option("--detail", is_flag=True, help="Add the texts of conditions and events.")
@click.option("--no-verify", "verify", flag_value=False, default=True, help="Do not look for changes that would help.")
@click.option("--exit-code", "is_coded", is_flag=True, help="Leave with 1 if a job that is asked about does not run.")
@source_options()
def why(source: Source, console: Console, *, is_coded: bool, **given: Any) -> int:  # noqa: ANN401 - the flags above, by name
    """Tell why a job waits, a queue has its share, or a node is empty, and what would help."""
    asked = Asked(**given)
    _refuse(asked)
    if asked.verify and not asked.evicted:
        source = attrs.evolve(source, again=TRIED)
    running: list[bool] = []
    said: set[str] = set()

    def noted(found: tuple[View, bool]) -> View:
        view, runs = found
        running[:] = [runs]
        _say_once(asked.notes, said, console)
        return view

    ways = Ways(
        decided=lambda result: noted(answer(source, result, asked)),
        findings=lambda result: findings_about(source, result, asked),
        own=lambda own: noted(own_answer(source, own, asked)),
        served=lambda served: noted(served_answer(source, served, asked)),
        soon=(lambda served: noted(explained_by_service(served, asked))) if is_for_service(source, asked) else None,
    )
    try:
        code = show(source, console, ways)
    except UnreachableError as error:
        if not asked.log:
            raise
        from kai.cli.explaining.whyevicted import logged_evictions

        remark = f"source: decision log only ({error})"
        found = logged_evictions(source, asked)
        _say_once(asked.notes, said, console)
        return show_view(found, source, console, remark=remark)
    return code if not is_coded or all(running) else NO


def _refuse(asked: Asked) -> None:
    """Refuse flags that contradict each other.

    Raises: UsageError.
    """
    if asked.everything and (asked.name or asked.evicted):
        raise click.UsageError("--all cannot be used with a name or --evicted")
    if not (asked.name or asked.everything or asked.evicted):
        raise click.UsageError("give the NAME of a job, a queue or a node, or --all for all jobs that wait")
    if asked.log is not None and not asked.evicted:
        raise click.UsageError("--decision-log is used with --evicted")
    if asked.evicted and split_subject(asked.name)[0] in {"queue", "node"}:
        raise click.UsageError("--evicted takes the name of a job, or none")


def _say_once(notes: "list[str]", said: set[str], console: Console) -> None:
    """Write the notes that were not written before: with -w every refresh finds the same ones."""
    for note in dict.fromkeys(notes):
        if note not in said:
            said.add(note)
            console.talk(f"note: {note}")
    notes.clear()


def answer(source: Source, result: "Result", asked: Asked) -> tuple[View, bool]:
    """Return the answer, and whether the jobs in question run.

    Raises: InputError for an unknown name.
    """
    outcome, seen = result.outcome, result.overview
    if outcome is None or seen is None:
        return WaitingAnswer(), True
    if asked.evicted:
        from kai.cli.explaining.whyevicted import evictions_of

        return evictions_of(source, result, asked)
    if asked.everything:
        case = source.case_of(result)
        shown = [line.job for line in result.lines if source.shows(case, line.job.namespace, line.labels)]
        found = WaitingAnswer.of(outcome, seen, shown, asked)
        return found, not found.items
    try:
        subject = find_subject(asked.name, source, result)
    except NoSubjectError:
        fate = None if source.reached is None else source.reached.fate(split_subject(asked.name)[1])
        if fate is None:
            raise
        return JobAnswer.of_fate(fate, outcome.case.now), True
    if subject.kind == "queue":
        return _of_queue(outcome, seen, subject.name), True
    if subject.kind == "node":
        return _of_node(outcome, seen, subject.name), True
    jobs = [line.job for line in subject.lines]
    if source.reached is not None:
        asked.notes.extend(_later(source, source.reached, [line.job.name for line in subject.lines if line.waits]))
    view = JobAnswer.of(outcome, seen, subject.lines, asked)
    # The service gives the same answer as this command, but without events; so --detail never asks the service.
    view = _with_events(view, subject.lines, source) if asked.detail else view
    return view, all(job.runs for job in jobs)


def findings_about(source: Source, result: "Result", asked: Asked) -> "Iterator[Finding]":
    """Yield findings about the manifests of the jobs in question; with ``--all`` only refusals."""
    from kai.lab.request import reportable

    case = source.case_of(result)
    if source.reached is not None:  # its inputs were checked when it ran
        return
    if asked.everything or asked.evicted:
        yield from (each for each in result.findings if each.is_refusal)
        return
    yield from (each for each in result.findings if each.origin is None)
    for line in find_subject(asked.name, source, result).lines:
        yield from reportable(case.about.get(line.job.key, ()))


def _later(source: Source, reached: "Reached", names: Sequence[str]) -> Iterator[str]:
    """Yield the later starts, in the same run, of jobs that wait at the chosen moment."""
    from kai.basics.wording import span_text
    from kai.cli.deciding.runs import start_in

    for name in names:
        start = start_in(source.place, name)
        if start is not None and start > reached.at:
            yield f"in this run {name} started at T+{span_text(start)}, {span_text(start - reached.at)} later"


def own_answer(source: Source, own: "OwnJobs", asked: Asked) -> tuple[View, bool]:
    """Return the answer about the user's own jobs, for a user who may not list the whole cluster.

    Raises: UnreachableError for a question about a queue or a node; InputError for an unknown job.
    """
    from kai.cli.explaining.subjects import named_jobs, unknown_job

    kind, _ = split_subject(asked.name)
    if asked.evicted:
        from kai.cli.explaining.whyevicted import own_evictions

        return own_evictions(source, own, asked), True
    if kind in {"queue", "node"}:
        raise own.refused
    shown = [each for each in own.jobs if source.selector.matches(each.line.labels)]
    if asked.everything:
        found = WaitingAnswer.of_folds(_folds(shown), detail=asked.detail)
        return found, not found.items
    lines = named_jobs(asked.name, [each.line for each in shown], source, own.owners)
    if not lines:
        raise unknown_job(asked.name, "your own", [each.line for each in shown], own.owners, source)
    settled = tuple(line for line in lines if not line.waits)
    keys = {line.job.key for line in lines}
    folds = _folds([each for each in shown if each.line.job.key in keys])
    view = JobAnswer.of_own(folds, settled, own.now, detail=asked.detail)
    return _with_events(view, lines, source), all(line.job.runs for line in lines)


def _with_events(found: JobAnswer, lines: "Sequence[JobLine]", source: Source) -> JobAnswer:
    """Return the answer with the latest events about each waiting job, as evidence; unchanged if no cluster is read.

    A user without the right to list events gets the same answer without them.
    """
    from kai.answers.documents.explanations import ExplanationList

    if not source.is_live:
        return found
    waiting = {line.job.key: line for line in lines if line.waits}
    if len(waiting) > _MOST_JOBS:
        return found
    document = found.document
    try:
        if isinstance(document, ExplanationList):
            items = (
                attrs.evolve(each, evidence=_with_latest(each, waiting, source, found.now)) for each in document.items
            )
            return attrs.evolve(found, document=attrs.evolve(document, items=tuple(items)))
        evidence = _with_latest(document, waiting, source, found.now)
    except UnreachableError:
        return found
    return attrs.evolve(found, document=attrs.evolve(document, evidence=evidence))


def _with_latest(
    item: "ExplanationItem", waiting: "dict[str, JobLine]", source: "Source", now: float
) -> "tuple[EvidenceItem, ...]":
    """Return the evidence of an item, and the latest events if its job waits."""
    from kai.answers.documents.explanations import EvidenceItem
    from kai.answers.why.podless import latest_events

    subject = item.subject
    line = waiting.get(f"{subject.namespace}/{subject.name}")
    if line is None:
        return item.evidence
    pods = [pod.name for pod in line.pods if not pod.node]
    found = latest_events(source.access, subject.namespace, subject.name, pods, now)
    return (*item.evidence, *map(EvidenceItem.of, found))


def served_answer(source: Source, served: "Served", asked: Asked) -> tuple[View, bool]:
    """Return the answer of the service.

    Raises: UnreachableError for a question that the service does not answer; InputError for an unknown job.
    """
    from kai.cli.explaining.served import evictions, jobs_named, named, node_named, queue_named, waiting

    kind, name = split_subject(asked.name)
    if asked.evicted:
        return evictions(source, served, asked)
    if asked.everything:
        return waiting(source, served, asked)
    if kind == "queue":
        return queue_named(served, name)
    if kind == "node":
        return node_named(served, name)
    return (jobs_named if kind else named)(source, served, asked.name)


def _folds(jobs: "Sequence[OwnJob]") -> "tuple[Fold, ...]":
    """Group waiting jobs by reason code and queue."""
    from kai.answers.why.explanation import Fold

    groups: dict[tuple[str, str], list[JobExplanation]] = {}
    for each in jobs:
        if each.explanation is not None:
            groups.setdefault((each.explanation.reason.code, each.line.job.queue), []).append(each.explanation)
    return tuple(Fold(explanation=first, alike=tuple(one.job for one in rest)) for first, *rest in groups.values())


def _of_queue(outcome: "Outcome", seen: "Overview", name: str) -> View:
    from kai.answers.outcomes.entitlement import entitlement
    from kai.answers.outcomes.job_lines import job_lines
    from kai.answers.outcomes.overview import declared_in
    from kai.answers.outcomes.queue_lines import budget_lines
    from kai.answers.why.facts import assumptions
    from kai.cli.explaining.whyqueue import LeftOutAnswer, QueueAnswer
    from kai.deciding.explain.declared import missing_queue
    from kai.facts.model.groups import path_to

    if name not in outcome.last.snapshot.queue_rows:
        declared = declared_in(outcome.case.objects, outcome.case.settings)
        return LeftOutAnswer(queue=name, reason=missing_queue(name, declared))
    below = seen.queues_below(name)
    # In queue order, so that the jobs named first are the next to start.
    waiting = [line.job for line in job_lines(outcome, seen) if line.waits and line.job.queue in below]
    assumed = assumptions(outcome.case.objects, (name,))
    snapshot = outcome.last.snapshot
    above = {snapshot.queues[row].name for row in path_to(snapshot.queues, snapshot.queue_rows[name])}
    budgets = tuple(each for each in budget_lines(outcome.last) if each.queue in above)
    return QueueAnswer(found=entitlement(outcome, seen, name), waiting=waiting, assumptions=assumed, budgets=budgets)


def _of_node(outcome: "Outcome", seen: "Overview", name: str) -> View:
    from kai.answers.outcomes.node_occupancy import occupancy
    from kai.cli.explaining.whyqueue import NodeAnswer

    return NodeAnswer(found=occupancy(outcome, seen, name))
