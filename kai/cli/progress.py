"""How far long work has come, on standard error: a count, or a bar with an estimate that is gone when the work is done.

A bar is for terminals only, and for work that takes long enough to be waited for. Work that is told by its count alone
gets one line where standard error is a file.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable
from typing import Final, TextIO

import attrs

from kai.basics.wording import span_text

_BAR: Final = 20
_FALLBACK: Final = (80, 24)
_SHORT: Final = 0.3
"""Seconds of work for which no bar is drawn: it would only flicker."""
_EARLIEST: Final = 1.0
"""Seconds of work; an estimate from less is a guess."""


@attrs.define
class ProgressLine:
    """Shows the work that `kai.basics.progress` reports, unless the user asked for silence."""

    quiet: bool = False
    plain: bool = False
    """Only ASCII."""
    stream: TextIO | None = attrs.field(factory=lambda: sys.stderr)
    """None where standard error is closed."""
    clock: Callable[[], float] = time.monotonic
    _shown: str = ""
    """What is being done."""
    _since: float = 0.0
    """When it began."""
    _length: int = 0
    """Places of the bar that stands on the terminal."""

    def show(self, what: str, done: int, total: int, detail: str | None = None) -> None:
        """Say how far the work is: on a terminal again and again, in a file once, and there only without a detail."""
        if self.quiet or self.stream is None:
            return
        begins, self._shown = what != self._shown, what
        if begins:
            self._since = self.clock()
        if not self.stream.isatty():
            if begins and detail is None:
                self.stream.write(f"{what} ...\n")
        elif detail is None:
            self._erase(self.stream)
            self.stream.write(f"\r{what}: {done} of {total}" + ("\n" if done == total else ""))
        else:
            self._draw(self.stream, what, done, total, detail)
        if done == total:
            self._shown = ""
        self.stream.flush()

    def close(self) -> None:
        """Erase what is left of work that did not end."""
        if self.stream is not None and self._length:
            with contextlib.suppress(OSError):  # a terminal that is gone shows nothing
                self._erase(self.stream)
                self.stream.flush()

    def _draw(self, stream: TextIO, what: str, done: int, total: int, detail: str) -> None:
        """Write the bar over the one before; nothing is left of it when the work is done."""
        if done == total:
            self._erase(stream)
            return
        spent = self.clock() - self._since
        if spent < _SHORT:
            return
        filled = _BAR * done // total
        bar = ("#" * filled + "." * (_BAR - filled)) if self.plain else ("█" * filled + "░" * (_BAR - filled))
        # The estimate first: a narrow terminal cuts what is behind.
        said = ", ".join(part for part in (_left(spent, done, total), detail) if part)
        text = f"{what}  {bar} {100 * done // total:>3}%  {said}"[: shutil.get_terminal_size(_FALLBACK).columns - 1]
        stream.write(f"\r{text.ljust(self._length)}")
        self._length = len(text)

    def _erase(self, stream: TextIO) -> None:
        if self._length:
            stream.write(f"\r{' ' * self._length}\r")
            self._length = 0


def _left(spent: float, done: int, total: int) -> str:
    """Return about how long the work still takes after so many seconds; "" while too little of it is done."""
    if not done or spent < _EARLIEST:
        return ""
    return f"about {span_text(spent * (total - done) / done)} left"
