"""Labels as columns: which rows a selector picks, without looking at each row.

A table answers for one kind of row (the nodes of a session, the shapes of its pods). Each key becomes a column of small
integers the first time it is asked for; a requirement is then a comparison of integers.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

import numpy as np

from kai.model.constraints import Requirement, Selector
from kai.model.rows import Bools, Int64s, locked

Column: TypeAlias = tuple[Int64s, Mapping[str, int]]
"""Numbers of values by row, and the number of each value."""


class LabelTable:
    """The labels of some rows."""

    def __init__(self, rows: Sequence[Mapping[str, str]]) -> None:
        """Keep ``rows``; nothing is read before it is asked for."""
        self._rows = rows
        self._columns: dict[str, Column] = {}

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset().union(*self._rows)

    @cached_property
    def _nowhere(self) -> Column:
        """The column of all keys that no row has: users may name as many as they like."""
        return locked(np.zeros(len(self._rows), np.int64)), {}

    def codes(self, key: str) -> Int64s:
        """Return int64[n]: equal numbers for equal values of ``key``, in their order; 0 for rows without it."""
        return self._column(key)[0]

    def _column(self, key: str) -> Column:
        found = self._columns.get(key)
        if found is None and key not in self._keys:
            return self._nowhere
        if found is None:
            values = [row.get(key) for row in self._rows]
            numbers = {value: code for code, value in enumerate(sorted({v for v in values if v is not None}), start=1)}
            codes = np.array([0 if value is None else numbers[value] for value in values], np.int64)
            # It is kept for as long as the labels are the same, and shown to plugins.
            found = self._columns[key] = (locked(codes), numbers)
        return found

    def matches(self, requirement: Requirement) -> Bools:
        """Return bool[n]: the rows that satisfy one expression."""
        codes, numbers = self._column(requirement.key)
        match requirement.operator:
            case "In":
                return _among(codes, numbers, requirement.values)
            case "NotIn":
                return ~_among(codes, numbers, requirement.values)
            case "Exists":
                return codes > 0
            case "DoesNotExist":
                return ~(codes > 0)
            case _:
                answers = [False, *(requirement.matches({requirement.key: value}) for value in numbers)]
                mask: Bools = np.array(answers, np.bool_)[codes]
                return mask

    def satisfies(self, requirements: Iterable[Requirement]) -> Bools:
        """Return bool[n]: the rows that satisfy every expression; all rows if there is none."""
        mask: Bools | None = None
        for requirement in requirements:
            found = self.matches(requirement)
            mask = found if mask is None else mask & found
        return np.ones(len(self._rows), np.bool_) if mask is None else mask

    def selects(self, selector: Selector | None) -> Bools:
        """Return bool[n]: the rows that ``selector`` picks; an absent one picks none."""
        return np.zeros(len(self._rows), np.bool_) if selector is None else self.satisfies(selector.requirements)


def _among(codes: Int64s, numbers: Mapping[str, int], values: Sequence[str]) -> Bools:
    wanted = [numbers[value] for value in values if value in numbers]
    if len(wanted) == 1:
        mask: Bools = codes == wanted[0]
        return mask
    chosen = np.zeros(len(numbers) + 1, np.bool_)  # a look-up: `isin` takes several times as long
    chosen[wanted] = True
    return chosen[codes]
