"""Long batches in pieces, between which the event loop turns.

The first batch of a subscription brings each object that there is. A role that took tens of thousands of them at one go
would hold the loop for a second as its term begins, just when a new leader is to decide.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Sequence
from typing import Final, TypeVar

from anyio.lowlevel import checkpoint

T = TypeVar("T")

AT_ONCE: Final = 256
"""So much of what takes some ten microseconds is done before others have their turn."""


async def pieces(batch: Sequence[T]) -> AsyncIterator[Sequence[T]]:
    """Yield a batch in pieces, in its order; the loop turns between them."""
    for first in range(0, len(batch), AT_ONCE):
        if first:
            await checkpoint()
        yield batch[first : first + AT_ONCE]


async def pieces_of(batches: AsyncIterable[Sequence[T]]) -> AsyncIterator[Sequence[T]]:
    """Yield batches in pieces as they come, in their order; the loop turns between the pieces of one."""
    async for batch in batches:
        async for piece in pieces(batch):
            yield piece
