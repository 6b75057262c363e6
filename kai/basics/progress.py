"""Progress of long work: the work reports it, and a listener shows it.

A command listens while it runs. Without a listener nothing is shown, and the work is the same.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

Listener = Callable[[str, int, int, str | None], None]
"""Receives the name of the work, how much is done, how much there is in all, and a detail.

None as the detail: the count says enough, and is worth a line where output is kept.
"""

_LISTENERS: Final[list[Listener]] = []


def report(what: str, done: int, total: int, detail: str | None = None) -> None:
    """Report the progress to all listeners."""
    for each in _LISTENERS:
        each(what, done, total, detail)


@contextmanager
def heard_by(listener: Listener) -> Iterator[None]:
    """Have ``listener`` receive the progress of work in the context."""
    _LISTENERS.append(listener)
    try:
        yield
    finally:
        _LISTENERS.remove(listener)


__all__ = ["Listener", "heard_by", "report"]
