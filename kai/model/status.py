"""Where a pod stands, and the sets of statuses that decide what it counts for.

The values are small integers because they live in a column; the sets are bit masks so that a kernel tests membership
with one shift.

Source: the peer's pkg/scheduler/api/pod_status.
"""

from enum import IntEnum


class Status(IntEnum):
    """Where a pod is in its life, in a session. ``ALLOCATED`` and ``PIPELINED`` exist only inside a session."""

    PENDING = 0
    GATED = 1
    ALLOCATED = 2
    PIPELINED = 3
    BINDING = 4
    BOUND = 5
    RUNNING = 6
    RELEASING = 7
    STUCK_IN_RELEASING = 8
    SUCCEEDED = 9
    FAILED = 10
    UNKNOWN = 11

    @property
    def label(self) -> str:
        """The name under which the status is reported, e.g. ``StuckInReleasing``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


def status_mask(*statuses: Status) -> int:
    """Return the bit mask of ``statuses``."""
    return sum(1 << status for status in statuses)


ACTIVE_ALLOCATED = status_mask(Status.ALLOCATED, Status.PIPELINED, Status.BINDING, Status.BOUND, Status.RUNNING)
"""Already has a place: sizes chunks, says what an elastic group holds, may be a victim."""
TERMINATING = status_mask(Status.RELEASING, Status.STUCK_IN_RELEASING)
"""Told to go, and there still."""
ACTIVE_USED = ACTIVE_ALLOCATED | TERMINATING
"""Occupies its node; the test for gangs that became stale."""
COUNTED = status_mask(Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING)
"""Counts as used by its queue when a session opens."""
ALIVE = ACTIVE_ALLOCATED | status_mask(Status.PENDING, Status.GATED)
"""Still wants to run: readiness of a group, candidates for eviction."""
ENDED = status_mask(Status.SUCCEEDED, Status.FAILED)
"""No container runs any more, nor will."""


def within(status: int, statuses: int) -> bool:
    """Return whether ``status`` is in the bit mask ``statuses``."""
    return bool(statuses >> status & 1)
