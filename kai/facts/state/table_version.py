"""Versions of a table: which rows are unchanged, so that columns derived from rows can be carried over.

Each state of a table of pods, groups or nodes is a version. A version knows where its rows were in the version before.
Values that were derived row by row are carried over, and only fresh rows are read.

    before   a  b  d  e          rows of the version before
    source   0  1 -1  2 -1       where each row was: c is inserted, e is another object now
    now      a  b  c  d  e'
    fresh    2, 4
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import pairwise
from sys import getrefcount
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from kai.facts.model.axis import Bools, Int64s, locked

T = TypeVar("T")
OWN: Final = 2
"""References to an array that only an attribute holds, as counted during the call: the attribute and the argument."""
_FEW: Final = 64
"""Up to this many places are changed one by one."""
_MOST_RUNS: Final = 2 * _FEW
"""Up to this many runs of rows are copied one by one; if there are more, all rows are fetched together."""
Column = NDArray[Any]
Run: TypeAlias = tuple[int, int, int]
"""The first row, the end, and the row where the first one was before."""


@attrs.frozen(eq=False, kw_only=True)
class TableVersion:
    """One state of a table. Rows are in the table's order in every version."""

    before: object = None
    """The mark of the version before this one; None: nothing can be carried over."""
    _source: Int64s | None = None
    """Where each row was, for a version without known runs."""
    fresh: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """Rows whose object is new, ascending."""
    mark: object = attrs.field(factory=object)
    known_runs: tuple[Run, ...] | None = None
    """The runs of rows that moved together, if the maker of the version knows them."""
    _run_rows: int = 0
    """The number of rows, for a version with known runs."""

    @classmethod
    def of_changes(
        cls,
        before: object,
        count: int,
        inserted: Mapping[int, int],
        replaced: AbstractSet[int],
        removed: AbstractSet[int],
    ) -> "TableVersion":
        """Return the version after one with the mark ``before`` and ``count`` rows.

        ``inserted`` maps a row to the number of rows inserted before it. Rows in ``replaced`` have other objects now;
        rows in ``removed`` are gone.

        Cost: little for each changed place; a column of numbers if there are many.
        """
        runs: list[Run] = []
        fresh: list[int] = []
        at = now = 0
        for row in sorted({*inserted, *replaced, *removed}):
            if row > at:
                runs.append((now, now + row - at, at))
                now += row - at
            # What is inserted goes before the row that was there, so a replaced row is the last of the fresh ones at
            # its place.
            came = inserted.get(row, 0) + (row in replaced)
            fresh.extend(range(now, now + came))
            now += came
            at = row + (row in replaced or row in removed)
        if count > at:
            runs.append((now, now + count - at, at))
            now += count - at
        rows = np.array(fresh, np.int64)
        if len(runs) <= _MOST_RUNS:
            return cls(before=before, fresh=rows, known_runs=tuple(runs), run_rows=now)
        source = np.arange(now)
        source[rows] = -1
        first, end, start = np.array(runs, np.int64).T
        # Each row first holds its own place; the distance that its run moved gives the place before.
        source[source >= 0] += np.repeat(start - first, end - first)
        return cls(before=before, source=source, fresh=rows)

    @cached_property
    def source(self) -> Int64s | None:
        """[rows] Where each row was, -1 for fresh rows; None: every row kept its place."""
        if self.known_runs is None:
            return self._source
        source = np.full(self._run_rows, -1, np.int64)
        for first, end, before in self.known_runs:
            source[first:end] = np.arange(before, before + end - first)
        return source

    @property
    def has_kept_places(self) -> bool:
        """Whether every row is in the same place as before."""
        return self.known_runs is None and self._source is None

    def carried(self, column: Column) -> Column:
        """Return a copy of a column of the version before with rows in their new places; fresh rows are arbitrary."""
        if self.has_kept_places:
            return column.copy()
        # Fresh rows are left arbitrary: the caller writes all of them, so clearing the array would be a pass for
        # nothing.
        runs, rows = self._runs, self._count
        if not len(column):
            return np.zeros((rows, *column.shape[1:]), column.dtype)
        if runs is None:
            return column[self.source]
        out = np.empty((rows, *column.shape[1:]), column.dtype)
        for first, end, before in runs:
            out[first:end] = column[before : before + end - first]
        return out

    def rows_now(self, before: int) -> Int64s:
        """Return int64[before]: where each row of the version before is now, -1 for removed rows."""
        if self.has_kept_places:
            rows = np.arange(before)
            # The place is the same, but the object is another one: what was derived from the old object is not the
            # row's.
            rows[self.fresh] = -1
            return rows
        rows = np.full(before, -1, np.int64)
        if self._runs is None and self.source is not None:
            kept = np.flatnonzero(self.source >= 0)
            rows[self.source[kept]] = kept
        else:
            for first, end, start in self._runs or ():
                rows[start : start + end - first] = np.arange(first, end)
        return rows

    def count(self, before: int) -> int:
        """Return the number of rows; ``before`` is that of the version before."""
        return before if self.has_kept_places else self._count

    @property
    def _count(self) -> int:
        """The number of rows, if some changed places."""
        return self._run_rows if self.known_runs is not None or self._source is None else len(self._source)

    @cached_property
    def _runs(self) -> Sequence[Run] | None:
        """Runs of rows that moved together: first, end, and where the first was; None if there are too many.

        Copying a run takes half the time of fetching its rows one by one.
        """
        if self.known_runs is not None:
            return self.known_runs
        source = self.source
        if source is None or len(self.fresh) > _FEW:
            return None
        marked = source.copy()
        marked[self.fresh] = -2  # so that row 0 does not seem to follow a fresh row
        starts = np.flatnonzero(np.diff(marked, prepend=-4) != 1)
        if len(starts) > _MOST_RUNS:
            return None
        bounds = [*starts.tolist(), len(source)]
        return [(first, end, int(source[first])) for first, end in pairwise(bounds) if source[first] >= 0]

    def carried_list(self, values: Sequence[T], fresh: Sequence[T]) -> list[T]:
        """Return values of the version before with rows in their new places, and ``fresh`` in the fresh rows."""
        if self.source is None:
            out = list(values)
            for row, value in zip(self.fresh.tolist(), fresh, strict=True):
                out[row] = value
            return out
        source = self.source
        # Nothing stays, so there are no runs to copy.
        if len(fresh) == len(source):
            return list(fresh)
        out, new = [], 0
        same_run = np.where(source[1:] < 0, source[:-1] < 0, (np.diff(source) == 1) & (source[:-1] >= 0))
        for start, end in pairwise([0, *(np.flatnonzero(~same_run) + 1).tolist(), len(source)]):
            first = int(source[start])
            if first < 0:
                out += fresh[new : new + end - start]
                new += end - start
            else:
                out += values[first : first + end - start]
        return out

    def carry(self, values: list[T], fresh: Sequence[T]) -> None:
        """Update a list in place to the result of ``carried_list``. Cost: a move of pointers for each changed place."""
        most = _FEW + len(values) // 256
        places = self._gaps(len(values)) if self.known_runs is not None or len(self.fresh) <= most else ()
        if not 0 < len(places) <= most:
            # In place, because the garbage collector traverses a new long list, but not one of an old generation.
            values[:] = self.carried_list(values, fresh)
            return
        end = len(fresh)
        # From the end, so that earlier places keep their positions.
        for first, last, count in reversed(places):
            values[first:last] = fresh[end - count : end]
            end -= count

    def _gaps(self, before: int) -> list[tuple[int, int, int]]:
        """Return the gaps where rows of the version before gave way to fresh ones: first, end, fresh count."""
        if self.known_runs is not None:
            ends = [(0, 0), *((end, start + end - first) for first, end, start in self.known_runs)]
            begins = [*((first, start) for first, _, start in self.known_runs), (self._run_rows, before)]
            found = [(old, start, first - now) for (now, old), (first, start) in zip(ends, begins, strict=True)]
            return [gap for gap in found if gap[2] or gap[1] > gap[0]]
        source = self.source
        if source is None:
            return [(row, row + 1, 1) for row in self.fresh.tolist()]
        count, fresh = len(source), self.fresh
        # Rows next to a change; all others follow the same row as before.
        steps = np.flatnonzero(source[1:] - source[:-1] != 1)
        beside = np.unique(np.concatenate([[0, count - 1], steps, steps + 1, fresh - 1, fresh + 1]))
        beside = beside[(beside >= 0) & (beside < count)]
        beside = beside[source[beside] >= 0]
        rows = np.concatenate([[-1], beside, [count]])
        kept = np.concatenate([[-1], source[beside], [before]])
        arrived = np.diff(np.searchsorted(fresh, rows))
        changed = np.flatnonzero((np.diff(rows) - 1 == arrived) & ((arrived > 0) | (np.diff(kept) > 1)))
        return [(int(kept[at]) + 1, int(kept[at + 1]), int(arrived[at])) for at in changed.tolist()]

    def among(self, chosen_before: Bools, chosen: Bools) -> "TableVersion":
        """Return the version of the sub-table of ``chosen`` rows; the version before had ``chosen_before``.

        It is a view of the whole table and has its mark.
        """
        if chosen.all() and chosen_before.all():
            return self
        row_before = np.where(chosen_before, np.cumsum(chosen_before) - 1, -1)
        # A copy, because fresh rows are marked in it; the version's own array may be shared with other sub-tables.
        source = np.arange(len(chosen)) if self.source is None else self.source.copy()
        source[self.fresh] = -1
        rows = np.where(source >= 0, row_before[source], -1)[chosen] if len(row_before) else np.full(chosen.sum(), -1)
        # The runs of the whole table say nothing of the sub-table's rows.
        return attrs.evolve(
            self, known_runs=None, source=rows.astype(np.int64), fresh=np.flatnonzero(rows < 0).astype(np.int64)
        )


