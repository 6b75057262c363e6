"""The errors that a caller of kai can meet, and imports of optional libraries.

A pod that cannot be placed is no error: that is a verdict, an ordinary value. An error ends something: the start
(``ConfigError``), the reading of an input (``InputError``) or of a command line (``CommandLineError``), a call
to the API server (``ApiError``), the use of a plugin (``PluginError``) or a cycle (``InvariantError``). A message names
the object, the field, what was found and what would be right, and fits on one line; the command line prints it as it
is.

``load_extra`` imports a library of an extra of kai where it is used; its error names the command to install it.
"""

import importlib
from collections.abc import Iterable
from types import FrameType
from typing import Any, Final, Self

from kai.basics.wording import shown

_DEEPEST: Final = 8


def on_one_line(message: str) -> str:
    """Return a message on one line, whatever it quotes; control characters for terminals are escaped."""
    if message.isprintable():
        return message
    # A message quotes names from clusters and files, which may hold line ends that forge log lines.
    return "".join(" " if each.isspace() else each if each.isprintable() else repr(each)[1:-1] for each in message)


def error_text(error: BaseException) -> str:
    """Return the type and text of ``error`` on one line, for messages about errors of foreign code."""
    try:
        text = on_one_line(str(error))
    except Exception:  # noqa: BLE001 - foreign code makes the words as well
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def places(frames: Iterable[tuple[FrameType, int]]) -> list[str]:
    """Return the innermost of these frames and lines, which come last, in the format of the log.

    Unlike a traceback, this reads no source files.
    """
    # The innermost frames show where it happened; the outer ones are the same for each error.
    innermost = list(frames)[-_DEEPEST:]
    return [f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}:{line}" for frame, line in innermost]


class KaiError(Exception):
    """Any error that kai raises on purpose. Catching it catches all of these and no bug of another library."""


class _RejectedError(KaiError):
    """A value that a user wrote cannot be used.

    Carries one message, or several if the whole text was read before giving up.
    """

    def __init__(self, message: str, *more: str, help: str = "", helps: Iterable[str] = ()) -> None:  # noqa: A002 - the word that the command prints
        """Carry messages with a line of help for each, in ``helps``, or with ``help`` for the first."""
        self.messages: tuple[str, ...] = tuple(map(on_one_line, (message, *more)))
        self.helps: tuple[str, ...] = tuple(helps) or (help, *("" for _ in more))
        super().__init__(*self.messages)

    @property
    def help(self) -> str:
        """Return the first line of help; "" if there is none."""
        return next(filter(None, self.helps), "")

    def __str__(self) -> str:
        """Return the messages, one a line."""
        return "\n".join(self.messages)

    @classmethod
    def about(cls, subject: str, field: str, *, found: object, wanted: str) -> Self:
        """Make the error for one bad value, in the one form such messages have.

        ``subject`` names the object (``queue "team-a"``) or the file, ``field`` is the path inside it, ``wanted``
        completes "expected ...".
        """
        return cls(f"{subject}: {field}: found {shown(found)}, expected {wanted}")

    @classmethod
    def joined(cls, errors: Iterable[Self]) -> Self:
        """Make one error that carries the messages of ``errors``, in their order.

        Raises: ValueError when there is none; an error without a message would hide a bug.
        """
        messages = [message for error in errors for message in error.messages]
        if not messages:
            raise ValueError("errors: found none, expected at least one")
        return cls(*messages)


class ConfigError(_RejectedError):
    """The configuration is wrong: an unknown plugin, action or option, or a value out of range. Nothing starts."""


class InputError(_RejectedError):
    """An object, a scenario or a file that was given to kai is wrong."""


class CommandLineError(ConfigError, InputError):
    """The arguments make no sense, whatever files, plugins and clusters exist. Caught as either base class."""


class ApiError(KaiError):
    """The API server refused, or could not be reached."""

    def __init__(self, message: str, *, retryable: bool) -> None:
        super().__init__(message)
        self.retryable = retryable


class UnreachableError(ApiError):
    """A cluster named by a user cannot be reached, or does not show the requested objects.

    ``detail`` is what was tried, ``help`` what to type instead, ``missing`` the missing right.
    """

    def __init__(
        self,
        message: str,
        *,
        detail: str = "",
        is_forbidden: bool = False,
        help: str = "",  # noqa: A002 - what the line is called that it fills
        missing: str = "",
    ) -> None:
        # A missing right does not come back by itself; a network may.
        super().__init__(message, retryable=not is_forbidden)
        self.detail = detail
        self.is_forbidden = is_forbidden
        self.missing = missing
        self.help = help


class PluginError(KaiError):
    """A plugin raised, or returned something that its hook's contract does not allow."""

    def __init__(self, message: str, *, plugin: str, hook: str, origin: str = "") -> None:
        super().__init__(message)
        self.plugin = plugin
        self.hook = hook
        self.origin = origin

    def __str__(self) -> str:
        """Return the message after the plugin, its origin, and the hook."""
        origin = f" ({self.origin})" if self.origin else ""
        return f'plugin "{self.plugin}"{origin}, {self.hook}: {self.args[0]}'


class ActionError(PluginError):
    """An action of another package raised.

    ``plugin`` is empty, since no plugin is at fault.
    """

    def __init__(self, message: str, *, action: str, origin: str) -> None:
        super().__init__(message, plugin="", hook="run", origin=origin)
        self.action = action

    def __str__(self) -> str:
        """Return the message after the action and its origin."""
        return f'action "{self.action}" ({self.origin}), {self.hook}: {self.args[0]}'


class InvariantError(KaiError):
    """A law of the engine does not hold: a bug of ours. The cycle is abandoned and nothing of it is written."""


def load_extra(module: str, extra: str, use: str) -> Any:  # noqa: ANN401 - libraries without types
    """Return a library that comes with an extra; ``use`` says what is done by which library.

    Raises: ConfigError that says how to install it, where it is not.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise missing(extra, use) from None


def missing(extra: str, use: str) -> ConfigError:
    """Return the error for an extra that is not installed."""
    return ConfigError(f"{use}; install it with pip install 'kai-scheduler[{extra}]'")
