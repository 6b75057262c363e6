"""Twins of ``kai.facts.kernels.fairshare``, written from the three phases: quota, surplus in rounds, remainders."""

import math

import attrs

UNLIMITED = -1.0


@attrs.define
class Queue:
    """One queue and one resource, in the unit that a remainder hands out. ``age`` ranks the queues, oldest first."""

    quota: float
    limit: float
    weight: float
    request: float
    usage: float
    priority: int
    age: int
    share: float = 0.0
    leftover: float | None = None

    @property
    def usable(self) -> float:
        """What the queue asks for, as far as its limit goes."""
        return self.request if self.limit == UNLIMITED else min(self.limit, self.request)

    @property
    def is_thirsty(self) -> bool:
        """Whether the queue asks for more, and may have more, than it has."""
        return self.request > self.share and (self.limit == UNLIMITED or self.limit > self.share)


def divide(total: float, queues: list[Queue], k: float) -> float:
    """Divide ``total`` and return what is left."""
    left = total
    for queue in queues:
        quota = total if queue.quota == UNLIMITED else queue.quota
        given = min(quota, queue.usable)
        queue.share += given
        left -= given
    return max(0.0, give_surplus(left, queues, k)) if left > 0 else 0.0


def give_surplus(surplus: float, queues: list[Queue], k: float) -> float:
    """Divide what is left after quotas, and return what nobody may have."""
    bands = [[q for q in queues if q.priority == level] for level in sorted({q.priority for q in queues}, reverse=True)]
    for band in bands:
        another = True
        while another and surplus != 0:
            surplus, another = _round(surplus, band, k)
    for band in bands:
        waiting = [queue for queue in band if queue.leftover is not None]
        for queue in sorted(waiting, key=lambda each: (-(each.leftover or 0.0), each.age)):
            if surplus <= 0:
                break
            given = min(1.0, surplus)
            queue.share += given
            surplus -= given
    return surplus


def _round(surplus: float, band: list[Queue], k: float) -> tuple[float, bool]:
    """Offer the surplus to a band once; return what is left, and whether others may have more of it."""
    weights = 0.0
    for queue in band:
        if queue.usable > queue.share:
            weights += queue.weight
    if weights == 0:
        return surplus, False
    thirsty = [queue for queue in band if queue.is_thirsty]
    speeds = []
    for queue in thirsty:
        part = queue.weight / weights
        speeds.append(max(0.0, part + k * (part - queue.usage)))
    total = 0.0
    for speed in speeds:
        total += speed
    if total == 0:
        return surplus, False
    offered, another = surplus, False
    for queue, speed in zip(thirsty, speeds, strict=True):
        if queue.weight <= 0 or surplus == 0:
            continue
        wanted, part = queue.usable - queue.share, offered * (speed / total)
        if wanted <= part:
            given, queue.leftover = wanted, None
        else:
            given = float(max(0, math.floor(part)))
            if part > given:
                queue.leftover = part - given
        queue.share += given
        surplus -= given
        another = another or (given > 0 and wanted < part)
    return surplus, another


def divide_models(parents: list[int], quotas: list[float], pool: int, held: list[int], waiting: list[int]) -> list[int]:
    """Return what queues are owed of one model, asked for queue by queue from below, then from the top."""

    def below(queue: int) -> list[int]:
        return [row for row, parent in enumerate(parents) if parent == queue]

    def demand(queue: int) -> int:
        return held[queue] + asked(queue)

    def asked(queue: int) -> int:
        return waiting[queue] + sum(asked(row) for row in below(queue))

    def claim(queue: int) -> int:
        quota = quotas[queue]
        if quota == 0:
            return min(sum(claim(row) for row in below(queue)), demand(queue))
        return demand(queue) if quota == UNLIMITED else min(int(quota), demand(queue))

    def owed(queue: int) -> int:
        most = pool if parents[queue] < 0 else owed(parents[queue])
        siblings = sum(claim(row) for row in below(parents[queue]))
        return claim(queue) if siblings <= most else claim(queue) * most // siblings

    return [owed(queue) for queue in range(len(parents))]
