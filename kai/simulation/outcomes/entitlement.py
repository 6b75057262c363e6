"""How the fair share of a queue came about: what its siblings ask for, and what each step of the division gave.

The division itself is a plugin's. Here its steps are done once more, in plain numbers, and only told where they lead to
the share that was decided with.
"""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np

from kai.model.axis import GPU, GPU_UNIT, LEADING
from kai.model.queue import Queue, Shares
from kai.simulation.deciding.run import Outcome
from kai.simulation.outcomes.gains import Gains, gains
from kai.simulation.outcomes.overview import Overview
from kai.wording import number_text

_CLOSE = 1e-6
_UNKNOWN = Gains(are_known=False)


@attrs.frozen(kw_only=True)
class Part:
    """What one of the siblings got. Amounts are in axis units; None is unlimited."""

    name: str
    asks: float
    quota: float | None
    limit: float | None
    weight: float
    priority: int
    usage: float
    used: float
    given: float
    """Its fair share."""


@attrs.frozen(kw_only=True)
class Step:
    """One step of the division, for the queue that is asked about."""

    step: str
    """``quota``, ``surplus`` or ``remainder``."""
    total: float
    """What all siblings got in this step, in axis units."""
    given: float
    formula: str


@attrs.frozen(kw_only=True)
class Entitlement:
    """The fair share of one queue, and how it came about."""

    queue: str
    parent: str
    """The queue whose share is divided; "" for the whole cluster."""
    resource: str
    total: float | None
    """What is divided, in axis units; None where that is not told, nor how it was divided."""
    share: float
    used: float
    asks: float
    siblings: tuple[Part, ...]
    """The queues that divide ``total``, in the order of their names; the queue itself is among them."""
    steps: tuple[Step, ...]
    with_history: bool
    """Whether past usage counted."""
    gains: Gains = _UNKNOWN
    """What would give it more; nothing where it has all that it asks for."""

    @property
    def own(self) -> Part:
        """The part of the queue itself."""
        return next(each for each in self.siblings if each.name == self.queue)


def entitlement(outcome: Outcome, seen: Overview, name: str) -> Entitlement:
    """Return how the share of the queue ``name`` came about, of GPUs, or of CPU where no queue wants GPUs.

    Raises: KeyError for a queue that is not in the snapshot.
    """
    snapshot = outcome.last.snapshot
    row = snapshot.queue_rows[name]
    at = GPU if seen.totals[GPU] else 0
    parent = snapshot.queues[row].parent
    rows = [other for other, queue in enumerate(snapshot.queues) if queue.parent == parent]
    division, mine = _Division.of(outcome, parent, rows, at), rows.index(row)
    own = division.parts[mine]
    return Entitlement(
        queue=name,
        parent=snapshot.queues[parent].name if parent >= 0 else "",
        resource=LEADING[at],
        total=division.total,
        share=own.given,
        used=own.used,
        asks=own.asks,
        siblings=division.parts,
        steps=division.steps(mine),
        with_history=any(part.usage for part in division.parts),
        gains=gains(outcome, row, at) if own.given < own.asks else Gains(),
    )


def _part(outcome: Outcome, row: int, at: int) -> Part:
    report = outcome.last.report
    queue: Queue = outcome.last.snapshot.queues[row]
    return Part(
        name=queue.name,
        asks=float(report.queue_requested[row, at]),
        quota=_bound(queue.quota, at),
        limit=_bound(queue.limit, at),
        weight=queue.weight.of(at),
        priority=queue.priority,
        usage=queue.usage.of(at),
        used=float(report.queue_used[row, at]),
        given=float(report.fair_share[row, at]),
    )


def _bound(shares: Shares, at: int) -> float | None:
    found = shares.of(at)
    return None if found < 0 else found


