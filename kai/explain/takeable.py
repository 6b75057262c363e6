"""Which groups a group that waits could take from, and which of those it may not, before any search."""

from collections.abc import Mapping

import attrs
import numpy as np

from kai.engine.session import Session
from kai.framework.decisions import Cause
from kai.model.rows import GroupRow
from kai.model.status import ACTIVE_ALLOCATED, within

ACTIONS: Mapping[Cause, str] = {Cause.RECLAIM: "reclaim", Cause.PREEMPT: "preempt"}


@attrs.frozen(kw_only=True)
class Takeable:
    """The groups with a place that an action would look at, as rows."""

    free: tuple[int, ...]
    """Those from which pods may be taken, as far as each is looked at by itself."""
    fixed: tuple[int, ...]
    """Those whose pods may not be taken back."""
    protected: tuple[int, ...]
    """Those that plugins protect, such as by a minimum runtime."""
    higher: tuple[int, ...] = ()
    """Those of the same queue that have no lower priority."""


def takeable(session: Session, group: int, cause: Cause) -> Takeable:
    """Return the groups that ``group`` could take from for ``cause``, as the cycle found them."""
    facts, snapshot = session.facts.groups, session.snapshot
    placed = sorted(
        {
            int(owner)
            for owner, status in zip(snapshot.pod_group.tolist(), snapshot.pod_status.tolist(), strict=True)
            if owner >= 0 and owner != group and within(status, ACTIVE_ALLOCATED)
        }
    )
    mine, higher = int(facts.queue[group]), []
    if cause is Cause.RECLAIM:
        looked_at = [row for row in placed if facts.queue[row] not in (mine, -1)]
    else:
        same = [row for row in placed if facts.queue[row] == mine]
        priority = session.priorities[group]
        looked_at = [row for row in same if session.priorities[row] < priority]
        higher = [row for row in same if session.priorities[row] >= priority]
    fixed = [row for row in looked_at if not facts.preemptible[row]]
    rows = free = np.array([row for row in looked_at if facts.preemptible[row]], np.int64)
    for each in session.policy.victims:
        if each.groups is not None and len(free):
            free = free[each.groups(GroupRow(group), free, cause)]
    protected = np.setdiff1d(rows, free, assume_unique=True).tolist()
    return Takeable(free=tuple(free.tolist()), fixed=tuple(fixed), protected=tuple(protected), higher=tuple(higher))
