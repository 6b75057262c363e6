"""Remembering what was made of each object, by the object's identity.

Api objects are frozen, so the same object means the same facts. A shelf holds its objects, therefore no identity is ever used twice.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import attrgetter, eq, is_
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
        self._by_identity: dict[int, Cell] = {}

    def put(self, sources: Sequence[Source], read: Callable[[Source], Cell]) -> bool:
        """Take stock of ``sources``, in any order, and ``read`` those that are new. Return whether anything changed.

        Cost: linear in the number of objects; sorting costs only for the new ones.
        Raises: InputError for two objects of one kind, namespace and name.
        """
        if len(sources) == len(self._sources) and all(map(is_, sources, self._sources)):
            return False
        present: dict[int, Cell] = {}
        fresh: list[Cell] = []
        known = self._by_identity
        for source in sources:
            identity = id(source)
            cell = known.get(identity)
            if cell is None:
                cell = read(source)
                fresh.append(cell)
            present[identity] = cell
        kept = [cell for cell in self.cells if id(cell.source) in present]
        cells = sorted(kept + fresh, key=_order) if fresh else kept
        if fresh or len(cells) != len(sources):
            _refuse_doubles(cells, sources)
        self.cells, self._sources, self._by_identity = cells, sources, present
        return True


_order = attrgetter("order")


def _refuse_doubles(cells: Sequence[HasSource], sources: Sequence[ApiObject]) -> None:
    if len(cells) != len(sources):  # one and the same object more than once
        twice = Counter(map(id, sources)).most_common(1)[0][0]
        raise next(_double(cell.source, cell.source) for cell in cells if id(cell.source) == twice)
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
