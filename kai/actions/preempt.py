"""Preempt: within a queue, a group takes the places of preemptible groups of strictly lower priority.

Groups that yield and have run for as long as they wished are victims of equal priorities as well. They are looked at in
a second pass, so that a place is first sought without them, and go only in a statement that places the other group.

Source: the peer's actions/preempt.
"""

from functools import partial

import attrs

from kai.actions.search.waiting import EvictionPass
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.refusals import capacity_verdict
from kai.deciding.engine.session import Session
from kai.facts.model.axis import Bools
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


def _no_higher(session: Session, portion: Portion, placed: Bools) -> Bools:
    """Return the groups of lower priority, and those of the same that have run for as long as they wished."""
    queues, priorities = session.facts.groups.queue, session.priorities
    same: Bools = session.past_wishes() & (queues == queues[portion.group])
    same &= priorities == priorities[portion.group]
    return placed & (same | _lower(session, portion, placed))


@attrs.frozen
class Preempt:
    """Take from lower priorities of the same queue."""

    name: str = "preempt"
    cause: Cause = Cause.PREEMPT
    priority: int = 200

    def run(self, session: Session) -> None:
        """Search victims for every group that waits."""
        search = partial(EvictionPass, name=self.name, cause=self.cause, can_succeed=_within_quota, per_queue=True)
        search(victims=_lower).run(session)
        # Mostly no group yields, and a second pass would look at each waiting group for nothing.
        if session.past_wishes().any():
            search(victims=_no_higher, rule=YIELDED).run(session)
