"""Groups that ask for no less than one whose search failed: theirs would fail, too, and all of them are closed at once.

``kai.actions.search.waiting`` remembers a failure by what pods ask for besides amounts, with the amounts. What is
remembered only gets smaller while nothing is committed, so a group that asks for no less now does so in its turn, too.
"""

import numpy as np

from kai.engine.session import Session
from kai.kernels.columns import PENDING
from kai.model.rows import GroupRows, Int64s

NONE: GroupRows = np.zeros(0, np.int64)


class NoLess:
    """Groups of one pod that wait, by what one failure says of them. Shapes: G groups."""

    def __init__(self, session: Session, groups: GroupRows, *, per_queue: bool) -> None:
        """Compare those of ``groups`` that are one pod; ``per_queue``: only with others of their queue.

        Cost: O(n log n), and a look at each pod's constraints, once in a session.
        """
        self._session = session
        facts = session.facts.groups
        leaves = facts.first_subgroup[groups] + 1
        begins = facts.pod_start[leaves]
        alone = facts.simple[groups] & (facts.pod_start[leaves + 1] - begins == 1)
        groups, pods = groups[alone], facts.pods[begins[alone]]
        numbers = session.equivalence.constraints_of(pods)
        if per_queue:
            numbers = numbers * len(session.snapshot.queues) + facts.queue[groups]
        order = np.argsort(numbers, kind="stable")
        self._groups, self._pods, self._numbers = groups[order], pods[order], numbers[order]
        self._number: Int64s = np.full(len(session.snapshot.groups), -1, np.int64)
        self._number[groups] = numbers

    def than(self, group: int, failed: tuple[int, ...]) -> GroupRows:
        """Return the groups with the constraints of ``group`` that ask for no less than ``failed`` [R].

        None, if ``group`` is not one pod. Cost: a pass over the groups with its constraints.
        """
        number = int(self._number[group])
        if number < 0:
            return NONE
        begin, end = self._numbers.searchsorted((number, number + 1)).tolist()
        facts, pods = self._session.facts, self._pods[begin:end]
        asked = facts.shapes.request[facts.pods.shape[pods]]
        no_less = (asked > failed).any(axis=1) | (asked == failed).all(axis=1)
        waits = self._session.columns.status[pods] == PENDING
        found: GroupRows = self._groups[begin:end][no_less & waits]
        return found
