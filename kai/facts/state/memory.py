"""The memory of snapshots: memoized answers that hold while their inputs are the same objects.

Facts are immutable, so an answer is valid while its inputs are the very same objects. A memory therefore keeps each
answer with its inputs and compares identities; no caller has to invalidate anything.

``PodKinds`` numbers pods by their scheduler name and label names. Kinds are few, so a question about these is asked
once per kind and not per pod.

``Items`` is a sequence of frozen objects that shares unchanged items with the sequence before it. Copying a tuple of a
hundred thousand objects touches each of them, which takes milliseconds; an ``Items`` copies a column of numbers.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Final, TypeAlias, TypeVar, cast, overload

import attrs
import numpy as np

from kai.facts.model.axis import Int64s, locked
from kai.facts.model.pod import Pod
from kai.facts.state.table_version import Carried, Carrier, TableVersion

PodKind: TypeAlias = tuple[str, ...]
"""The name of a pod's scheduler, followed by the names of its labels."""


@attrs.frozen(eq=False)
class PodKinds:
    """The kinds of all pods of a snapshot."""

    numbers: Int64s
    """[P] The number of each pod's kind; the same array as long as the pods are the same."""
    kinds: tuple[PodKind, ...]

    @classmethod
    def of(cls, pods: Iterable[Pod]) -> "PodKinds":
        """Number the kinds of ``pods`` from scratch. Cost: O(P)."""
        known: dict[PodKind, int] = {}
        numbers = [known.setdefault((pod.scheduler, *pod.labels), len(known)) for pod in pods]
        return cls(np.array(numbers, np.int64), tuple(known))


T = TypeVar("T")

_FEW: Final = 64
_PAST: Final = 32
"""At most one in this many items may be stale, that is, in no sequence any more; beyond that, a new list is made."""


class Items(Sequence[T]):
    """An immutable sequence: a column of positions in an append-only list that several sequences share.

    Cost: two look-ups for one item; little more than a tuple for all.
    """

    __slots__ = ("_carried", "_places", "_store")

    def __init__(self, store: list[T], places: Carried) -> None:
        self._store = store
        self._carried = places
        self._places: Int64s = places.column

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, row: int) -> T: ...

    @overload
    def __getitem__(self, row: slice) -> Sequence[T]: ...

    def __getitem__(self, row: int | slice) -> T | Sequence[T]:
        """Return one item, or some as a tuple."""
        if isinstance(row, slice):
            return tuple(map(self._store.__getitem__, self._places[row].tolist()))
        place: int = self._places[row]
        return self._store[place]

    def __iter__(self) -> Iterator[T]:
        return map(self._store.__getitem__, self._places.tolist())

    def __eq__(self, other: object) -> bool:
        """Return whether ``other`` has equal items; a tuple may."""
        return isinstance(other, Items | tuple) and len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        """Return the hash of a tuple of the items."""
        return hash(tuple(self))

    def next(self, version: TableVersion, fresh: Sequence[T]) -> "Items[T] | None":
        """Return the items of the next version; None if too much of the list would be stale."""
        first = len(self._store)
        # The list only grows, and stale items keep their objects alive.
        if first + len(fresh) > _FEW + len(self) + len(self) // _PAST:
            return None
        self._store.extend(fresh)
        rows = np.arange(first, len(self._store))
        return Items(self._store, self._carried.next(version, version.count(len(self)), rows))


def carried_items(values: Sequence[T], version: TableVersion, fresh: Sequence[T]) -> Sequence[T]:
    """Return the values of the version before with rows in their new places, and ``fresh`` in the fresh rows.

    The result is a tuple after many changes, and shares memory after few; readers need not distinguish the two.

    Cost: that of fresh rows, and of a column of numbers; after many changes O(n).
    """
    if len(fresh) <= _FEW + len(values) // 8:
        shared = values if isinstance(values, Items) else Items(list(values), Carried.of(np.arange(len(values))))
        after = shared.next(version, fresh)
        if after is not None:
            return after
    return tuple(version.carried_list(values, fresh))


def replaced(values: Sequence[T], changed: dict[int, T]) -> Sequence[T]:
    """Return ``values`` with other items in some rows."""
    rows = np.array(sorted(changed), np.int64)
    return carried_items(values, TableVersion(fresh=rows), [changed[row] for row in rows.tolist()])


