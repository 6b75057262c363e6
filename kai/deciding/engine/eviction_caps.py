"""Caps on evictions: how many GPUs one cycle, one hour and one gained GPU may cost, in total and per queue.

Without a cap nothing is counted. With caps, a search for victims goes on until it finds victims within all of them. If
it finds none, the group waits, with the cap as the reason. A moved pod counts like an evicted one, because it has to
start again elsewhere. The rest of a gang that fell below its minimum is evicted in any case, since it does no work, but
it counts.

The core has no memory of the last hour: the evictions in it come with the snapshot.

Source: none; the peer evicts as many as it takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kai.facts.kernels.booking import accepted_gpu
from kai.facts.model.axis import GPU_UNIT, Int64s, PodRows
from kai.facts.model.pod import Status
from kai.framework.decisions import Decision, Evict
from kai.framework.verdict import Code, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.deciding.engine.world import World
    from kai.framework.parameters import Parameters

_PROMISED: Final = 1 + Status.PIPELINED
"""The evicted status of a pod that had no place, but a nomination."""


@attrs.frozen
class Cap:
    """One cap that a set of victims exceeds."""

    name: str
    most: float
    would_be: float
    before: float = 0.0
    """The part of ``would_be`` that was evicted before and not for these victims, in GPUs."""
    queue: str = ""
    is_for_part: bool = False
    """Whether the victims make room for only a part of the group; the whole of it takes at least as many."""

    @property
    def reason(self) -> Reason:
        """The reason why the group waits. The queue is a fact of it, but not part of texts that tenants read."""
        facts = {
            "cap": self.name,
            "most": self.most,
            "found": self.would_be,
            "before": self.before,
            "queue": self.queue,
            "part": self.is_for_part,
        }
        return Reason(code=Code.EVICTIONS_CAPPED, facts=facts)


class EvictionCaps:
    """The caps of one session, and the evictions of its cycle so far. Shapes: Q queues.

    Units: thousandths of GPUs.
    """

    def __init__(self, world: World, parameters: Parameters) -> None:
        """Begin with no eviction in this cycle."""
        self._world = world
        self._parameters = parameters
        self.are_set = parameters.caps_evictions
        self._cycle: Int64s = np.zeros(len(world.snapshot.queues) if self.are_set else 0, np.int64)
        lately = dict(world.snapshot.past.evicted) if self.are_set else {}
        # `pop`, so that what remains belongs to queues that no longer exist.
        self._hour = np.array([lately.pop(queue.name, 0) for queue in world.snapshot.queues], np.int64)
        self._elsewhere = sum(lately.values())
        """GPUs that queues lost which no longer exist; they count for the hour's total."""

    def note(self, decisions: Sequence[Decision]) -> None:
        """Count the evictions among ``decisions``."""
        if self.are_set:
            pods = [each.pod for each in decisions if isinstance(each, Evict)]
            self._cycle += self._by_queue(np.array(pods, np.int64))

    def passed_by(self, victims: PodRows, gained: float | None) -> Cap | None:
        """Return the first cap that the loss of ``victims`` in the open statement exceeds; None if none is.

        ``gained`` is what the aggressor gets for it; None while only a part of it is tried.
        """
        evicted = self._world.columns.evicted_status[victims]
        # A pod that was only nominated ran nowhere, so taking its nomination back costs no work.
        lost = self._by_queue(victims[(evicted != 0) & (evicted != _PROMISED)])
        total = int(lost.sum())
        if not total:
            return None
        given, cycle = self._parameters, lost + self._cycle
        hour = cycle + self._hour
        if gained is not None and 0 < given.evicted_gpus_per_gpu * gained < total:
            return Cap("evicted_gpus_per_gpu", given.evicted_gpus_per_gpu, round(total / gained, 3))
        # An aggressor without GPUs has no ratio: whatever GPUs it costs are beyond the cap.
        if gained == 0 and given.evicted_gpus_per_gpu > 0:
            return Cap("evicted_gpus_per_gpu", 0.0, total / GPU_UNIT)
        return (
            _beyond("evicted_gpus_per_cycle", given.evicted_gpus_per_cycle, int(cycle.sum()), total)
            or _beyond("evicted_gpus_per_hour", given.evicted_gpus_per_hour, int(hour.sum()) + self._elsewhere, total)
            or self._queue_beyond("queue_evicted_gpus_per_cycle", given.queue_evicted_gpus_per_cycle, cycle, lost)
            or self._queue_beyond("queue_evicted_gpus_per_hour", given.queue_evicted_gpus_per_hour, hour, lost)
        )

    def _queue_beyond(self, name: str, most: float, amounts: Int64s, lost: Int64s) -> Cap | None:
        if most <= 0:
            return None
        for queue in np.flatnonzero(lost).tolist():
            found = _beyond(name, most, int(amounts[queue]), int(lost[queue]), self._world.snapshot.queues[queue].name)
            if found is not None:
                return found
        return None

    def _by_queue(self, pods: PodRows) -> Int64s:
        """Return int64[Q]: the GPUs that ``pods`` held on their nodes when the cycle began, by queue."""
        out = np.zeros(len(self._world.snapshot.queues), np.int64)
        for pod in pods.tolist():
            queue = int(self._world.facts.groups.queue[self._world.facts.pods.group[pod]])
            if queue >= 0:
                out[queue] += held_gpus(self._world, pod)
        return out


def held_gpus(world: World, pod: int) -> int:
    """Return the thousandths of GPUs that ``pod`` held on its node when the cycle began, claimed ones included."""
    shape = int(world.facts.pods.shape[pod])
    # The snapshot's node: in the columns a moved pod already has its new one.
    node = int(world.snapshot.pod_node[pod])
    return int(accepted_gpu(world.facts, shape, node))


def _beyond(name: str, most: float, amount: int, lost: int, queue: str = "") -> Cap | None:
    """Return the cap if it is less than ``amount``, which includes ``lost``."""
    if most > 0 and amount > most * GPU_UNIT:
        return Cap(name, most, amount / GPU_UNIT, (amount - lost) / GPU_UNIT, queue)
    return None
