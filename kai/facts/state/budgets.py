"""The budgets of a snapshot as columns: what of each is left, what GPUs count, and how long groups are charged for."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from kai.facts.kernels.booking import accepted_gpu, book_budgets
from kai.facts.kernels.columns import BudgetFacts, Columns, Facts
from kai.facts.model.axis import Int64s
from kai.facts.model.budgets import STOP, Budget
from kai.facts.state.snapshot import Snapshot

_NOTHING: Final = -(1 << 62)
"""What is left where nothing is known: less than anything costs."""


def budget_facts(snapshot: Snapshot) -> BudgetFacts:
    """Return the columns of budgets; tables without rows where no queue has any."""
    table = snapshot.budgets
    queues, none = len(snapshot.queues), np.zeros(0, np.int64)
    if table is None:
        return snapshot.memory.once("no budgets", (snapshot.queues,), lambda: _facts((), queues, (), none, none, none))
    return _facts(table.bounding, queues, table.models, table.node_model, table.group_model, table.duration)


def _facts(
    budgets: Sequence[Budget], queues: int, models: Sequence[str], node: Int64s, group: Int64s, duration: Int64s
) -> BudgetFacts:
    counts = np.bincount(np.array([each.queue for each in budgets], np.int64), minlength=queues)
    weights = np.zeros((len(budgets), len(models) + 1), np.int64)
    for row, budget in enumerate(budgets):
        known = [budget.weights[model] for model in models]
        weights[row] = [*known, max(known, default=1000)]
    return BudgetFacts(
        first=np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)]).astype(np.int64),
        left=np.array([_NOTHING if each.spent is None else each.left for each in budgets], np.int64),
        stops=np.array([each.enforce == STOP for each in budgets], np.bool_),
        weights=weights,
        node_model=node,
        group_model=group,
        duration=duration,
    )


def book(snapshot: Snapshot, facts: Facts, columns: Columns) -> None:
    """Charge all pods that have a place to the budgets above them. Cost: O(P) where a queue has a budget, else none."""
    if not len(facts.budgets.left):
        return
    gpus = np.zeros(len(snapshot.pods), np.int64)
    placed = np.flatnonzero((snapshot.pod_node >= 0) & (snapshot.pod_group >= 0))
    pairs = np.column_stack([snapshot.pod_shape[placed], snapshot.pod_node[placed]])
    kinds, which = np.unique(pairs, axis=0, return_inverse=True)
    amounts = [accepted_gpu(facts, int(shape), int(node)) for shape, node in kinds.tolist()]
    gpus[placed] = np.array(amounts, np.int64)[which.reshape(-1)] if len(placed) else 0
    book_budgets(facts, columns, gpus)
