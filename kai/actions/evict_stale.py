"""Evict stale gangs: a gang that fell below its minimum and stayed there loses its other pods.

An optional sub-group (``minSubGroup``) that lacks pods loses its other pods too, because they do no work. The group
keeps what it needs.

Source: the peer's actions/stalegangeviction. There a group is stale as a whole if an optional sub-group lacks pods.
"""

from typing import Literal

import attrs
import numpy as np

from kai.deciding.engine.portion import Portion
from kai.deciding.engine.readiness import have_some, hold_enough, lack_some
from kai.deciding.engine.session import Session
from kai.facts.model.axis import GroupRows, PodRows
from kai.facts.model.pod import ACTIVE_ALLOCATED, Status
from kai.framework.decisions import Cause

Times = Literal["stale_since", "partial_since"]


@attrs.frozen
class EvictStale:
    """Evict the remaining pods of gangs below their minimum after a grace period."""

    name: str = "stalegangeviction"
    cause: Cause = Cause.STALE
    priority: int = 100

    def run(self, session: Session) -> None:
        """Check every group with pods on nodes."""
        stale, partial = self._below_minimum(session)
        known: tuple[tuple[Times, GroupRows, list[int]], ...] = (
            ("stale_since", session.base.stale, stale),
            ("partial_since", session.base.partial, partial),
        )
        for times, before, now in known:
            healthy = np.setdiff1d(before, now)
            if len(healthy):
                # A group that recovered starts a full grace period when it falls below its minimum again.
                session.note_time(times, healthy, np.nan)
        for group in stale:
            session.attend(group)
            self._judge(session, session.portion(group))
        for group in partial:
            session.attend(group)
            self._judge_parts(session, session.portion(group))
        session.attend(-1)

    def _below_minimum(self, session: Session) -> tuple[list[int], list[int]]:
        """Return the groups with too few pods on nodes, and the groups with too few in an optional sub-group only.

        The former have at least one pod on a node and none that succeeded. The latter have all that the group needs.
        """
        facts, columns = session.facts.groups, session.columns
        at_first = facts.first_subgroup.searchsorted(session.lacking, side="right") - 1
        # Only groups that lacked pods at the start or changed since can be below their minimum.
        groups = session.changed_groups(at_first)
        groups = groups[lack_some(facts, columns, groups)]
        groups = groups[have_some(facts, columns.occupying, groups)]
        enough = hold_enough(facts, columns, groups)
        stale = [
            # A gang in which a pod succeeded is finishing: its pods end one by one.
            group
            for group in groups[~enough].tolist()
            if not len(session.portion(group).holding(1 << Status.SUCCEEDED))
        ]
        return stale, [group for group in groups[enough].tolist() if session.portion(group).partial()]

    def _judge(self, session: Session, portion: Portion) -> None:
        lacking = next(leaf for leaf in portion.leaves if portion.occupying(leaf) < portion.minimum(leaf))
        if self._is_due(session, portion.group, "stale_since"):
            self._evict(session, portion, lacking, portion.holding(ACTIVE_ALLOCATED))

    def _judge_parts(self, session: Session, portion: Portion) -> None:
        if not self._is_due(session, portion.group, "partial_since"):
            return
        for part in portion.partial():
            lacking = next(leaf for leaf in portion.leaves_below(part) if portion.active(leaf) < portion.minimum(leaf))
            pods = portion.holding(ACTIVE_ALLOCATED, portion.pods(part))
            self._evict(session, portion, lacking, pods, "sub-group below its minimum")

    def _is_due(self, session: Session, group: int, times: Times) -> bool:
        """Return whether the grace period of ``group`` is over; record its begin."""
        since = getattr(session, times)
        # A time in the future was written by a clock that was ahead; it would extend the grace by that much.
        if not session.clock.is_past(float(since[group])):
            session.note_time(times, group, session.clock.read())
            since = getattr(session, times)
        grace = session.snapshot.groups[group].staleness_grace
        if grace is None:
            grace = session.parameters.default_staleness_grace_seconds
        # Pods that would complete the gang may be among the groups that the budget left for a later cycle.
        if grace < 0 or len(session.left) or session.protected[group]:
            return False
        return session.clock.has_lasted(float(since[group]), grace)

    def _evict(self, session: Session, portion: Portion, lacking: int, pods: PodRows, rule: str = "") -> None:
        """Evict ``pods``, because their sub-group ``lacking`` has too few."""
        group = portion.group
        facts = {"minimum": portion.minimum(lacking), "subgroup": session.subgroup_name(lacking)}
        before = session.last_eviction[group]
        with session.statement(self.name, self.cause, rule=rule) as statement:
            statement.evict(pods)
            statement.facts = {int(pod): facts for pod in pods}
            statement.commit()
        # Losing the rest of a stale gang does not restart its preemption delay.
        session.note_time("last_eviction", group, before)
