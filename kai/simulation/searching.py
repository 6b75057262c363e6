"""How far a command searches for victims: so many scenarios, whatever the time, so that the same input answers alike.

The service has seconds (`kai.scheduler.budget`). A person who asks why a job waits need not be told the whole plan of
all jobs, and one group that no eviction helps may try every victim of a large cluster.
"""

from typing import Final

import attrs

from kai.engine.budget import Budget, Grant, Unlimited


@attrs.frozen
class Searches:
    """How many scenarios are tried at most."""

    of_all: int
    """In one cycle."""
    of_one: int
    """For one group by one generator."""


READING: Final = Searches(of_all=4_000, of_one=400)
"""For commands that read: of the workloads that are measured, 500 groups that reclaim from 4,000 pods take 1,000."""
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
        self._left = self.most.of_all

    def begin_action(self, action: str, /) -> None:
        """Nothing to start."""

    def go_on(self) -> Grant:
        """Return GO: what is idle is given out to the end."""
        return Grant.GO

    def begin_group(self) -> Grant:
        """Return STOP once all scenarios are spent."""
        return Grant.GO if self._left else self._ended(Grant.STOP)

    def begin_generator(self, generator: str, /) -> None:
        """Start the scenarios of a generator."""
        self._left_here = self.most.of_one

    def grant(self) -> Grant:
        """Return whether another scenario may be tried: of this generator, and at all."""
        if not self._left:
            return self._ended(Grant.STOP)
        if not self._left_here:
            return self._ended(Grant.NEXT_GENERATOR)
        self._left -= 1
        self._left_here -= 1
        return Grant.GO

    def _ended(self, grant: Grant) -> Grant:
        self.has_ended = True
        return grant


def budget_of(searches: Searches | None) -> Budget:
    """Return the budget of one cycle; None is without end."""
    return Unlimited() if searches is None else Counted(searches)
