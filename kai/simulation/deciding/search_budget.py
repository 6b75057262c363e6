"""How far a command searches for victims: so many scenarios, whatever the time, so that the same input answers alike.

The service has seconds (`kai.scheduler.search_budget`). A person who asks why a job waits need not be told the whole
plan of all jobs, and one group that no eviction helps may try every victim of a large cluster.
"""

from typing import Final

import attrs

from kai.engine.budget import Budget, BudgetAnswer, Unlimited


@attrs.frozen
class Searches:
    """How many scenarios are tried at most."""

    of_all: int
    """In one cycle."""
    of_one: int
    """For one group by one generator."""


READING: Final = Searches(of_all=4_000, of_one=400)
"""For commands that read: of the workloads that are measured, 500 groups that reclaim from 4,000 pods take 1,000."""
PASSED_FOR_ONE: Final = 4
"""So many scenarios that are passed over cost as much as one that is tried."""
TRYING: Final = Searches(of_all=400, of_one=100)
"""For each change that is tried for the sake of one job."""


@attrs.define
class Counted:
    """A budget of scenarios for one cycle."""

    most: Searches
    has_ended: bool = False
    """Whether a search was ended by it."""
    _left: int = attrs.field(init=False)
    _left_here: int = attrs.field(init=False, default=0)

    def __attrs_post_init__(self) -> None:
        """Begin with all of it."""
        self._left = self.most.of_all * PASSED_FOR_ONE

    def begin_action(self, action: str, /) -> None:
        """Nothing to start."""

    def go_on(self) -> BudgetAnswer:
        """Return GO: what is idle is given out to the end."""
        return BudgetAnswer.GO

    def begin_group(self) -> BudgetAnswer:
        """Return STOP once all scenarios are spent."""
        return BudgetAnswer.GO if self._left > 0 else self._ended(BudgetAnswer.STOP)

    def begin_generator(self, generator: str, /) -> None:
        """Start the scenarios of a generator."""
        self._left_here = self.most.of_one * PASSED_FOR_ONE

    def grant(self) -> BudgetAnswer:
        """Return whether another scenario may be tried: of this generator, and at all."""
        return self._spend(PASSED_FOR_ONE)

    def pass_over(self) -> BudgetAnswer:
        """Return whether the generator may propose more."""
        return self._spend(1)

    def _spend(self, cost: int) -> BudgetAnswer:
        if self._left <= 0:
            return self._ended(BudgetAnswer.STOP)
        if self._left_here <= 0:
            return self._ended(BudgetAnswer.NEXT_GENERATOR)
        self._left -= cost
        self._left_here -= cost
        return BudgetAnswer.GO

    def _ended(self, grant: BudgetAnswer) -> BudgetAnswer:
        self.has_ended = True
        return grant


def budget_of(searches: Searches | None) -> Budget:
    """Return the budget of one cycle; None is without end."""
    return Unlimited() if searches is None else Counted(searches)
