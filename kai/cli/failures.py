"""Errors as a person meets them: one line that says what is wrong, one that helps, and an exit code.

Text from outside as a terminal may be given it.

Names in files, annotations and messages are written by others. What moves the cursor, renames the window or turns the
direction of writing would make a terminal show something else than there is, so it is shown as it is written in code.
"""

import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TextIO

from kai.errors import (
    CommandLineError,
    ConfigError,
    InputError,
    InvariantError,
    KaiError,
    PluginError,
    UnreachableError,
)

_STYLE: Final = r"\x1b\[[0-9;]*m"
_HIDDEN: Final = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
"""Controls but tabs and ends of lines, marks that turn the direction, and halves of characters."""
_PLAIN: Final = re.compile(_HIDDEN)
_STYLED: Final = re.compile(f"({_STYLE})|{_HIDDEN}")


def visible(text: str, *, styled: bool = False) -> str:
    """Return ``text`` with what cannot be seen written out; colours stay if it is ``styled``."""
    if styled:
        return _STYLED.sub(lambda found: found[1] or _written(found[0]), text)
    return _PLAIN.sub(lambda found: _written(found[0]), text)


def encodable(text: str, encoding: str) -> str:
    """Return ``text`` with the characters written out that an encoding does not have."""
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _written(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


NO, USAGE, UNREACHABLE, INPUT, BUG, INTERRUPTED = 1, 2, 3, 4, 5, 130
READER_GONE = 141
"""As a shell counts a program that SIGPIPE ended, which is how kubectl and git end here. Neither 0 nor 1: a part of the
answer is not read, so a script must not take the code for its yes or no."""
LEFT = 143
"""As a shell counts a program that SIGTERM ended: ``kai run`` left without what was under way."""


class OutputError(KaiError):
    """What a command answers cannot be written."""


class ReaderGoneError(Exception):
    """What reads the output has seen enough, as ``head`` has."""


def write_out(text: str) -> None:
    """Write data to standard output.

    Raises: OutputError where it is closed, or has no room; ReaderGoneError where its reader has seen enough.
    """
    _on_output(lambda stream: _write(stream, text))


def check_out() -> None:
    """Do nothing where data may be written.

    Raises: OutputError where standard output is closed, which click passes over without a word.
    """
    if sys.stdout is None:
        raise _closed()


def _closed() -> OutputError:
    return OutputError("standard output: found it closed, expected a place to write to")


def flush_out() -> None:
    """Hand over what was written so far.

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
        # What is left in the buffer would fail once more, with a traceback, when Python closes the stream.
        sys.stdout = None  # as Python itself has it where the stream is closed
        raise OutputError(f"standard output: found {error.strerror or error}, expected room to write") from None


@contextlib.contextmanager
def reader_watched() -> Iterator[None]:
    """Tell a pipe that broke from other errors of the system, before click makes an answer of it: it leaves with 1.

    Raises: ReaderGoneError.
    """
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError from None


def leave_reader() -> int:
    """Return the exit code where the reader of the output has gone. Nothing is said: it wanted no more."""
    stream: TextIO | None = sys.stdout
    if stream is not None:
        # What is left in the buffer would fail once more, and be told, when Python closes the stream.
        with contextlib.suppress(OSError), Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), stream.fileno())
    return READER_GONE


def say(text: str) -> None:
    """Write one line of talk to standard error; where that is closed or full, the exit code says enough."""
    stream: TextIO | None = sys.stderr
    if stream is not None:
        with contextlib.suppress(OSError):
            stream.write(visible(text) + "\n")


def keep_logs_off() -> None:
    """Drop what a service would log: standard output is for data, and a command that ends says what is wrong itself."""
    import structlog

    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())


def say_error(message: str, hint: str = "", detail: str = "") -> None:
    """Write an error and, if there is one, what was tried, and a hint."""
    say(f"error: {message}")
    if detail:
        say(f"  {detail}")
    if hint:
        say(f"  help: {hint}")


def report_error(error: KaiError, *, usage: str = "") -> int:
    """Say what is wrong and return the exit code; ``usage`` is what tells how to use the command.

    It is 2 for the command line, 3 for the cluster, 4 for what was given to kai otherwise, 5 for kai itself.
    """
    findings = getattr(error, "findings", None)
    if findings:
        from kai.cli.checking.findings import finding_text

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
    """Say what nothing foresaw: a bug, unless there was no room for the output, or no right to a file."""
    if isinstance(error, PermissionError) and error.filename:
        say_error(f"{error.filename}: found {error.strerror}, expected a file or a folder that can be read")
        return INPUT
    # No room on the device, in a quota, or in the largest file that a process may write: only writing ends so.
    if isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        say_error(f"{error.filename or 'standard output'}: found {error.strerror}, expected room to write")
        sys.stdout = None
        return INPUT
    return report_bug(error, subject)


def report_bug(error: Exception, subject: str) -> int:
    """Say in one line that something failed that should not have, and where the details are."""
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    where = ""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="kai-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"{subject}\n\n{text}")
            where = file.name
    except OSError:
        say(text)
    told = str(error).splitlines()[0] if str(error) else ""
    if not isinstance(error, PluginError):
        # The class belongs to a report of the bug; of a foreign plugin or action the message says all itself.
        told = f"this is a bug of kai: {type(error).__name__}: {told}"
    say_error(told, f"details are in {where}" if where else "")
    return BUG
