"""Computations that run on the event loop itself, so that virtual time stands still meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, TypeVarTuple

if TYPE_CHECKING:
    from collections.abc import Callable

A = TypeVarTuple("A")
R = TypeVar("R")


class InlineCpu:
    """Runs everything at once, in the thread of the caller."""

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        return function(*args)

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        function(*args)
