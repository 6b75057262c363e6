"""How the fair share of a queue came about, and what would raise it.

`Entitlement` shows the requests of the siblings and the amount that each step of the division gave. A plugin does the
actual division. Here the steps are repeated in plain numbers, and shown only where they give the share that was used.

`Gains` names what alone would give a queue more. The tree is divided again with one change at a time, because the
effect is not obvious: a sibling that requests less may lower the share of their parent, and a limit or a weight of 0
may stand in the way. Only changes that raise the share are shown.
"""

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from kai.answers.offline.run import Cycle, Outcome
from kai.answers.outcomes.overview import Overview
from kai.basics.wording import number_text
from kai.facts.model.axis import GPU, GPU_UNIT, LEADING
from kai.facts.model.groups import UNLIMITED, Queue, Shares, path_to
from kai.framework.division import divide

_CLOSE = 1e-6
_MOST_NAMED = 3
_MOST_TRIED = 12


@attrs.frozen(kw_only=True)
class Gains:
    """The single changes that would each give a queue more."""

    siblings: tuple[str, ...] = ()
    """Siblings that would have to request less, the one with the largest share first."""
    bounds: tuple[str, ...] = ()
    """Its own bounds that would have to be higher: ``quota``, ``weight``, ``limit``."""
    are_known: bool = True
    """False where fair shares are divided by other rules."""


def gains(outcome: Outcome, row: int, at: int) -> Gains:
    """Return the single changes that would give the queue in ``row`` more of the resource ``at``.

    Cost: about a dozen divisions for each level of the tree above the queue.
    """
    tree = _Tree(outcome, at)
    share = tree.shares[row]
    # The repeated division must give the share that was used before its
    # changes mean anything: plugins may divide otherwise.
    if abs(tree.share_of(row) - share) > _CLOSE * max(1.0, share):
        return Gains(are_known=False)
    return Gains(siblings=tuple(tree.rivals(row)), bounds=tuple(tree.own(row)))


def _weighted_queues(cycle: Cycle) -> tuple[Queue, ...]:
    """Return the queues of a cycle with the weights that shares were divided by: plugins may multiply them."""
    queues, factors = cycle.snapshot.queues, cycle.report.weight_factors
    if factors is None:
        return tuple(queues)
    return tuple(_weighted(queue, factors[row].tolist()) for row, queue in enumerate(queues))


def _weighted(queue: Queue, factors: Sequence[float]) -> Queue:
    own, (cpu, memory, gpu) = queue.weight, factors
    return attrs.evolve(queue, weight=Shares(cpu=own.cpu * cpu, memory=own.memory * memory, gpu=own.gpu * gpu))


class _Tree:
    """The queues of a cycle with their requests, to be divided again."""

    def __init__(self, outcome: Outcome, at: int) -> None:
        cycle = outcome.last
        self._queues = _weighted_queues(cycle)
        self._at, self._unit = at, float(GPU_UNIT) if at == GPU else 1.0
        self._asks = cycle.report.queue_requested[:, at]
        self._total = float(cycle.report.total[at])
        self.shares = cycle.report.fair_share[:, at]
        # `k` weighs past usage. Without the built-in plugin another one
        # divides, which the first comparison in `gains` shows.
        used = (each.plugin for each in outcome.profile.plugins if each.name == "proportion")
        self._k = float(getattr(next(used, None), "k", 1.0))
        self._children: dict[int, list[int]] = {}
        for row, queue in enumerate(self._queues):
            self._children.setdefault(queue.parent, []).append(row)

    def rivals(self, row: int) -> Iterator[str]:
        """Yield siblings whose share the queue would gain from if they requested nothing, the largest shares first."""
        others = [each for each in self._children[self._queues[row].parent] if each != row and self.shares[each] > 0]
        others.sort(key=lambda each: (-self.shares[each], self._queues[each].name))
        named = 0
        # A division for each sibling at each level: queues with hundreds of
        # siblings exist, and the largest shares matter.
        for other in others[:_MOST_TRIED]:
            if named < _MOST_NAMED and self.share_of(row, silent=other) > self.shares[row] + _CLOSE:
                named += 1
                yield self._queues[other].name

    def own(self, row: int) -> Iterator[str]:
        """Yield the queue's own bounds that give it more when they are higher."""
        queue, asks = self._queues[row], float(self._asks[row])
        most = max(self._queues[each].weight.of(self._at) for each in self._children[queue.parent])
        for name, changed in (
            # As high as its requests: an unlimited quota would take from siblings what the queue cannot use.
            ("quota", attrs.evolve(queue, quota=self._with(queue.quota, asks))),
            # Far above all siblings, so that a weight that is in the way shows; no finite one gives all of the surplus.
            ("weight", attrs.evolve(queue, weight=self._with(queue.weight, 1000.0 * (most + 1)))),
            ("limit", attrs.evolve(queue, limit=self._with(queue.limit, UNLIMITED))),
        ):
            if self.share_of(row, changed) > self.shares[row] + _CLOSE:
                yield name

    def share_of(self, row: int, changed: Queue | None = None, silent: int = -1) -> float:
        """Return the share of a queue if it were ``changed``, or if the queue in row ``silent`` requested nothing."""
        amount = self._total
        for place in path_to(self._queues, row):
            rows = self._children[self._queues[place].parent]
            queues = [changed if each == row and changed is not None else self._queues[each] for each in rows]
            asks = self._asks[rows].copy()
            if silent >= 0:
                less = float(self._asks[silent])
                # What a silent queue does not ask for, its ancestors do not ask
                # for either, and so their own shares may fall.
                asks -= [less if each == silent or (each == place and each != row) else 0.0 for each in rows]
            amount = self._divided(amount, queues, asks)[rows.index(place)]
        return amount

    def _divided(self, total: float, queues: list[Queue], asks: np.ndarray) -> list[float]:
        unit = self._unit

        def column(name: str, divisor: float) -> np.ndarray:
            found = np.array([getattr(each, name).of(self._at) for each in queues], np.float64)
            return np.where(found < 0, UNLIMITED, found / divisor)

        shares = np.zeros(len(queues), np.float64)
        divide(
            total / unit,
            # Oldest first, which breaks ties of remainders as in the real division.
            np.argsort([each.created for each in queues], kind="stable").astype(np.int64),
            np.array([each.priority for each in queues], np.int64),
            column("quota", unit),
            column("limit", unit),
            column("weight", 1.0),
            column("usage", 1.0),
            np.ascontiguousarray(asks / unit),
            self._k,
            shares,
        )
        return [float(share) * unit for share in shares]

    def _with(self, shares: Shares, amount: float) -> Shares:
        name = ("cpu", "memory", "gpu")[self._at]
        return attrs.evolve(shares, **{name: amount})


