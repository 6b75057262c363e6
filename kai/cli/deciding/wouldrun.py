"""``kai would-run``: add a workload to a cluster, decide, and say where it would start and which pods would leave.

The answer is a sentence, a line for each job, and a line of counts; with ``-o json`` it is one document.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import attrs
import click

from kai.api.kubernetes.pod import GRACE_SECONDS
from kai.basics.wording import counted, first_of, number_text
from kai.cli.console import FORMATS, Console
from kai.cli.explaining.explanations import changes_text, in_file_text
from kai.cli.failures import INPUT, NO
from kai.cli.sources import STANDARD_INPUT, Source, source_options
from kai.cli.tables import columns, cut_text, shown_width, wrapped
from kai.cli.views import CUT_SHORT
from kai.deciding.explain.phrases import quantity
from kai.facts.model.axis import GPU_UNIT
from kai.lab.comparing.arrival import AFTER_EVICTIONS, NEVER, REFUSED, STARTS, Arrival, Part, answer_of

if TYPE_CHECKING:
    from kai.answers.cases.case import Case
    from kai.answers.cases.plan_document import Departure
    from kai.answers.documents.explanations import ExplanationItem
    from kai.answers.outcomes.overview import Job
    from kai.answers.outcomes.queue_lines import QueueLine
    from kai.lab.request import Result
    from kai.lab.sources.addition import Addition, LaterPods
    from kai.manifests import Document


_FEW = 6
_ROWS = 8
"""The most rows of leaving jobs without ``-o wide``."""
_BETWEEN = "   "
_LAST = 24
"""Drop the last column where fewer places than this remain for it."""


def arrival_text(found: Arrival, console: "Console", items: "Sequence[ExplanationItem]" = ()) -> str:
    """Return the answer, a row for each job that starts, leaves or moves, the counts, and helpful changes.

    ``items`` are explanations of the jobs that would wait.
    """
    parts = [wrapped(_answer(found), console.width, indent="  ")]
    if found.answer not in {STARTS, AFTER_EVICTIONS} and len(found.jobs) == 1:
        parts.append(_code(found.jobs[0]))
    queues_shown: set[str] = set()
    rows = [_job_row(job, found, queues_shown) for job in found.jobs]
    for departures, mark in ((found.plan.evict, "-"), (found.plan.move, "~")):
        rows += _departures(departures, mark, 0 if console.wide else _ROWS)
    parts += _columns(rows, console)
    parts.append(wrapped(_counts(found), console.width, indent="  "))
    for item in items[:_FEW]:
        who = "it" if len(found.jobs) == 1 else item.subject.name
        blocks = ["\n".join(changes_text(item, console, who)), *in_file_text(item, console)]
        parts.append("\n" + "\n\n".join(blocks))
    return "\n".join(parts)


def later_text(later: "Sequence[LaterPods]", gpus: float, console: "Console") -> str:
    """Return the pods that controllers create later, marking requests larger than ``gpus``; "" if there are none."""
    shown = later[: None if console.wide else _ROWS]
    lines = [_later_line(each, gpus, several=len({each.job for each in later}) > 1) for each in shown]
    if len(later) > len(shown):
        lines.append(f"  and so on, {len(later) - len(shown)} more times (-o wide)")
    return "\n".join(wrapped(line, console.width, indent="  ") for line in lines)


def _later_line(each: "LaterPods", gpus: float, *, several: bool) -> str:
    part = each.gpus / each.pods
    many = each.pods > 1 and each.gpus and part == int(part)
    size = f"{counted(each.pods, 'pod')} x {counted(part, 'GPU')}" if many else ""
    size = size or f"{counted(each.pods, 'pod')}, {counted(each.gpus, 'GPU')}"
    whose = f" of {each.job}" if several else ""
    # Pods of one Job that run one after another (parallelism below completions) need not fit together.
    total = each.gpus + each.beside
    too_many = total > gpus and "another pod" not in each.once
    more = f": {counted(total, 'GPU')} in all, more than the {number_text(gpus)} of the cluster" if too_many else ""
    return f"then {size}{whose} {each.once}{more}"


def besides_text(found: Arrival) -> str:
    """Return the effects of the same cycle on other jobs; "" if there are none."""
    counts = found.besides.counts
    words = {"start": "start", "hold": "wait for places that others leave", "evict": "go", "move": "move"}
    effects = [f"{counted(counts[kind], 'pod')} {word}" for kind, word in words.items() if counts[kind]]
    return f"note: besides, for other jobs: {', '.join(effects)}" if effects else ""


def _answer(found: Arrival) -> str:
    leaving = len(found.plan.evict) + len(found.plan.move)
    pods = counted(leaving, "pod")
    after = f"after {pods} {'has' if leaving == 1 else 'have'} left" if leaving else "after others have left"
    if len(found.jobs) != 1:
        ready = sum(answer_of(job) in {STARTS, AFTER_EVICTIONS} for job in found.jobs)
        when = f" in about {GRACE_SECONDS:.0f}s, {after}" if found.plan.hold else " now"
        refused = sum(answer_of(job) == REFUSED for job in found.jobs)
        rest = f", {refused} {'is' if refused == 1 else 'are'} refused" if refused else ""
        return f"{ready} of {len(found.jobs)} jobs would start{when if ready else ' now'}{rest}."
    (job,) = found.jobs
    if found.answer == REFUSED:
        return f"{job.name} would be refused: {job.reason[1]}."
    if found.answer == STARTS:
        some = f" with {job.placed} of {job.wanted} pods" if job.placed < job.wanted else ""
        return f"{job.name} would start now{some}."
    if found.answer == AFTER_EVICTIONS:
        return f"{job.name} would start in about {GRACE_SECONDS:.0f}s, {after}."
    never = "can never run here" if found.answer == NEVER else "would wait"
    return f"{job.name} {never}: {job.waiting_reason.text if job.waiting_reason else 'it has no pods'}."


def _code(job: "Job") -> str:
    reason = job.waiting_reason
    parts = [reason.code] if reason else [f"{job.state} {job.reason[0]}"] if any(job.reason) else []
    return " · ".join([*parts, f"queue {job.queue}", f"{counted(job.wanted, 'pod')}, {_gpus(job)}"])


def _job_row(job: "Job", found: Arrival, queues_shown: set[str]) -> list[str]:
    """Return the row of a job. The usage of its queue is shown in the queue's first row only."""
    starts = answer_of(job) in {STARTS, AFTER_EVICTIONS}
    nodes = _nodes(job.nodes)
    if answer_of(job) == REFUSED:
        return ["!", job.title or job.name, _size(job), f"{job.state} {job.reason[0]}", f"queue {job.queue}"]
    if not starts and job.waiting_reason is not None:
        nodes = job.waiting_reason.code
    usage = "" if job.queue in queues_shown else _usage(job, found)
    queues_shown.add(job.queue)
    return ["+" if starts else "?", job.title or job.name, _size(job, found.parts.get(job.key, ())), nodes, usage]


