"""The budgets of a snapshot as columns: what of each is left, what GPUs count, and how long groups are charged for."""

from collections.abc import Sequence
from typing import Final

import attrs
import numpy as np

from kai.facts.kernels.booking import accepted_gpu, book_budgets
from kai.facts.kernels.columns import COUNTED, PENDING, BudgetFacts, Columns, Facts
from kai.facts.model.axis import Bools, Int64s
from kai.facts.model.budgets import STOP, Budget
from kai.facts.state.snapshot import BudgetTable, Snapshot

_NOTHING: Final = -(1 << 62)
"""What is left where nothing is known: less than anything costs."""


def budget_facts(snapshot: Snapshot) -> BudgetFacts:
    """Return the columns of budgets; tables without rows where no queue has any."""
    table, queues = snapshot.budgets, len(snapshot.queues)
    if table is None:
        return snapshot.memory.once("no budgets", (snapshot.queues,), lambda: _none(queues))
    counts = np.bincount(np.array([each.queue for each in table.bounding], np.int64), minlength=queues)
    bounds = np.array([each.bounds_starts for each in table.budgets], np.bool_)
    return BudgetFacts(
        first=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64),
        left=_left(table.bounding),
        stops=np.array([each.enforce == STOP for each in table.bounding], np.bool_),
        weights=np.ascontiguousarray(table.weights[bounds]),
        node_model=table.node_model,
        group_model=table.group_model,
        duration=table.duration,
    )


def _none(queues: int) -> BudgetFacts:
    none = np.zeros(0, np.int64)
    return BudgetFacts(
        first=np.zeros(queues + 1, np.int64),
        left=none,
        stops=np.zeros(0, np.bool_),
        weights=np.zeros((0, 1), np.int64),
        node_model=none,
        group_model=none,
        duration=none,
    )


def _left(budgets: Sequence[Budget]) -> Int64s:
    return np.array([_NOTHING if each.spent is None else each.left for each in budgets], np.int64)


def book(snapshot: Snapshot, facts: Facts, columns: Columns) -> None:
    """Charge all pods that have a place to the budgets above them. Cost: O(P) where a queue has a budget, else none."""
    if len(facts.budgets.left):
        book_budgets(facts, columns, _held(snapshot, facts))


def _held(snapshot: Snapshot, facts: Facts) -> Int64s:
    """Return int64[P]: the thousandths of GPUs of pods that have a place."""
    gpus = np.zeros(len(snapshot.pods), np.int64)
    placed = np.flatnonzero((snapshot.pod_node >= 0) & (snapshot.pod_group >= 0))
    nodes = max(1, len(snapshot.nodes))
    kinds, which = np.unique(snapshot.pod_shape[placed] * nodes + snapshot.pod_node[placed], return_inverse=True)
    amounts = [accepted_gpu(facts, kind // nodes, kind % nodes) for kind in kinds.tolist()]
    gpus[placed] = np.array(amounts, np.int64)[which.reshape(-1)]
    return gpus


@attrs.frozen(eq=False)
class Remainders:
    """What the answers of budgets followed from in a cycle that decided nothing.

    A budget refuses where its remainder is less than the cost that running work and a further start may still cause.
    While running work uses what it was charged for, remainder and cost fall alike. So the answers stay the same
    although no number does, and the cycle need not be repeated.

    Shapes: B budgets that bound starts, G groups.
    """

    table: BudgetTable
    left: Int64s
    stops: Bools
    rate: Int64s
    """[B] What the charges of running work fall by in a millisecond."""
    charged: Bools
    """[G] Groups with pods that are charged."""
    waiting: Bools
    """[G] Groups with pods that wait."""

    def hold(self, snapshot: Snapshot) -> bool:
        """Return whether budgets give the same answers on the same facts at the instant of ``snapshot``.

        Holds: no period or slice ended since.
        """
        now, before = snapshot.budgets, self.table
        if now is None or len(now.bounding) != len(before.bounding):
            return False
        if (now.duration[self.waiting] != before.duration[self.waiting]).any():
            return False
        passed = now.at - before.at
        if (before.duration[self.charged] - now.duration[self.charged] != passed).any():
            return False  # work that has not begun, or that is late, uses more than it is charged less
        left = _left(now.bounding)
        fall = np.where(self.left == _NOTHING, 0, self.rate * passed)
        same = np.where(self.stops, (left > 0) == (self.left > 0), self.left - left == fall)
        return bool(same.all())


def remainders(snapshot: Snapshot, facts: Facts, columns: Columns) -> Remainders | None:
    """Return what the answers of budgets follow from; None without budgets. Cost: O(P) with budgets.

    Holds: ``columns`` are as they were when all pods were booked.
    """
    table, budgets = snapshot.budgets, facts.budgets
    if table is None:
        return None
    groups = np.zeros((2, len(snapshot.groups) + 1), np.bool_)  # the last one is for pods without a group
    for row, statuses in enumerate((COUNTED, 1 << PENDING)):
        groups[row, snapshot.pod_group[(statuses >> columns.status) & 1 > 0]] = True
    rate = np.zeros(0, np.int64)
    if len(budgets.left):
        used, charge = columns.budget_used.copy(), np.minimum(budgets.duration, 1)
        book_budgets(facts.replace(budgets=budgets.replace(duration=charge)), columns, _held(snapshot, facts))
        rate = columns.budget_used.copy()
        columns.budget_used[:] = used
    return Remainders(table, budgets.left, budgets.stops, rate, groups[0, :-1], groups[1, :-1])
