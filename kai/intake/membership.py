"""Numbers for accounts, group keys and sub-groups, from which columns of membership are made.

An account, a queue in a node pool on which pods are bound, has a number. So has the key of a group, and the name of a
sub-group.

The numbers of a record are packed as bytes, so that the columns of many records are made by one join.
"""

from collections.abc import Iterable, Mapping
from struct import Struct
from typing import TypeAlias

import numpy as np

from kai.facts.model.axis import NONE, Int64s

Account: TypeAlias = tuple[str, str]
"""The name of a queue and of a node pool."""


class Accounts:
    """All accounts that pods or groups name."""

    def __init__(self) -> None:
        self._numbers: dict[Account, int] = {}
        self._accounts: list[Account] = []

    def __len__(self) -> int:
        return len(self._accounts)

    def __getitem__(self, number: int) -> Account:
        """Return the account with a number."""
        return self._accounts[number]

    def of(self, queue: str, pool: str) -> int:
        """Return the number of an account."""
        account = (queue, pool)
        known = self._numbers.get(account)
        if known is None:
            known = self._numbers[account] = len(self._accounts)
            self._accounts.append(account)
        return known


class Packing:
    """A packed record of ``width`` 32-bit numbers.

    List comprehensions would touch every record once for each column. A record that is packed when its object arrives
    is touched once, and the columns are slices of one array: 0.04 instead of 0.4 microseconds a record of eight.
    """

    def __init__(self, width: int) -> None:
        self._width = width
        # `=` means four bytes for each number and no padding, which is how `columns` reads them.
        self.pack = Struct(f"={width}i").pack

    def columns(self, packed: Iterable[bytes]) -> Int64s:
        """Return int64[width, n]: one row for each number, one column for each record."""
        numbers = np.frombuffer(b"".join(packed), np.int32).reshape(-1, self._width)
        return np.ascontiguousarray(numbers.T, np.int64)


GroupKey: TypeAlias = tuple[str, str]
"""The name and the namespace of a group."""

_KEPT = 1 << 10
"""The number of keys below which unused keys are not dropped."""
_SPARE = 64
"""The room for new keys, besides a sixteenth of the keys, before the array of rows is built anew."""
_MANY = 1 << 16
_UNKNOWN = -2

_Leaves: TypeAlias = Mapping[str, int]


class GroupKeys:
    """Numbers for the keys of groups: of existing groups, and of groups that pods name.

    A pod belongs to the group that it names in its own namespace, or to none.

    Source: the peer matches the name alone, so that groups of one name in several namespaces share their pods, and a
    pod of any namespace can complete another's gang.
    """

    def __init__(self) -> None:
        self._numbers: dict[GroupKey, int] = {}
        self._free: list[int] = []
        """Numbers of dropped keys, for reuse."""
        self._most = _KEPT
        """The number of keys above which unused ones are dropped."""
        self._of_groups: Int64s | None = None
        self._rows: Int64s = np.zeros(0, np.int64)
        """Rows of groups by key number, for the groups whose keys are ``_of_groups``."""

    def __len__(self) -> int:
        """Return an upper bound of all numbers: each is smaller."""
        return len(self._numbers) + len(self._free)

    def of(self, key: GroupKey) -> int:
        """Return the number of a key, whether or not such a group exists."""
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = self._free.pop() if self._free else len(self._numbers)
        return known

    def keep(self, *used: Int64s) -> None:
        """Drop keys whose number is in no column of ``used``, once there are many keys.

        Holds: the caller keeps no key numbers elsewhere, since a dropped number is reused.
        Cost: one comparison; a pass over the columns and all keys when the keys have doubled since the last pass.
        """
        if len(self._numbers) <= self._most:
            return
        is_used = np.zeros(len(self), np.bool_)
        for numbers in used:
            is_used[numbers] = True
        self._numbers = {key: number for key, number in self._numbers.items() if is_used[number]}
        self._free = np.flatnonzero(~is_used).tolist()
        self._most = _KEPT + 2 * len(self._numbers)

    def rows(self, of_groups: Int64s) -> Int64s:
        """Return int64: the row of each group by the number of its key, -1 for keys without a group.

        ``of_groups`` [G] are key numbers; the result is read-only. Holds: the same array for the same groups, as long
            as it has an entry for every key.
        """
        if of_groups is not self._of_groups or len(self._rows) < len(self):
            self._of_groups, self._rows = of_groups, np.full(len(self) + len(self) // 16 + _SPARE, NONE, np.int64)
            self._rows[of_groups] = np.arange(len(of_groups))
        return self._rows


class Leaves:
    """Numbers for trees of sub-groups and for names, and the position of each name in each tree."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._numbers: dict[int, int] = {}
        """Numbers of trees by the identity of their leaves."""
        self._trees: list[_Leaves] = []
        self._texts: list[str] = []
        self._known: Int64s = np.zeros(0, np.int64)
        """Memoized positions by (tree, name) pair, valid while the number of names is ``_width``."""
        self._width = 0

    def __len__(self) -> int:
        return len(self._trees) + len(self._texts)

    def name(self, name: str) -> int:
        """Return the number of a sub-group name."""
        known = self._names.get(name)
        if known is None:
            known = self._names[name] = len(self._texts)
            self._texts.append(name)
        return known

    def tree(self, leaves: _Leaves) -> int:
        """Return the number of a tree's leaves."""
        known = self._numbers.get(id(leaves))
        if known is None:
            known = self._numbers[id(leaves)] = len(self._trees)
            # Kept alive here, so that its identity cannot be that of another tree later.
            self._trees.append(leaves)
        return known

    def positions(self, trees: Int64s, names: Int64s) -> Int64s:
        """Return int64[P]: the position of each leaf by the numbers of its tree (-1: none) and its name; -1 for none.

        Cost: columns, and a look at each distinct pair of numbers.
        """
        width = len(self._texts)
        pairs = np.where(trees < 0, -1, trees * width + names)
        size = len(self._trees) * width
        # A table of all pairs would be larger than the pods themselves.
        if size > _MANY + 4 * len(pairs):
            distinct, pair_of = np.unique(pairs, return_inverse=True)
            return np.array([self._position(pair, width) for pair in distinct.tolist()], np.int64)[pair_of]
        if len(self._known) != size + 1 or self._width != width:
            self._width = width
            self._known = np.full(size + 1, _UNKNOWN, np.int64)
            self._known[-1] = NONE  # the pair -1, a pod without a tree
        found: Int64s = self._known[pairs]
        unknown = np.unique(pairs[found == _UNKNOWN])
        if len(unknown):
            self._known[unknown] = [self._position(pair, width) for pair in unknown.tolist()]
            found = self._known[pairs]
        return found

    def _position(self, pair: int, width: int) -> int:
        return NONE if pair < 0 else self._trees[pair // width].get(self._texts[pair % width], NONE)
