"""Turns: of one namespace, so many kinds of pending groups are considered in a cycle, and all of them in turn.

A group costs little if it is like one that was looked at before; if it is like none, it costs as much as a pod of any
other user. A user with thousands of pods that all differ would make every cycle as long as that takes. So the kinds of
groups that wait in a namespace are dealt to turns, oldest first, and each cycle has one turn of each namespace:

    bound 2      kinds, oldest first   a b | c d | e      turns 0, 1, 2
    cycle 7      7 mod 3 = 1           c and d are considered; groups of the others wait for their turn

Which turn it is follows from the number of the cycle, so the same input gives the same snapshot. Groups for which
others were evicted are always considered. Nothing else changes for groups that wait: what they ask for counts in
fair shares.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from kai.model.crowd import Crowd, Crowds
from kai.model.podgroup import PodGroup
from kai.model.rows import Int64s
from kai.model.status import Status
from kai.state.snapshot import Snapshot

UNBOUNDED: Final = 0


@attrs.define(eq=False)
class Turns:
    """Deals the groups that wait to turns. Shapes: P pods, G groups."""

    most: int
    """Shapes of pending pods of one namespace that are considered in one cycle; 0 is all."""
    _namespaces: dict[str, int] = attrs.field(factory=dict)

    def settle(self, snapshot: Snapshot) -> Crowds:
        """Return which groups wait for a turn in the cycle on ``snapshot``.

        Cost: a comparison while there are no more shapes than one namespace may have; then a few passes over columns.
        """
        if self.most == UNBOUNDED or len(snapshot.shapes) <= self.most:
            return NONE
        pods = np.flatnonzero((snapshot.pod_status == Status.PENDING) & (snapshot.pod_group >= 0))
        width = len(snapshot.shapes)
        pairs = np.unique(snapshot.pod_group[pods] * width + snapshot.pod_shape[pods])
        if len(pairs) <= self.most:
            return NONE
        groups, first, sizes = np.unique(pairs // width, return_index=True, return_counts=True)
        # A group whose pods differ among themselves is a kind of its own; it counts as many as it has shapes.
        kinds = np.where(sizes == 1, pairs[first] % width, width + groups)
        spaces = self._namespaces_of(snapshot)[groups]
        rank = np.lexsort((groups, self._created(snapshot)[groups]))
        groups, kinds, sizes, spaces = groups[rank], kinds[rank], sizes[rank], spaces[rank]
        crowds: dict[str, Crowd] = {}
        later: list[Int64s] = []
        awaited = _rows_of(snapshot.awaited, snapshot.groups)
        for space in np.flatnonzero(np.bincount(spaces, weights=sizes) > self.most).tolist():
            mine = np.flatnonzero(spaces == space)
            turn_of, turns, shapes = self._deal(kinds[mine], sizes[mine])
            if turns == 1:
                continue
            waiting = groups[mine][turn_of != snapshot.revision % turns]
            waiting = waiting[~np.isin(waiting, awaited)]
            name = snapshot.groups[int(groups[mine[0]])].namespace
            crowds[name] = Crowd(namespace=name, shapes=shapes, considered=self.most, turns=turns, groups=waiting)
            later.append(waiting)
        return Crowds(by_namespace=crowds, waiting=np.sort(np.concatenate(later))) if crowds else NONE

    def _deal(self, kinds: Int64s, sizes: Int64s) -> tuple[Int64s, int, int]:
        """Return the turn of each group, how many turns there are, and how many shapes."""
        _, first, which = np.unique(kinds, return_index=True, return_inverse=True)
        by_age = np.argsort(first)
        weights = sizes[first[by_age]]
        ends = np.cumsum(weights)
        turn: Int64s = np.empty(len(by_age), np.int64)
        turn[by_age] = (ends - weights) // self.most
        used, number = np.unique(turn, return_inverse=True)  # a kind with many shapes may leave turns empty
        return number[which].astype(np.int64), len(used), int(ends[-1])

    def _namespaces_of(self, snapshot: Snapshot) -> Int64s:
        """Return int64[G]: equal numbers for groups of one namespace."""
        groups, numbers = snapshot.groups, self._namespaces

        def read(rows: Sequence[int]) -> tuple[Int64s]:
            return (np.array([numbers.setdefault(groups[row].namespace, len(numbers)) for row in rows], np.int64),)

        (found,) = snapshot.memory.rows.columns(
            "group namespaces", snapshot.lineage.groups, len(groups), read, (numbers,)
        )
        return found

    @staticmethod
    def _created(snapshot: Snapshot) -> Int64s:
        groups = snapshot.groups

        def read(rows: Sequence[int]) -> tuple[Int64s]:
            return (np.array([round(groups[row].created) for row in rows], np.int64),)

        (found,) = snapshot.memory.rows.columns("group seconds", snapshot.lineage.groups, len(groups), read)
        return found


def _rows_of(keys: Sequence[str], groups: Sequence[PodGroup]) -> Int64s:
    """Return the rows of the groups with these keys."""
    if not keys:
        return np.zeros(0, np.int64)
    wanted = frozenset(keys)
    return np.array([row for row, group in enumerate(groups) if group.key in wanted], np.int64)


_NOBODY: Final[Mapping[str, Crowd]] = {}
NONE: Final = Crowds(by_namespace=_NOBODY, waiting=np.zeros(0, np.int64))
