"""The best set of evictions, by trying every set that the rules allow: plain, slow, and apart from kai's code.

Nothing is moved here: what leaves is evicted.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import attrs

from tests.victims.drawing import Drawn, Job


class Cost(NamedTuple):
    """What a set of evictions costs, dearest first."""

    below: int
    """Whether some queue is pushed below its quota."""
    groups: int
    """Groups that are left with fewer pods than they need."""
    hours: int
    """GPU-hours since the start that are lost."""
    pods: int
    gpus: int


@attrs.frozen
class Loss:
    """Pods that one group gives up: some of its surplus, the last ones first, or all of them."""

    job: Job
    pods: int

    @property
    def is_whole(self) -> bool:
        """Whether the group is left with fewer pods than it needs."""
        return len(self.job.nodes) - self.pods < self.job.minimum

    @property
    def gpus(self) -> int:
        """GPUs that it frees."""
        return self.job.gpus * self.pods

    @property
    def largest(self) -> int:
        """The GPUs of the largest part that rules of shares see as one."""
        return self.job.gpus * max(1, min(self.pods, self.job.minimum))

    def cost(self) -> Cost:
        """Return what it costs, queues apart."""
        return Cost(0, int(self.is_whole), self.job.hours * self.gpus, self.pods, self.gpus)


def best(drawn: Drawn) -> tuple[Cost, tuple[Loss, ...]] | None:
    """Return the cheapest set with which the group fits, and its cost; None if there is none."""
    found: tuple[Cost, tuple[Loss, ...]] | None = None
    options = [list(losses_of(drawn, job)) for job in drawn.jobs]
    options = [each for each in options if each]
    free = drawn.free()

    def look(at: int, taken: tuple[Loss, ...]) -> None:
        nonlocal found
        cost = cost_of(drawn, taken)
        if found is not None and cost[1:] >= found[0][1:] and cost.below >= found[0].below:
            return
        if at == len(options):
            if (found is None or cost < found[0]) and is_allowed(drawn, taken) and fits(drawn, free, taken):
                found = cost, taken
            return
        look(at + 1, taken)
        for loss in options[at]:
            look(at + 1, (*taken, loss))

    look(0, ())
    return found


def losses_of(drawn: Drawn, job: Job) -> Iterator[Loss]:
    """Yield what a group may lose at all."""
    wanted = drawn.asker.gpus * sum(drawn.asker.parts)
    if not job.preemptible or job.spared:
        return
    if drawn.action == "preempt" and job.priority >= drawn.asker.priority:
        return
    held = sum(each.gpus * len(each.nodes) for each in drawn.jobs if each.queue == job.queue)
    if drawn.action == "reclaim" and (held < drawn.quotas[job.queue] or wanted > drawn.quotas["a"]):
        return
    surplus = len(job.nodes) - job.minimum
    for pods in range(1, surplus + 1):
        yield Loss(job, pods)
    if job.hours >= drawn.runtimes.get(job.queue, 0):
        yield Loss(job, len(job.nodes))


def cost_of(drawn: Drawn, taken: Sequence[Loss]) -> Cost:
    """Return what a set costs."""
    sums = Cost(*map(sum, zip(*(loss.cost() for loss in taken), strict=True))) if taken else Cost(0, 0, 0, 0, 0)
    queues = {loss.job.queue for loss in taken} if drawn.action == "reclaim" else set()
    return sums._replace(below=int(any(_left(drawn, queue, taken) < drawn.quotas[queue] for queue in queues)))


def _left(drawn: Drawn, queue: str, taken: Sequence[Loss]) -> int:
    held = sum(job.gpus * len(job.nodes) for job in drawn.jobs if job.queue == queue)
    return held - sum(loss.gpus for loss in taken if loss.job.queue == queue)


def is_allowed(drawn: Drawn, taken: Sequence[Loss]) -> bool:
    """Return whether each queue is above its quota until its last part goes, in the order that suits it best."""
    if drawn.action != "reclaim":
        return True
    for queue in {loss.job.queue for loss in taken}:
        largest = max(loss.largest for loss in taken if loss.job.queue == queue)
        if _left(drawn, queue, taken) + largest <= drawn.quotas[queue]:
            return False
    return True


def fits(drawn: Drawn, free: Sequence[int], taken: Sequence[Loss]) -> bool:
    """Return whether the group that waits has room once the pods are gone."""
    left, gone = list(free), {loss.job.name: loss.pods for loss in taken}
    for loss in taken:
        for node in loss.job.nodes[len(loss.job.nodes) - loss.pods :]:
            left[node] += loss.job.gpus
    asker = drawn.asker
    loud = {node for job in drawn.jobs if job.noisy for node in job.nodes[: len(job.nodes) - gone.get(job.name, 0)]}
    rooms: dict[int, int] = {}
    for at, (_, rack) in enumerate(drawn.nodes):
        if asker.rack in {-1, rack} and not (asker.quiet and at in loud):
            room = left[at] // asker.gpus
            rooms[rack] = rooms.get(rack, 0) + (min(room, 1) if asker.apart else room)
    match asker.together:
        case "group":
            return max(rooms.values(), default=0) >= sum(asker.parts)
        case "parts":
            return _parts_fit(sorted(asker.parts, reverse=True), rooms)
        case _:
            return sum(rooms.values()) >= sum(asker.parts)


def _parts_fit(parts: Sequence[int], rooms: dict[int, int]) -> bool:
    if not parts:
        return True
    return any(
        room >= parts[0] and _parts_fit(parts[1:], {**rooms, rack: room - parts[0]}) for rack, room in rooms.items()
    )
