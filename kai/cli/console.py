"""Output: data on standard output, messages on standard error, colour only where wanted, documents as JSON or YAML.

Long work reports its progress on standard error: a count, or a bar with an estimate that is erased when the work is
done. A bar is drawn on terminals only, and for work that takes long enough. In a file, work that reports only counts
gets one line.
"""

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import attrs
import click

from kai.answers.documents.document import enveloped
from kai.basics.progress import heard_by
from kai.basics.wording import span_text
from kai.cli.failures import flush_out, say, visible, write_out

if TYPE_CHECKING:
    from kai.answers.cases.origin import Origin
    from kai.answers.documents.document import Document


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


F = TypeVar("F", bound=Callable[..., Any])

FORMATS = ("table", "wide", "json", "yaml")
NAMED_FORMATS = (*FORMATS, "name")
_PLAIN = str.maketrans("█▓░◆»├└─│·…✓▆▄▂○×▁▃▅▇", "#%.*>|`-|-.+=_,ox.,-*") | {
    ord(sign): text for sign, text in {"¼": "1/4", "½": "1/2", "¾": "3/4"}.items()
}


@attrs.frozen(kw_only=True)
class Console:
    """The output settings of a command line."""

    output: str = "table"
    color: bool = False
    plain: bool = False
    """Restrict the output to ASCII."""
    quiet: bool = False
    verbose: int = 0
    columns: int = 0
    """Width of a line in characters; 0 without a limit."""

    @property
    def wide(self) -> bool:
        """Whether to show all columns and rows, however wide."""
        return self.output == "wide"

    @property
    def width(self) -> int:
        """Width of a table in characters; 0 without a limit."""
        return 0 if self.wide else self.columns

    @property
    def is_for_machines(self) -> bool:
        """Whether to write documents instead of text for people."""
        return self.output in {"json", "yaml"}

    def write(self, text: str) -> None:
        """Write data. Documents are written unchanged: JSON and YAML escape control characters themselves."""
        shown = text if self.is_for_machines else visible(text, styled=self.color)
        write_out(self.plainly(shown) + "\n")

    def write_part(self, text: str) -> None:
        """Write a part of a document that is longer than memory should hold; no line ends here."""
        write_out(text)

    def plainly(self, text: str) -> str:
        """Return ``text``, transliterated to ASCII if ``plain``."""
        return text.translate(_PLAIN) if self.plain else text

    def talk(self, text: str, level: int = 0) -> None:
        """Write a message unless ``quiet``; flush standard output first, so that the message follows its data."""
        if not self.quiet and self.verbose >= level:
            flush_out()
            say(self.plainly(text))

    def styled(self, text: str, **style: Any) -> str:  # noqa: ANN401 - passed on to click
        """Return ``text`` in colour if enabled. Colour never carries meaning alone."""
        return click.style(text, **style) if self.color else text


def make_console(*, output: str, color: str, ascii_only: bool, quiet: bool, verbose: int) -> Console:
    """Return the console for the flags and the environment."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    colored = color == "always" or (
        color == "auto" and terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    encoding = (getattr(sys.stdout, "encoding", "") or "ascii").lower().replace("-", "")
    return Console(
        output=output,
        color=colored,
        plain=ascii_only or not encoding.startswith("utf"),
        quiet=quiet,
        verbose=verbose,
        columns=shutil.get_terminal_size().columns if terminal or os.environ.get("COLUMNS") else 0,
    )


def console_options(formats: tuple[str, ...] = FORMATS) -> Callable[[F], F]:
    """Return a decorator that adds the output flags of every command; they arrive together as ``console``."""

    def decorate(function: F) -> F:
        @wraps(function)
        def command(
            *, output: str, color: str, ascii_only: bool, quiet: bool, verbose: int, **options: object
        ) -> object:
            console = make_console(output=output, color=color, ascii_only=ascii_only, quiet=quiet, verbose=verbose)
            line = ProgressLine(quiet=quiet, plain=console.plain)
            try:
                with heard_by(line.show):
                    return function(console=console, **options)
            finally:
                line.close()

        flags = (
            click.option("-o", "--output", type=click.Choice(formats), default=formats[0], help="Output format."),
            click.option(
                "--color", type=click.Choice(("auto", "always", "never")), default="auto", help="When to use colour."
            ),
            click.option("--ascii", "ascii_only", is_flag=True, help="Draw with ASCII characters only."),
            click.option("-q", "--quiet", is_flag=True, help="Suppress notes on standard error."),
            click.option("-v", "--verbose", count=True, help="More notes on standard error."),
        )
        decorated: Any = command
        for flag in reversed(flags):
            decorated = flag(decorated)
        result: F = decorated
        return result

    return decorate


def write_kind(document: "Document", console: Console, origin: "Origin | None" = None) -> None:
    """Write one document with its envelope; ``origin`` is the source it was made from."""
    from kai.answers.documents.document import as_json

    write_document(enveloped(type(document).__name__, as_json(document), origin), console)


def write_document(document: Mapping[str, Any], console: Console) -> None:
    """Write one document: JSON on one line, or YAML."""
    # On one line, so that documents that are written one after another can be read line by line.
    is_json = console.output == "json"
    console.write(
        json.dumps(document, ensure_ascii=console.plain) if is_json else f"---\n{yaml_text(document, console)}"
    )


def yaml_text(document: object, console: Console) -> str:
    """Return a document, or a part of one, as YAML that kubectl reads alike."""
    import yaml

    from kai.api.codec.manifest_text import BOOLEAN, LETTER

    class Dumper(yaml.SafeDumper):
        """Dumps subclasses of str as plain strings: a state is a word of an enumeration."""

    Dumper.add_implicit_resolver(BOOLEAN, LETTER, list("yYnN"))  # quoted: YAML 1.1 of kubectl has booleans here
    Dumper.add_multi_representer(str, lambda dumper, word: dumper.represent_str(str(word)))
    text: str = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=not console.plain, width=120)
    return text.rstrip()
