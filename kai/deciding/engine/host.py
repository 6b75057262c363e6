"""The host interface of a cycle: its clock, its search budget and its observer.

The clock shows one instant for the whole cycle and records until when its answers stay the same. A cycle is a function
of facts and of that instant, and a plugin that only asks whether a deadline has passed gets the same answer until the
next deadline. So the service skips cycles that decided nothing until then, unless facts change.

A budget bounds the searches for victims. The core reads no clock: it asks the budget, so that a replay can repeat the
recorded answers.

An observer is notified of the phases, plugins, groups and commits of a cycle while it runs.

Implementations that read real clocks or write trace spans live at the edge, outside the core.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, StrEnum
from math import inf
from typing import Final, ParamSpec, Protocol, TypeVar

import attrs
import numpy as np

from kai.facts.model.axis import Bools, Float64s

_MARGIN: Final = 1e-3
"""Seconds. Each deadline expires this much early, so that a rounded sum cannot hide it."""


@attrs.define
class Clock:
    """The instant of a cycle, and until when answers that depend on it hold.

    Units: seconds since the epoch.
    """

    _now: float
    holds_until: float = attrs.field(default=inf, init=False)
    """Every answer given so far is the same at any instant from now until this one."""

    def read(self) -> float:
        """Return the instant. Whatever is derived from it holds for this instant only, so ``holds_until`` ends."""
        self.holds_until = -inf
        return self._now

    def is_past(self, deadline: float) -> bool:
        """Return whether ``deadline`` has passed; NaN never passes."""
        if self._now >= deadline:
            return True
        self._expect(deadline)
        return False

    def are_past(self, deadlines: Float64s) -> Bools:
        """Return bool[n]: which of ``deadlines`` have passed; NaN never passes."""
        past: Bools = self._now >= deadlines
        if past.all():
            return past
        ahead = deadlines[~past & ~np.isnan(deadlines)]
        if len(ahead):
            self._expect(float(ahead.min()))
        return past

    def has_lasted(self, since: float, seconds: float) -> bool:
        """Return whether at least ``seconds`` have passed since ``since``."""
        # NaN stands for what never began: it compares false here, and `_expect` ignores it.
        if self._now - since >= seconds:
            return True
        self._expect(since + seconds)
        return False

    def _expect(self, deadline: float) -> None:
        if deadline == deadline:  # noqa: PLR0124 - NaN is no deadline
            self.holds_until = min(self.holds_until, deadline - _MARGIN)


class BudgetAnswer(Enum):
    """The answer to the question whether the search may try one more scenario."""

    GO = "go"
    NEXT_GENERATOR = "next generator"
    STOP = "stop"


class Budget(Protocol):
    """Limits the work of actions: asked while allocate serves groups, and before each scenario of a search.

    Implementations with a clock live at the edge and record their answers.
    """

    def begin_action(self, action: str, /) -> None:
        """Note that ``action`` begins."""

    def go_on(self) -> BudgetAnswer:
        """Return whether allocate may serve more groups: GO, or STOP to leave the rest to a later cycle."""

    def begin_group(self) -> BudgetAnswer:
        """Return whether the search for one more group may begin: GO, or STOP when the action has no time left."""

    def begin_generator(self, generator: str, /) -> None:
        """Note that ``generator`` begins on the group."""

    def grant(self) -> BudgetAnswer:
        """Return whether one more scenario may be tried."""

    def pass_over(self) -> BudgetAnswer:
        """Return whether the search may go on although it has tried no scenario for a while.

        The proposed scenarios failed before or place no pod, or no set of victims suffices yet. Answers like ``grant``.
        """


@attrs.define
class Repeating:
    """Replays the ``answers`` that a search got the first time, then asks ``budget``."""

    budget: Budget
    answers: list[BudgetAnswer]

    def begin_action(self, action: str, /) -> None:
        """Forward to the budget."""
        self.budget.begin_action(action)

    def go_on(self) -> BudgetAnswer:
        """Ask the budget."""
        return self.budget.go_on()

    def begin_group(self) -> BudgetAnswer:
        """Return GO while recorded answers remain, else ask the budget."""
        return BudgetAnswer.GO if self.answers else self.budget.begin_group()

    def begin_generator(self, generator: str, /) -> None:
        """Forward to the budget, unless the repeated search has begun this generator already."""
        if not self.answers:
            self.budget.begin_generator(generator)

    def grant(self) -> BudgetAnswer:
        """Return the next recorded answer; without one, ask the budget."""
        return self.answers.pop(0) if self.answers else self.budget.grant()

    def pass_over(self) -> BudgetAnswer:
        """Return the next recorded answer; without one, ask the budget."""
        return self.answers.pop(0) if self.answers else self.budget.pass_over()


@attrs.define
class Unlimited:
    """A budget that grants everything."""

    def begin_action(self, action: str, /) -> None:
        """Do nothing."""

    def go_on(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO

    def begin_group(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO

    def begin_generator(self, generator: str, /) -> None:
        """Do nothing."""

    def grant(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO

    def pass_over(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO


P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch(Protocol):
    """Measures the time that plugins take."""

    def timed(self, plugin: str, hook: str, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time charged to ``plugin`` and its ``hook``."""

    def paused(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time charged to no plugin, whichever calls it."""


class Phase(StrEnum):
    """A part of a cycle that is not an action; actions have names of their own."""

    SNAPSHOT = "snapshot"
    OPEN = "open"
    CLOSE = "close"
    EXPLAIN = "explain"


class Observer(Protocol):
    """Receives notice of phases, plugins, groups and commits while a cycle runs."""

    @property
    def stopwatch(self) -> Stopwatch | None:
        """The stopwatch for plugin functions; None leaves the functions unwrapped, at no cost."""

    def phase(self, name: str, /) -> AbstractContextManager[None]:
        """Return a context that lasts as long as the phase: a `Phase`, or the name of an action."""

    def plugin(self, name: str, /) -> None:
        """Note that plugin ``name`` now opens or closes, as the phase says; "" after the last plugin."""

    def group(self, row: int, /) -> None:
        """Note that the cycle now works on the group in ``row``; -1 for no group in particular."""

    def committed(self, action: str, decisions: int, /) -> None:
        """Note that a statement of ``action`` with ``decisions`` decisions is final."""


class Silent:
    """An observer that ignores everything."""

    stopwatch: Stopwatch | None = None

    @contextmanager
    def phase(self, name: str, /) -> Iterator[None]:
        """Do nothing around the phase ``name``."""
        del name
        yield

    def plugin(self, name: str, /) -> None:
        """Do nothing."""

    def group(self, row: int, /) -> None:
        """Do nothing."""

    def committed(self, action: str, decisions: int, /) -> None:
        """Do nothing."""
