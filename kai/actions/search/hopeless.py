"""Searches that cannot succeed: sums prove it, or a search for less has failed.

Groups that ask for no less than one whose search failed: theirs would fail, too, and all of them are closed at once.

``kai.actions.search.waiting`` remembers a failure by what pods ask for besides amounts, with the amounts. What is
remembered only gets smaller while nothing is committed, so a group that asks for no less now does so in its turn, too.

Prospects of consolidations: sums tell for which groups no move of pods can make room.

A consolidation ends with all pods placed: the victims are elsewhere, and the aggressor has its place. So the queues
above it hold what they held and its amounts, and ready nodes have that much less. If that exceeds a limit, or what is
free, no move of pods helps. The sums are made once for all groups that wait, so a group without prospects costs a few
comparisons instead of a search.
"""

from functools import cached_property

import attrs
import numpy as np

from kai.engine.portion import Portion
from kai.engine.session import Session
from kai.engine.shortcuts import PROSPECTS
from kai.kernels.columns import CPU, GPU, GPU_UNIT, KIND_FRACTION, KIND_MEMORY, MEMORY, PENDING
from kai.kernels.victims import free_gpus
from kai.model.axis import Bools, Float64s, GroupRows, Int64s
from kai.model.pod import COUNTED

NONE: GroupRows = np.zeros(0, np.int64)


class NoLess:
    """Groups of one pod that wait, by what one failure says of them. Shapes: G groups."""

    def __init__(self, session: Session, groups: GroupRows, *, per_queue: bool) -> None:
        """Compare those of ``groups`` that are one pod; ``per_queue``: only with others of their queue.

        Cost: O(n log n), and a look at each pod's constraints, once in a session.
        """
        self._session = session
        facts = session.facts.groups
        leaves = facts.first_subgroup[groups] + 1
        begins = facts.pod_start[leaves]
        alone = facts.simple[groups] & (facts.pod_start[leaves + 1] - begins == 1)
        groups, pods = groups[alone], facts.pods[begins[alone]]
        numbers = session.equivalence.constraints_of(pods)
        if per_queue:
            numbers = numbers * len(session.snapshot.queues) + facts.queue[groups]
        order = np.argsort(numbers, kind="stable")
        self._groups, self._pods, self._numbers = groups[order], pods[order], numbers[order]
        self._number: Int64s = np.full(len(session.snapshot.groups), -1, np.int64)
        self._number[groups] = numbers

    def than(self, group: int, failed: tuple[int, ...]) -> GroupRows:
        """Return the groups with the constraints of ``group`` that ask for no less than ``failed`` [R].

        None, if ``group`` is not one pod. Cost: a pass over the groups with its constraints.
        """
        number = int(self._number[group])
        if number < 0:
            return NONE
        begin, end = self._numbers.searchsorted((number, number + 1)).tolist()
        facts, pods = self._session.facts, self._pods[begin:end]
        asked = facts.shapes.request[facts.pods.shape[pods]]
        no_less = (asked > failed).any(axis=1) | (asked == failed).all(axis=1)
        waits = self._session.columns.status[pods] == PENDING
        found: GroupRows = self._groups[begin:end][no_less & waits]
        return found


_ALWAYS_ASKED = (CPU, MEMORY)


