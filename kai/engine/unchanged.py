"""Rest: a cycle that could only repeat an earlier cycle without decisions is not run.

A cycle is a function of its facts, its profile, its instant and what its budget grants. If the facts and the profile
are the very same objects, a cycle with the same groups in turn decided nothing, the budget never said no, and no
deadline that was asked about has come since, then this cycle would leave the same report.
"""

from typing import cast

import attrs

from kai.engine.budget import Budget, BudgetAnswer
from kai.engine.profile import Profile
from kai.engine.report import CycleReport
from kai.engine.session import Session
from kai.engine.shortcuts import UNCHANGED, takes
from kai.state.snapshot import Snapshot

_NAME = "cycles at rest"


@attrs.frozen(eq=False)
class _AtRest:
    content: object
    profile: Profile
    since: float
    until: float
    report: CycleReport


def report_at_rest(snapshot: Snapshot, profile: Profile) -> CycleReport | None:
    """Return the report of an earlier cycle if this one would only repeat it, else None. Cost: a few comparisons."""
    if snapshot.past.awaited or not takes(profile.parameters, UNCHANGED):
        return None
    known = _known(snapshot).get(_turn_of(snapshot))
    if known is None or known.content is not snapshot.versions.content or known.profile is not profile:
        return None
    return known.report if known.since <= snapshot.now < known.until else None


@attrs.define
class WatchedBudget:
    """A budget, and whether it ever refused a grant."""

    budget: Budget
    has_refused: bool = False

    def begin_action(self, action: str, /) -> None:
        """Pass it on."""
        self.budget.begin_action(action)

    def go_on(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.go_on())

    def begin_group(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.begin_group())

    def begin_generator(self, generator: str, /) -> None:
        """Pass it on."""
        self.budget.begin_generator(generator)

    def grant(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.grant())

    def pass_over(self) -> BudgetAnswer:
        """Pass it on."""
        return self._seen(self.budget.pass_over())

    def _seen(self, grant: BudgetAnswer) -> BudgetAnswer:
        if grant is not BudgetAnswer.GO:
            self.has_refused = True
        return grant


def remember(session: Session, profile: Profile, report: CycleReport, budget: WatchedBudget) -> None:
    """Keep ``report`` for as long as it stays true, if the cycle decided nothing."""
    snapshot, until = session.snapshot, session.clock.holds_until
    if any(report.counts.values()) or snapshot.past.awaited or budget.has_refused or until <= snapshot.now:
        return
    if report.failures:
        return  # a plugin that fails may work the next time, on the same facts
    content = snapshot.versions.content
    known = {turn: each for turn, each in _known(snapshot).items() if each.content is content}
    known[_turn_of(snapshot)] = _AtRest(content, profile, snapshot.now, until, report)
    snapshot.memory.keep(_NAME, known)


def holds_until(snapshot: Snapshot) -> float:
    """Return until when a cycle on ``snapshot`` that decided nothing would be repeated; past if that is not known.

    Units: seconds since the epoch.
    """
    known = _known(snapshot).get(_turn_of(snapshot))
    return known.until if known is not None and known.content is snapshot.versions.content else snapshot.now


def _known(snapshot: Snapshot) -> dict[bytes, _AtRest]:
    return cast("dict[bytes, _AtRest] | None", snapshot.memory.recall(_NAME)) or {}


def _turn_of(snapshot: Snapshot) -> bytes:
    """Return what tells cycles on the same facts apart: which groups wait for a turn."""
    return snapshot.crowds.waiting.tobytes()
