"""Output: data on standard output, messages on standard error, colour only where wanted, documents as JSON or YAML."""

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import click

from kai.answers.documents.envelope import enveloped
from kai.api.fields import document_name
from kai.basics.progress import heard_by
from kai.cli.failures import flush_out, say, visible, write_out
from kai.cli.progress import ProgressLine

if TYPE_CHECKING:
    from kai.answers.cases.origin import Origin


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


def plain(value: Any) -> Any:  # noqa: ANN401 - any value that JSON has
    """Return a value for JSON: objects become mappings, under the field names of documents."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if not attrs.has(type(value)):
        return value
    return {document_name(field.name): plain(getattr(value, field.name)) for field in attrs.fields(type(value))}


def write_kind(kind: str, fields: Mapping[str, Any], console: Console, origin: "Origin | None" = None) -> None:
    """Write one document of a kind; ``origin`` is the source it was made from."""
    write_document(enveloped(kind, fields, origin), console)


def write_document(document: Mapping[str, Any], console: Console) -> None:
    """Write one document: JSON on one line, or YAML."""
    if console.output == "json":
        console.write(json.dumps(document, ensure_ascii=console.plain))
        return
    import yaml

    from kai.api.codec.manifest_text import BOOLEAN, LETTER

    class Dumper(yaml.SafeDumper):
        """Dumps subclasses of str as plain strings: a state is a word of an enumeration."""

    Dumper.add_implicit_resolver(BOOLEAN, LETTER, list("yYnN"))  # quoted: YAML 1.1 of kubectl has booleans here
    Dumper.add_multi_representer(str, lambda dumper, word: dumper.represent_str(str(word)))
    text = yaml.dump(document, Dumper=Dumper, sort_keys=False, allow_unicode=not console.plain, width=120)
    console.write("---\n" + text.rstrip())
