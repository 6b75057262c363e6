"""Preempt: within a queue, a group takes the places of preemptible groups of strictly lower priority.

Source: the peer's actions/preempt.
"""

import attrs

from kai.actions.search.waiting import EvictionPass
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.refusals import capacity_verdict
from kai.deciding.engine.session import Session
from kai.facts.model.axis import Bools
from kai.framework.decisions import Cause


def _within_quota(session: Session, portion: Portion) -> bool:
    """Return whether the group stays within the quota of its queues, if it is not preemptible.

    Evictions of preemptible pods cannot change that, because only non-preemptible pods count for quota.
    """
    return bool(capacity_verdict(session, portion, portion.chunk(), fixed_only=True))


def _lower(session: Session, portion: Portion, placed: Bools) -> Bools:
    queues, priorities = session.facts.groups.queue, session.priorities
    lower: Bools = (queues == queues[portion.group]) & (priorities < priorities[portion.group])
    return placed & lower


@attrs.frozen
class Preempt:
    """Take from lower priorities of the same queue."""

    name: str = "preempt"
    cause: Cause = Cause.PREEMPT
    priority: int = 200

    def run(self, session: Session) -> None:
        """Search victims for every group that waits."""
        EvictionPass(
            name=self.name,
            cause=self.cause,
            can_succeed=_within_quota,
            victims=_lower,
            per_queue=True,
        ).run(session)