_UNKNOWN = Gains(are_known=False)


@attrs.frozen(kw_only=True)
class Part:
    """The part of one sibling. Amounts are in axis units; None is unlimited."""

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
    """One step of the division, for the queue in question."""

    step: str
    """``quota``, ``surplus`` or ``remainder``."""
    total: float
    """The sum for all siblings in this step, in axis units."""
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
    """The divided amount, in axis units; None where the division is not shown."""
    share: float
    used: float
    asks: float
    siblings: tuple[Part, ...]
    """The queues that divide ``total``, by name; the queue itself is among them."""
    steps: tuple[Step, ...]
    with_history: bool
    """Whether past usage counted."""
    gains: Gains = _UNKNOWN
    """What would give it more; empty where it has all that it requests."""

    @property
    def own(self) -> Part:
        """The part of the queue itself."""
        return next(each for each in self.siblings if each.name == self.queue)


def entitlement(outcome: Outcome, seen: Overview, name: str) -> Entitlement:
    """Return how the share of the queue ``name`` came about, of GPUs, or of CPU where no node has GPUs.

    Raises: KeyError for a queue that is not in the snapshot.
    """
    snapshot = outcome.last.snapshot
    row = snapshot.queue_rows[name]
    # Without GPUs the question is about CPU, column 0.
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
    queue, factors = outcome.last.snapshot.queues[row], report.weight_factors
    if factors is not None:
        queue = _weighted(queue, factors[row].tolist())
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
    """Return the steps of ``entitlement`` for every queue; each set of siblings is divided once."""
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
    """The requests of siblings, and what each step gives them."""

    total: float
    parts: tuple[Part, ...]
    wanted: Sequence[float]
    quotas: Sequence[float]
    shared: Sequence[float]
    rest: Sequence[float]
    hungry: Sequence[Part]
    """The siblings that request more than their quotas."""

    @classmethod
    def of(cls, outcome: Outcome, parent: int, rows: Sequence[int], at: int) -> "_Division":
        """Divide the share of ``parent`` among ``rows``; the rest after quota and surplus is the remainder."""
        report, unit = outcome.last.report, float(GPU_UNIT) if at == GPU else 1.0
        total = float(report.fair_share[parent, at]) if parent >= 0 else float(report.total[at])
        parts = tuple(_part(outcome, row, at) for row in rows)
        wanted = [part.asks if part.limit is None else min(part.asks, part.limit) for part in parts]
        quotas = [
            min(total if part.quota is None else part.quota, want) for part, want in zip(parts, wanted, strict=True)
        ]
        # Quotas of siblings may add up to more than there is. Each still counts in full, and no surplus is left.
        shared = _surplus(parts, wanted, quotas, max(0.0, total - sum(quotas)), unit)
        rest = [part.given - quota - more for part, quota, more in zip(parts, quotas, shared, strict=True)]
        if any(each < -_CLOSE * unit for each in rest):
            # With past usage, or with a plugin from elsewhere, other rules divide: only the sum is known.
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
                # In whole units, as the division does; what is floored away is handed out as the remainder.
                more = missing if missing <= portion else float(np.floor(portion / unit)) * unit
                given[at] += more
                surplus -= more
                # Only a queue that was satisfied leaves something for the others, so another round pays only then.
                again = again or (more > 0 and missing < portion)
    return given
