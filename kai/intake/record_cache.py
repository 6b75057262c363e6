"""A cache of the record made from each object, by the object's identity.

Api objects are frozen, so the same object means the same facts. A cache keeps its objects alive, so no identity is
reused.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, count, pairwise
from operator import attrgetter, eq, is_not
from typing import Final, Generic, Protocol, TypeVar

import numpy as np

from kai.api.cluster_objects import Listing
from kai.api.kinds import ApiObject, key_of, title
from kai.basics.errors import InputError
from kai.facts.state.table_version import TableVersion

_FEW: Final = 64
"""Up to this many changes are always applied one by one."""
_MOST_AHEAD: Final = 1 << 18
"""The most records that are made ahead, should no cycle ever use them."""


class HasSource(Protocol):
    """A record: intake's result for one object."""

    @property
    def source(self) -> ApiObject:
        """Return the object."""

    @property
    def order(self) -> tuple[str, str]:
        """Return the sort key of rows; it is unique within a kind."""


Source = TypeVar("Source", bound=ApiObject)
Record = TypeVar("Record", bound=HasSource)


class RecordCache(Generic[Source, Record]):
    """The records of all objects of one kind, in row order."""

    def __init__(self, order: Callable[[Source], tuple[str, str]] | None = None) -> None:
        """Make a cache whose records mostly have this order; by default namespace and name."""
        self.records: list[Record] = []
        """Records in row order; always the same list."""
        self.version = TableVersion()
        """The version of the table of records."""
        self.reading: Source | None = None
        """The object that is being read; after a failure, the one that failed."""
        self._sources: Sequence[Source] = ()
        self._mark: object = None
        """The mark of the sources, if they are a listing."""
        self._order = key_of if order is None else order
        self._elsewhere: dict[int, Record] = {}
        """Records whose order differs from that of their objects' names, by the identity of the object."""
        self._ahead: dict[int, Record] = {}
        """Records made ahead of `put`, by identity; a record keeps its object alive, so no identity is reused."""
        self._latest: dict[tuple[str, str], int] = {}
        """The identity of the object that was read ahead last under a name."""

    def read_ahead(self, source: Source, read: Callable[[Source], Record]) -> None:
        """Make the record of an object ahead of its `put`.

        Holds: there is no other effect. A record that the next `put` does not use is dropped, and so is one that a
            newer object of the same name replaces before.
        """
        at = id(source)
        if len(self._ahead) < _MOST_AHEAD and not self._is_known(source):
            record = self._ahead[at] = read(source)
            before = self._latest.get(record.order)
            if before is not None and before != at:
                del self._ahead[before]
            self._latest[record.order] = at

    def put(self, sources: Sequence[Source], read: Callable[[Source], Record]) -> bool:
        """Replace the objects by ``sources``, in any order, and ``read`` the new ones. Return whether anything changed.

        Cost: a comparison of identities, and little more for as many objects as came and went.
        Raises: InputError for two objects of one kind, namespace and name.
        """
        before = self._sources
        ahead, self._ahead = self._ahead, {}
        self._latest.clear()
        if sources is before:
            return False
        # A listing of the store knows what changed since the last one: then no identity is compared.
        if isinstance(sources, Listing) and sources.before is not None and sources.before is self._mark:
            gone, come = list(sources.gone), list(sources.come)
        else:
            gone, come = _difference(before, sources)
        if len(sources) != len(before) - len(gone) + len(come):  # the same object more than once
            twice = Counter(map(id, sources)).most_common(1)[0][0]
            raise next(_double(source, source) for source in sources if id(source) == twice)
        mark = sources.mark if isinstance(sources, Listing) else None
        if not gone and not come:
            self._sources, self._mark = sources, mark
            return False
        fresh = self._records_of(come, ahead, read)
        # Few changes are made one by one; beyond that, sorting anew costs less.
        if len(gone) + len(fresh) > _FEW + len(self.records) // 8:
            if gone or not self._insert(fresh):
                self._sort(gone, fresh)
        else:
            self._merge(gone, fresh)
        for source in gone if self._elsewhere else ():
            self._elsewhere.pop(id(source), None)
        for source, record in zip(come, fresh, strict=True):
            if record.order != self._order(source):
                self._elsewhere[id(source)] = record
        self._sources, self._mark = sources, mark
        return True

    def _records_of(
        self, come: Sequence[Source], ahead: dict[int, Record], read: Callable[[Source], Record]
    ) -> list[Record]:
        """Return a record of each object: most were made ahead, the others are read now."""
        found = list(map(ahead.get, map(id, come)))
        fresh: list[Record] = []
        # The loop variable is the attribute itself: if `read` raises, it names the object.
        for self.reading, record in zip(come, found, strict=True) if None in found else ():
            fresh.append(read(self.reading) if record is None else record)
        self.reading = None
        return fresh or [record for record in found if record is not None]

    def _merge(self, gone: Iterable[Source], fresh: Iterable[Record]) -> None:
        """Remove records and insert others, one by one."""
        records = self.records
        leaving = set(self._rows_of(sorted(map(self._order_of, gone))))
        arriving = sorted(fresh, key=_order)
        _refuse_doubles(arriving)
        rows = self._rows_of(map(_order, arriving))
        replaced = set[int]()
        inserted = Counter[int]()
        for row, record in zip(rows, arriving, strict=True):
            if row < len(records) and records[row].order == record.order:
                if row not in leaving:
                    raise _double(records[row].source, record.source)
                leaving.remove(row)
                replaced.add(row)
            else:
                inserted[row] += 1
        mark, count = self.version.mark, len(records)
        if not leaving and not inserted:
            fresh_rows = np.array(sorted(replaced), np.int64)
            self._advance(TableVersion(before=mark, fresh=fresh_rows), arriving)
        else:
            self._advance(TableVersion.of_changes(mark, count, inserted, replaced, leaving), arriving)

    def _insert(self, fresh: Iterable[Record]) -> bool:
        """Insert many records in a few runs; do nothing if they do not form runs. Return whether it was done.

        Pods of new jobs form runs: their names have a common prefix.
        """
        records = self.records
        arriving = sorted(fresh, key=_order)
        orders = list(map(_order, arriving))
        if any(map(eq, orders, orders[1:])):
            _refuse_doubles(arriving)
        inserted: dict[int, int] = {}
        at = row = 0
        while at < len(orders):
            if len(inserted) > _FEW:
                return False
            row = bisect_left(records, orders[at], row, key=_order)
            end = len(orders)
            if row < len(records):
                if records[row].order == orders[at]:
                    raise _double(records[row].source, arriving[at].source)
                end = bisect_left(orders, records[row].order, at)
            inserted[row] = end - at
            at = end
        version = TableVersion.of_changes(self.version.mark, len(records), inserted, frozenset(), frozenset())
        self._advance(version, arriving)
        return True

    def _sort(self, gone: Iterable[Source], fresh: Iterable[Record]) -> None:
        """Sort all records again: sorting is fast where much is in order already."""
        leaving = set(map(self._order_of, gone))
        staying = [row for row, record in enumerate(self.records) if record.order not in leaving] if leaving else None
        kept = self.records if staying is None else [self.records[row] for row in staying]
        records = [*kept, *fresh]
        orders = list(map(_order, records))
        # Sort places rather than records, so that each row's old place is known without a look-up for each record.
        places = sorted(range(len(records)), key=orders.__getitem__)
        ordered = [orders[place] for place in places]
        if any(map(eq, ordered, ordered[1:])):
            _refuse_doubles([records[place] for place in places])
        rows = np.full(len(records), -1, np.int64)
        rows[: len(kept)] = np.arange(len(kept)) if staying is None else staying
        source = rows[np.array(places, np.int64)]
        new = np.flatnonzero(source < 0).astype(np.int64)
        version = TableVersion(before=self.version.mark, source=source, fresh=new)
        self._advance(version, [records[places[row]] for row in new.tolist()])

    def _advance(self, version: TableVersion, fresh: Sequence[Record]) -> None:
        version.carry(self.records, fresh)
        self.version = version

    def _is_known(self, source: Source) -> bool:
        """Return whether there is a record of this very object. Cost: two microseconds among 100,000."""
        row = bisect_left(self.records, self._order_of(source), key=_order)
        return row < len(self.records) and self.records[row].source is source

    def _order_of(self, source: Source) -> tuple[str, str]:
        elsewhere = self._elsewhere.get(id(source))
        return self._order(source) if elsewhere is None else elsewhere.order

    def _rows_of(self, orders: Iterable[tuple[str, str]]) -> list[int]:
        """Return the row of each, or the row before which it belongs. Cost: little for one that follows the last."""
        records, rows, at, count = self.records, list[int](), 0, len(self.records)
        for order in orders:
            if at < count and records[at].order < order:
                at += 1
                if at < count and records[at].order < order:
                    at = bisect_left(records, order, at, key=_order)
            rows.append(at)
        return rows


