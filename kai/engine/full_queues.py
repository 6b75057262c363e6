"""Groups whose queues are full, refused many at a time.

The kernel of the fast path keeps one refusal for each class of groups, so gangs of two sizes that take turns make it
come back to Python for each of them. After a few of those, the groups are compared with the bounds of their queues as
columns, and those that come next are taken off the heap together. Nothing is placed between them, so each is told what
it would have been told alone.
"""

from typing import Final

import numpy as np

from kai.engine.heaps import GroupHeap
from kai.engine.objections import excess
from kai.engine.portion import Portion
from kai.engine.session import Session
from kai.engine.shortcuts import FULL_QUEUES
from kai.kernels.fit import over_capacity
from kai.kernels.groups import describe_waiting
from kai.kernels.order import pop_open
from kai.model.rows import Bools, Float64s, GroupRows

PATIENCE: Final = 4
"""Refusals in words before groups are compared with bounds."""
GROUPS_PER_REFUSAL: Final = 256
"""How many groups may be compared for one refusal that was put into words, so that comparing stays the lesser work."""


class FullQueues:
    """The groups of one heap that their queues may not take. Shapes: G groups."""

    def __init__(self, session: Session, heap: GroupHeap, groups: GroupRows) -> None:
        """Watch ``groups``, all of one leaf."""
        self._session = session
        self._heap = heap
        self._groups = groups
        self._patience = PATIENCE + len(groups) // GROUPS_PER_REFUSAL if session.takes(FULL_QUEUES) else -1
        self._refusals = 0

    def is_worth_passing(self) -> bool:
        """Count a refusal that was put into words, and say whether there were so many that ``pass_over`` pays."""
        self._refusals += 1
        return 0 <= self._patience < self._refusals

    def pass_over(self) -> Portion | None:
        """Refuse the groups that come next and cannot be taken; return the first one that may be, off the heap."""
        self._refusals = 0
        session = self._session
        count = len(session.snapshot.groups)
        amounts = np.zeros((count, 3), np.float64)
        describe_waiting(
            session.facts, session.columns, session.limit_amounts, self._groups, np.zeros(count, np.float64), amounts
        )
        full = np.zeros(count, np.bool_)
        full[self._groups] = self._exceed(amounts[self._groups])
        passed = np.empty(count + 1, np.int64)
        rules = session.policy.rules
        group = pop_open(session.facts, session.columns, rules, self._heap.records, full, passed)
        self._refuse(passed[: passed[-1]], amounts)
        return self._heap.taken(group) if group >= 0 else None

    def _exceed(self, amounts: Float64s) -> Bools:
        """Return bool[n]: the groups watched [n] whose ``amounts`` [n, 3] some queue above them may not take."""
        facts, columns = self._session.facts, self._session.columns
        fixed = ~facts.groups.preemptible[self._groups]
        queues = facts.groups.queue[self._groups]
        out = np.zeros(len(queues), np.bool_)
        while (queues >= 0).any():
            limit, quota = facts.queues.limit[queues], facts.queues.quota[queues]
            over_limit = (limit >= 0) & (limit < columns.queue_used[queues] + amounts)
            over_quota = (quota >= 0) & (quota < columns.queue_fixed[queues] + amounts) & fixed[:, np.newaxis]
            out |= (queues >= 0) & ((amounts > 0) & (over_limit | over_quota)).any(axis=1)
            queues = np.where(queues >= 0, facts.queues.parent[queues], -1)
        return out

    def _refuse(self, groups: GroupRows, amounts: Float64s) -> None:
        """Refuse ``groups``: all of one queue that want the same are told the same."""
        if not len(groups):
            return
        session, facts = self._session, self._session.facts.groups
        columns = (facts.queue[groups], facts.preemptible[groups], amounts[groups])
        _, first, which = np.unique(np.column_stack(columns), axis=0, return_index=True, return_inverse=True)
        which = which.reshape(-1)
        for number, group in enumerate(groups[first].tolist()):
            cpu, memory, gpu = amounts[group].tolist()
            code = over_capacity(session.facts, session.columns, group, cpu, memory, gpu, False)  # noqa: FBT003 - kernels take no keywords
            (reason,) = excess(session, group, amounts[group], code).reasons
            session.refuse_together(groups[which == number], reason)
