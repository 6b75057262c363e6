"""Hands out the decisions of a run of searches, many statements at a time.

Messages about evictions give the numbers of the victim's queue and of the aggressor's, at the level where their paths
part.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from kai.deciding.engine.session import Session
from kai.facts.kernels import reclaiming
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.kernels.columns import OP_EVICT
from kai.facts.kernels.reclaiming import Reclaiming
from kai.facts.model.axis import Float64s, Int64s, PodRows
from kai.framework.decisions import Cause, Decision, Evict, Nominate
from kai.framework.verdict import Fact

Explain = Callable[[Session, int, Float64s | Int64s], Mapping[str, Fact]]
"""Returns the facts about a queue from its usage before any eviction.

Only the fact named ``USED`` depends on that usage; the others stay the same for a whole cycle.
"""
USED: Final = "used"


def facts_of(
    session: Session, explain: Explain | None, used: Float64s | Int64s, pods: PodRows, aggressor: int
) -> dict[int, Mapping[str, Fact]]:
    """Return, for each of ``pods``, the facts about its queue and the aggressor's queue where their paths part.

    ``used`` [Q, 3] is the usage of queues before the search.
    """
    if explain is None:
        return {}
    parents, groups = session.facts.queues.parent, session.facts.groups.queue
    own = int(groups[aggressor])
    out: dict[int, Mapping[str, Fact]] = {}
    for pod in pods.tolist():
        victim, mine = int(groups[session.facts.pods.group[pod]]), own
        if parents[victim] != parents[mine]:
            victim, mine = (int(parents[row]) if parents[row] >= 0 else row for row in (victim, mine))
        out[pod] = {
            "victim": explain(session, victim, used[victim]),
            "aggressor": explain(session, mine, used[mine]),
        }
    return out


class Served:
    """The decisions of searches for one cause."""

    def __init__(self, session: Session, rule: str, explain: Explain | None) -> None:
        """Begin without decisions; ``rule`` and ``explain`` are for messages."""
        self._session = session
        self._rule = rule
        self._explain = explain
        self._told: dict[int, Mapping[str, Fact]] = {}
        """The facts about queues in messages, by queue."""
        self._held: dict[tuple[int, int], int] = {}
        """Thousandths of GPUs that pods hold, by shape and node."""

    def hand_out(self, work: Reclaiming) -> None:
        """Hand out the statements of ``work`` as the session does, one at a time."""
        session = self._session
        served = work.served[: work.state[reclaiming.STATEMENTS]]
        count = int(work.state[reclaiming.DECISIONS])
        decided = work.decided[:count]
        evicted = decided[decided[:, reclaiming.KIND] == OP_EVICT, reclaiming.POD]
        groups = session.facts.pods.group[evicted]
        if len(groups):
            session.note_time("last_eviction", groups[groups >= 0], session.clock.read())
        begins = [*served[:, 1].tolist(), count]
        aggressors = np.repeat(served[:, 0], np.diff(begins))
        decisions = tuple(self._decisions(decided, work.used[:count], aggressors))
        session.stamp += len(served)
        session.emit(Cause.RECLAIM.name, *(decisions[begin:end] for begin, end in pairwise(begins)))

    def _decisions(self, decided: Int64s, used: Float64s, aggressors: Int64s) -> Iterable[Decision]:
        names = self._session.bindings.names_at(decided[:, reclaiming.PLACEMENT])
        rows = zip(decided.tolist(), used.tolist(), aggressors.tolist(), names, strict=True)
        for (kind, pod, node, _, victim, mine), held, aggressor, devices in rows:
            if kind == OP_EVICT:
                yield self._eviction(pod, node, aggressor, (victim, held[:3]), (mine, held[3:]))
            else:
                yield Nominate(pod=pod, node=node, devices=devices, action=Cause.RECLAIM.name)

    def _eviction(
        self,
        pod: int,
        moved_to: int,
        aggressor: int,
        victim: tuple[int, Sequence[float]],
        mine: tuple[int, Sequence[float]],
    ) -> Evict:
        session = self._session
        group = int(session.facts.pods.group[pod])
        facts = {"victim": self._numbers(*victim), "aggressor": self._numbers(*mine)} if self._explain else {}
        return Evict(
            pod=pod,
            cause=Cause.RECLAIM,
            aggressor=aggressor,
            rule=self._rule,
            facts=facts,
            gang_size=session.portions.gang_size(group),
            moved_to=moved_to,
            gpus=self._gpus(pod),
        )

    def _numbers(self, queue: int, held: Sequence[float]) -> Mapping[str, Fact]:
        """Return the facts about ``queue``, whose usage was ``held`` before the search."""
        known = self._told.get(queue)
        if known is None:
            assert self._explain is not None  # noqa: S101 - asked by the caller
            known = self._told[queue] = self._explain(self._session, queue, np.array(held, np.float64))
        return {**known, USED: tuple(held)}

    def _gpus(self, pod: int) -> int:
        """Return the thousandths of GPUs that ``pod`` held on its node when the cycle began."""
        session = self._session
        shape, node = int(session.facts.pods.shape[pod]), int(session.snapshot.pod_node[pod])
        known = self._held.get((shape, node))
        if known is None:
            known = self._held[shape, node] = int(accepted_gpu(session.facts, shape, node))
        return known
