"""Progress of long work on standard error: a count, or a bar with an estimate that is erased when the work is done.

A bar is drawn on terminals only, and for work that takes long enough. In a file, work that reports only counts gets one
line.
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
"""Seconds of work below which no bar is drawn, since it would only flicker."""
_EARLIEST: Final = 1.0
"""Seconds of work before the first estimate; an earlier one is a guess."""


@attrs.define
class ProgressLine:
    """Shows the progress that `kai.basics.progress` reports, unless ``quiet``."""

    quiet: bool = False
    plain: bool = False
    """Restrict the output to ASCII."""
    stream: TextIO | None = attrs.field(factory=lambda: sys.stderr)
    """None where standard error is closed."""
    clock: Callable[[], float] = time.monotonic
    _shown: str = ""
    """The name of the present work."""
    _since: float = 0.0
    """When the present work began."""
    _length: int = 0
    """Characters of the bar that is on the terminal."""

    def show(self, what: str, done: int, total: int, detail: str | None = None) -> None:
        """Show progress: redrawn on a terminal; in a file one line, and only for work without a detail."""
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
        """Erase the bar of work that was interrupted."""
        if self.stream is not None and self._length:
            with contextlib.suppress(OSError):  # the terminal may be gone
                self._erase(self.stream)
                self.stream.flush()

    def _draw(self, stream: TextIO, what: str, done: int, total: int, detail: str) -> None:
        """Draw the bar over the previous one, or erase it when the work is done."""
        if done == total:
            self._erase(stream)
            return
        spent = self.clock() - self._since
        if spent < _SHORT:
            return
        filled = _BAR * done // total
        bar = ("#" * filled + "." * (_BAR - filled)) if self.plain else ("█" * filled + "░" * (_BAR - filled))
        # The estimate comes first: a narrow terminal cuts the end of the line.
        said = ", ".join(part for part in (_left(spent, done, total), detail) if part)
        text = f"{what}  {bar} {100 * done // total:>3}%  {said}"[: shutil.get_terminal_size(_FALLBACK).columns - 1]
        stream.write(f"\r{text.ljust(self._length)}")
        self._length = len(text)

    def _erase(self, stream: TextIO) -> None:
        if self._length:
            stream.write(f"\r{' ' * self._length}\r")
            self._length = 0


def _left(spent: float, done: int, total: int) -> str:
    """Return the estimated remaining time after ``spent`` seconds; "" while it would be a guess."""
    if not done or spent < _EARLIEST:
        return ""
    return f"about {span_text(spent * (total - done) / done)} left"
