"""How far long work has come: said where the work is done, heard where it is shown.

A command listens while it runs. Without a listener nothing is shown, and the work goes on all the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

Listener = Callable[[str, int, int, str | None], None]
"""Takes what is being done, how much of it is done, how much there is, and what else is to be said of it.

None instead of a text: the work is told by its count alone, and worth a line where output is kept.
"""

_LISTENERS: Final[list[Listener]] = []


def report(what: str, done: int, total: int, detail: str | None = None) -> None:
    """Tell listeners how far the work is."""
    for each in _LISTENERS:
        each(what, done, total, detail)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Have ``listener`` hear of work that is done inside."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


__all__ = ["Listener", "heard_by", "report"]
