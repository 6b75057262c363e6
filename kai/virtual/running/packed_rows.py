"""What is over, kept small: rows as MessagePack, which become objects again when they are looked at.

A run of a million pods ends with hundreds of thousands of jobs that are over, and an object takes more for its fields
than they say. Values come back as they were, to the last bit.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar

import msgspec

T = TypeVar("T")
Values = tuple[Any, ...]

_BLOCK: Final = 512
"""So many rows are packed together."""


def _plain(value: Any) -> Any:  # noqa: ANN401 - a scalar of numpy, which has no types here
    """Return a scalar of numpy as a number of Python, which documents write alike."""
    return value.item()


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER: Final = msgspec.msgpack.Decoder()


def packed(values: object) -> bytes | None:
    """Return plain values as bytes; None for values that cannot be told so, as text that is no Unicode."""
    try:
        return _ENCODER.encode(values)
    except (AttributeError, OverflowError, TypeError, ValueError):
        return None


def unpacked(text: bytes) -> list[Any]:
    """Return the values that were packed."""
    values: list[Any] = _DECODER.decode(text)
    return values


class Rows(Generic[T]):
    """Rows that are only added and then read from the first to the last. Cost: compressed blocks."""

    def __init__(self, values_of: Callable[[T], Values], make: Callable[..., T]) -> None:
        """Take what returns the values of a row, and what makes a row of values again."""
        self._values_of, self._make = values_of, make
        self._blocks: list[bytes | list[Values]] = []
        self._last: list[Values] = []

    def append(self, row: T) -> None:
        """Add a row."""
        self._last.append(self._values_of(row))
        if len(self._last) == _BLOCK:
            block = packed(self._last)
            # The fastest level: most of a block are names that stand in it before.
            self._blocks.append(self._last if block is None else zlib.compress(block, level=1))
            self._last = []

    def __len__(self) -> int:
        return _BLOCK * len(self._blocks) + len(self._last)

    def __iter__(self) -> Iterator[T]:
        shared: dict[str, str] = {}
        for block in (*self._blocks, self._last):
            rows: Sequence[Sequence[Any]] = unpacked(zlib.decompress(block)) if isinstance(block, bytes) else block
            for values in rows:
                yield self._make(*[shared.setdefault(each, each) if type(each) is str else each for each in values])
