"""Turns: a cycle considers a bounded number of pending pods and of kinds in each namespace, in rotation.

A group costs little if it resembles one that the cycle has looked at before; otherwise it costs as much as a pod of any
other user. A user with thousands of pods that all differ would lengthen every cycle accordingly. So the kinds of
waiting groups in a namespace are dealt into turns, oldest first, and each cycle has one turn of each namespace:

    bound 2      kinds, oldest first   a b | c d | e      turns 0, 1, 2
    cycle 7      7 mod 3 = 1           c and d are considered; groups of the others wait for their turn

A kind is what pods ask for. Pods with resource claims of their own have shapes of their own, because a shape names the
claims; where these claims ask for the same, such pods are of one kind.

Thousands of groups of one kind cost less each, and together as much. So within a turn, groups with a bounded number of
pods are considered. Half of that number goes to the first groups by priority and age, which are considered in every
cycle of their turn, because without a bound they would be served first too. The other groups come one part after the
other. A group is never split, however large it is.

The turn follows from the number of the cycle, so the same input gives the same snapshot. Groups for which others were
evicted are always considered. Otherwise a waiting group is treated as usual: its requests count in fair shares.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import numpy as np

from kai.facts.model.axis import GroupRows, Int64s
from kai.facts.model.groups import Crowd, Crowds, PodGroup
from kai.facts.model.pod import Shape, Status
from kai.facts.state.snapshot import Snapshot

UNBOUNDED: Final = 0


@attrs.define(eq=False)
class Turns:
    """Deals waiting groups into turns. Shapes: P pods, G groups."""

    most: int
    """The most shapes of pending pods that a cycle considers in one namespace; 0 is all."""
    at_a_time: int = UNBOUNDED
    """The most pending pods that a cycle considers in one namespace; 0 is all."""
    _namespaces: dict[str, int] = attrs.field(factory=dict)

    def settle(self, snapshot: Snapshot) -> Crowds:
        """Return which groups wait for a turn in the cycle on ``snapshot``.

        Cost: a look at the statuses of pods while there are fewer than a bound; then a few passes over columns.
        """
        pods = self._crowding(snapshot)
        if pods is None:
            return NONE
        width = len(snapshot.shapes)
        pairs = np.unique(snapshot.pod_group[pods] * width + _kinds(snapshot)[snapshot.pod_shape[pods]])
        groups, first, sizes = np.unique(pairs // width, return_index=True, return_counts=True)
        # A group with pods of several shapes is a kind of its own; it counts as many as it has shapes.
        kinds = np.where(sizes == 1, pairs[first] % width, width + groups)
        spaces = self._namespaces_of(snapshot)[groups]
        rank = np.lexsort((groups, self._created(snapshot)[groups]))
        groups, kinds, sizes, spaces = groups[rank], kinds[rank], sizes[rank], spaces[rank]
        crowds: dict[str, Crowd] = {}
        later: list[Int64s] = []
        awaited = _rows_of(snapshot.past.awaited, snapshot.groups)
        pending = np.bincount(snapshot.pod_group[pods])
        for space in self._crowded(spaces, sizes, pending[groups]):
            mine = np.flatnonzero(spaces == space)
            turn_of, turns, shapes = self._deal(kinds[mine], sizes[mine])
            chosen = groups[mine][turn_of == snapshot.revision % turns]
            considered, parts = self._part(chosen, pending[chosen], snapshot, turns)
            if turns * parts == 1:
                continue
            waiting = groups[mine][~np.isin(groups[mine], np.concatenate((considered, awaited)))]
            among = int(pending[groups[mine]].sum())
            name = snapshot.groups[int(groups[mine[0]])].namespace
            crowds[name] = Crowd(
                namespace=name,
                shapes=shapes,
                considered=self.most,
                pods=among,
                at_a_time=self.at_a_time,
                turns=turns * self._parts(among),
                groups=waiting,
            )
            later.append(waiting)
        return Crowds(by_namespace=crowds, waiting=np.sort(np.concatenate(later))) if crowds else NONE

    def _crowding(self, snapshot: Snapshot) -> Int64s | None:
        """Return the pending pods; None if no namespace can exceed a bound on pods or on shapes."""
        fewest = min((each for each in (self.most, self.at_a_time) if each != UNBOUNDED), default=None)
        if fewest is None or len(snapshot.pods) <= fewest:
            return None
        if self.at_a_time == UNBOUNDED and len(snapshot.shapes) <= self.most:
            return None
        pods = np.flatnonzero(snapshot.pod_status == Status.PENDING)
        pods = pods[snapshot.pod_group[pods] >= 0]
        return pods if len(pods) > fewest else None

    def _crowded(self, spaces: Int64s, sizes: Int64s, pending: Int64s) -> list[int]:
        """Return the namespaces that may exceed a bound."""
        shapes, pods = np.bincount(spaces, weights=sizes), np.bincount(spaces, weights=pending)
        crowded = np.zeros(len(pods), np.bool_)
        if self.most != UNBOUNDED:
            crowded |= shapes > self.most
        if self.at_a_time != UNBOUNDED:
            crowded |= pods > self.at_a_time
        found: list[int] = np.flatnonzero(crowded).tolist()
        return found

    def _part(self, groups: GroupRows, pending: Int64s, snapshot: Snapshot, turns: int) -> tuple[GroupRows, int]:
        """Return the considered groups out of ``groups``, oldest first, and the number of parts."""
        if self._parts(int(pending.sum())) == 1:
            return groups, 1
        priority = np.array([snapshot.groups[row].priority for row in groups.tolist()], np.int64)
        rank = np.argsort(-priority, kind="stable")
        groups, pending = groups[rank], pending[rank]
        always = self.at_a_time // 2
        begins = np.cumsum(pending) - pending
        is_rest = begins >= always
        used, part = np.unique((begins[is_rest] - always) // (self.at_a_time - always), return_inverse=True)
        parts = max(1, len(used))  # a group with many pods may leave parts empty
        chosen = part == (snapshot.revision // turns) % parts
        return np.concatenate((groups[~is_rest], groups[is_rest][chosen])), parts

    def _parts(self, pods: int) -> int:
        """Return the most parts into which ``pods`` pods are divided."""
        if self.at_a_time == UNBOUNDED or pods <= self.at_a_time:
            return 1
        always = self.at_a_time // 2
        return -(-(pods - always) // (self.at_a_time - always))

    def _deal(self, kinds: Int64s, sizes: Int64s) -> tuple[Int64s, int, int]:
        """Return the turn of each group, the number of turns, and the number of shapes."""
        if self.most == UNBOUNDED:
            return np.zeros(len(kinds), np.int64), 1, len(np.unique(kinds))
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
            "group namespaces", snapshot.versions.groups, len(groups), read, (numbers,)
        )
        return found

    @staticmethod
    def _created(snapshot: Snapshot) -> Int64s:
        groups = snapshot.groups

        def read(rows: Sequence[int]) -> tuple[Int64s]:
            return (np.array([round(groups[row].created) for row in rows], np.int64),)

        (found,) = snapshot.memory.rows.columns("group seconds", snapshot.versions.groups, len(groups), read)
        return found


def _kinds(snapshot: Snapshot) -> Int64s:
    """Return int64[K]: for each shape, the first shape that asks for the same, whatever its claims are called.

    Cost: a look at each shape that is new or whose claims may have changed.
    """
    catalog = snapshot.catalog.claims.claims

    def asked(shape: Shape) -> tuple[Shape, tuple[object, ...]] | None:
        names = shape.constraints.claims
        found = [(each, catalog.get((shape.namespace, each.claim))) for each in names]
        wanted = tuple([each if claim is None else (claim.requests, claim.constraints) for each, claim in found])
        return (attrs.evolve(shape, constraints=attrs.evolve(shape.constraints, claims=())), wanted) if names else None

    kinds = np.arange(len(snapshot.shapes))
    first: dict[object, int] = {}
    for row, key in enumerate(snapshot.by_shape("kinds of pods", asked, catalog) if catalog else ()):
        if key is not None:
            kinds[row] = first.setdefault(key, row)
    return kinds


def _rows_of(keys: Sequence[str], groups: Sequence[PodGroup]) -> Int64s:
    """Return the rows of the groups with these keys."""
    if not keys:
        return np.zeros(0, np.int64)
    wanted = frozenset(keys)
    return np.array([row for row, group in enumerate(groups) if group.key in wanted], np.int64)


_NOBODY: Final[Mapping[str, Crowd]] = {}
NONE: Final = Crowds(by_namespace=_NOBODY, waiting=np.zeros(0, np.int64))
