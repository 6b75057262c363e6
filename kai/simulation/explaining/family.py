"""Families of changes: the steps of one field, from the least change to the most, or alternatives."""

from collections.abc import Callable, Iterator
from typing import Final

import attrs

from kai.simulation.explaining.changes import Change, Site

MOST_ALTERNATIVES: Final = 3
CAPPED: Final = 64
"""More steps than this are not offered: the smallest numbers are left out."""


@attrs.frozen(kw_only=True)
class Family:
    """The changes of one field. Families with one topic say nearly the same; the first of the best is told."""

    topic: str
    steps: tuple[Callable[[], Change], ...]
    ordered: bool = True
    """Whether each step changes more than the one before."""
    instead_of: frozenset[str] = frozenset()
    """Topics of which this is more than one: it is tried only where none of them lets the whole group start."""


Maker = Callable[[Site], Iterator[Family]]


def below(amount: int) -> range:
    """Return the numbers from ``amount`` - 1 down to 1."""
    return range(amount - 1, max(0, amount - 1 - CAPPED), -1)


def above(amount: int, more: int) -> range:
    """Return the ``more`` numbers that follow ``amount``."""
    return range(amount + 1, amount + 1 + min(more, CAPPED))


def rounder(amount: int) -> range:
    """Return amounts below ``amount``, the largest first: about as many as are tried, and all of them round numbers."""
    sizes = (digit * 10**zeros for zeros in range(len(str(amount))) for digit in (1, 2, 5))
    step = next(size for size in sizes if size * CAPPED >= amount)
    return range((amount - 1) // step * step, 0, -step)
