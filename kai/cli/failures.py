"""Errors for people: a line that says what is wrong, a line that helps, and an exit code. Findings as text, too.

`visible` makes text from outside safe for a terminal. Names in files, annotations and messages are written by others. A
control character that moves the cursor, renames the window or reverses the direction of writing would make the terminal
show something false, so it is shown as an escape sequence.
"""

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from kai.basics.errors import (
    CommandLineError,
    ConfigError,
    InputError,
    InvariantError,
    KaiError,
    PluginError,
    UnreachableError,
)

if TYPE_CHECKING:
    from kai.answers.documents.listings import FindingItem
    from kai.manifests import Finding


_STYLE: Final = r"\x1b\[[0-9;]*m"
_HIDDEN: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
"""Control characters except tab and newline, marks that change the direction of writing, and surrogates."""
_PLAIN: Final = re.compile(_HIDDEN)
_STYLED: Final = re.compile(f"({_STYLE})|{_HIDDEN}")


def visible(text: str, *, styled: bool = False) -> str:
    """Return ``text`` with invisible characters escaped; colours stay if it is ``styled``."""
    if styled:
        return _STYLED.sub(lambda found: found[1] or _written(found[0]), text)
    return _PLAIN.sub(lambda found: _written(found[0]), text)


def encodable(text: str, encoding: str) -> str:
    """Return ``text`` with the characters escaped that ``encoding`` lacks."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _written(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


NO, USAGE, UNREACHABLE, INPUT, BUG, INTERRUPTED = 1, 2, 3, 4, 5, 130
READER_GONE = 141
"""128 + SIGPIPE, as a shell reports a program that SIGPIPE ended, like kubectl and git.

It is neither 0 nor 1: a script must not take the code of a partly read answer for yes or no.
"""
LEFT = 143
"""128 + SIGTERM, as a shell reports a program that SIGTERM ended: ``kai run`` left with work unfinished."""


class OutputError(KaiError):
    """The answer of a command cannot be written."""


class ReaderGoneError(Exception):
    """The reader of the output closed the pipe, as ``head`` does."""


def write_out(text: str) -> None:
    """Write data to standard output.

    Raises: OutputError where it is closed or full; ReaderGoneError where the reader closed the pipe.
    """
    _on_output(lambda stream: _write(stream, text))


def check_out() -> None:
    """Check that standard output is open.

    Raises: OutputError where it is closed, which click silently ignores.
    """
    if sys.stdout is None:
        raise _closed()


def _closed() -> OutputError:
    return OutputError("standard output: found it closed, expected a place to write to")


def flush_out() -> None:
    """Flush standard output.

    Raises: as ``write_out``.
    """
    if sys.stdout is not None:
        _on_output(lambda stream: stream.flush())


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(text)
    except UnicodeEncodeError:  # a terminal of another encoding; nothing of the text was written
        stream.write(encodable(text, stream.encoding or "ascii"))


def _on_output(act: Callable[[TextIO], object]) -> None:
    stream: TextIO | None = sys.stdout
    if stream is None:
        raise _closed()
    try:
        with reader_watched():
            act(stream)
    except OSError as error:
        # Python flushes the stream at exit; the data that failed once would fail again, with a traceback.
        sys.stdout = None  # Python itself uses None for a closed stream
        raise OutputError(f"standard output: found {error.strerror or error}, expected room to write") from None


@contextlib.contextmanager
def reader_watched() -> Iterator[None]:
    """Turn a broken pipe into an error of its own, before click handles it by exiting with 1.

    Raises: ReaderGoneError.
    """
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError from None


def leave_reader() -> int:
    """Return the exit code for a closed pipe, silently: the reader wanted no more."""
    stream: TextIO | None = sys.stdout
    if stream is not None:
        # Python flushes the stream at exit; the rest of the buffer would fail again, with an error message.
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
    return READER_GONE


def say(text: str) -> None:
    """Write a message to standard error; where that is closed or full, the exit code has to be enough."""
    stream: TextIO | None = sys.stderr
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.write(visible(text) + "\n")


def keep_logs_off() -> None:
    """Drop log lines: standard output is for data, and a command reports its errors itself."""
    import structlog

    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


def say_error(message: str, hint: str = "", detail: str = "") -> None:
    """Write an error with its detail and hint, if any."""
    say(f"error: {message}")
    if detail:
        say(f"  {detail}")
    if hint:
        say(f"  help: {hint}")


def report_error(error: KaiError, *, usage: str = "") -> int:
    """Write an error and return its exit code; ``usage`` is a hint how to use the command.

    The code is 2 for the command line, 3 for the cluster, 4 for other input, 5 for a bug in kai.
    """
    findings = getattr(error, "findings", None)
    if findings:
        for finding in findings:
            say(finding_text(finding))
        return INPUT
    if isinstance(error, ConfigError | InputError):
        is_usage = isinstance(error, CommandLineError)
        for message, line in zip(error.messages, error.helps, strict=True):
            say_error(message, line or (usage if is_usage else ""))
        return USAGE if is_usage else INPUT
    if isinstance(error, UnreachableError):
        say_error(str(error), error.help, error.detail)
        return UNREACHABLE
    if isinstance(error, InvariantError | PluginError):
        return report_bug(error, str(error))
    say_error(str(error))
    return INPUT


def report_unexpected(error: Exception, subject: str) -> int:
    """Report an unexpected error: a bug, unless the disk was full or a file not permitted."""
    if isinstance(error, PermissionError) and error.filename:
        say_error(f"{error.filename}: found {error.strerror}, expected a file or a folder that can be read")
        return INPUT
    # Disk full, quota exceeded, or file size limit reached: only writing fails with these.
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        say_error(f"{error.filename or 'standard output'}: found {error.strerror}, expected room to write")
        sys.stdout = None
        return INPUT
    return report_bug(error, subject)


def report_bug(error: Exception, subject: str) -> int:
    """Report a bug in one line, with the file that has the details."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    where = ""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kai-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"{subject}\n\n{text}")
            where = file.name
    except OSError:
        # Without room for the file the details go to standard error: a report of the bug needs them.
        say(text)
    message = str(error).splitlines()[0] if str(error) else ""
    if not isinstance(error, PluginError):
        # The class matters for a bug report; for a third-party plugin or action the message says enough.
        message = f"this is a bug of kai: {type(error).__name__}: {message}"
    say_error(message, f"details are in {where}" if where else "")
    return BUG