def _size(job: "Job", parts: "Sequence[Part]" = ()) -> str:
    """Return the number of pods and the GPUs of each, split into parts whose pods request different amounts."""
    if len({part.gpus for part in parts}) > 1 and not job.gpu_memory:
        return ", ".join(map(_part_text, parts))
    gpus = job.gpus / GPU_UNIT
    each = gpus / job.wanted if job.wanted else 0
    if job.wanted > 1 and gpus and not job.gpu_memory and each == int(each):
        return f"{counted(job.wanted, 'pod')} x {counted(each, 'GPU')}"
    return f"{counted(job.wanted, 'pod')}, {_gpus(job)}"


def _part_text(part: "Part") -> str:
    gpus = quantity(part.gpus, "gpu")
    if part.pods == 1:
        return f"{part.name or '1 pod'} {gpus}"
    return f"{part.pods} {part.name or 'pods'} x {gpus}"


def _gpus(job: "Job") -> str:
    return f"{job.gpus_text} of GPUs" if job.gpu_memory else counted(job.gpus / GPU_UNIT, "GPU")


def _usage(job: "Job", found: Arrival) -> str:
    queue = next((queue for queue in found.queues if queue.name == job.queue), None)
    if queue is None:
        return f"queue {job.queue}"
    share = queue.shares[2]
    quota = "unlimited quota" if share.quota is None else f"quota {number_text(share.quota / GPU_UNIT)}"
    return f"{queue.name} {number_text(share.used / GPU_UNIT)} of {quota}"


