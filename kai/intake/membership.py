"""Which pods belong to which group."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs
import numpy as np

from kai.model.rows import NONE, Int64s

GroupKey: TypeAlias = tuple[str, str]
"""Name of a group, and a namespace."""

_MANY = 1 << 16

_Leaves: TypeAlias = Mapping[str, int]


@attrs.frozen(eq=False)
class Place:
    """Where pods that name one group in one namespace belong.

    Pods and groups hold it, so that nobody has to be looked up.
    """

    name: str
    number: int


class Member(Protocol):
    """A group that takes part in the snapshot."""

    @property
    def place(self) -> Place:
        """Return the place of the group's name and namespace."""

    @property
    def leaves(self) -> _Leaves:
        """Return the position of each leaf among its sub-groups."""


class Places:
    """All places that pods or groups name.

    A pod belongs to the group it names in its own namespace, else to the first group of that name by namespace.

    Source: the peer goes by the name alone, so that groups of one name in several namespaces share their pods; here
    only a pod whose own namespace has no such group can belong to a stranger.
    """

    def __init__(self) -> None:
        self._by_key: dict[GroupKey, Place] = {}
        self._names: list[str] = []

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: GroupKey) -> Place:
        """Return the place of a group name in a namespace, whether or not there is such a group."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Place(key[0], len(self._names))
            self._names.append(key[0])
        return found

    def rows(self, group_places: Int64s, groups: Sequence[Member], pod_places: Int64s) -> Int64s:
        """Return int64[P]: the row of each pod's group, -1 for none.

        ``group_places`` [G] and ``pod_places`` [P] are numbers of places; ``groups`` are in row order: by name, then
        namespace.
        """
        row_of = np.full(len(self._names), NONE, np.int64)
        row_of[group_places] = np.arange(len(group_places))
        rows = row_of[pod_places]
        strangers = np.unique(pod_places[rows == NONE])
        if len(strangers) and len(groups):
            for place in strangers.tolist():
                row_of[place] = _first_called(self._names[place], groups)
            rows = row_of[pod_places]
        return rows


def _first_called(name: str, groups: Sequence[Member]) -> int:
    row = bisect_left(groups, name, key=_name)
    return row if row < len(groups) and groups[row].place.name == name else NONE


def _name(group: Member) -> str:
    return group.place.name


class Leaves:
    """Which sub-group of its group a pod belongs to, by the names of both."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._numbers: dict[int, int] = {}
        """Numbers of trees by the identity of their leaves."""
        self._trees: list[_Leaves] = []
        self._texts: list[str] = []

    def __len__(self) -> int:
        return len(self._trees) + len(self._texts)

    def name(self, name: str) -> int:
        """Return the number of the name of a sub-group."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = len(self._texts)
            self._texts.append(name)
        return known

    def tree(self, leaves: _Leaves) -> int:
        """Return the number of the leaves of a tree."""
        known = self._numbers.get(id(leaves))
        if known is None:
            known = self._numbers[id(leaves)] = len(self._trees)
            self._trees.append(leaves)
        return known

    def positions(self, trees: Int64s, names: Int64s) -> Int64s:
        """Return int64[P]: the position of each leaf by the numbers of its tree (-1: none) and its name; -1 for none.

        Cost: columns, and a look at each pair of numbers that there is.
        """
        width = len(self._texts)
        pairs = np.where(trees < 0, -1, trees * width + names)
        size = len(self._trees) * width
        if size > _MANY + 4 * len(pairs):
            distinct, pair_of = np.unique(pairs, return_inverse=True)
            return np.array([self._position(pair, width) for pair in distinct.tolist()], np.int64)[pair_of]
        table = np.full(size + 1, NONE, np.int64)  # the last one is for -1
        table[pairs] = 0
        distinct = np.flatnonzero(table[:-1] == 0)
        table[distinct] = [self._position(pair, width) for pair in distinct.tolist()]
        table[-1] = NONE
        return table[pairs]

    def _position(self, pair: int, width: int) -> int:
        return NONE if pair < 0 else self._trees[pair // width].get(self._texts[pair % width], NONE)
