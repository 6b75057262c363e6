"""Manifests read one piece at a time, each piece knowing where it was found.

A webhook must keep what it does not know, so it works on the manifest itself and not on an api object made of it. A
piece that is not what it must be is refused with its path; nothing here ends in a traceback, whatever the JSON holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from kai.api.codec.structuring import subject_of
from kai.api.fields import INT32_MAX
from kai.api.values.bad_value import BadValue


@attrs.frozen
class Piece:
    """A value inside a manifest; absent and null are the same."""

    value: object
    subject: str = ""
    path: tuple[str | int, ...] = ()

    @property
    def present(self) -> bool:
        """Whether there is anything here."""
        return self.value is not None

    def bad(self, wanted: str) -> BadValue:
        """Return the exception that says what is wrong here."""
        return BadValue(self.value, wanted, subject=self.subject, path=self.path)

    def __getitem__(self, key: str) -> Piece:
        """Return the value of a field.

        Raises: BadValue if this is no mapping.
        """
        return Piece(self.mapping().get(key), self.subject, (*self.path, key))

    def mapping(self) -> Mapping[str, Any]:
        """Return the fields; none if absent.

        Raises: BadValue if this is no mapping.
        """
        return self.mapping_or_none() or {}

    def mapping_or_none(self) -> Mapping[str, Any] | None:
        """Return the fields, or None if absent.

        Raises: BadValue if this is no mapping.
        """
        if self.value is None:
            return None
        if not isinstance(self.value, Mapping):
            raise self.bad("an object")
        return self.value

    def each(self) -> Iterator[Piece]:
        """Yield the entries of a list; none if absent.

        Raises: BadValue if this is no list, or has a null in it.
        """
        if self.value is None:
            return
        if not isinstance(self.value, list):
            raise self.bad("a list")
        for index, entry in enumerate(self.value):
            piece = Piece(entry, self.subject, (*self.path, index))
            if entry is None:
                raise piece.bad("an entry")
            yield piece

    def text(self) -> str:
        """Return a text; empty if absent.

        Raises: BadValue if this is no text.
        """
        if self.value is None:
            return ""
        if not isinstance(self.value, str):
            raise self.bad("a string")
        return self.value

    def texts(self) -> dict[str, str]:
        """Return a mapping from text to text, such as labels.

        Raises: BadValue if this is none.
        """
        return {key: self[key].text() for key in self.mapping()}

    def integer(self) -> int | None:
        """Return a 32-bit integer; None if absent.

        Raises: BadValue if this is none.
        """
        if self.value is None:
            return None
        if type(self.value) is not int or not -INT32_MAX - 1 <= self.value <= INT32_MAX:
            raise self.bad("a 32-bit integer")
        return self.value

    def number(self) -> float:
        """Return a number; 0 if absent.

        Raises: BadValue if this is none, or none that a float can hold.
        """
        if self.value is None:
            return 0.0
        if type(self.value) not in {int, float}:
            raise self.bad("a number")
        try:
            number = float(self.value)  # type: ignore[arg-type]  # the line above says what it is, mypy cannot follow `type()`
        except OverflowError:
            raise self.bad("a smaller number") from None
        if not math.isfinite(number):
            raise self.bad("a finite number")
        return number


def piece_of(manifest: object, kind: str) -> Piece:
    """Return a whole manifest as a piece, known by its kind, namespace and name."""
    return Piece(manifest, subject_of(manifest, kind))
