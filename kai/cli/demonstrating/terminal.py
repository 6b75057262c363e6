"""A terminal that a run is watched on: keys without a line end, and a screen that is drawn over and over.

The screen beneath comes back however the watching ends.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import attrs

from kai.cli.console import Console
from kai.cli.demonstrating.drawing import Frame, drawn
from kai.cli.demonstrating.playing import DOWN, ESCAPE, UP
from kai.cli.failures import write_out

_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME, _REST_OF_LINE, _REST_OF_SCREEN = "\x1b[H", "\x1b[K", "\x1b[J"
_KEYS: Final = {b"\x1b[A": UP, b"\x1bOA": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"\x1b": ESCAPE}
_KEY: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1bO.|.", re.DOTALL)
"""What one key sends. A held key and a wheel send several at once."""
_MOST_TYPED: Final = 1024


@attrs.define
class Terminal:
    """The terminal of this process."""

    console: Console
    keyboard: int | None
    """Where keys come from; None for nowhere."""
    _typed: deque[bytes] = attrs.field(factory=deque)
    """Keys that came together with one that was returned."""

    def now(self) -> float:
        """Return the time of a clock that never goes back."""
        return time.monotonic()

    def wait(self, seconds: float) -> str:
        """Wait so long for a key."""
        if self.keyboard is None:
            time.sleep(seconds)
            return ""
        if not self._typed and select.select([self.keyboard], [], [], seconds)[0]:
            self._typed.extend(_KEY.findall(os.read(self.keyboard, _MOST_TYPED)))
        if not self._typed:
            return ""
        key = self._typed.popleft()
        return _KEYS.get(key) or key.decode("ascii", "replace")

    def columns(self) -> int:
        """Return how many places a line has."""
        return shutil.get_terminal_size().columns

    def draw(self, frame: Frame) -> None:
        """Show a frame in place of the one before."""
        size = shutil.get_terminal_size()
        lines = drawn(frame, self.console, size.columns, size.lines)
        text = "\r\n".join(line + _REST_OF_LINE for line in lines)
        write_out(_HOME + self.console.plainly(text) + _REST_OF_SCREEN)
        sys.stdout.flush()


@contextmanager
def opened(console: Console) -> Iterator[Terminal]:
    """Take the terminal, and give it back as it was."""
    keyboard = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    before = None if keyboard is None else termios.tcgetattr(keyboard)
    write_out(_ENTER)
    try:
        if keyboard is not None:
            tty.setcbreak(keyboard)
        yield Terminal(console=console, keyboard=keyboard)
    finally:
        if keyboard is not None and before is not None:
            termios.tcsetattr(keyboard, termios.TCSADRAIN, before)
        write_out(_LEAVE)
        sys.stdout.flush()
