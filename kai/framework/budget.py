"""How much searching is allowed. The core has no clock: it asks, and the answers are data that a replay can repeat."""

from enum import Enum
from typing import Protocol

import attrs


class Grant(Enum):
    """The answer to "may I try one more scenario?"."""

    GO = "go"
    NEXT_GENERATOR = "next generator"
    STOP = "stop"


class Budget(Protocol):
    """Asked before every scenario. Implementations with a clock live at the edge and record what they answered."""

    def begin_action(self, action: str, /) -> None:
        """An action begins."""

    def begin_group(self) -> Grant:
        """A search for one group begins: GO, or STOP when the action has no time left."""

    def begin_generator(self, generator: str, /) -> None:
        """A generator begins on the group."""

    def grant(self) -> Grant:
        """Another scenario is about to be tried."""


@attrs.define
class Unlimited:
    """A budget that always grants."""

    def begin_action(self, action: str, /) -> None:
        """Nothing to start."""

    def begin_group(self) -> Grant:
        """Return GO."""
        return Grant.GO

    def begin_generator(self, generator: str, /) -> None:
        """Nothing to start."""

    def grant(self) -> Grant:
        """Return GO."""
        return Grant.GO


@attrs.define
class Counted:
    """A budget in scenarios: so many for a group with each generator, for a group, and for an action; 0 is no bound."""

    for_generator: int = 0
    for_group: int = 0
    for_action: int = 0
    _generator: int = attrs.field(default=0, init=False)
    _group: int = attrs.field(default=0, init=False)
    _action: int = attrs.field(default=0, init=False)

    def begin_action(self, action: str, /) -> None:
        """Start counting for the action."""
        del action
        self._action = 0

    def begin_group(self) -> Grant:
        """Start counting for the group."""
        self._group = 0
        return Grant.STOP if _spent(self._action, self.for_action) else Grant.GO

    def begin_generator(self, generator: str, /) -> None:
        """Start counting for the generator."""
        del generator
        self._generator = 0

    def grant(self) -> Grant:
        """Count one scenario, if it is allowed."""
        if _spent(self._group, self.for_group) or _spent(self._action, self.for_action):
            return Grant.STOP
        if _spent(self._generator, self.for_generator):
            return Grant.NEXT_GENERATOR
        self._generator += 1
        self._group += 1
        self._action += 1
        return Grant.GO


def _spent(count: int, bound: int) -> bool:
    return 0 < bound <= count
