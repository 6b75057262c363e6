"""Output of simulations and plans, for people and for machines.

For people: a title, the jobs, the queues and the changes; a plan has a row for each job and change, and a line of
counts.

For machines: the documents of ``kai.cli.deciding.documents``.

`write_result` chooses the form by ``-o``.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import TYPE_CHECKING

from kai.answers.cases.plan_document import Departure, Hold, Place
from kai.basics.wording import counted, first_of, number_text
from kai.cli.console import Console, write_document
from kai.cli.explaining.explanations import explanations
from kai.cli.listing.queues import absent_queues, queue_tables
from kai.cli.tables import Cell, Column, cut_text, table, wrapped

if TYPE_CHECKING:
    from kai.answers.outcomes.overview import Job, Overview
    from kai.answers.outcomes.plan import Plan
    from kai.lab.comparing.expected_answer import Differences
    from kai.lab.request import Result


_MARKS = {"place": "+", "hold": "o", "evict": "-", "move": "~"}
_COLORS = {"place": "green", "hold": "cyan", "evict": "red", "move": "yellow"}
_FEW = 4


def plan_lines(plan: "Plan", console: "Console") -> str:
    """Return a plan as a table and a line of counts."""
    rows = [row for kind in _MARKS for row in _rows(kind, getattr(plan, kind), console)]
    heads = [
        Column(head=""),
        Column(head="JOB"),
        Column(head="PODS", right=True),
        Column(head="GPUS", right=True),
        Column(head="NODES", least=12, drop=1),
        Column(head="WHY", least=12),
    ]
    parts = [table(heads, rows, console.width)] if rows else []
    return "\n\n".join([*parts, counting(plan)])


def counting(plan: "Plan") -> str:
    """Return one sentence that counts the pods of a plan over all its cycles; zero counts are left out."""
    started = {each.pod for each in plan.place}
    evicted = {each.pod for each in plan.evict}
    moved = {each.pod for each in plan.move}
    held = {each.pod for each in plan.hold} - started - moved
    parts = [f"{_start(started)} now"] if started else []
    if held:
        after = f"after {counted(len(evicted), 'evicted pod has', 'evicted pods have')} stopped"
        parts.append(f"{_start(held)} {after if evicted else 'when others have left'}")
    elif evicted:
        parts.append(f"{counted(len(evicted), 'pod is', 'pods are')} evicted")
    if moved:
        parts.append(f"{counted(len(moved), 'pod moves', 'pods move')} to other nodes")
    return f"Plan: {', '.join(parts)}." if parts else "Plan: nothing to do."


def _start(pods: AbstractSet[str]) -> str:
    return counted(len(pods), "pod starts", "pods start")


def _rows(kind: str, items: "Sequence[Place | Hold | Departure]", console: "Console") -> Iterable[Sequence[str]]:
    by_job: dict[tuple[str, str], list[Place | Hold | Departure]] = {}
    for each in items:
        by_job.setdefault((each.job or each.pod, _why(each)), []).append(each)
    for (job, why), members in by_job.items():
        nodes = sorted({each.node for each in members})
        yield (
            console.styled(_MARKS[kind], fg=_COLORS[kind]),
            job,
            str(len(members)),
            number_text(sum(each.gpus for each in members)),
            first_of(nodes, _FEW, " "),
            why,
        )


def _why(item: "Place | Hold | Departure") -> str:
    match item:
        case Place():
            return f"queue {item.queue}"
        case Hold():
            return f"queue {item.queue}; when others have left"
        case Departure():
            gains = f" for {item.aggressor}" if item.aggressor else ""
            return f"{item.cause}{gains}{f': {item.rule}' if item.rule else ''}"


COLORS = {
    "Running": "green",
    "Starts": "green",
    "Held": "cyan",
    "Moves": "cyan",
    "Partial": "yellow",
    "Waits": "yellow",
    "Evicted": "red",
    "Impossible": "red",
    "Lost": "red",
    "Refused": "red",
}
_FEW_NODES = 3
_LEAST_TEXT = 28
"""With less room than this beside its code, a reason is shown as its code."""


def report(result: "Result", seen: "Overview", console: Console, *, explain: bool) -> str:
    """Return the whole report for people."""
    parts = [console.styled(wrapped(_title(result, seen), console.width, between=" · "), bold=True)]
    jobs = (*seen.jobs, *result.refused)
    if jobs:
        parts.append(_jobs(jobs, console))
    if explain:
        parts += explanations(result, console)
    if seen.queues:
        parts.append(queue_tables(seen, console))
    parts += [absent] if (absent := absent_queues(result, console)) else []
    parts.append(_plan(result, console))
    return "\n\n".join(parts) + "\n"


def _title(result: "Result", seen: "Overview") -> str:
    gpus = seen.totals[2] / 1000
    leaves = sum(queue.leaf for queue in seen.queues)
    waiting = sum(job.waiting_reason is not None for job in seen.jobs)
    outcome = result.outcome
    cycles = len(outcome.cycles) + len(outcome.stable) if outcome else 0
    return " · ".join(
        [
            result.case.title,
            counted(seen.nodes, "node"),
            counted(gpus, "GPU"),
            counted(leaves, "leaf queue"),
            counted(len(seen.jobs), "job"),
            f"{waiting} waiting",
            *([f"{len(result.refused)} refused"] if result.refused else []),
            counted(cycles, "cycle"),
        ]
    )


def _jobs(jobs: "Sequence[Job]", console: Console) -> str:
    counts = Counter(job.name for job in jobs)
    heads = [
        Column(head="JOB"),
        Column(head="QUEUE", drop=3),
        Column(head="PRIO", right=True, drop=7),
        Column(head="GPUS", right=True, drop=2),
        Column(head="PODS", right=True, drop=4),
        Column(head="STATE"),
        Column(head="NODES", drop=5),
        Column(head="REASON", drop=1, least=24, most=max((len(_reason(job)) for job in jobs), default=0)),
    ]
    if console.wide:
        heads[4:4] = [Column(head="MIN", right=True), Column(head="PREEMPTIBLE")]
    rows: list[list[Cell]] = []
    for job in jobs:
        name = f"{job.namespace}/{job.name}" if console.wide or counts[job.name] > 1 else job.name
        row: list[Cell] = [
            name,
            job.queue,
            "-" if job.priority is None else str(job.priority),
            job.gpus_text,
            f"{job.placed}/{job.wanted}",
            console.styled(job.state, fg=COLORS.get(job.state)),
            _nodes(job, console),
            partial(_reason, job),
        ]
        if console.wide:
            row[4:4] = [str(job.minimum), "yes" if job.preemptible else "no"]
        rows.append(row)
    return table(heads, rows, console.width)


def _reason(job: "Job", width: int = 0) -> str:
    """Return the code and the text of a reason; only the code if little of the text fits into ``width``."""
    parts = [part for part in job.reason if part and part != job.state]
    whole = "  ".join(parts)
    if not 0 < width < len(whole):
        return whole
    return cut_text(whole if width - len(parts[0]) >= _LEAST_TEXT else parts[0], width)


def _nodes(job: "Job", console: Console) -> str:
    if not job.nodes:
        return "-"
    if console.wide or len(job.nodes) <= _FEW_NODES:
        return " ".join(job.nodes)
    return f"{' '.join(job.nodes[: _FEW_NODES - 1])} … {job.nodes[-1]}"


def _plan(result: "Result", console: Console) -> str:
    """Return the counts of all cycles, with the messages of evictions for ``-o wide`` or ``-v``."""
    from kai.answers.outcomes.plan import plan_of

    if result.outcome is None or result.overview is None:
        return ""
    lines = [counting(plan_of(result.outcome))]
    if console.wide or console.verbose:
        lines += [f"  - {pod}: {message.splitlines()[0]}" for pod, message in result.overview.evictions]
    return "\n".join(wrapped(line, console.width, indent="  ") for line in lines)


def write_result(result: "Result", console: Console, *, differences: "Differences | None", explain: bool) -> None:
    """Write one result: JSON with one object a line, YAML documents, or tables."""
    if console.is_for_machines:
        from kai.cli.deciding.documents import document

        write_document(document(result, differences, explain=explain), console)
        return
    if differences is not None:
        _write_verdict(result, differences, console)
        if not console.verbose:
            return
    if result.overview is None:
        from kai.cli.listing.queues import fair_share_table

        console.write(fair_share_table(result.case.title, result.answer))
        return

    console.write(report(result, result.overview, console, explain=explain))


def write_failure(path: str, error: Exception, console: Console) -> None:
    """Write a failed scenario as a document; nothing for people, who read it on standard error."""
    if console.is_for_machines:
        write_document({"scenario": path, "error": f"{type(error).__name__}: {error}"}, console)


def _write_verdict(result: "Result", differences: "Differences", console: Console) -> None:
    if differences.unknown:
        return
    if not differences.found:
        console.write(f"{console.styled('ok', fg='green')}    {result.case.name}")
        return
    console.write(f"{console.styled('FAIL', fg='red')}  {result.case.name}")
    for text in differences.found:
        console.write(f"      {text}")