def steps_of(outcome: Outcome, seen: Overview) -> Mapping[str, tuple[Step, ...]]:
    """Return for each queue how its share came about, as ``entitlement`` does; siblings are divided once for all."""
    at = GPU if seen.totals[GPU] else 0
    children: dict[int, list[int]] = {}
    for row, queue in enumerate(outcome.last.snapshot.queues):
        children.setdefault(queue.parent, []).append(row)
    found: dict[str, tuple[Step, ...]] = {}
    for parent, rows in children.items():
        division = _Division.of(outcome, parent, rows, at)
        found |= {part.name: division.steps(mine) for mine, part in enumerate(division.parts)}
    return found


@attrs.frozen(kw_only=True)
class _Division:
    """What siblings want, and what each step gives them."""

    total: float
    parts: tuple[Part, ...]
    wanted: Sequence[float]
    quotas: Sequence[float]
    shared: Sequence[float]
    rest: Sequence[float]
    hungry: Sequence[Part]
    """Those that want more than their quotas."""

    @classmethod
    def of(cls, outcome: Outcome, parent: int, rows: Sequence[int], at: int) -> "_Division":
        """Divide the share of ``parent`` among ``rows``; what is left after quota and surplus is the remainder."""
        report, unit = outcome.last.report, float(GPU_UNIT) if at == GPU else 1.0
        total = float(report.fair_share[parent, at]) if parent >= 0 else float(report.total[at])
        parts = tuple(_part(outcome, row, at) for row in rows)
        wanted = [part.asks if part.limit is None else min(part.asks, part.limit) for part in parts]
        quotas = [
            min(total if part.quota is None else part.quota, want) for part, want in zip(parts, wanted, strict=True)
        ]
        shared = _surplus(parts, wanted, quotas, max(0.0, total - sum(quotas)), unit)
        rest = [part.given - quota - more for part, quota, more in zip(parts, quotas, shared, strict=True)]
        if any(each < -_CLOSE * unit for each in rest):
            # Past usage, or a plugin of others, divided by other rules: only the sum is known.
            shared = [part.given - quota for part, quota in zip(parts, quotas, strict=True)]
            rest = [0.0] * len(parts)
        hungry = [part for part, want, quota in zip(parts, wanted, quotas, strict=True) if want > quota]
        return cls(total=total, parts=parts, wanted=wanted, quotas=quotas, shared=shared, rest=rest, hungry=hungry)

    def steps(self, mine: int) -> tuple[Step, ...]:
        """Return the steps of the part at ``mine``."""
        own = self.parts[mine]
        wants_more = self.wanted[mine] > self.quotas[mine]
        weights = sum(part.weight for part in self.hungry if part.priority == own.priority)
        after = any(part.priority > own.priority and part.weight for part in self.hungry)
        formula = f"{number_text(own.weight)} of {number_text(weights)} weights" if wants_more else "asks for no more"
        formula += ", of what those of higher priority leave" if wants_more and after else ""
        least, whole = "the quota, but no more than is asked for", "whole units, the largest remainder first"
        return (
            Step(step="quota", total=sum(self.quotas), given=self.quotas[mine], formula=least),
            Step(step="surplus", total=sum(self.shared), given=self.shared[mine], formula=formula),
            Step(step="remainder", total=sum(self.rest), given=self.rest[mine], formula=whole),
        )


def _surplus(
    parts: Sequence[Part], wanted: Sequence[float], quotas: Sequence[float], surplus: float, unit: float
) -> list[float]:
    """Return what each of ``parts`` gets of ``surplus`` in whole units, by priority, then by weight, in rounds."""
    given = [0.0] * len(parts)
    for priority in sorted({part.priority for part in parts}, reverse=True):
        again = True
        while again and surplus > _CLOSE:
            again = False
            hungry = [
                at
                for at, part in enumerate(parts)
                if part.priority == priority and part.weight > 0 and wanted[at] > quotas[at] + given[at] + _CLOSE
            ]
            weights, offered = sum(parts[at].weight for at in hungry), surplus
            for at in hungry:
                portion = offered * parts[at].weight / weights
                missing = wanted[at] - quotas[at] - given[at]
                more = missing if missing <= portion else float(np.floor(portion / unit)) * unit
                given[at] += more
                surplus -= more
                again = again or (more > 0 and missing < portion)
    return given