_STEPS: Final = "even steps"

Item = TypeVar("Item")


@attrs.frozen(eq=False)
class _Each:
    """The results for each of some items, and their other inputs."""

    items: Sequence[object]
    inputs: tuple[object, ...]
    made: tuple[object, ...]


@attrs.define(eq=False)
class Memory:
    """Memoized answers by name. The snapshots of one intake share a memory; any other snapshot has its own.

    Holds: only one thread at a time opens sessions on snapshots that share a memory, because sessions pass their books
        on in it. Other threads use ``Snapshot.apart``.
    """

    rows: Carrier = attrs.field(factory=Carrier)
    """Columns that derive row by row from pods, groups or nodes."""
    _answers: dict[str, tuple[tuple[object, ...], object]] = attrs.field(factory=dict)
    _each: dict[str, _Each] = attrs.field(factory=dict)

    def once(self, name: str, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the memoized result of ``make`` for ``name`` and ``inputs``; call it if an input is another object.

        Holds: ``make`` depends only on ``inputs``, and its result is not changed afterwards. The inputs are kept alive,
            so no identity is reused.
        """
        known = self._answers.get(name)
        if known is None or len(known[0]) != len(inputs) or not all(map(is_, known[0], inputs)):
            # Only the last answer is kept: a question with two sets of inputs in turn needs two names.
            known = self._answers[name] = (inputs, make())
        return cast("T", known[1])

    def each(
        self, name: str, items: Sequence[Item], make: Callable[[Item], T], inputs: tuple[object, ...] = ()
    ) -> tuple[T, ...]:
        """Return the results of ``make`` for each of ``items``; it is called for new items only.

        Holds: as for ``once``; ``inputs`` are what all results depend on besides their items.
        Cost: nothing for the very same sequence, else one look-up per item.
        """
        known = self._each.get(name)
        if known is None or len(known.inputs) != len(inputs) or not all(map(is_, known.inputs, inputs)):
            made = tuple(map(make, items))
        elif known.items is items:
            return cast("tuple[T, ...]", known.made)
        else:
            # `known` keeps the items alive, so an identity cannot be that of another one.
            before = cast("dict[int, T]", dict(zip(map(id, known.items), known.made, strict=True)))
            made = tuple([before[id(item)] if id(item) in before else make(item) for item in items])
        self._each[name] = _Each(items, inputs, made)
        return made

    def fresh(self, name: str, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """Call ``make``, and memoize its result under ``name``."""
        made = make()
        self._answers[name] = (inputs, made)
        return made

    def recall(self, name: str) -> object | None:
        """Return the last value under ``name``, whatever its inputs were; None if there is none."""
        known = self._answers.get(name)
        return None if known is None else known[1]

    def keep(self, name: str, value: object) -> None:
        """Store ``value`` under ``name``; the caller must know whether it still holds."""
        self._answers[name] = ((), value)


def even_steps(memory: Memory, step: int, count: int) -> Int64s:
    """Return int64[count]: 0, ``step``, 2 * ``step`` and so on, read-only; a prefix of the cached array."""
    known = memory.recall(_STEPS)
    # Two at least, since the second tells the step of the array.
    if not isinstance(known, np.ndarray) or len(known) < max(count, 2) or known[1] != step:
        known = locked(np.arange(count + count // 16 + 2) * step)
        memory.keep(_STEPS, known)
    steps: Int64s = known[:count]
    return steps


@attrs.frozen(eq=False, kw_only=True)
class SnapshotVersions:
    """What a snapshot shares with those before it."""

    memory: Memory = attrs.field(factory=Memory)
    content: object = attrs.field(factory=object)
    """The same object as long as all facts are the same but ``now``, ``revision`` and what of budgets is left."""
    pods: TableVersion = attrs.field(factory=TableVersion)
    assigned: TableVersion = attrs.field(factory=TableVersion)
    """The version of pod assignments: in rows not fresh, shape, status, node, group and sub-group are unchanged."""
    groups: TableVersion = attrs.field(factory=TableVersion)
    nodes: TableVersion = attrs.field(factory=TableVersion)
    kinds: PodKinds | None = None
    """None: the kinds of pods are not numbered yet."""