def _difference(before: Sequence[Source], after: Sequence[Source]) -> tuple[list[Source], list[Source]]:
    """Return the objects only in the first sequence, and the objects only in the second, each in order.

    Cost: comparisons of identities for a common prefix and suffix, a set for the rest.
    """
    if len(before) == len(after):
        changed = list(compress(count(), map(is_not, after, before)))
        old, new = [before[at] for at in changed], [after[at] for at in changed]
    else:
        least = min(len(before), len(after))
        first = next(compress(count(), map(is_not, after, before)), least)
        # New objects mostly follow the old ones; only if not, the common suffix needs to be compared.
        ends = compress(count(), map(is_not, reversed(after), reversed(before))) if first < least else iter(())
        last = min(next(ends, least), least - first)
        old, new = list(before[first : len(before) - last]), list(after[first : len(after) - last])
    old_ids, new_ids = set(map(id, old)), set(map(id, new))
    if old_ids.isdisjoint(new_ids):
        return old, new
    gone, come = old_ids - new_ids, new_ids - old_ids
    return [each for each in old if id(each) in gone], [each for each in new if id(each) in come]


_order = attrgetter("order")


def by_name(source: ApiObject) -> tuple[str, str]:
    """Return the sort key of kinds that are ordered by name first."""
    return source.metadata.name, source.metadata.namespace


def _refuse_doubles(records: Sequence[HasSource]) -> None:
    orders = list(map(_order, records))
    if any(map(eq, orders, orders[1:])):
        raise next(_double(one.source, other.source) for one, other in pairwise(records) if one.order == other.order)


def _double(one: ApiObject, other: ApiObject) -> InputError:
    found = f"uid {one.metadata.uid} and uid {other.metadata.uid}"
    return InputError.about(title(one), "metadata.name", found=found, wanted="one object of this kind and name")


def in_order(sources: Iterable[Source]) -> list[Source]:
    """Return objects of one kind by namespace and name.

    Raises: InputError if two have the same.
    """
    ordered = sorted(sources, key=key_of)
    for one, other in pairwise(ordered):
        if key_of(one) == key_of(other):
            raise _double(one, other)
    return ordered
