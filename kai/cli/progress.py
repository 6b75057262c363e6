"""How far long work has come, on standard error: one line, and a count that runs on a terminal."""

import sys
from typing import TextIO

import attrs


@attrs.define
class ProgressLine:
    """Shows the work that `kai.progress` reports, unless the user asked for silence."""

    quiet: bool = False
    stream: TextIO | None = attrs.field(factory=lambda: sys.stderr)
    """None where standard error is closed."""
    _shown: str = ""
    """What is being done."""

    def show(self, what: str, done: int, total: int) -> None:
        """Write a line when work begins; on a terminal, write it again as often as more of it is done."""
        if self.quiet or self.stream is None:
            return
        begins, self._shown = what != self._shown, what
        if self.stream.isatty():
            self.stream.write(f"\r{what}: {done} of {total}" + ("\n" if done == total else ""))
        elif begins:
            self.stream.write(f"{what} ...\n")
        if done == total:
            self._shown = ""
        self.stream.flush()
