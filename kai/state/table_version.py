"""Versions of a table: which rows stayed what they were, so that what follows from rows is carried over.

A table of pods, groups or nodes has one version for each state of it. A version knows how its rows came from those of
the version before; whatever was worked out row by row for that one is carried over, and only fresh rows are read.

    before   a  b  d  e          rows of the version before
    source   0  1 -1  2 -1       where each row was: c came, e is another object now
    now      a  b  c  d  e'
    fresh    2, 4
"""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from itertools import pairwise
from typing import Any, Final, TypeAlias, TypeVar

import attrs
import numpy as np
from numpy.typing import NDArray

from kai.model.rows import Bools, Int64s

T = TypeVar("T")
_FEW: Final = 64
"""Places up to this many are changed one by one."""
_MOST_RUNS: Final = 2 * _FEW
"""Up to so many runs of rows are copied one by one; of more, all rows are fetched together."""
Column = NDArray[Any]
Run: TypeAlias = tuple[int, int, int]
"""First, end, and where the first was."""


@attrs.frozen(eq=False, kw_only=True)
class TableVersion:
    """One state of a table. Rows are in the table's order in every version."""

    before: object = None
    """The mark of the version that this one came from; None: nothing can be carried over."""
    source: Int64s | None = None
    """[rows] Where each row was, -1 for fresh ones; None: every row kept its place."""
    fresh: Int64s = attrs.field(factory=lambda: np.zeros(0, np.int64))
    """Rows whose object is new, ascending."""
    mark: object = attrs.field(factory=object)
    told: tuple[Run, ...] | None = attrs.field(default=None, kw_only=True)
    """The runs of rows that still stand side by side, where the maker of the version knows them."""

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

        ``inserted``: how many rows came before which row; of the rows that there were, some are ``replaced`` by rows
        of other objects, and some ``removed``.

        Cost: two columns of numbers, and little more for each place that changed.
        """
        runs: list[Run] = []
        fresh: list[int] = []
        at = now = 0
        for row in sorted({*inserted, *replaced, *removed}):
            if row > at:
                runs.append((now, now + row - at, at))
                now += row - at
            came = inserted.get(row, 0) + (row in replaced)
            fresh.extend(range(now, now + came))
            now += came
            at = row + (row in replaced or row in removed)
        if count > at:
            runs.append((now, now + count - at, at))
            now += count - at
        rows, source = np.array(fresh, np.int64), np.arange(now)
        source[rows] = -1
        if len(runs) > _MOST_RUNS:
            first, end, start = np.array(runs, np.int64).T
            source[source >= 0] += np.repeat(start - first, end - first)
            return cls(before=before, source=source, fresh=rows)
        for here, there, start in runs:
            source[here:there] += start - here
        return cls(before=before, source=source, fresh=rows, told=tuple(runs))

    def carried(self, column: Column) -> Column:
        """Return a copy of a column of the version before, with rows where they are now and anything in fresh ones."""
        if self.source is None:
            return column.copy()
        if not len(column):
            return np.zeros((len(self.source), *column.shape[1:]), column.dtype)
        if self._runs is None:
            return column[self.source]
        out = np.empty((len(self.source), *column.shape[1:]), column.dtype)
        for first, end, before in self._runs:
            out[first:end] = column[before : before + end - first]
        return out

    def rows_now(self, before: int) -> Int64s:
        """Return int64[before]: where each row of the version before is now, -1 for those that are gone."""
        rows = np.full(before, -1, np.int64)
        if self.source is None:
            rows[:] = np.arange(before)
            rows[self.fresh] = -1
        elif self._runs is None:
            kept = np.flatnonzero(self.source >= 0)
            rows[self.source[kept]] = kept
        else:
            for first, end, start in self._runs:
                rows[start : start + end - first] = np.arange(first, end)
        return rows

    @cached_property
    def _runs(self) -> Sequence[Run] | None:
        """Rows that still stand side by side: first, end, and where the first was; None if they are too many.

        To copy a run takes half the time of fetching its rows one by one.
        """
        if self.told is not None:
            return self.told
        source = self.source
        if source is None or len(self.fresh) > _FEW:
            return None
        marked = source.copy()
        marked[self.fresh] = -2  # so that row 0 does not follow it
        starts = np.flatnonzero(np.diff(marked, prepend=-4) != 1)
        if len(starts) > _MOST_RUNS:
            return None
        bounds = [*starts.tolist(), len(source)]
        return [(first, end, int(source[first])) for first, end in pairwise(bounds) if source[first] >= 0]

    def carried_list(self, values: Sequence[T], fresh: Sequence[T]) -> list[T]:
        """Return values of the version before, with rows where they are now and ``fresh`` in the fresh ones."""
        if self.source is None:
            out = list(values)
            for row, value in zip(self.fresh.tolist(), fresh, strict=True):
                out[row] = value
            return out
        source = self.source
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
        """Do to a list, in place, what ``carried_list`` does. Cost: a move of pointers for each place that changed."""
        most = _FEW + len(values) // 256
        places = self._gaps(len(values)) if self.told is not None or len(self.fresh) <= most else ()
        if not 0 < len(places) <= most:
            # In place still: the collector looks through a long list that is new, not through one that has been there.
            values[:] = self.carried_list(values, fresh)
            return
        end = len(fresh)
        for first, last, count in reversed(places):
            values[first:last] = fresh[end - count : end]
            end -= count

    def _gaps(self, before: int) -> list[tuple[int, int, int]]:
        """Return where rows of the version before gave way to fresh ones: first, end, and how many."""
        source = self.source
        if source is None:
            return [(row, row + 1, 1) for row in self.fresh.tolist()]
        if self.told is not None:
            ends = [(0, 0), *((end, start + end - first) for first, end, start in self.told)]
            begins = [*((first, start) for first, _, start in self.told), (len(source), before)]
            found = [(old, start, first - now) for (now, old), (first, start) in zip(ends, begins, strict=True)]
            return [gap for gap in found if gap[2] or gap[1] > gap[0]]
        count, fresh = len(source), self.fresh
        # Rows beside a change; all others follow the row before as they did.
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
        """Return the version of the table that has only the ``chosen`` rows, as the one before had ``chosen_before``.

        Its mark is that of the whole table, of which it is a view.
        """
        if chosen.all() and chosen_before.all():
            return self
        row_before = np.where(chosen_before, np.cumsum(chosen_before) - 1, -1)
        source = np.arange(len(chosen)) if self.source is None else self.source.copy()
        source[self.fresh] = -1
        rows = np.where(source >= 0, row_before[source], -1)[chosen] if len(row_before) else np.full(chosen.sum(), -1)
        return attrs.evolve(
            self, told=None, source=rows.astype(np.int64), fresh=np.flatnonzero(rows < 0).astype(np.int64)
        )


@attrs.define(eq=False)
class Carrier:
    """Columns by name, each brought from version to version."""

    _columns: dict[str, tuple[object, tuple[object, ...], tuple[Column, ...]]] = attrs.field(factory=dict)

    def columns(
        self,
        name: str,
        version: TableVersion,
        count: int,
        make: Callable[[Sequence[int]], tuple[Column, ...]],
        inputs: tuple[object, ...] = (),
    ) -> tuple[Column, ...]:
        """Return columns that ``make`` reads off the objects of rows; of fresh rows only, where that is enough.

        Holds: ``make`` depends on each row's object and on ``inputs`` (compared by identity) alone; the columns
            are not changed afterwards.
        """
        known = self._columns.get(name)
        same = known is not None and len(known[1]) == len(inputs) and all(map(_is, known[1], inputs))
        if known is not None and same and known[0] is version.mark:
            return known[2]
        if known is not None and same and version.before is not None and known[0] is version.before:
            fresh = version.fresh
            carried = tuple(version.carried(column) for column in known[2])
            if len(fresh):
                for column, values in zip(carried, make(fresh.tolist()), strict=True):
                    column[fresh] = values
        else:
            carried = make(range(count))
        self._columns[name] = (version.mark, inputs, carried)
        return carried


def _is(one: object, other: object) -> bool:
    return one is other
