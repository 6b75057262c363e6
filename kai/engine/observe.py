"""Observers: the core tells them what a cycle does while it runs.

Clocks and spans live in the implementations at the edge.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from typing import ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch(Protocol):
    """Times what plugins do."""

    def timed(self, plugin: str, hook: str, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time counted for ``plugin``, which is asked ``hook``."""

    def paused(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function``, whose time counts for no plugin, whichever calls it."""


class Phase(StrEnum):
    """A part of a cycle besides the actions, which have names of their own."""

    SNAPSHOT = "snapshot"
    OPEN = "open"
    CLOSE = "close"
    EXPLAIN = "explain"


class Observer(Protocol):
    """Told when phases begin and end."""

    @property
    def stopwatch(self) -> Stopwatch | None:
        """What times the functions of plugins; None leaves them as they are, at no cost."""

    def phase(self, name: str, /) -> AbstractContextManager[None]:
        """Return a context that lasts as long as the phase: a `Phase`, or the name of an action."""

    def plugin(self, name: str, /) -> None:
        """Learn that from now on this plugin opens or closes, as the phase says; "" when the last one is done."""

    def group(self, row: int, /) -> None:
        """Learn that from now on this group is looked at; -1 for none in particular."""

    def committed(self, action: str, decisions: int, /) -> None:
        """Learn that a statement of ``action`` with so many decisions became final."""


class Silent:
    """An observer that looks away."""

    stopwatch: Stopwatch | None = None

    @contextmanager
    def phase(self, name: str, /) -> Iterator[None]:
        """Do nothing around the phase ``name``."""
        del name
        yield

    def plugin(self, name: str, /) -> None:
        """Do nothing."""

    def group(self, row: int, /) -> None:
        """Do nothing."""

    def committed(self, action: str, decisions: int, /) -> None:
        """Do nothing."""
