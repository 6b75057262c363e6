"""Answers of ``kai why`` about a queue and a node.

A queue: how its parent's share is divided, in numbers. A node: its tenants, and what keeps waiting jobs away.
"""

from typing import TYPE_CHECKING, Any

import attrs

from kai.answers.documents.document import as_json
from kai.basics.wording import first_of, number_text
from kai.cli.console import Console
from kai.cli.explaining.explanations import assumed
from kai.cli.tables import columns, wrapped
from kai.facts.model.axis import GPU_UNIT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.answers.outcomes.entitlement import Entitlement
    from kai.answers.outcomes.node_occupancy import Occupancy
    from kai.answers.outcomes.overview import Job
    from kai.answers.outcomes.queue_lines import BudgetLine
    from kai.framework.verdict import Reason


_MOST_SIBLINGS = 6
_MOST_NAMED = 4


@attrs.frozen(kw_only=True)
class QueueAnswer:
    """The answer about the share of one queue, and the jobs that wait in it."""

    found: "Entitlement"
    waiting: "Sequence[Job]"
    assumptions: tuple[str, ...] = ()
    """Assumptions made, such as that a queue which is being deleted stays."""
    budgets: "tuple[BudgetLine, ...]" = ()
    """The budgets of the queue, and of those above it."""
    kind: str = "QueueExplanation"

    def fields(self) -> dict[str, Any]:
        """Return the division of the share. Units: GPUs in devices, CPU in millicores."""
        from kai.answers.documents.queues import BudgetItem, QueueExplanation

        made = QueueExplanation.of(self.found, self.waiting)
        if self.budgets:
            made = attrs.evolve(made, budgets=tuple(map(BudgetItem.of, self.budgets)))
        return as_json(made)

    def names(self) -> list[str]:
        """Return the name of the queue, as ``-o name`` writes it."""
        return [f"queue.scheduling.run.ai/{self.found.queue}"]

    @property
    def summary(self) -> str:
        """The answer in one sentence."""
        from kai.answers.documents.queues import entitled

        return entitled(self.found)

    def text(self, console: Console) -> str:
        """Return the summary, the division, and the waiting jobs."""
        from kai.deciding.explain.phrases import quantity

        found = self.found
        whole = "  of the queues beside it you may see"
        if found.total is not None:
            whole = (
                f"  {quantity(round(found.total), found.resource)} in {found.parent or 'the cluster'}, divided among"
            )
        limited = any(part.limit is not None for part in found.siblings)
        limits = ["LIMIT"] if limited else []  # a limit may explain the share
        rows = [["  QUEUE", "ASKS", "QUOTA", *limits, "WEIGHT", "USED", "FAIR SHARE"]]
        others = sorted(found.siblings, key=lambda part: (part.name != found.queue, -part.given, part.name))
        for part in others[:_MOST_SIBLINGS]:
            quota = "unlimited" if part.quota is None else self._plain(part.quota)
            limit = "-" if part.limit is None else self._plain(part.limit)
            numbers = [self._plain(part.asks), quota, *([limit] if limited else []), number_text(part.weight)]
            rows.append([f"  {part.name}", *numbers, self._plain(part.used), self._plain(part.given)])
        summary = console.styled(wrapped(self.summary, console.width, indent="  "), bold=True)
        lines = [
            summary,
            "",
            f"{whole}:",
            columns(rows, right={1, 2, 3, 4, 5, 6}, width=console.width),
        ]
        left = len(others) - _MOST_SIBLINGS
        lines += [f"  and {left} more"] if left > 0 else []
        steps = [
            [f"  {step.step}", self._plain(step.given), f"of {self._plain(step.total)}: {step.formula}"]
            for step in found.steps
        ]
        history = "lowers weights" if found.with_history else "lowers no weights: no past usage counts"
        lines += ["", columns([*steps, ["  history", "", history]], right={1}, width=console.width)]
        lines += ["", *(wrapped(line, console.width, indent="  ") for line in self._advice())]
        return "\n\n".join(["\n".join(lines), *assumed(self.assumptions)])

    def _advice(self) -> list[str]:
        """Return the changes that would raise the share, the waiting jobs, and what of budgets is left."""
        from kai.answers.outcomes.queue_lines import budget_text

        return [*self._share_advice(), *map(budget_text, self.budgets)]

    def _share_advice(self) -> list[str]:
        from kai.answers.documents.queues import unit_of

        found = self.found
        lines = []
        lacks = found.asks - found.share > unit_of(found) / 1000  # documents round to this
        if lacks:
            ways = [f"{' or '.join(found.gains.siblings)} asks for less"] if found.gains.siblings else []
            ways += [f"its own {' or '.join(found.gains.bounds)} is higher"] if found.gains.bounds else []
            if ways:
                lines.append(f"It gets more when {', or when '.join(ways)}.")
            elif found.gains.are_known:
                whose = f"; {found.parent} has no more to divide" if found.parent else ""
                lines.append(f"No sibling that asks for less gives it more, nor does any one bound of its own{whose}.")
        if self.waiting:
            names = first_of([job.title for job in self.waiting], _MOST_NAMED)
            lines.append(f"{len(self.waiting)} of its jobs {'wait' if len(self.waiting) > 1 else 'waits'}: {names}")
        return lines or ["It has less than it asks for." if lacks else "It has all that it asks for."]

    def _plain(self, amount: float) -> str:
        from kai.answers.documents.queues import unit_of

        return number_text(round(amount / unit_of(self.found), 3))


