"""What one snapshot leaves to the next: answers that hold for as long as what they were made of stays the same.

Facts are immutable, so an answer is as good as new while its inputs are the very same objects. A memory therefore
keeps each answer with its inputs and compares identities; so no caller has to say what became invalid.

Kinds of pods: which scheduler they name, and which labels they have, whatever their values.

There are few, so a question about either is asked once for each kind and not for each pod.

Sequences of frozen objects that share what did not change with the sequence that they came from.

To copy a tuple of a hundred thousand objects is to touch each of them, which takes milliseconds. An ``Items`` copies a
column of numbers instead.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import is_
from typing import Final, TypeAlias, TypeVar, cast, overload

import attrs
import numpy as np

from kai.model.axis import Int64s, locked
from kai.model.pod import Pod
from kai.state.table_version import Carried, Carrier, TableVersion

PodKind: TypeAlias = tuple[str, ...]
"""The scheduler that a pod names, and then the names of its labels."""


@attrs.frozen(eq=False)
class PodKinds:
    """The kinds of all pods of a snapshot."""

    numbers: Int64s
    """[P] The number of each pod's kind; the same array for as long as the pods are the same."""
    kinds: tuple[PodKind, ...]

    @classmethod
    def of(cls, pods: Iterable[Pod]) -> "PodKinds":
        """Number the kinds of ``pods`` afresh. Cost: O(P)."""
        known: dict[PodKind, int] = {}
        numbers = [known.setdefault((pod.scheduler, *pod.labels), len(known)) for pod in pods]
        return cls(np.array(numbers, np.int64), tuple(known))


T = TypeVar("T")

_FEW: Final = 64
_PAST: Final = 32
"""One item of so many may be of the past: it is held for no reader, and a list is made anew once there are more."""


class Items(Sequence[T]):
    """An immutable sequence: a column of places in a list that only grows, and that several sequences share.

    Cost: of an item, two look-ups; of all, little more than of a tuple's.
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
        """Return what a tuple of the items returns."""
        return hash(tuple(self))

    def next(self, version: TableVersion, fresh: Sequence[T]) -> "Items[T] | None":
        """Return the items of the version after this one; None if too much of the list would be of the past."""
        first = len(self._store)
        if first + len(fresh) > _FEW + len(self) + len(self) // _PAST:
            return None
        self._store.extend(fresh)
        rows = np.arange(first, len(self._store))
        return Items(self._store, self._carried.next(version, version.count(len(self)), rows))


def carried_items(values: Sequence[T], version: TableVersion, fresh: Sequence[T]) -> Sequence[T]:
    """Return values of the version before, with rows where they are now and ``fresh`` in the fresh ones.

    They are a tuple after many changes and share after few; readers need not tell the two apart.

    Cost: of what is fresh, and of a column of numbers; after many changes O(n).
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
    """What was made of each of some items, with what it was made of besides."""

    items: Sequence[object]
    inputs: tuple[object, ...]
    made: tuple[object, ...]


@attrs.define(eq=False)
class Memory:
    """Answers by name. The snapshots of one intake share a memory; every other snapshot has one of its own.

    Holds: one thread at a time opens sessions on snapshots that share a memory, since these hand their books on in it;
        other threads look at ``Snapshot.apart``.
    """

    rows: Carrier = attrs.field(factory=Carrier)
    """Columns that follow row by row from pods, groups or nodes."""
    _answers: dict[str, tuple[tuple[object, ...], object]] = attrs.field(factory=dict)
    _each: dict[str, _Each] = attrs.field(factory=dict)

    def once(self, name: str, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what was made under ``name`` of the very same ``inputs``; make it if one of them is another object.

        Holds: ``make`` depends on nothing but ``inputs``, and its answer is not changed afterwards. The inputs are
            kept, so no identity is used twice.
        """
        known = self._answers.get(name)
        if known is None or len(known[0]) != len(inputs) or not all(map(is_, known[0], inputs)):
            known = self._answers[name] = (inputs, make())
        return cast("T", known[1])

    def each(
        self, name: str, items: Sequence[Item], make: Callable[[Item], T], inputs: tuple[object, ...] = ()
    ) -> tuple[T, ...]:
        """Return what ``make`` makes of each of ``items``; it is asked about those alone that are new.

        Holds: as for ``once``; ``inputs`` are what all answers depend on besides their items.
        Cost: nothing for the very same sequence, else a look-up for each item.
        """
        known = self._each.get(name)
        if known is None or len(known.inputs) != len(inputs) or not all(map(is_, known.inputs, inputs)):
            made = tuple(map(make, items))
        elif known.items is items:
            return cast("tuple[T, ...]", known.made)
        else:
            before = cast("dict[int, T]", dict(zip(map(id, known.items), known.made, strict=True)))
            made = tuple([before[id(item)] if id(item) in before else make(item) for item in items])
        self._each[name] = _Each(items, inputs, made)
        return made

    def fresh(self, name: str, inputs: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return what is made anew under ``name``, and kept from now on."""
        made = make()
        self._answers[name] = (inputs, made)
        return made

    def recall(self, name: str) -> object | None:
        """Return what was kept last under ``name``, whatever it was made of; None for nothing."""
        known = self._answers.get(name)
        return None if known is None else known[1]

    def keep(self, name: str, value: object) -> None:
        """Keep ``value`` under ``name`` for a caller that can tell whether it still holds."""
        self._answers[name] = ((), value)


def even_steps(memory: Memory, step: int, count: int) -> Int64s:
    """Return int64[count]: 0, ``step``, twice the step and so on, not to be written; the first ones of what is kept."""
    known = memory.recall(_STEPS)
    if not isinstance(known, np.ndarray) or len(known) < max(count, 2) or known[1] != step:
        known = locked(np.arange(count + count // 16 + 2) * step)
        memory.keep(_STEPS, known)
    steps: Int64s = known[:count]
    return steps


@attrs.frozen(eq=False, kw_only=True)
class SnapshotVersions:
    """Where a snapshot comes from: what it shares with those before it."""

    memory: Memory = attrs.field(factory=Memory)
    content: object = attrs.field(factory=object)
    """The same object for as long as all facts are, that is everything but ``now`` and ``revision``."""
    pods: TableVersion = attrs.field(factory=TableVersion)
    assigned: TableVersion = attrs.field(factory=TableVersion)
    """Of pods as well. In rows that are not fresh, shape, status, node, group and sub-group are what they were."""
    groups: TableVersion = attrs.field(factory=TableVersion)
    nodes: TableVersion = attrs.field(factory=TableVersion)
    kinds: PodKinds | None = None
    """None: the kinds of pods are not numbered yet."""
