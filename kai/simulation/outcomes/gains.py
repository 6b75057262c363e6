"""What would give a queue a larger share: the tree is divided again, with one thing changed.

That a sibling asks for less need not help: their parent may have less then, and a limit or a weight of 0 may stand in
the way. So each way is tried, and only those are told that lead to more.
"""

from collections.abc import Iterator

import attrs
import numpy as np

from kai.framework.division import divide
from kai.model.axis import GPU, GPU_UNIT
from kai.model.queue import UNLIMITED, Queue, Shares, path_to
from kai.simulation.deciding.run import Outcome

_CLOSE = 1e-6
_MOST_TOLD = 3
_MOST_TRIED = 12


@attrs.frozen(kw_only=True)
class Gains:
    """What alone would give a queue more."""

    siblings: tuple[str, ...] = ()
    """Those that have to ask for less, the one with the largest share first."""
    bounds: tuple[str, ...] = ()
    """Those of its own that have to be higher: ``quota``, ``weight``, ``limit``."""
    are_known: bool = True
    """False where fair shares are divided by other rules."""


def gains(outcome: Outcome, row: int, at: int) -> Gains:
    """Return what would give the queue of a row more of the resource ``at``.

    Cost: about a dozen divisions for each level of the tree above the queue.
    """
    tree = _Tree(outcome, at)
    share = tree.shares[row]
    if abs(tree.share_of(row) - share) > _CLOSE * max(1.0, share):
        return Gains(are_known=False)
    return Gains(siblings=tuple(tree.rivals(row)), bounds=tuple(tree.own(row)))


class _Tree:
    """The queues of a cycle, and what each asks for, to be divided again."""

    def __init__(self, outcome: Outcome, at: int) -> None:
        cycle = outcome.last
        self._queues: tuple[Queue, ...] = tuple(cycle.snapshot.queues)
        self._at, self._unit = at, float(GPU_UNIT) if at == GPU else 1.0
        self._asks = cycle.report.queue_requested[:, at]
        self._total = float(cycle.report.total[at])
        self.shares = cycle.report.fair_share[:, at]
        used = (each.plugin for each in outcome.profile.plugins if each.name == "proportion")
        self._k = float(getattr(next(used, None), "k", 1.0))
        self._children: dict[int, list[int]] = {}
        for row, queue in enumerate(self._queues):
            self._children.setdefault(queue.parent, []).append(row)

    def rivals(self, row: int) -> Iterator[str]:
        """Yield siblings that leave it something once they ask for nothing, some of those with the largest shares."""
        others = [each for each in self._children[self._queues[row].parent] if each != row and self.shares[each] > 0]
        others.sort(key=lambda each: (-self.shares[each], self._queues[each].name))
        told = 0
        for other in others[:_MOST_TRIED]:
            if told < _MOST_TOLD and self.share_of(row, silent=other) > self.shares[row] + _CLOSE:
                told += 1
                yield self._queues[other].name

    def own(self, row: int) -> Iterator[str]:
        """Yield the bounds of its own that lead to more when they are higher."""
        queue, asks = self._queues[row], float(self._asks[row])
        most = max(self._queues[each].weight.of(self._at) for each in self._children[queue.parent])
        for name, changed in (
            ("quota", attrs.evolve(queue, quota=self._with(queue.quota, asks))),
            ("weight", attrs.evolve(queue, weight=self._with(queue.weight, 1000.0 * (most + 1)))),
            ("limit", attrs.evolve(queue, limit=self._with(queue.limit, UNLIMITED))),
        ):
            if self.share_of(row, changed) > self.shares[row] + _CLOSE:
                yield name

    def share_of(self, row: int, changed: Queue | None = None, silent: int = -1) -> float:
        """Return the share of a queue, were it ``changed``, or did the ``silent`` one ask for nothing."""
        amount = self._total
        for place in path_to(self._queues, row):
            rows = self._children[self._queues[place].parent]
            queues = [changed if each == row and changed is not None else self._queues[each] for each in rows]
            asks = self._asks[rows].copy()
            if silent >= 0:
                less = float(self._asks[silent])
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
