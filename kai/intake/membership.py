"""Which pods belong to which group."""

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias

import attrs

from kai.model.rows import NONE

GroupKey: TypeAlias = tuple[str, str]
"""Name of a group, and a namespace."""

_NO_LEAVES: Mapping[str, int] = {}


@attrs.define(eq=False)
class Place:
    """Where pods that name one group in one namespace belong.

    Pods and groups hold it, so that nobody has to be looked up.
    """

    name: str
    row: int = NONE
    leaves: Mapping[str, int] = _NO_LEAVES
    """Position of each leaf among the sub-groups of the group."""
    owned: bool = False
    """A group of that name is in that very namespace."""

    def stand_for(self, other: "Place | None") -> None:
        """Lead to the group of another place, or nowhere."""
        self.row, self.leaves = (other.row, other.leaves) if other else (NONE, _NO_LEAVES)


class Member(Protocol):
    """A group that takes part in the snapshot."""

    @property
    def place(self) -> Place:
        """Return the place of the group's name and namespace."""

    @property
    def leaves(self) -> Mapping[str, int]:
        """Return the position of each leaf among its sub-groups."""


class Places:
    """All places that pods or groups name.

    A pod belongs to the group it names in its own namespace, else to the first group of that name by namespace.

    Source: the peer goes by the name alone, so that groups of one name in several namespaces share their pods; here
    only a pod whose own namespace has no such group can belong to a stranger.
    """

    def __init__(self) -> None:
        self._by_key: dict[GroupKey, Place] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    def of(self, key: GroupKey) -> Place:
        """Return the place of a group name in a namespace, whether or not there is such a group."""
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Place(key[0])
        return found

    def settle(self, groups: Sequence[Member]) -> None:
        """Let every place lead to its row among ``groups``, which are in row order: by name, then namespace."""
        for place in self._by_key.values():
            place.owned = False
        for row, group in enumerate(groups):
            place = group.place
            place.row, place.leaves, place.owned = row, group.leaves, True
        strangers = [place for place in self._by_key.values() if not place.owned]
        asked_for = {place.name for place in strangers}
        first: dict[str, Place] = {}
        for group in groups if asked_for else ():
            if group.place.name in asked_for:
                first.setdefault(group.place.name, group.place)
        for place in strangers:
            place.stand_for(first.get(place.name))