@attrs.frozen(kw_only=True)
class LeftOutAnswer:
    """The answer about a queue that exists but is excluded from scheduling."""

    queue: str
    reason: "Reason[str]"
    kind: str = "QueueExplanation"

    def fields(self) -> dict[str, Any]:
        """Return why the queue is excluded."""
        from kai.answers.documents.explanations import ReasonItem
        from kai.answers.documents.queues import QueueExplanation

        subject, summary = {"kind": "Queue", "name": self.queue}, f"{self.reason.text}."
        return as_json(QueueExplanation(subject=subject, summary=summary, reason=ReasonItem.of(self.reason)))

    def names(self) -> list[str]:
        """Return the name of the queue, as ``-o name`` writes it."""
        return [f"queue.scheduling.run.ai/{self.queue}"]

    def text(self, console: Console) -> str:
        """Return why the queue is excluded, and what helps."""
        from kai.deciding.explain.codes import BY_CODE

        answer = console.styled(wrapped(f"{self.reason.text}.", console.width, indent="  "), bold=True)
        advice = wrapped(f"  {BY_CODE[self.reason.code].help}", console.width, indent="  ")
        return f"{answer}\n{self.reason.code}\n\n{advice}"


_MOST_TENANTS = 8


@attrs.frozen(kw_only=True)
class NodeAnswer:
    """The answer about the tenants of one node."""

    found: "Occupancy"
    kind: str = "NodeExplanation"

    def fields(self) -> dict[str, Any]:
        """Return the tenants of the node, and what keeps waiting jobs away."""
        from kai.answers.documents.nodes import NodeExplanation

        return as_json(NodeExplanation.of(self.found))

    def names(self) -> list[str]:
        """Return the name of the node, as ``-o name`` writes it."""
        return [f"node/{self.found.node}"]

    def text(self, console: Console) -> str:
        """Return the summary, the tenants, and what keeps waiting jobs away."""
        from kai.answers.documents.nodes import closed, occupied

        found = self.found
        lines = [console.styled(wrapped(occupied(found), console.width, indent="  "), bold=True)]
        if found.tenants:
            rows = [["  JOB", "QUEUE", "PODS", "GPUS", "STATE"]]
            rows += [
                [f"  {each.title}", each.queue or "-", str(each.pods), number_text(each.gpus / GPU_UNIT), each.state]
                for each in found.tenants[:_MOST_TENANTS]
            ]
            lines += ["", columns(rows, right={2, 3}, width=console.width)]
            left = len(found.tenants) - _MOST_TENANTS
            lines += [f"  and {left} more"] if left > 0 else []
        if found.slices:
            profiles = [f"{each.resource} {each.in_use} of {each.total} in use" for each in found.slices]
            lines += ["", wrapped(f"  MIG slices: {', '.join(profiles)}", console.width, indent="    ")]
        if found.tenants and (why := closed(found)):  # the summary of an empty node says it already
            lines += ["", wrapped(f"  {why}", console.width, indent="    ")]
        if found.kept_away:
            lines += ["", "Waiting jobs that are not on it"]
            kept = [[f"  {len(jobs)}", first_of(jobs, _MOST_NAMED), why] for why, jobs in found.kept_away]
            lines.append(columns(kept, right={0}, width=console.width))
        return "\n".join(lines)
