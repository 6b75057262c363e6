"""What is recorded: jobs that hold resources on nodes, with their queues, and the states of nodes.

Units, here and in the database: instants in milliseconds since the epoch; GPUs and CPU cores in thousandths, memory in
megabytes (10^6 bytes). An amount over time is a product of both: GPUs in GPU-microseconds, cores alike, memory in
megabyte-milliseconds. All of these are integers, so sums are exact.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Any, Final, NamedTuple, Protocol

import attrs

from kai.basics.errors import KaiError
from kai.basics.parsing import GPU_HOUR

GPU, CPU, MEMORY = range(3)
RESOURCES: Final = ("gpu", "cpu", "memory")
GIGABYTE_HOUR: Final = 3_600_000_000
"""Megabyte-milliseconds in a gigabyte-hour."""
HOURS: Final = (GPU_HOUR, GPU_HOUR, GIGABYTE_HOUR)
"""For each resource: what one GPU, core or gigabyte held for one hour amounts to."""


class Amounts(NamedTuple):
    """One amount for each resource."""

    gpu: int = 0
    cpu: int = 0
    memory: int = 0

    def plus(self, other: Amounts, sign: int = 1) -> Amounts:
        """Return the sum; with ``sign`` -1 the difference."""
        return Amounts(self.gpu + sign * other.gpu, self.cpu + sign * other.cpu, self.memory + sign * other.memory)


NOTHING: Final = Amounts()


class Ended(IntEnum):
    """Why a job stopped holding an amount; databases store the numbers."""

    CHANGED = 0
    """It holds another amount since, or is in another place of the tree."""
    DONE = 1
    FAILED = 2
    DELETED = 3
    RECLAIMED = 4
    PREEMPTED = 5
    CONSOLIDATED = 6
    """Moved, so that others fit."""
    EVICTED = 7
    """For another reason, or by another program."""
    NODE = 8
    """Its node is gone."""
    UNSEEN = 9
    """It ended while no scheduler recorded. What it held after the last record counts for nothing."""
    TIME_LIMIT = 10
    """kai ended it at the limit of its run time."""
    WINDOW_CLOSED = 11
    """A window of its queue closed, with ``onClose: evict``."""
    DRAINED = 12
    """Its node was closed for pods, and its pods were evicted through the API, as ``kubectl drain`` does."""


BY_ACTION: Final = {
    "reclaim": Ended.RECLAIMED,
    "preempt": Ended.PREEMPTED,
    "consolidation": Ended.CONSOLIDATED,
    "windowclose": Ended.WINDOW_CLOSED,
}
"""Why pods end that kai evicts, by the action; evictions by other actions are `Ended.EVICTED`."""
EVICTIONS: Final = (
    *(Ended.RECLAIMED, Ended.PREEMPTED, Ended.CONSOLIDATED, Ended.EVICTED, Ended.NODE),
    *(Ended.TIME_LIMIT, Ended.WINDOW_CLOSED, Ended.DRAINED),
)
"""Ends that neither the job nor its owner chose."""
LOSSES: Final = (Ended.FAILED, *(each for each in EVICTIONS if each is not Ended.TIME_LIMIT))
"""Ends after which the work since the last checkpoint is lost."""


@attrs.frozen(kw_only=True, cache_hash=True)
class QueueFacts:
    """A queue and its place in the tree at a time."""

    uid: str
    name: str
    display_name: str = ""
    parent: QueueFacts | None = None

    @property
    def path(self) -> tuple[QueueFacts, ...]:
        """The queue and those above it, itself first."""
        return (self, *(() if self.parent is None else self.parent.path))


NO_QUEUE: Final = QueueFacts(uid="", name="")
"""The queue of pods that have none."""


@attrs.frozen(kw_only=True)
class JobFacts:
    """A pod group, as reports name it."""

    uid: str
    namespace: str
    name: str
    kind: str = ""
    user: str = ""
    created: int = 0


@attrs.frozen(kw_only=True)
class Held:
    """What a job holds on a node."""

    job: JobFacts
    queue: QueueFacts
    model: str
    """The GPU model of the node; "" if unknown."""
    amounts: Amounts
    first_bound: int | None = None
    """When the first of its pods there was bound; None if that is not known."""
    last_bound: int | None = None
    left: Ended = Ended.CHANGED
    """Why pods of it left since the last record, where others of it stay and it only became smaller."""


@attrs.frozen(kw_only=True)
class NodeState:
    """What a node has, and how much of that is down or held beyond it.

    Holds: capacity + over = held + idle + down, and none of them is negative.
    """

    model: str
    capacity: Amounts
    down: Amounts = NOTHING
    """What is not held, and could not be: the node is not ready or closed for pods, or devices fail."""
    over: Amounts = NOTHING
    """What pods hold beyond the capacity."""


Key = tuple[str, str]
"""UID of a job and name of a node."""


# ------------------------------------------------------------------------------------------------------ UIDs as stored


def uid_packed(uid: str) -> bytes | str:
    """Return a UID as databases hold it: in 16 bytes if it is one of Kubernetes."""
    try:
        found = uuid.UUID(uid)
    except ValueError:
        return uid
    # Another spelling of the same number would come back as a different text.
    return found.bytes if str(found) == uid else uid


def uid_text(packed: bytes | str) -> str:
    """Return a UID as Kubernetes writes it."""
    return packed if isinstance(packed, str) else str(uuid.UUID(bytes=packed))


# --------------------------------------------------------------------------------------------------------- connections


class HistoryError(KaiError):
    """A database of history cannot be used."""


class NoHistoryError(HistoryError):
    """There is no database of history at the place: no scheduler has recorded yet."""


class DeposedError(HistoryError):
    """Another process writes now."""

    def __init__(self, message: str, epoch: int = 0) -> None:
        """Say which epoch the other has."""
        super().__init__(message)
        self.epoch = epoch


class Rows(Protocol):
    """The answer to a statement."""

    @property
    def lastrowid(self) -> int | None:
        """The id of the row that the statement inserted."""
        ...

    def fetchone(self) -> Any:  # noqa: ANN401 - a row of any columns, or None
        """Return the next row; None after the last."""
        ...

    def fetchmany(self, size: int, /) -> list[Any]:
        """Return the next rows; none after the last."""
        ...

    def fetchall(self) -> list[Any]:
        """Return all rows."""
        ...

    def __iter__(self) -> Iterator[Any]:
        """Yield all rows."""
        ...


class Connection(Protocol):
    """A connection to a database of history: that of the standard library to a file, or one to a server.

    Statements are those of SQLite, in which ``?`` and ``:name`` stand for parameters. `kai.history.server` puts them
    into the words of a server. Transactions are begun with ``BEGIN`` or, by writers, ``BEGIN IMMEDIATE``.
    """

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction was begun that has not ended."""
        ...

    def execute(self, statement: str, parameters: Any = (), /) -> Rows:  # noqa: ANN401 - a sequence or a mapping
        """Carry out one statement."""
        ...

    def executemany(self, statement: str, parameters: Sequence[Any], /) -> object:
        """Carry out one statement for each entry."""
        ...

    def close(self) -> None:
        """Close it; a transaction that has not ended is undone."""
        ...
