"""What its host gives a cycle: a clock that stands still, budgets that bound searches, and observers.

The clock of a cycle: one instant, and until which later instant its answers stay the same.

A cycle is a function of facts and of one instant. A plugin that only asks whether a deadline has come gets the same
answer until the next deadline. So the service need not repeat a cycle that decided nothing before then, unless facts
change.

Budgets bound searches. The core has no clock: it asks a budget, and a replay can repeat the answers.

Observers: the core tells them what a cycle does while it runs.

Clocks and spans live in the implementations at the edge.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from enum import Enum, StrEnum
from math import inf
from typing import Final, ParamSpec, Protocol, TypeVar

import attrs
import numpy as np

from kai.model.axis import Bools, Float64s

_MARGIN: Final = 1e-3
"""Seconds. Deadlines are looked at that much early again, so that no rounding of a sum can hide one."""


@attrs.define
class Clock:
    """One instant; remembers which later ones were asked about.

    Units: seconds since the epoch.
    """

    _now: float
    holds_until: float = attrs.field(default=inf, init=False)
    """Every answer so far is the same at any instant from now to this one."""

    def read(self) -> float:
        """Return the instant itself: what is made of it holds for this instant only."""
        self.holds_until = -inf
        return self._now

    def is_past(self, deadline: float) -> bool:
        """Return whether ``deadline`` has come; NaN never comes."""
        if self._now >= deadline:
            return True
        self._expect(deadline)
        return False

    def are_past(self, deadlines: Float64s) -> Bools:
        """Return bool[n]: which of ``deadlines`` have come; NaN never comes."""
        past: Bools = self._now >= deadlines
        if past.all():
            return past
        ahead = deadlines[~past & ~np.isnan(deadlines)]
        if len(ahead):
            self._expect(float(ahead.min()))
        return past

    def has_lasted(self, since: float, seconds: float) -> bool:
        """Return whether what began at ``since`` has lasted for ``seconds``."""
        if self._now - since >= seconds:
            return True
        self._expect(since + seconds)
        return False

    def _expect(self, deadline: float) -> None:
        if deadline == deadline:  # noqa: PLR0124 - NaN is no deadline
            self.holds_until = min(self.holds_until, deadline - _MARGIN)


class BudgetAnswer(Enum):
    """The answer to "may I try one more scenario?"."""

    GO = "go"
    NEXT_GENERATOR = "next generator"
    STOP = "stop"


class Budget(Protocol):
    """Asked while groups are served and before every scenario.

    Implementations with a clock live at the edge and record what they answered.
    """

    def begin_action(self, action: str, /) -> None:
        """An action begins."""

    def go_on(self) -> BudgetAnswer:
        """Allocate has served some groups: GO for more, STOP to leave all others to a later cycle."""

    def begin_group(self) -> BudgetAnswer:
        """A search for one group begins: GO, or STOP when the action has no time left."""

    def begin_generator(self, generator: str, /) -> None:
        """A generator begins on the group."""

    def grant(self) -> BudgetAnswer:
        """Another scenario is about to be tried."""

    def pass_over(self) -> BudgetAnswer:
        """No scenario is tried for a while: those proposed failed before or take no pod, or no victims suffice yet.

        Answers are as above.
        """


@attrs.define
class Repeating:
    """A budget that gives the ``answers`` that a search had before it is made again, then those of ``budget``."""

    budget: Budget
    answers: list[BudgetAnswer]

    def begin_action(self, action: str, /) -> None:
        """Tell the budget."""
        self.budget.begin_action(action)

    def go_on(self) -> BudgetAnswer:
        """Ask the budget."""
        return self.budget.go_on()

    def begin_group(self) -> BudgetAnswer:
        """Return GO if the search had begun, else ask the budget."""
        return BudgetAnswer.GO if self.answers else self.budget.begin_group()

    def begin_generator(self, generator: str, /) -> None:
        """Tell the budget, unless the search was with this generator."""
        if not self.answers:
            self.budget.begin_generator(generator)

    def grant(self) -> BudgetAnswer:
        """Return the next answer."""
        return self.answers.pop(0) if self.answers else self.budget.grant()

    def pass_over(self) -> BudgetAnswer:
        """Ask the budget."""
        return self.budget.pass_over()


@attrs.define
class Unlimited:
    """A budget that always grants."""

    def begin_action(self, action: str, /) -> None:
        """Nothing to start."""

    def go_on(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO

    def begin_group(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO

    def begin_generator(self, generator: str, /) -> None:
        """Nothing to start."""

    def grant(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO

    def pass_over(self) -> BudgetAnswer:
        """Return GO."""
        return BudgetAnswer.GO


P = ParamSpec("P")
R = TypeVar("R")


class Stopwatch(Protocol):
    """Times what plugins do."""

    def timed(self, plugin: str, hook: str, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time counted for ``plugin``, which is asked ``hook``."""

    def paused(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function``, whose time counts for no plugin, whichever calls it."""


class Phase(StrEnum):
    """A part of a cycle besides the actions, which have names of their own."""

    SNAPSHOT = "snapshot"
    OPEN = "open"
    CLOSE = "close"
    EXPLAIN = "explain"


class Observer(Protocol):
    """Told when phases begin and end."""

    @property
    def stopwatch(self) -> Stopwatch | None:
        """What times the functions of plugins; None leaves them as they are, at no cost."""

    def phase(self, name: str, /) -> AbstractContextManager[None]:
        """Return a context that lasts as long as the phase: a `Phase`, or the name of an action."""

    def plugin(self, name: str, /) -> None:
        """Learn that from now on this plugin opens or closes, as the phase says; "" when the last one is done."""

    def group(self, row: int, /) -> None:
        """Learn that from now on this group is looked at; -1 for none in particular."""

    def committed(self, action: str, decisions: int, /) -> None:
        """Learn that a statement of ``action`` with so many decisions became final."""


class Silent:
    """An observer that looks away."""

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