def _departures(departures: "Sequence[Departure]", mark: str, most: int) -> Iterator[list[str]]:
    """Yield a row for each job and cause, and one row for all beyond ``most``; a repeated reason becomes "the same"."""
    by_job: dict[tuple[str, str], list[Departure]] = {}
    for each in departures:
        by_job.setdefault((each.job, _why(each)), []).append(each)
    groups = [(job.rpartition("/")[2], why, members) for (job, why), members in by_job.items()]
    if most and len(groups) > most:
        rest = groups[most - 1 :]
        reasons = {why for _, why, _ in rest}
        why = reasons.pop() if len(reasons) == 1 else "for these and other reasons (-o wide)"
        groups = [*groups[: most - 1], (f"{len(rest)} more jobs", why, [each for _, _, some in rest for each in some])]
    last = ""
    for name, why, members in groups:
        size = f"{counted(len(members), 'pod')}, {counted(sum(each.gpus for each in members), 'GPU')}"
        yield [mark, name, size, _way(members, mark), "the same" if why == last else why]
        last = why


def _way(members: "Sequence[Departure]", mark: str) -> str:
    """Return the nodes that pods leave and, for moves, the nodes that they go to."""
    start, end = sorted({each.node for each in members}), sorted({each.to or "" for each in members})
    if mark == "-":
        return _nodes(start)
    return f"{_nodes(start)} again" if start == end else f"{_nodes(start)} -> {_nodes(end)}"


def _why(departure: "Departure") -> str:
    from kai.deciding.configuration.registry import Registry

    said = Registry.installed().cause_of(departure.cause).leaves_because
    # Plugins write this text: an unknown placeholder must not cost the user the answer.
    try:
        return said.format(queue=departure.queue, rule=departure.rule)
    except (LookupError, ValueError):
        return departure.rule


def _counts(found: Arrival) -> str:
    plan = found.plan
    starts = len(plan.place) + len(plan.hold)
    gone = sum(each.gpus for each in plan.evict)
    evicted = f"{len(plan.evict)} to evict" + (f" ({counted(gone, 'GPU')})" if plan.evict else "")
    quotas = f" {_quotas(found.over_quota)}" if starts else ""
    return f"Plan: {starts} to start, {evicted}, {len(plan.move)} to move.{quotas}"


def _quotas(over: "Sequence[QueueLine]") -> str:
    if not over:
        return "No quota is exceeded."
    usages = [
        f"{queue.name} {number_text(share.used / GPU_UNIT)} of {number_text((share.quota or 0) / GPU_UNIT)}"
        for queue, share in ((queue, queue.shares[2]) for queue in over)
    ]
    return f"Over quota: {', '.join(usages)}."


def _columns(rows: Sequence[Sequence[str]], console: "Console") -> list[str]:
    """Return rows in columns. The last column is cut, or dropped where too little room remains.

    On very narrow terminals the nodes wrap onto following lines.
    """
    widths = [max(shown_width(row[at]) for row in rows) for at in range(4)] if rows else []
    left = console.width - sum(widths) - 3 * 3 - 3 if console.width else 0
    if rows and left < -len(_BETWEEN):
        return [
            columns([[f"  {mark} {name}", size, nodes] for mark, name, size, nodes, _ in rows], width=console.width)
        ]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        last = row[4] if not left else cut_text(row[4], left) if left >= _LAST else ""
        lines.append(f"  {cells[0]} {_BETWEEN.join([*cells[1:], last])}".rstrip())
    return lines


def _nodes(names: Sequence[str]) -> str:
    if not names:
        return "-"
    return first_of(names, _FEW, " ")


EPILOG = """\
FILE holds manifests: a Job, a Deployment, a PyTorchJob, the output of helm template, a folder, or -.
Nothing is written to the cluster. Of a job that would wait kai tries what would help, as kai why does.

\b
  kai would-run train.yaml
  kai would-run train.yaml --queue research --copies 4
  kai would-run train.yaml --from snapshot.zip

Leaves with 0 if it starts (evictions allowed), 1 if not, 3 without a cluster, 4 if a cluster refuses it.
"""


