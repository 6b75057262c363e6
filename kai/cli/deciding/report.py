"""The result of a simulation for people: a line of what it was, the jobs, the queues, and what changes."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kai.cli.console import Console
from kai.cli.deciding.planlines import counting
from kai.cli.explaining.explanations import explanations
from kai.cli.listing.shares import absent_queues, queue_tables
from kai.cli.tables import Column, table, wrapped
from kai.wording import counted

if TYPE_CHECKING:
    from kai.simulation.outcomes.overview import Job, Overview
    from kai.simulation.request import Result

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


def report(result: "Result", seen: "Overview", console: Console, *, explain: bool) -> str:
    """Return the whole report."""
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
    waiting = sum(job.words is not None for job in seen.jobs)
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
        Column(head="REASON", drop=1, least=24),
    ]
    if console.wide:
        heads[4:4] = [Column(head="MIN", right=True), Column(head="PREEMPTIBLE")]
    rows = []
    for job in jobs:
        name = f"{job.namespace}/{job.name}" if console.wide or counts[job.name] > 1 else job.name
        row = [
            name,
            job.queue,
            "-" if job.priority is None else str(job.priority),
            job.gpus_text,
            f"{job.placed}/{job.wanted}",
            console.styled(job.state, fg=COLORS.get(job.state)),
            _nodes(job, console),
            "  ".join(part for part in job.reason if part and part != job.state),
        ]
        if console.wide:
            row[4:4] = [str(job.minimum), "yes" if job.preemptible else "no"]
        rows.append(row)
    return table(heads, rows, console.width)


def _nodes(job: "Job", console: Console) -> str:
    if not job.nodes:
        return "-"
    if console.wide or len(job.nodes) <= _FEW_NODES:
        return " ".join(job.nodes)
    return f"{' '.join(job.nodes[: _FEW_NODES - 1])} … {job.nodes[-1]}"


def _plan(result: "Result", console: Console) -> str:
    """Return what is decided in all cycles, and the messages of evictions where everything is to be said."""
    from kai.simulation.outcomes.plan import plan_of

    if result.outcome is None or result.overview is None:
        return ""
    lines = [counting(plan_of(result.outcome))]
    if console.wide or console.verbose:
        lines += [f"  - {pod}: {message.splitlines()[0]}" for pod, message in result.overview.evictions]
    return "\n".join(wrapped(line, console.width, indent="  ") for line in lines)
