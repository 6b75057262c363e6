"""Evict stale gangs: a gang that fell below its minimum and stayed there loses its other pods.

Source: the peer's actions/stalegangeviction, where a group is stale as well if a sub-group lacks pods that it can do
without.
"""

import attrs
import numpy as np

from kai.engine.portion import Portion
from kai.engine.readiness import have_some, hold_enough, lack_some
from kai.engine.session import Session
from kai.framework.decisions import Cause
from kai.model.status import ACTIVE_ALLOCATED, Status


@attrs.frozen
class EvictStale:
    """Evict what remains of gangs below their minimum when their grace is over."""

    name: str = "stalegangeviction"

    def run(self, session: Session) -> None:
        """Look at every group with pods on nodes."""
        stale = self._below_minimum(session)
        healthy = np.setdiff1d(session.base.stale, stale)
        if len(healthy):
            session.note_time("stale_since", healthy, np.nan)
        for group in stale:
            session.attend(group)
            self._judge(session, session.portion(group))
        session.attend(-1)

    def _below_minimum(self, session: Session) -> list[int]:
        """Return the groups with a pod on a node that have fewer there than they need, none of whose pods succeeded."""
        facts, columns = session.facts.groups, session.columns
        at_first = facts.first_subgroup.searchsorted(session.lacking, side="right") - 1
        groups = session.changed_groups(at_first)
        groups = groups[lack_some(facts, columns, groups)]
        groups = groups[~hold_enough(facts, columns, groups)]
        held = have_some(facts, columns.occupying, groups)
        return [
            group for group in groups[held].tolist() if not len(session.portion(group).holding(1 << Status.SUCCEEDED))
        ]

    def _judge(self, session: Session, portion: Portion) -> None:
        group = portion.group
        # A time that is still to come was written by a clock that went ahead, and would keep the gang for as long.
        if not session.clock.is_past(float(session.stale_since[group])):
            session.note_time("stale_since", group, session.clock.read())
        grace = session.snapshot.groups[group].staleness_grace
        if grace is None:
            grace = session.parameters.default_staleness_grace_seconds
        # Pods that would make a gang whole may be among those that there was no time for.
        if grace < 0 or len(session.left) or not session.clock.has_lasted(float(session.stale_since[group]), grace):
            return
        lacking = next(leaf for leaf in portion.leaves if portion.occupying(leaf) < portion.minimum(leaf))
        facts = {"minimum": portion.minimum(lacking), "subgroup": session.subgroup_name(lacking)}
        pods = portion.holding(ACTIVE_ALLOCATED)
        before = session.last_eviction[group]
        with session.statement(self.name, Cause.STALE, rule="gang below its minimum") as statement:
            statement.evict(pods)
            statement.facts = {int(pod): facts for pod in pods}
            statement.commit()
        # Losing the rest of a stale gang does not restart its preemption delay.
        session.note_time("last_eviction", group, before)
