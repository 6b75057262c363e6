"""What one snapshot leaves to the next: answers that hold for as long as what they were made of stays the same.

Facts are immutable, so an answer is as good as new while its inputs are the very same objects. A memory therefore
keeps each answer with its inputs and compares identities; so no caller has to say what became invalid.
"""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Final, TypeVar, cast

import attrs
import numpy as np

from kai.model.rows import Int64s, locked
from kai.state.kinds import PodKinds
from kai.state.table_version import Carrier, TableVersion

_STEPS: Final = "even steps"

T = TypeVar("T")
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
