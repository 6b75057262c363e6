"""Groups that only names tell apart: what is decided about one of them holds for all of them."""

from collections.abc import Sequence
from functools import cached_property

import numpy as np

from kai.engine.world import World
from kai.model.rows import Bools, GroupRows, Int64s, PodRows
from kai.model.status import Status


class EquivalenceClasses:
    """Classes of groups of one world, by number."""

    def __init__(self, world: World) -> None:
        """Begin with no class known."""
        self._world = world
        self._signatures: dict[str, int] = {}
        self._added: dict[str, int] = {}
        self._numbers: dict[tuple[int, ...], int] = {}

    # Most cycles compare no groups, so that memory for all of them is only taken by those that do.

    @cached_property
    def _signature(self) -> Int64s:
        return np.full(len(self._world.snapshot.pods), -1, np.int64)

    @cached_property
    def _added_to(self) -> Int64s:
        return np.full(len(self._world.snapshot.shapes), -1, np.int64)

    @cached_property
    def _class(self) -> Int64s:
        return np.full(len(self._world.snapshot.groups), -1, np.int64)

    @cached_property
    def _seen(self) -> Int64s:
        return np.full(len(self._world.snapshot.groups), -1, np.int64)

    def classes(self, groups: GroupRows) -> Int64s:
        """Return int64[n]: equal numbers for groups that only names tell apart; -1 for those that are not compared.

        Compared are groups of one leaf all of whose pods are pending and alike. Those of a class are in one queue,
        equally preemptible, of one size, and ask for the same under the same constraints.

        Cost: O(pods of groups that changed since they were last asked about), as a few passes over arrays.
        """
        epoch = self._world.columns.epoch
        changed = groups[self._seen[groups] != epoch[groups]]
        if len(changed):
            self._class[changed] = self._compare(changed)
            self._seen[changed] = epoch[changed]
        return self._class[groups]

    def constraints_of(self, pods: PodRows) -> Int64s:
        """Return int64[n]: equal numbers for pods whose constraints have the same signature, by plugins too.

        Numbers of two calls are not to be compared. Cost: a look at each pod and each shape, once in a session.
        """
        shapes = self._world.facts.pods.shape[pods]
        for shape in np.unique(shapes[self._added_to[shapes] < 0]).tolist():
            text = self._world.policy.signature(shape)
            self._added_to[shape] = self._added.setdefault(text, len(self._added))
        signatures = self._signatures_of(pods)
        return signatures * max(1, len(self._added)) + self._added_to[shapes]

    def _compare(self, groups: GroupRows) -> Int64s:
        facts = self._world.facts
        out = np.full(len(groups), -1, np.int64)
        leaves = facts.groups.first_subgroup[groups] + 1
        begins = facts.groups.pod_start[leaves]
        sizes = facts.groups.pod_start[leaves + 1] - begins
        compared = np.flatnonzero(facts.groups.simple[groups] & (sizes > 0))
        if not len(compared):
            return out
        rows, begins, sizes = groups[compared], begins[compared], sizes[compared]
        starts = np.cumsum(sizes) - sizes
        pods = facts.groups.pods[np.arange(int(sizes.sum())) + np.repeat(begins - starts, sizes)]
        pending = np.logical_and.reduceat(self._world.columns.status[pods] == Status.PENDING, starts)
        shape, same_shape = _only(facts.pods.shape[pods], starts)
        signature, same_signature = _only(self._signatures_of(pods), starts)
        chosen = pending & same_shape & same_signature
        columns = (
            facts.groups.queue[rows],
            facts.groups.preemptible[rows].astype(np.int64),
            facts.groups.minimum[leaves[compared]],
            sizes,
            shape,
            signature,
        )
        out[compared[chosen]] = self._number([column[chosen] for column in columns])
        return out

    def _number(self, columns: Sequence[Int64s]) -> Int64s:
        """Return one number for each combination of values, the same ones every time."""
        which = np.zeros(len(columns[0]), np.int64)
        for column in columns:
            # Numbers below n for what was combined so far, and for the column: their product cannot overflow.
            values, position = np.unique(column, return_inverse=True)
            _, which = np.unique(which * len(values) + position, return_inverse=True)
        _, first = np.unique(which, return_index=True)
        keys = np.stack([column[first] for column in columns], axis=1).tolist()
        return np.array([self._numbers.setdefault(tuple(key), len(self._numbers)) for key in keys], np.int64)[which]

    def _signatures_of(self, pods: PodRows) -> Int64s:
        unknown = pods[self._signature[pods] < 0]
        if not len(unknown):
            return self._signature[pods]
        texts = [self._world.snapshot.pods[pod].signature for pod in unknown.tolist()]
        self._signature[unknown] = [self._signatures.setdefault(text, len(self._signatures)) for text in texts]
        return self._signature[pods]


def _only(values: Int64s, starts: Int64s) -> tuple[Int64s, Bools]:
    """Return the least value of each segment, and whether it is the only one."""
    least = np.minimum.reduceat(values, starts)
    return least, least == np.maximum.reduceat(values, starts)
