"""Minimum runtimes: a group that started recently loses no pods, or only those beyond its gang's minimum.

Source: the peer's plugins/minruntime.
"""

from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

import attrs
import numpy as np
from attrs.validators import ge, in_

from kai.framework import (
    ACCEPTED,
    Bools,
    Cause,
    Code,
    Extension,
    Float64s,
    GroupRow,
    GroupRows,
    Int64s,
    Scenario,
    SessionView,
    Verdict,
    Victims,
)


@attrs.frozen(kw_only=True)
class MinRuntime:
    """Protect groups for some seconds after their start, from preemption and from reclaim.

    ``reclaim_resolve_method``: ``lca`` takes the value of the victim's queue just below the deepest queue that both
    share, ``queue`` of the victim's queue; either looks further up where nothing is set.
    """

    preempt_seconds: float = attrs.field(default=0.0, validator=ge(0.0))
    reclaim_seconds: float = attrs.field(default=0.0, validator=ge(0.0))
    reclaim_resolve_method: Literal["lca", "queue"] = attrs.field(default="lca", validator=in_(("lca", "queue")))

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the victim filter and the scenario check."""
        elastic = cache(partial(_elastic, session))
        lasting = self._protects_any(session)
        # Without minimum runtimes only groups are protected that are said to have started in the future.
        started = session.last_start
        known = session.snapshot.memory.once("groups that started", (started,), lambda: started[~np.isnan(started)])
        judging = lasting or not session.are_past(known).all()

        def is_protected(victim: int, aggressor: int, cause: Cause) -> bool:
            queue = int(session.facts.groups.queue[victim])
            started = session.last_start[victim]
            if queue < 0 or np.isnan(started) or cause not in (Cause.RECLAIM, Cause.PREEMPT):
                return False
            return not session.is_past(started + self._seconds(session, queue, aggressor, cause))

        def filter_victims(aggressor: GroupRow, victims: GroupRows, cause: Cause) -> Bools:
            if cause not in (Cause.RECLAIM, Cause.PREEMPT):
                return np.ones(len(victims), np.bool_)
            queues = session.facts.groups.queue[victims]
            seconds = self._seconds_by_queue(session, queues, aggressor, cause)
            # A group that never started has no time of start (NaN): it is not protected.
            deadlines = session.last_start[victims] + seconds[queues]
            return elastic()[victims] | session.are_past(deadlines) | np.isnan(deadlines)

        def accept(scenario: Scenario, cause: Cause) -> Verdict:
            if cause not in (Cause.RECLAIM, Cause.PREEMPT):
                return ACCEPTED
            groups, columns = session.facts.groups, session.columns
            victims = scenario.victims()
            if not elastic()[session.facts.pods.group[victims]].any():
                return ACCEPTED
            leaves = session.facts.pods.leaf[victims]
            taken = np.bincount(leaves[leaves >= 0], minlength=len(groups.leaf))
            losing = np.searchsorted(groups.first_subgroup, np.flatnonzero(taken), side="right") - 1
            for victim in np.unique(losing).tolist():
                if not elastic()[victim] or not is_protected(victim, scenario.aggressor, cause):
                    continue
                rows = slice(int(groups.first_subgroup[victim]), int(groups.first_subgroup[victim + 1]))
                if not _are_enough(session, rows, columns.occupying[rows] - taken[rows], taken[rows]):
                    return Verdict.refused(
                        Code.NOT_ELIGIBLE, rule="min-runtime", group=session.snapshot.groups[victim].key
                    )
            return ACCEPTED

        return (
            Victims(
                groups=filter_victims if lasting else None,
                accept=accept if judging else None,
                accepts_by_victims=True,
            ),
        )

    def _protects_any(self, session: SessionView) -> bool:
        queues = session.snapshot.queues
        by_queue = any(queue.preempt_min_runtime or queue.reclaim_min_runtime for queue in queues)
        return by_queue or self.preempt_seconds > 0 or self.reclaim_seconds > 0

    def _seconds_by_queue(self, session: SessionView, queues: Int64s, aggressor: int, cause: Cause) -> Float64s:
        """Return float64[Q + 1]: how long each of ``queues`` protects its groups; the last one is for no queue."""
        seconds = np.zeros(len(session.snapshot.queues) + 1, np.float64)
        for queue in np.unique(queues[queues >= 0]):
            seconds[queue] = self._seconds(session, int(queue), aggressor, cause)
        return seconds

    def _seconds(self, session: SessionView, queue: int, aggressor: int, cause: Cause) -> float:
        path = session.path_to(queue)
        queues = session.snapshot.queues
        if cause is Cause.PREEMPT:
            values = [queues[row].preempt_min_runtime for row in reversed(path)]
            return next((value for value in values if value is not None), self.preempt_seconds)
        if self.reclaim_resolve_method == "queue":
            start = len(path) - 1
        else:
            other = session.path_to(int(session.facts.groups.queue[aggressor]))
            shared = 0
            while shared < min(len(path), len(other)) and path[shared] == other[shared]:
                shared += 1
            # Source: the peer. Paths without a common queue: the victim's top queue decides, without a walk.
            if shared == 0:
                top = queues[path[0]].reclaim_min_runtime
                return self.reclaim_seconds if top is None else top
            start = min(shared, len(path) - 1)
        values = [queues[row].reclaim_min_runtime for row in reversed(path[: start + 1])]
        return next((value for value in values if value is not None), self.reclaim_seconds)


def _are_enough(session: SessionView, rows: slice, pods: Int64s, taken: Int64s) -> bool:
    """Return whether the tree of sub-groups ``rows`` has its minimum with ``pods`` [n] in its leaves.

    With the peer's choice of victims, each leaf that loses pods needs its own minimum. ``taken`` [n] are the lost pods.
    """
    groups = session.facts.groups
    if groups.each_leaf:
        return bool((pods >= groups.minimum[rows])[groups.leaf[rows] & (taken > 0)].all())
    counts = np.where(groups.leaf[rows], pods, 0).tolist()
    minimums, parents = groups.minimum[rows].tolist(), groups.parent[rows].tolist()
    # Parents come before their sub-groups, so from the end on every count is complete when it is compared.
    for at in range(len(counts) - 1, 0, -1):
        counts[parents[at] - rows.start] += counts[at] >= minimums[at]
    return bool(counts[0] >= minimums[0])


def _elastic(session: SessionView) -> Bools:
    """Return bool[G]: some leaf has more pods than it needs, or some sub-group more sub-groups.

    With the peer's choice of victims sub-groups do not count.
    """
    groups = session.facts.groups
    counts = np.diff(groups.pod_start)
    children = np.bincount(groups.parent[groups.parent >= 0], minlength=len(counts))
    more = groups.minimum < np.where(groups.leaf, counts, children)
    rows = np.flatnonzero(more & groups.leaf if groups.each_leaf else more)
    out = np.zeros(len(session.snapshot.groups), np.bool_)
    out[np.searchsorted(groups.first_subgroup, rows, side="right") - 1] = True
    return out