@attrs.define(eq=False)
class Carried:
    """One immutable column, carried from version to version.

    If a version changes few rows, the next column is not a copy. It reuses the memory of the version before last once
    no view of that is left, and writes only the rows that changed since.
    """

    column: Column
    _own: Column
    """The column, which owns its memory."""
    _alike: Column | None = None
    """A longer column with the same number in all rows, if all rows of this one are equal."""
    _past: Column | None = None
    """The memory of the version before."""
    _differing: Int64s | None = None
    """The rows in which that memory differs from this column."""

    @classmethod
    def of(cls, column: Column) -> "Carried":
        """Return a new column."""
        alike = column.ndim == 1 and len(column) > 0 and _is_all(column, column[:1])
        return cls(locked(column), column, column if alike else None)

    def next(self, version: TableVersion, count: int, values: Column) -> "Carried":
        """Return the column of the next version, with ``values`` in its fresh rows.

        Cost: that of the fresh rows if rows kept their places or all are equal; else a copy.
        """
        before, alike = self.column, self._alike
        # The very same column, hence the very same object: answers memoized by its identity stay valid, which is most
        # of what a quiet cycle saves.
        if version.has_kept_places and _are_same(before[version.fresh], values):
            return self
        if alike is not None and _is_all(values, alike[:1]):
            # With room to spare, so that a table which grows row by row seldom needs a new column.
            if len(alike) < count:
                alike = np.full(count + count // 16 + _FEW, alike[0], alike.dtype)
            return Carried(locked(alike[:count]), alike, alike)
        if not version.has_kept_places:
            column = version.carried(before)
            # Written before it is locked and shown: each column is written by its maker alone.
            column[version.fresh] = values
            return Carried(locked(column), column)
        column = self._taken()
        column[version.fresh] = values
        return Carried(locked(column), column, past=self._own, differing=version.fresh)

    def _taken(self) -> Column:
        """Return own memory with the same content: that of the version before if it is free, else a copy."""
        # A view holds a reference to its memory. The check passes the attribute itself rather than a local variable,
        # because newer Pythons do not count local variables.
        is_free = getrefcount(self._past) == OWN
        past, self._past = self._past, None
        if past is None or not is_free or past.base is not None or len(past) != len(self.column):
            return self.column.copy()
        # The memory is two versions behind: the rows that changed last time are brought up to date here, the caller
        # writes those of this time.
        past[self._differing] = self.column[self._differing]
        return past


def _are_same(one: Column, other: Column) -> bool:
    """Return whether two columns are equal bit for bit: NaN equals NaN, 0.0 differs from -0.0."""
    # Bits and not values: a column in which NaN means "never" would differ from itself, and every answer kept with it
    # would be lost.
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def _is_all(column: Column, first: Column) -> bool:
    """Return whether each row of ``column`` [n] equals ``first`` [1] bit for bit."""
    if column.dtype != first.dtype:
        return False
    bits = np.dtype(f"i{first.dtype.itemsize}")
    numbers, number = column.view(bits), first.view(bits)[0]
    # If rows differ, the last one mostly differs from the first, which saves a pass.
    return not len(numbers) or (bool(numbers[-1] == number) and bool((numbers == number).all()))


@attrs.define(eq=False)
class Carrier:
    """Columns by name, each carried from version to version."""

    _known: dict[str, tuple[object, tuple[object, ...], tuple[Carried, ...]]] = attrs.field(factory=dict)

    def columns(
        self,
        name: str,
        version: TableVersion,
        count: int,
        make: Callable[[Sequence[int]], tuple[Column, ...]],
        inputs: tuple[object, ...] = (),
    ) -> tuple[Column, ...]:
        """Return the columns that ``make`` reads from the objects of rows; only fresh rows are read if possible.

        Holds: ``make`` depends only on each row's object and on ``inputs`` (compared by identity). The columns are
            read-only, because versions share unchanged ones.
        Cost: a copy of each column whose rows moved and are not all equal.
        """
        known = self._known.get(name)
        same = known is not None and len(known[1]) == len(inputs) and all(map(_is, known[1], inputs))
        if known is None or not same or known[0] is not version.mark:
            # Other inputs mean another column even where the rows are the same, and a version that was skipped leaves
            # fresh rows unknown: both read all rows.
            if known is not None and same and version.before is not None and known[0] is version.before:
                values = make(version.fresh.tolist())
                carried = tuple(each.next(version, count, some) for each, some in zip(known[2], values, strict=True))
            else:
                carried = tuple(map(Carried.of, make(range(count))))
            known = self._known[name] = version.mark, inputs, carried
        return tuple([each.column for each in known[2]])


def _is(one: object, other: object) -> bool:
    return one is other