@click.command(epilog=EPILOG)
@click.argument("paths", nargs=-1, required=True, metavar="FILE...", type=click.Path(allow_dash=True, readable=False))
@click.option("--queue", default="", help="Queue in place of the one that the files name.")
@click.option("--copies", type=click.IntRange(min=1, max=1000), default=1, help="So many of each workload.")
@source_options(FORMATS, watch=False)
def would_run(paths: tuple[str, ...], source: Source, console: Console, queue: str, copies: int) -> int:
    """Say what would happen if FILE were applied now: start, where, at whose cost, or why not."""
    if STANDARD_INPUT in paths and source.place == STANDARD_INPUT:
        raise click.UsageError("standard input cannot be both FILE and SOURCE")
    from kai.answers.cases.files import declare_kinds
    from kai.cli.failures import finding_text
    from kai.lab.comparing.arrival import arrival
    from kai.lab.sources.addition import add
    from kai.lab.sources.adopting import around_of
    from kai.lab.sources.text_files import read_documents
    from kai.manifests.adoption import NONE, adopted_documents

    texts = [read_documents(path) for path in paths]
    documents: list[Document] = [document for each in texts for document in each.documents]
    case = _with_templates(source.read(), documents, source)
    declare_kinds(source.request.registry)
    adoption = source.adoption or NONE
    taken, _, notes = adopted_documents(documents, adoption, around_of(case), case.queue_sources)
    for note in notes:
        console.talk(f"note: {note}")
    operators = adoption.operators
    addition = add(case, taken, queue=queue, copies=copies, namespace=source.namespace, operators=operators)
    result = source.request.decide(addition.case)
    findings = [*(finding for each in texts for finding in each.findings), *addition.findings]
    for finding in findings:
        console.talk(finding_text(finding))
    for unused in addition.unused:
        console.talk(f"note: {unused}")
    if result.outcome is None or result.overview is None:
        return NO
    found = arrival(result.outcome, result.overview, addition.jobs, addition.refused)
    _write(found, addition, result, console)
    if result.was_cut_short:
        console.talk(CUT_SHORT)
    if any(finding.is_refusal for finding in findings):
        return INPUT
    return 0 if found.eta_seconds is not None else NO


def _with_templates(case: "Case", documents: "Sequence[Document]", source: Source) -> "Case":
    """Return the case with objects of a running cluster that describe the documents' pods, such as templates."""
    from kai.answers.cases.live_cluster import list_templates
    from kai.manifests.workloads.table import needed_by

    needed = needed_by(document.manifest for document in documents) if source.is_live else ()
    return attrs.evolve(case, templates=list_templates(source.access, needed)) if needed else case


def _explained(found: "Arrival", result: "Result") -> "Sequence[ExplanationItem]":
    """Explain the jobs that would not start, with the changes that help, as `kai why` does."""
    from kai.answers.documents.explanations import ExplanationItem
    from kai.answers.why.explanation import Explainer
    from kai.basics.progress import report
    from kai.lab.comparing.arrival import NEVER, WAITS, answer_of

    waiting = [job for job in found.jobs if job.waiting_reason is not None and answer_of(job) in {WAITS, NEVER}]
    if not waiting or result.outcome is None or result.overview is None:
        return ()
    explainer = Explainer(result.outcome, result.overview, on_progress=report)
    return [ExplanationItem.of(fold) for fold in explainer.folded(waiting, explainer.twins)]


def _write(found: "Arrival", addition: "Addition", result: "Result", console: Console) -> None:
    from kai.cli.console import write_kind
    from kai.cli.deciding.documents import arrival_plan
    from kai.facts.model.axis import GPU_UNIT

    items = _explained(found, result)
    if console.is_for_machines:
        write_kind(arrival_plan(found, items, addition.later), console, result.case.origin)
        return
    console.write(arrival_text(found, console, items))
    if addition.later and result.overview is not None:
        console.write(later_text(addition.later, result.overview.totals[2] / GPU_UNIT, console))
    said = besides_text(found)
    if said:
        console.talk(said)
