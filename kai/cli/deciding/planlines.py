"""A plan for people: one line for each job and what happens to its pods, and a line that counts."""

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

from kai.cli.tables import Column, table
from kai.wording import counted, first_of, number_text

if TYPE_CHECKING:
    from kai.cli.console import Console
    from kai.simulation.outcomes.plan import Plan

_MARKS = {"place": "+", "hold": "o", "evict": "-", "move": "~"}
_COLORS = {"place": "green", "hold": "cyan", "evict": "red", "move": "yellow"}
_FEW = 4


def plan_lines(plan: "Plan", console: "Console") -> str:
    """Return the lines of a plan."""
    document = plan.document()
    rows = [row for kind in _MARKS for row in _rows(kind, document[kind], console)]
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
    """Return one sentence about the pods of a plan, of all its cycles together; what is none is left out."""
    started = {each.pod for each in plan.place}
    evicted = {each.pod for each in plan.evict}
    moved = {each.pod for each in plan.move}
    held = {each.pod for each in plan.hold} - started - moved
    told = [f"{_start(started)} now"] if started else []
    if held:
        after = f"after {counted(len(evicted), 'evicted pod has', 'evicted pods have')} stopped"
        told.append(f"{_start(held)} {after if evicted else 'when others have left'}")
    elif evicted:
        told.append(f"{counted(len(evicted), 'pod is', 'pods are')} evicted")
    if moved:
        told.append(f"{counted(len(moved), 'pod moves', 'pods move')} to other nodes")
    return f"Plan: {', '.join(told)}." if told else "Plan: nothing to do."


def _start(pods: AbstractSet[str]) -> str:
    return counted(len(pods), "pod starts", "pods start")


def _rows(kind: str, items: Sequence[Mapping[str, Any]], console: "Console") -> Iterable[Sequence[str]]:
    by_job: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for each in items:
        by_job.setdefault((each["job"] or each["pod"], _why(kind, each)), []).append(each)
    for (job, why), members in by_job.items():
        nodes = sorted({str(each["node"]) for each in members})
        yield (
            console.styled(_MARKS[kind], fg=_COLORS[kind]),
            job,
            str(len(members)),
            number_text(sum(each["gpus"] for each in members)),
            first_of(nodes, _FEW, " "),
            why,
        )


def _why(kind: str, item: Mapping[str, Any]) -> str:
    queue = f"queue {item['queue']}"
    if kind == "place":
        return queue
    if kind == "hold":
        return f"{queue}; when others have left"
    gains = f" for {item['aggressor']}" if item.get("aggressor") else ""
    rule = f": {item['rule']}" if item.get("rule") else ""
    return f"{item['cause']}{gains}{rule}"
