"""How far the search for changes that would help is, told with each decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import attrs

TRYING: Final = "trying changes"
Tell: TypeAlias = Callable[[str, int, int, str], None]
"""Takes what is being done, how much of it is done, how much there may be, and what else is to be said of it."""


def untold(what: str, done: int, total: int, detail: str, /) -> None:
    """Say nothing: for answers that a service has ready before they are asked for."""


@attrs.define
class Effort:
    """Counts decisions for groups of jobs that are explained one after the other.

    Holds: no more is told as done than there may be, and all of it once the last group is explained.
    """

    tell: Tell = untold
    _groups: int = 0
    _each: int = 0
    """Decisions that one of them may take; 0: nothing is tried, and nothing is told."""
    _ended: int = 0
    """Groups that are explained."""
    _tried: int = 0
    """Decisions for the group that is being explained."""

    def begin(self, groups: int, each: int) -> None:
        """Start on so many groups, with at most ``each`` decisions for one of them."""
        self._groups, self._each, self._ended, self._tried = groups, each, 0, 0
        self._say()

    def count(self) -> None:
        """Tell that once more is decided."""
        self._tried += 1
        self._say()

    def end_group(self) -> None:
        """Tell that a group is explained, with fewer decisions than it might have had, as a rule."""
        self._ended, self._tried = self._ended + 1, 0
        self._say()

    def _say(self) -> None:
        total = self._groups * self._each
        if not total:
            return
        if self._ended == self._groups:
            self.tell(TRYING, total, total, "")
            return
        done = self._ended * self._each + min(self._tried, self._each - 1)
        told = f"{self._tried} tried, {self._each} at most"
        if self._groups > 1:
            told = f"job {self._ended + 1} of {self._groups}, {told}"
        self.tell(TRYING, done, total, told)