_WIDEST = 140
"""Longer lines of a file are cut around the place."""


def finding_text(finding: "Finding") -> str:
    """Return a finding as lines: place, code and message; the excerpt; a help line."""
    lines = [str(finding) if finding.is_error else _as_warning(finding), *_excerpt(finding)]
    if finding.help:
        lines.append(f"  help: {finding.help}")
    return "\n".join(lines)


def github_text(finding: "Finding") -> str:
    """Return a finding as a workflow command of GitHub Actions, which shows it beside the line."""
    place = f",line={finding.line},col={finding.column}" if finding.line else ""
    said = f"{finding.message} ({finding.hint})" if finding.hint else finding.message
    # The percent sign first, since the escapes of line ends contain it.
    message = said.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{finding.severity} file={finding.file}{place},title={finding.code}::{message}"


def finding_item(finding: "Finding") -> "FindingItem":
    """Return a finding as an item of a document."""
    from kai.answers.documents.listings import FindingItem

    return FindingItem(
        code=finding.code,
        severity=finding.severity,
        meaning=finding.meaning,
        message=finding.message,
        file=finding.file,
        line=finding.line or None,
        column=finding.column or None,
        object=finding.object or None,
        found=finding.found or None,
        expected=finding.expected or None,
        help=finding.help or None,
    )


def _as_warning(finding: "Finding") -> str:
    place, _, rest = str(finding).partition(f": {finding.code} ")
    return f"{place}: {finding.code} warning: {rest}"


def _excerpt(finding: "Finding") -> Iterator[str]:
    start = 0
    for number, row in finding.excerpt:
        shown = row.rstrip("\r")
        if len(shown) > _WIDEST:
            start = max(0, finding.column - _WIDEST // 2)
            shown = shown[start : start + _WIDEST]
        yield f"{number:>5} | {_visible(shown)}"
    if finding.excerpt and finding.column:
        carets = "^" * min(finding.width, _WIDEST // 2)
        yield f"{'':>5} | {' ' * (finding.column - 1 - start)}{carets} {finding.hint}".rstrip()


def _visible(row: str) -> str:
    """Return a row with characters replaced that would shift the carets or control the terminal."""
    return "".join(each if each.isprintable() else " " for each in row)
