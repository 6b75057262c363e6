"""Queues: the tree of quotas."""

from collections.abc import Sequence

import attrs

UNLIMITED = -1.0


@attrs.frozen(kw_only=True)
class Shares:
    """One number of a queue for each shared resource, in axis units (millicores, bytes, thousandths of a GPU).

    -1 is unlimited.
    """

    cpu: float = 0.0
    memory: float = 0.0
    gpu: float = 0.0

    def of(self, resource: int) -> float:
        """Return the number for the resource at this place of the axis: CPU, memory or GPU."""
        return (self.cpu, self.memory, self.gpu)[resource]


@attrs.frozen(kw_only=True)
class Queue:
    """One queue. ``parent`` is a row of the queue table, -1 for a top queue; weights are plain numbers."""

    name: str
    display_name: str = ""
    parent: int = -1
    priority: int = 100
    created: float = 0.0
    quota: Shares = Shares()
    limit: Shares = Shares()
    weight: Shares = Shares()
    usage: Shares = Shares()
    """Past usage as a fraction of the cluster, 0 without a usage database."""
    preempt_min_runtime: float | None = None
    reclaim_min_runtime: float | None = None

    @property
    def title(self) -> str:
        """The name that people see."""
        return self.display_name or self.name


def path_to(queues: Sequence[Queue], row: int) -> list[int]:
    """Return the rows of the queues from the top one down to ``row``; none for -1. Intake lets no circle in."""
    path = []
    while row >= 0:
        path.append(row)
        row = queues[row].parent
    return path[::-1]
