"""Consolidate: move running pods closer together so that a large group fits; every moved pod gets another place.

Source: the peer's actions/consolidation, and docs/differences.md for gangs that could not start again.
"""

from functools import partial

import attrs
import numpy as np

from kai.actions.search.hopeless import Prospects
from kai.actions.search.waiting import EvictionPass
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.readiness import could_start_again
from kai.deciding.engine.session import Session
from kai.facts.kernels.groups import find_placed
from kai.facts.model.axis import Bools, GroupRows
from kai.framework.decisions import Cause
from kai.framework.parameters import UNBOUNDED


def _preemptible(session: Session, groups: GroupRows) -> GroupRows:
    return groups[session.facts.groups.preemptible[groups]]


def _movable(session: Session, portion: Portion, placed: Bools) -> Bools:
    """Return the first groups, by name, that may be moved: they can start again with the pods they have.

    A gang with a pod that has ended lacks that pod at a new start: its other pods would be moved away and never run.
    A pod that is being deleted is no such loss, because its owner creates another.
    The bound counts groups and, like the peer's, admits one more than it says.
    """
    del portion
    return _first_movable(session, placed, session.parameters.max_consolidation_preemptees + 1)


def _first_movable(session: Session, placed: Bools, most: int) -> Bools:
    """Keep, of the groups ``placed`` [G], the first ``most`` that can start again; 0: all of them."""
    rows = np.flatnonzero(placed)
    placed[rows] = could_start_again(session.facts.groups, session.columns, rows)
    if most:
        placed[np.flatnonzero(placed)[most:]] = False
    return placed


def _might_move_for_some(prospects: Prospects, session: Session, waiting: GroupRows) -> bool:
    """Return whether moves of pods might help one of ``waiting``. Without one, no search of the pass finds victims."""
    movable = np.zeros(len(session.snapshot.groups), np.bool_)
    find_placed(session.facts, session.columns, movable)
    movable &= session.facts.groups.preemptible
    bound = session.parameters.max_consolidation_preemptees
    # No group moves its own pods, so each search may know one other group beyond those of all searches.
    return prospects.allow_some(waiting, _first_movable(session, movable, 0 if bound == UNBOUNDED else bound + 2))


@attrs.frozen
class Consolidate:
    """Move preemptible pods to other places to make one large enough."""

    name: str = "consolidation"
    cause: Cause = Cause.CONSOLIDATE
    priority: int = 400

    def run(self, session: Session) -> None:
        """Search victims to move for every preemptible group that waits."""
        # The bound admits one group more than it says, so it cannot turn the action off by itself.
        if session.parameters.max_consolidation_preemptees == 0:
            return
        prospects = Prospects(session)
        EvictionPass(
            name=self.name,
            cause=self.cause,
            can_succeed=prospects.allow,
            can_succeed_among=prospects.allow_among,
            some_can_succeed=partial(_might_move_for_some, prospects),
            victims=_movable,
            per_queue=False,
            pending_filter=_preemptible,
        ).run(session)
