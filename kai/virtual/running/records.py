"""What happened, job by job, and what the cluster looked like, as sums over time. Nothing here decides anything.

Every change is told with its instant; first the meters advance to that instant with what was true until then.

What is over, kept small: rows as MessagePack, which become objects again when they are looked at.

A run of a million pods ends with hundreds of thousands of jobs that are over, and an object takes more for its fields
than they say. Values come back as they were, to the last bit.

The first decisions of a run as lines of text: where two runs part is found by comparing them.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from math import isnan, nan
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, overload

import attrs
import msgspec

from kai.basics.wording import counted, first_of
from kai.framework.decisions import Bind, Decision, Evict, Nominate
from kai.virtual.running.meters import Meters
from kai.virtual.scenes.job_plans import JobPlan, TaskPlan

if TYPE_CHECKING:
    from kai.state.snapshot import Snapshot

T = TypeVar("T")
Values = tuple[Any, ...]

_BLOCK: Final = 512
"""So many rows are packed together."""


def _plain(value: Any) -> Any:  # noqa: ANN401 - a scalar of numpy, which has no types here
    """Return a scalar of numpy as a number of Python, which documents write alike."""
    return value.item()


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER: Final = msgspec.msgpack.Decoder()


def packed(values: object) -> bytes | None:
    """Return plain values as bytes; None for values that cannot be told so, as text that is no Unicode."""
    try:
        return _ENCODER.encode(values)
    except (AttributeError, OverflowError, TypeError, ValueError):
        return None


def unpacked(text: bytes) -> list[Any]:
    """Return the values that were packed."""
    values: list[Any] = _DECODER.decode(text)
    return values


class Rows(Generic[T]):
    """Rows that are only added and then read from the first to the last. Cost: compressed blocks."""

    def __init__(self, values_of: Callable[[T], Values], make: Callable[..., T]) -> None:
        """Take what returns the values of a row, and what makes a row of values again."""
        self._values_of, self._make = values_of, make
        self._blocks: list[bytes | list[Values]] = []
        self._last: list[Values] = []

    def append(self, row: T) -> None:
        """Add a row."""
        self._last.append(self._values_of(row))
        if len(self._last) == _BLOCK:
            block = packed(self._last)
            # The fastest level: most of a block are names that stand in it before.
            self._blocks.append(self._last if block is None else zlib.compress(block, level=1))
            self._last = []

    def __len__(self) -> int:
        return _BLOCK * len(self._blocks) + len(self._last)

    def __iter__(self) -> Iterator[T]:
        shared: dict[str, str] = {}
        for block in (*self._blocks, self._last):
            rows: Sequence[Sequence[Any]] = unpacked(zlib.decompress(block)) if isinstance(block, bytes) else block
            for values in rows:
                yield self._make(*[shared.setdefault(each, each) if type(each) is str else each for each in values])


@attrs.define
class DecisionLines:
    """Keeps as many lines as it may, and writes one for each decision."""

    most: int = 100_000
    _lines: Rows[tuple[float, int, str]] = attrs.field(factory=lambda: Rows(tuple, lambda *line: line))

    def line(self, decision: Decision, snapshot: Snapshot, at: tuple[float, int], subject: str) -> str:
        """Return a decision as one line, and keep it if it is one of the first; ``at`` is its instant and its cycle."""
        text = f"{_VERBS[type(decision)]} {subject}"
        if isinstance(decision, Evict):
            gains = snapshot.groups[decision.aggressor].key if decision.aggressor >= 0 else "-"
            text = f"{text} {decision.cause.name} {gains}"
        if len(self._lines) < self.most:
            self._lines.append((*at, text))
        return f"{at[0]!r} {text}\n"

    @property
    def lines(self) -> tuple[tuple[float, int, str], ...]:
        """The lines that are kept."""
        return tuple(self._lines)


_VERBS: Final = {Bind: "bind", Evict: "evict", Nominate: "promise"}


MOST_STAYS: Final = 200_000
"""Stays of pods on nodes that are kept for charts, and as many evictions; of the others only sums are known."""
_DIGITS: Final = 6
_FEW: Final = 4


class Ending(StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    """It crashed more often than its owner retries."""
    TAKEN_BACK = "taken back"
    """Its owner wanted fewer replicas."""


class Loss(StrEnum):
    """What cost work."""

    EVICTION = "eviction"
    NODE = "node failure"
    CRASH = "crash"


@attrs.define(kw_only=True, eq=False)
class JobRecord:
    """What happened to one job.

    Units: seconds of virtual time.
    """

    name: str
    namespace: str
    queue: str
    kind: str
    owner: str
    user: str
    pods: int
    alone: float | None
    """Start-up and duration: how long it takes on a cluster of its own; None if it has no end."""
    arrival: float
    possible: float = nan
    """When a pod of it first had a place, or the promise of one."""
    start: float = nan
    """When enough of its pods first ran together."""
    end: float = nan
    ending: Ending | None = None
    waits: tuple[float, ...] = ()
    """How long it waited before each of its starts."""
    evictions: int = 0
    """Evicted pods."""
    lost: float = 0.0
    """GPU-seconds lost by evictions and failed nodes."""
    crashed: float = 0.0
    """GPU-seconds lost by crashes of its own."""
    nodes: tuple[str, ...] = ()
    gpus: float = 0.0
    """That all of its pods ask for together, at most."""


@attrs.frozen(kw_only=True)
class Stay:
    """A pod on a node."""

    job: int
    node: str
    start: float
    end: float
    gpus: float


@attrs.frozen(kw_only=True)
class Eviction:
    """An eviction: of whom, for whom and by which rule."""

    time: float
    job: int
    pod: str
    node: str
    gpus: float
    cause: str
    rule: str
    aggressor: int
    """The job that gains; -1 for none."""


def rows_of(cls: type) -> Rows[Any]:
    """Return no rows yet, of a frozen class."""
    names = [field.name for field in attrs.fields(cls)]
    return Rows(attrgetter(*names), lambda *values: cls(**dict(zip(names, values, strict=True))))


_FIELDS: Final = tuple(field.name for field in attrs.fields(JobRecord))
_VALUES: Final = attrgetter(*_FIELDS)


class JobRecords(Sequence[JobRecord]):
    """The records of all jobs by number. Cost: of a job that is over, its text as bytes."""

    def __init__(self) -> None:
        self._records: list[JobRecord | bytes] = []
        self._shared: dict[str, str] = {}
        """Names that many jobs have."""

    def append(self, record: JobRecord) -> None:
        """Add the record of a job that arrives."""
        self._records.append(record)

    def close(self, number: int) -> None:
        """Keep the record of a job that is over small."""
        record = self._records[number]
        if isinstance(record, JobRecord):
            self._records[number] = packed(_VALUES(record)) or record

    def changing(self, number: int) -> JobRecord:
        """Return a record that is written to; one that is kept small is made again for it."""
        record = self._records[number]
        if isinstance(record, bytes):
            record = self._records[number] = self._made(record)
        return record

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, number: int) -> JobRecord: ...

    @overload
    def __getitem__(self, number: slice) -> list[JobRecord]: ...

    def __getitem__(self, number: int | slice) -> JobRecord | list[JobRecord]:
        """Return what is known of one job, or of some."""
        if isinstance(number, slice):
            return [self._seen(record) for record in self._records[number]]
        return self._seen(self._records[number])

    def __iter__(self) -> Iterator[JobRecord]:
        return map(self._seen, self._records)

    def _seen(self, record: JobRecord | bytes) -> JobRecord:
        return self._made(record) if isinstance(record, bytes) else record

    def _made(self, text: bytes) -> JobRecord:
        values = dict(zip(_FIELDS, unpacked(text), strict=True))
        shared = self._shared
        for name in ("namespace", "queue", "kind", "user"):
            values[name] = shared.setdefault(values[name], values[name])
        values["waits"] = tuple(values["waits"])
        values["nodes"] = tuple([shared.setdefault(node, node) for node in values["nodes"]])
        values["ending"] = None if values["ending"] is None else Ending(values["ending"])
        return JobRecord(**values)


@attrs.define(eq=False)
class Records:
    """All records of one run."""

    meters: Meters
    jobs: JobRecords = attrs.field(factory=JobRecords)
    stays: Rows[Stay] = attrs.field(factory=lambda: rows_of(Stay))
    evictions: Rows[Eviction] = attrs.field(factory=lambda: rows_of(Eviction))
    put_off: Counter[str] = attrs.field(factory=Counter)
    """Runs of each CronJob that came while the one before had not ended."""
    missed: Counter[str] = attrs.field(factory=Counter)
    """Those of them that never ran."""
    ended: int = 0
    """Jobs that are over."""
    unkept: int = 0
    """Stays and evictions that are not kept."""
    evicted_pods: int = 0
    evicted_gpus: float = 0.0
    gained_gpus: float = 0.0
    """GPUs of jobs for which others were evicted."""
    _gained: tuple[float, int] = (nan, -1)
    later: dict[TaskPlan, str] = attrs.field(factory=dict)
    """Parts of jobs whose pods came later and have not run together yet, with what is to be said of them."""
    saving: int = 0
    """Jobs that save their work at checkpoints."""
    losses: dict[Loss, float] = attrs.field(factory=lambda: dict.fromkeys(Loss, 0.0))
    """GPU-seconds."""

    def arrive(self, plan: JobPlan, now: float) -> int:
        """Note the arrival of a job, and return its number."""
        first = [task.gpus for task in plan.tasks if not task.after]
        after = [task.gpus for task in plan.tasks if task.after]
        gpus = round(max(sum(first[: plan.at_once or None]), *after, 0.0), _DIGITS)
        metadata, behaviour = plan.group.metadata, plan.behaviour
        record = JobRecord(
            name=metadata.name,
            namespace=metadata.namespace,
            queue=plan.queue,
            kind=plan.kind,
            owner=plan.owner,
            user=plan.user,
            pods=sum(len(task.pods) for task in plan.tasks),
            alone=None if behaviour.duration is None else behaviour.startup + behaviour.duration,
            arrival=now,
            gpus=gpus,
        )
        self.saving += behaviour.checkpoint_every is not None
        self.jobs.append(record)
        return len(self.jobs) - 1

    def come_later(self, job: int, task: TaskPlan) -> None:
        """Note that pods of a job came later."""
        pods = task.pods[-task.late :]
        gpus = sum(each.gpus for each in pods)
        size = f"{counted(len(pods), 'pod')} ({counted(gpus, 'GPU')})"
        self.later[task] = f"{size} of {self.jobs[job].name}, which come {task.once}"

    def later_notes(self) -> Iterator[str]:
        """Yield what is said of parts that came later and never ran."""
        told = list(self.later.values())
        if told:
            yield f"Never ran together: {first_of(told, _FEW)}."

    def start(self, job: int, now: float, waited: float) -> None:
        """Note that enough pods of a job, or of a part of it, run together after it waited."""
        record = self.jobs.changing(job)
        if isnan(record.start):
            record.start = now
        record.waits = (*record.waits, round(waited, _DIGITS))

    def promise(self, job: int, now: float) -> None:
        """Note that a pod of a job has a place, or the promise of one."""
        record = self.jobs.changing(job)
        if isnan(record.possible):
            record.possible = now

    def end(self, job: int, now: float, ending: Ending) -> None:
        """Note the end of a job."""
        record = self.jobs.changing(job)
        record.end, record.ending = now, ending
        self.ended += 1
        self.jobs.close(job)

    def lose(self, job: int, gpu_seconds: float, loss: Loss) -> None:
        """Note work that is lost."""
        self.losses[loss] += gpu_seconds
        if loss is Loss.CRASH:
            self.jobs.changing(job).crashed += gpu_seconds
        else:
            self.jobs.changing(job).lost += gpu_seconds

    # --- Pods ------------------------------------------------------------------------------------------------------

    def wait(self, job: int, gpus: float, now: float) -> None:
        """Note a pod that waits."""
        self.meters.advance(now)
        self.meters.wait(self.jobs[job].queue, gpus, 1)

    def give_up(self, job: int, gpus: float, now: float) -> None:
        """Note that a pod waits no more, without having run."""
        self.meters.advance(now)
        self.meters.wait(self.jobs[job].queue, gpus, -1)

    def bind(self, job: int, asked: float, held: float, node: str, now: float) -> None:
        """Note that a pod that waited has devices."""
        record, meters = self.jobs.changing(job), self.meters
        meters.advance(now)
        meters.wait(record.queue, asked, -1)
        meters.hold(record.queue, node, held)
        self.promise(job, now)
        if node not in record.nodes:
            record.nodes = (*record.nodes, node)

    def release(self, job: int, node: str, since: float, gpus: float, now: float) -> None:
        """Note that a pod gives its devices back."""
        self.meters.advance(now)
        self.meters.hold(self.jobs[job].queue, node, -gpus)
        if len(self.stays) < MOST_STAYS:
            self.stays.append(Stay(job=job, node=node, start=since, end=now, gpus=gpus))
        else:
            self.unkept += 1

    def evict(self, eviction: Eviction) -> None:
        """Note an eviction."""
        self.jobs.changing(eviction.job).evictions += 1
        self.evicted_pods += 1
        self.evicted_gpus += eviction.gpus
        if eviction.aggressor >= 0 and (eviction.time, eviction.aggressor) != self._gained:
            self._gained = (eviction.time, eviction.aggressor)
            self.gained_gpus += self.jobs[eviction.aggressor].gpus
        if len(self.evictions) < MOST_STAYS:
            self.evictions.append(eviction)
        else:
            self.unkept += 1
