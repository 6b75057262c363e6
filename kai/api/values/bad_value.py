"""The one exception for a value that cannot be read: where it is, what was found, what would be right."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Self

from kai.errors import InputError
from kai.wording import counted

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LONGEST: Final = 60


class BadValue(InputError):  # noqa: N818 - callers say what they met; the family is called Error
    """A value in a manifest, file or annotation is not what it must be.

    It is raised where the value is read and learns its place on the way up: each enclosing reader calls `under` with
    its key or index.
    """

    def __init__(self, found: object, wanted: str, *, subject: str = "", path: tuple[str | int, ...] = ()) -> None:
        super().__init__(wanted)
        self.found = show(found)
        self.wanted = wanted
        self.subject = subject
        self.path = path
        self._word()

    def under(self, step: object) -> Self:
        """Put one more step in front of the path, and return the exception."""
        self.path = (step if isinstance(step, int) else str(step), *self.path)
        self._word()
        return self

    def of(self, subject: str) -> Self:
        """Say which object or file the value belongs to, and return the exception; an earlier answer follows it."""
        self.subject = f"{subject}: {self.subject}" if self.subject else subject
        self._word()
        return self

    def _word(self) -> None:
        place = [part for part in (self.subject, show_path(self.path)) if part]
        self.messages = (": ".join([*place, f"found {self.found}, expected {self.wanted}"]),)


def show_path(path: tuple[str | int, ...]) -> str:
    """Return a path as people write it: ``spec.containers[0].resources.requests["nvidia.com/gpu"]``."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{_quoted(step)}]"
    return text


def show(value: object) -> str:
    """Return a value as it would stand in JSON, on one line and not too long; of a collection only its size."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return f"an object with {counted(len(value), 'field')}"
    if isinstance(value, list | tuple):
        return f"a list of {len(value):,}"
    try:
        text = _quoted(value)
    except (TypeError, ValueError):
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _quoted(value: object) -> str:
    """Return a value as JSON; half of a surrogate pair, which no text that is sent can hold, stays escaped.

    Raises: TypeError, ValueError.
    """
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "backslashreplace").decode()
