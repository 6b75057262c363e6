"""Budgets bound searches. The core has no clock: it asks a budget, and a replay can repeat the answers."""

from enum import Enum
from typing import Protocol

import attrs


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
