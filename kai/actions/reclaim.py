"""Reclaim: a group whose queue is below its fair share takes places from queues above theirs.

Source: the peer's actions/reclaim.
"""

from collections.abc import Mapping

import attrs
import numpy as np

from kai.actions.search.waiting import EvictionPass, anything
from kai.deciding.engine.portion import Portion
from kai.deciding.engine.session import Session
from kai.facts.kernels.victims import keep_queues
from kai.facts.model.axis import Bools, Float64s, GroupRow, Int64s
from kai.framework.decisions import Cause
from kai.framework.verdict import Code, Fact, Verdict


def _may_reclaim(session: Session, portion: Portion) -> Verdict:
    """Ask the first plugin that has an opinion; without such a plugin no group may reclaim."""
    group, amounts = portion.group, portion.amounts()
    facts = session.facts.groups
    # One answer holds for all groups of a queue that want the same amounts for as long, until a statement is committed.
    end = int(facts.ahead[group])
    alike = (int(facts.queue[group]), bool(facts.preemptible[group]), end, amounts.tobytes(), session.stamp)
    verdict = session.reclaim_verdicts.get(alike)
    if verdict is None:
        ask = next((each.may_reclaim for each in session.policy.victims if each.may_reclaim is not None), None)
        verdict = ask(GroupRow(group), amounts) if ask is not None else Verdict.refused(Code.NOT_ELIGIBLE)
        session.reclaim_verdicts[alike] = verdict
    return verdict


def _others(session: Session, portion: Portion, placed: Bools) -> Bools:
    queues = np.ones(len(session.snapshot.queues), np.bool_)
    # Within a queue priorities decide, which is the work of preempt.
    queues[session.facts.groups.queue[portion.group]] = False
    keep_queues(session.facts, queues, placed)
    return placed


def explain(session: Session, queue: int, used: Float64s | Int64s) -> Mapping[str, Fact]:
    """Return the facts about a queue that held ``used`` [3] before the search."""
    facts, named = session.facts.queues, session.snapshot.queues[queue]
    return {
        "name": named.name,
        "title": named.title,
        "used": tuple(map(float, used.tolist())),
        "quota": tuple(map(float, facts.quota[queue].tolist())),
        "fair_share": tuple(map(float, facts.fair_share[queue].tolist())),
        "priority": named.priority,
    }


@attrs.frozen
class Reclaim:
    """Take resources that other queues hold beyond their share."""

    name: str = "reclaim"
    cause: Cause = Cause.RECLAIM
    priority: int = 300

    def run(self, session: Session) -> None:
        """Search victims for every waiting group whose queue may hold more."""
        EvictionPass(
            name=self.name,
            cause=self.cause,
            may_search=_may_reclaim,
            can_succeed=anything,
            victims=_others,
            per_queue=True,
            explain=explain,
        ).run(session)
