"""The input of a cycle as one value: the same input gives the same decisions.

A search budget depends on a clock. `Timed` therefore records its answers, and they become part of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.pod import Pod
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.deciding.engine.host import BudgetAnswer
from kai.facts.model.placement import Past
from kai.framework.parameters import SearchBudgets
from kai.intake.aside import Aside

_DEFAULT: Final = "default"

Grants = tuple[tuple[str, int], ...]
"""Answers of a budget in order, run-length encoded: each with the count of its repetitions."""


@attrs.define
class Spent:
    """What the searches of one action cost.

    Units: seconds.
    """

    groups: int = 0
    refused_groups: int = 0
    """Groups without a search, because the action had no time left."""
    reduced_groups: int = 0
    """Groups that got only the minimum time, because the action had too little time left."""
    scenarios: dict[str, int] = attrs.field(factory=dict)
    """Count by generator."""
    seconds: dict[str, float] = attrs.field(factory=dict)
    """By generator."""
    stopped: int = 0
    """Searches that ran out of time."""


@attrs.define
class Timed:
    """A search budget in seconds, for one cycle.

    There is a limit for an action, for a group, and for a generator on a group. A group may use all remaining time of
    its action, and gets the minimum time in any case.

    Source: the scenario search budgets of KAI-Scheduler.
    """

    budgets: SearchBudgets
    clock: Callable[[], float]
    part_seconds: float | None = None
    """Time after which an action leaves the remaining groups to the next cycle; with it no victims are searched for.

    None: the cycle serves every group.
    """
    check: Callable[[], None] = lambda: None
    """Raises once the cycle must stop. A search may run for minutes without a decision, so it has to call this."""
    spent: dict[str, Spent] = attrs.field(factory=dict)
    """Cost by action."""
    # Run lengths, since nearly all of the thousands of answers in a cycle are alike, and each snapshot that is dumped
    # has them all.
    _answers: list[list[object]] = attrs.field(factory=list)
    _action: str = ""
    _action_since: float = 0.0
    _generator: str = ""
    _action_until: float = 0.0
    _group_until: float = 0.0
    _generator_until: float = 0.0
    _generator_since: float = 0.0

    @property
    def grants(self) -> Grants:
        """The answers so far."""
        return tuple((str(what), int(str(count))) for what, count in self._answers)

    def begin_action(self, action: str, /) -> None:
        """Start the time of an action."""
        self._close_generator()
        self._action = action
        self._action_since = self.clock()
        self._action_until = self._action_since + _limit(self.budgets.action, action)

    def go_on(self) -> BudgetAnswer:
        """Return whether there is time for more groups; STOP occurs only in a cycle with ``part_seconds``."""
        self.check()
        if self.part_seconds is None:
            return BudgetAnswer.GO
        is_over = self.clock() >= self._action_since + self.part_seconds
        return self._answer(BudgetAnswer.STOP if is_over else BudgetAnswer.GO)

    def begin_group(self) -> BudgetAnswer:
        """Start the time of a group: at most the rest of its action's time, but at least the minimum."""
        self.check()
        self._close_generator()
        now = self.clock()
        spent = self._spent()
        least = self.budgets.group_minimum
        # In plain Python, which a cycle of a part runs in, a search for victims takes longer than the part may.
        if self.part_seconds is not None or (now >= self._action_until and least <= 0):
            spent.refused_groups += 1
            return self._answer(BudgetAnswer.STOP)
        longest = self.budgets.group if self.budgets.group > 0 else float("inf")
        left = min(longest, self._action_until - now)
        spent.groups += 1
        spent.reduced_groups += left < longest and left < least
        self._group_until = now + max(left, least)
        return self._answer(BudgetAnswer.GO)

    def begin_generator(self, generator: str, /) -> None:
        """Start the time of a generator."""
        self._close_generator()
        self._generator = generator
        self._generator_since = self.clock()
        self._generator_until = self._generator_since + _limit(self.budgets.generator, generator)

    def grant(self) -> BudgetAnswer:
        """Return whether there is time for another scenario."""
        answer = self.pass_over()
        if answer is BudgetAnswer.GO:
            scenarios = self._spent().scenarios
            scenarios[self._generator] = scenarios.get(self._generator, 0) + 1
        return answer

    def pass_over(self) -> BudgetAnswer:
        """Return whether there is time to skip a scenario: a generator may propose thousands that need no trial."""
        self.check()
        now = self.clock()
        if now >= self._group_until:
            self._close_generator()
            self._spent().stopped += 1
            return self._answer(BudgetAnswer.STOP)
        if now >= self._generator_until:
            self._close_generator()
            return self._answer(BudgetAnswer.NEXT_GENERATOR)
        return self._answer(BudgetAnswer.GO)

    def finish(self) -> Mapping[str, Spent]:
        """Return the cost of all searches by action, after the cycle."""
        self._close_generator()
        return self.spent

    def _spent(self) -> Spent:
        return self.spent.setdefault(self._action, Spent())

    def _close_generator(self) -> None:
        if self._generator:
            seconds = self._spent().seconds
            seconds[self._generator] = seconds.get(self._generator, 0.0) + self.clock() - self._generator_since
            self._generator = ""

    def _answer(self, grant: BudgetAnswer) -> BudgetAnswer:
        if self._answers and self._answers[-1][0] == grant.value:
            self._answers[-1][1] = int(str(self._answers[-1][1])) + 1
        else:
            self._answers.append([grant.value, 1])
        return grant


def _limit(limits: Mapping[str, float], name: str) -> float:
    """Return the limit for a name, or the default; infinity where the limit is 0."""
    seconds = limits.get(name, limits.get(_DEFAULT, 0.0))
    return seconds if seconds > 0 else float("inf")


@attrs.frozen(kw_only=True)
class CycleInput:
    """All that a cycle reads."""

    objects: ClusterObjects
    now: float
    cycle: int
    past: Past = attrs.field(factory=Past)
    kubernetes: KubernetesVersion = NEWEST
    """The version of the API server."""
    early: tuple[Pod, ...] = ()
    """Pods that are not among the objects: they belong to a gang whose stand-ins hold its place until all have come."""
    aside: Aside = attrs.field(factory=dict)
    """Objects that were left out because a cycle had failed at them."""
    grants: Grants = ()
    """The answers of the search budget."""
