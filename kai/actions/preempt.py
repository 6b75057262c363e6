"""Preempt: within a queue, a group takes the places of preemptible groups of strictly lower priority.

Groups that yield and have run for as long as they wished are victims of equal priorities as well. They are looked at in
a second pass, so that a place is first sought without them, and go only in a statement that places the other group.

Source: the peer's actions/preempt.
"""

from functools import partial

import attrs
import numpy as np

from kai.actions.search.waiting import EvictionPass
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.refusals import capacity_verdict
from kai.deciding.engine.session import Session
from kai.facts.kernels.groups import find_placed
from kai.facts.model.axis import Bools, GroupRows
from kai.framework.decisions import YIELDED, Cause


def _within_quota(session: Session, portion: Portion) -> bool:
    """Return whether the group stays within the quota of its queues, if it is not preemptible.

    Evictions of preemptible pods cannot change that, because only non-preemptible pods count for quota.
    """
    return bool(capacity_verdict(session, portion, portion.chunk(), fixed_only=True))


def _lower(session: Session, portion: Portion, placed: Bools) -> Bools:
    queues, priorities = session.facts.groups.queue, session.priorities
    lower: Bools = (queues == queues[portion.group]) & (priorities < priorities[portion.group])
    return placed & lower


def _some_have_lower(session: Session, waiting: GroupRows) -> bool:
    """Return whether one of ``waiting`` has a victim: a placed, preemptible group of its queue, of lower priority.

    Without one, the state stays as it is, so no search of the pass finds victims later. Cost: O(G).
    """
    priorities, groups = session.priorities, session.facts.groups
    if priorities[waiting].max() <= priorities.min():
        return False
    placed = np.zeros(len(priorities), np.bool_)
    find_placed(session.facts, session.columns, placed)
    victims = np.flatnonzero(placed & groups.preemptible)
    # The last entry, which row -1 reads, is for groups of no queue.
    lowest = np.full(len(session.snapshot.queues) + 1, np.iinfo(np.int64).max)
    np.minimum.at(lowest, groups.queue[victims], priorities[victims])
    return bool((priorities[waiting] > lowest[groups.queue[waiting]]).any())


def _no_higher(session: Session, portion: Portion, placed: Bools) -> Bools:
    """Return the groups of lower priority, and those of the same that have run for as long as they wished."""
    queues, priorities = session.facts.groups.queue, session.priorities
    same: Bools = session.past_wishes() & (queues == queues[portion.group])
    same &= priorities == priorities[portion.group]
    return placed & (same | _lower(session, portion, placed))


@attrs.frozen
class Preempt:
    """Take resources from jobs of lower priority in the same queue."""

    name: str = "preempt"
    cause: Cause = Cause.PREEMPT
    priority: int = 200

    def run(self, session: Session) -> None:
        """Search victims for every group that waits."""
        search = partial(EvictionPass, name=self.name, cause=self.cause, can_succeed=_within_quota, per_queue=True)
        search(victims=_lower, some_can_succeed=_some_have_lower).run(session)
        # Mostly no group yields, and a second pass would look at each waiting group for nothing.
        if session.past_wishes().any():
            search(victims=_no_higher, rule=YIELDED).run(session)
