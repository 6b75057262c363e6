"""Pauses that double: what failed is tried again, each time a little later."""

from __future__ import annotations

from typing import Final

_DOUBLINGS: Final = 40
"""A larger power of two says nothing, and at last fits into no number."""


def doubling_pause(failures: int, first: float, longest: float) -> float:
    """Return the pause after so many failures: ``first`` after one, doubled with each further one up to ``longest``."""
    return min(longest, first * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS))


__all__ = ["doubling_pause"]
