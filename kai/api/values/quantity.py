"""Quantities of manifests: as in `kai.quantity`, with an error that learns the place of a value that is none."""

from __future__ import annotations

import functools

from kai import quantity
from kai.api.values.bad_value import BadValue
from kai.quantity import WANTED


@functools.lru_cache(maxsize=1 << 16)
def amount(text: str, parts: int = 1) -> int:
    """Return a quantity as a number of parts of a unit, rounded away from zero.

    Raises: BadValue if the text is not a quantity or the result does not fit into 64 bits.
    """
    try:
        return quantity.amount(text, parts)
    except quantity.QuantityError as error:
        raise BadValue(text, error.wanted) from None


__all__ = ["WANTED", "amount"]