@attrs.define(slots=False)
class _Sums:
    """What there is while nothing is committed. Shapes: N nodes, Q queues, R resources."""

    session: Session

    @cached_property
    def gpus(self) -> Int64s:
        """[N] thousandths of GPUs that are idle or being released; 0 where the node is not ready."""
        session = self.session
        idle = np.zeros(len(session.all_nodes), np.int64)
        releasing = np.zeros(len(session.all_nodes), np.int64)
        free_gpus(session.facts, session.columns, idle, releasing)
        ready: Int64s = np.where(session.facts.nodes.ready, idle + releasing, 0)
        return ready

    @cached_property
    def free(self) -> Int64s:
        """[R] what ready nodes have between them; one that is overcommitted takes nothing away from the others."""
        columns, ready = self.session.columns, self.session.facts.nodes.ready
        total: Int64s = np.maximum(columns.idle + columns.releasing, 0)[ready].sum(axis=0)
        return total

    @cached_property
    def unsure(self) -> Float64s:
        """[Q] GPUs, in axis units, of pods that share devices: what they count for depends on where they are put."""
        facts, columns = self.session.facts, self.session.columns
        out = np.zeros(len(self.session.snapshot.queues), np.float64)
        counted = ((COUNTED >> columns.status) & 1).astype(np.bool_) & (facts.pods.group >= 0)
        sharing = np.flatnonzero(counted & shares(self.session)[facts.pods.shape])
        queues = facts.groups.queue[facts.pods.group[sharing]]
        most = facts.shapes.devices[facts.pods.shape[sharing]] * float(GPU_UNIT)
        for queue in np.unique(queues[queues >= 0]).tolist():
            held, row = most[queues == queue].sum(), queue
            while row >= 0:
                out[row] += held
                row = int(facts.queues.parent[row])
        return out


def shares(session: Session) -> Bools:
    """Return bool[K]: shapes of pods that take parts of devices."""
    kinds = session.facts.shapes.kind
    sharing: Bools = (kinds == KIND_FRACTION) | (kinds == KIND_MEMORY)
    return sharing


class Prospects:
    """The sums of one action, made anew when something was committed."""

    def __init__(self, session: Session) -> None:
        """Begin with no sum made."""
        self._session = session
        self._sums = _Sums(session)
        self._stamp = session.stamp
        self._shares = shares(session)

    def allow(self, session: Session, portion: Portion) -> bool:
        """Return whether moving pods has a chance to make room for the group.

        Holds: if not, no search that ends with all pods placed succeeds, but for the first test, which is the peer's.
        """
        if session.stamp != self._stamp:
            self._sums, self._stamp = _Sums(session), session.stamp
        shapes = session.facts.pods.shape[portion.chunk()]
        if not self._gpus_suffice(shapes):
            return False
        return not session.takes(PROSPECTS) or (
            self._queues_can_hold(portion.group, shapes) and self._nodes_can_hold(shapes)
        )

    def _gpus_suffice(self, shapes: Int64s) -> bool:
        """Return whether ready nodes have enough GPUs between them, wherever they are: moving pods makes no more."""
        session, gpus = self._session, self._sums.gpus
        wanted = int((session.facts.shapes.request[shapes] @ np.maximum(session.facts.nodes.gpu_weight, 0)).sum())
        if wanted > int(gpus.sum()):
            return False
        memory = int(session.facts.shapes.memory[shapes].sum())
        return not memory or memory <= int((gpus * session.facts.nodes.gpu_memory // 1000).sum())

    def _queues_can_hold(self, group: int, shapes: Int64s) -> bool:
        """Return whether the queues above a group may hold ``shapes`` besides all that they hold now.

        Pods that come back ask their queues again, so the last of them would be refused.
        """
        session = self._session
        queue = int(session.facts.groups.queue[group])
        if not session.policy.rules.limits or queue < 0:
            return True
        limits, used = session.facts.queues.limit, session.columns.queue_used
        wanted = session.limit_amounts[shapes].sum(axis=0)
        if self._shares[shapes].any():
            wanted[GPU] = 0.0
        asked = wanted > 0
        while queue >= 0:
            held = used[queue] + wanted
            held[GPU] -= self._sums.unsure[queue]
            if (asked & (limits[queue] >= 0) & (limits[queue] < held)).any():
                return False
            queue = int(session.facts.queues.parent[queue])
        return True

    def _nodes_can_hold(self, shapes: Int64s) -> bool:
        """Return whether ready nodes have enough CPU and memory between them."""
        wanted, free = self._session.facts.shapes.request[shapes].sum(axis=0), self._sums.free
        return all(wanted[resource] <= free[resource] for resource in _ALWAYS_ASKED)
