"""How far long work has come: said where the work is done, heard where it is shown.

A command listens while it runs. Without a listener nothing is shown, and the work goes on all the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

Listener = Callable[[str, int, int], None]
"""Takes what is being done, how much of it is done, and how much there is."""

_LISTENERS: Final[list[Listener]] = []


def report(what: str, done: int, total: int) -> None:
    """Tell listeners how far the work is."""
    for each in _LISTENERS:
        each(what, done, total)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Have ``listener`` hear of work that is done inside."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


__all__ = ["Listener", "heard_by", "report"]
