"""Remembering what was made of each object, by the object's identity.

Api objects are frozen, so the same object means the same facts. A shelf holds its objects, therefore no identity is
ever used twice.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress, count, pairwise
from operator import attrgetter, eq, is_not
from typing import Generic, Protocol, TypeVar

from kai.api.kinds import ApiObject, title
from kai.errors import InputError


class HasSource(Protocol):
    """What intake made of one object."""

    @property
    def source(self) -> ApiObject:
        """Return the object."""

    @property
    def order(self) -> tuple[str, str]:
        """Return what rows are sorted by; no two cells of a kind have the same."""


Source = TypeVar("Source", bound=ApiObject)
Cell = TypeVar("Cell", bound=HasSource)


class Shelf(Generic[Source, Cell]):
    """The cells of all objects of one kind, in row order."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        """In row order. A new list whenever a cell is new or gone."""
        self._sources: Sequence[Source] = ()
        self._known: dict[int, Cell] = {}

    def put(self, sources: Sequence[Source], read: Callable[[Source], Cell]) -> bool:
        """Take stock of ``sources``, in any order, and ``read`` those that are new. Return whether anything changed.

        Cost: a comparison of identities, and little more for changed objects that kept their positions; else linear.
        Raises: InputError for two objects of one kind, namespace and name.
        """
        before = self._sources
        if len(sources) == len(before):
            changed = list(compress(count(), map(is_not, sources, before)))
            if not changed:
                return False
        else:
            changed = []
        fresh = {
            id(source): read(source) for source in map(sources.__getitem__, changed) if id(source) not in self._known
        }
        if not (changed and self._replace([before[at] for at in changed], [sources[at] for at in changed], fresh)):
            self._rearrange(sources, read, fresh)
        self._sources = sources
        return True

    def _replace(self, old: Sequence[Source], new: Sequence[Source], fresh: Mapping[int, Cell]) -> bool:
        """Put new objects into the rows of old ones; return False, with nothing done, where that is not enough."""
        cells = self.cells.copy()
        for gone, come in zip(old, new, strict=True):
            cell = fresh.get(id(come))
            if cell is None or cell.order != self._known[id(gone)].order:
                return False
            cells[bisect_left(cells, cell.order, key=_order)] = cell
        for gone in old:
            del self._known[id(gone)]
        self._known.update(fresh)
        self.cells = cells
        return True

    def _rearrange(self, sources: Sequence[Source], read: Callable[[Source], Cell], fresh: dict[int, Cell]) -> None:
        """Sort all cells anew; ``fresh`` are those that were already read."""
        known = self._known
        identities = list(map(id, sources))
        for at in [at for at, cell in enumerate(map(known.get, identities)) if cell is None]:
            if identities[at] not in fresh:
                fresh[identities[at]] = read(sources[at])
        gone = known.keys() - identities
        kept = [cell for cell in self.cells if id(cell.source) not in gone] if gone else self.cells
        cells = sorted(kept + list(fresh.values()), key=_order)
        if len(cells) != len(sources):  # one and the same object more than once
            twice = Counter(identities).most_common(1)[0][0]
            raise next(_double(source, source) for source in sources if id(source) == twice)
        _refuse_doubles(cells)
        for identity in gone:
            del known[identity]
        known.update(fresh)
        self.cells = cells


_order = attrgetter("order")


def _refuse_doubles(cells: Sequence[HasSource]) -> None:
    orders = list(map(_order, cells))
    if any(map(eq, orders, orders[1:])):
        raise next(_double(one.source, other.source) for one, other in pairwise(cells) if one.order == other.order)


def _double(one: ApiObject, other: ApiObject) -> InputError:
    found = f"uid {one.metadata.uid} and uid {other.metadata.uid}"
    return InputError.about(title(one), "metadata.name", found=found, wanted="one object of this kind and name")


def in_order(sources: Iterable[Source]) -> list[Source]:
    """Return objects of one kind by namespace and name.

    Raises: InputError if two have the same.
    """
    ordered = sorted(sources, key=lambda source: (source.metadata.namespace, source.metadata.name))
    for one, other in pairwise(ordered):
        if (one.metadata.namespace, one.metadata.name) == (other.metadata.namespace, other.metadata.name):
            raise _double(one, other)
    return ordered
