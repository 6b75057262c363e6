"""Searches of reclaim that one call of a kernel makes: for a group of one pod, by the rules of fair shares alone.

A search that does not succeed with its first scenario is left to the long way, which says why.
"""

from collections.abc import Sequence

import numpy as np

from kai.actions.search.eviction_facts import Explain, facts_of
from kai.actions.search.group_states import FEW, GroupStates
from kai.actions.search.replacing import finalize
from kai.actions.search.solver import Outcome
from kai.engine.budget import BudgetAnswer, Repeating
from kai.engine.portion import Portion
from kai.engine.session import Session
from kai.engine.shortcuts import FIRST_PROBE, LAST_PROBE, ONE_CALL, TRIAL
from kai.framework.decisions import Cause
from kai.framework.fairness import Fairness, used_before
from kai.framework.hooks import Victims
from kai.kernels.first_probe import CHANGES, VICTIMS
from kai.kernels.reclaiming import LOOK, NO_ROOM, SERVED, Reclaiming, reclaim_first
from kai.kernels.trying import FAILED

_ASKED = ("queues", "groups", "may_reclaim", "before_search", "accept")
"""What searches ask of plugins."""


class OneCall:
    """The searches of one run of reclaim."""

    def __init__(
        self,
        session: Session,
        states: GroupStates,
        fairness: Fairness,
        generator: str,
        rule: str,
        explain: Explain | None,
    ) -> None:
        """Prepare; ``generator`` is the name of the first one, ``rule`` and ``explain`` are for messages."""
        self._session = session
        self._states = states
        self._generator = generator
        self._rule = rule
        self._explain = explain
        self._work = Reclaiming(
            groups=states.arrays,
            trial=states.trial,
            probe=states.probe,
            fairness=fairness,
            greedy=np.zeros(len(session.snapshot.queues), np.bool_),
            few=FEW,
            per_change=session.ledger.room_for(0),
        )

    @classmethod
    def of(cls, session: Session, states: GroupStates, rule: str, explain: Explain | None) -> "OneCall | None":
        """Return what makes searches; None: nothing that is asked for them is left out, so all go the long way."""
        needed = (TRIAL, FIRST_PROBE, LAST_PROBE, ONE_CALL)
        fairness = _fairness_of(session.policy.victims)
        generator = next((each for each in session.policy.plugins if each.proposals is not None), None)
        if (
            fairness is None
            or generator is None
            or generator.proposals is None
            or not (generator.proposals.proposes_by_node and generator.proposals.begins_with_recorded)
            or not all(session.takes(each) for each in needed)
            or session.policy.judges_pods
            or session.snapshot.protected
            or session.caps.are_set
        ):
            return None
        return cls(session, states, fairness, generator.proposals.name or generator.name, rule, explain)

    def serve(self, portion: Portion) -> Outcome | None:
        """Search for the group; None: it is left as it was, for the long way."""
        session, group = self._session, portion.group
        statement = session.statement(Cause.RECLAIM.value, Cause.RECLAIM, group, self._rule)
        if isinstance(session.budget, Repeating):
            session.budget = session.budget.budget
        if self._search(group) != SERVED:
            return None
        outcome = self._granted()
        if outcome is not Outcome.PLACED:
            statement.discard()
            return outcome
        trial, probe = self._work.trial, self._work.probe
        finalize(session, trial.failed[: trial.state[FAILED]].tolist())
        victims = probe.victims[: probe.state[VICTIMS]]
        statement.facts = facts_of(session, self._explain, used_before(self._work.fairness), victims, group)
        statement.commit()
        return outcome

    def _search(self, group: int) -> int:
        session, work = self._session, self._work
        while True:
            ended = reclaim_first(
                session.facts,
                session.columns,
                session.ledger.offsets,
                session.policy.rules,
                session.policy.vectors,
                work,
                group,
            )
            if ended == LOOK:
                self._states.complete()
            elif ended == NO_ROOM:
                session.ledger.reserve(int(work.probe.state[CHANGES]))
            else:
                return ended

    def _granted(self) -> Outcome | None:
        """Ask the budget what the long way asks; None: the long way goes on from what was answered."""
        session, answers = self._session, list[BudgetAnswer]()
        if session.budget.begin_group() is BudgetAnswer.STOP:
            return Outcome.STOPPED
        session.budget.begin_generator(self._generator)
        for _ in ("the scenario", "the last probe"):
            answers.append(session.budget.grant())
            if answers[-1] is BudgetAnswer.STOP:
                return Outcome.STOPPED
            if answers[-1] is BudgetAnswer.NEXT_GENERATOR:
                session.budget = Repeating(session.budget, answers)
                return None
        return Outcome.PLACED


def _fairness_of(victims: Sequence[Victims]) -> Fairness | None:
    """Return what the rules of fair shares work with, if nothing else is asked about victims; None: there is more."""
    asked = [each for each in victims if any(getattr(each, hook) is not None for hook in _ASKED)]
    return asked[0].fairness if len(asked) == 1 else None


__all__ = ["OneCall"]
