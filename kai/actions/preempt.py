"""Preempt: within a queue, a group takes from preemptible groups of strictly lower priority.

Source: the peer's actions/preempt.
"""

import attrs
import numpy as np

from kai.actions.search.waiting import Hunt, anybody
from kai.framework.decisions import Cause
from kai.framework.portion import Portion
from kai.framework.refusals import capacity_verdict
from kai.framework.session import Session
from kai.model.rows import Bools, GroupRows


def _within_quota(session: Session, portion: Portion) -> bool:
    """Say whether the group, if it cannot be taken back, stays within quota.

    No eviction of preemptible pods changes that.
    """
    return bool(capacity_verdict(session, portion, portion.chunk(), fixed_only=True))


def _lower(session: Session, portion: Portion, placed: Bools) -> GroupRows:
    queues = session.facts.groups.queue
    rows = np.flatnonzero(placed & (queues == queues[portion.group]))
    priority = session.snapshot.groups[portion.group].priority
    return np.array([row for row in rows.tolist() if session.snapshot.groups[row].priority < priority], np.int64)


@attrs.frozen
class Preempt:
    """Take from lower priorities of the same queue."""

    name: str = "preempt"

    def run(self, session: Session) -> None:
        """Search for every group that waits."""
        Hunt(
            name=self.name,
            cause=Cause.PREEMPT,
            rule="priority",
            may_search=anybody,
            can_succeed=_within_quota,
            victims=_lower,
            per_queue=True,
        ).run(session)
