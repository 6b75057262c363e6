"""The records of a run: what happened to each job, and integrals of the cluster's state over time. They decide nothing.

Every change is recorded with its instant; the meters first advance to that instant with the values that held until
then.

Closed records are stored compactly: rows as MessagePack, which become objects again when they are read. A run of a
million pods ends with hundreds of thousands of closed jobs, and the fields of an object take more memory than their
values. Values are restored exactly, to the last bit.

The first decisions of a run are kept as lines of text, so that a comparison finds where two runs diverge.
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
from kai.lab.virtual.running.meters import Meters
from kai.lab.virtual.scenes.job_plans import JobPlan, TaskPlan

if TYPE_CHECKING:
    from kai.facts.state.snapshot import Snapshot

T = TypeVar("T")
Values = tuple[Any, ...]

_BLOCK: Final = 512
"""Number of rows that are packed together."""


def _plain(value: Any) -> Any:  # noqa: ANN401 - a scalar of numpy, which has no types here
    """Return a numpy scalar as a Python number, which documents write alike."""
    return value.item()


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_plain)
_DECODER: Final = msgspec.msgpack.Decoder()


def packed(values: object) -> bytes | None:
    """Return plain values as bytes; None for values that cannot be encoded, such as text that is not valid Unicode."""
    # Names read from files may hold unpaired surrogates, which MessagePack cannot write; such a block stays objects.
    try:
        return _ENCODER.encode(values)
    except (AttributeError, OverflowError, TypeError, ValueError):
        return None


def unpacked(text: bytes) -> list[Any]:
    """Return the values that were packed."""
    values: list[Any] = _DECODER.decode(text)
    return values


class Rows(Generic[T]):
    """Append-only rows, read from the first to the last. Cost: compressed blocks."""

    def __init__(self, values_of: Callable[[T], Values], make: Callable[..., T]) -> None:
        """Store rows as ``values_of`` returns their values; ``make`` restores a row from values."""
        self._values_of, self._make = values_of, make
        self._blocks: list[bytes | list[Values]] = []
        self._last: list[Values] = []

    def append(self, row: T) -> None:
        """Add a row."""
        self._last.append(self._values_of(row))
        if len(self._last) == _BLOCK:
            block = packed(self._last)
            # The fastest level is enough: most of a block are names that occur earlier in it.
            self._blocks.append(self._last if block is None else zlib.compress(block, level=1))
            self._last = []

    def __len__(self) -> int:
        return _BLOCK * len(self._blocks) + len(self._last)

    def __iter__(self) -> Iterator[T]:
        shared: dict[str, str] = {}
        for block in (*self._blocks, self._last):
            rows: Sequence[Sequence[Any]] = unpacked(zlib.decompress(block)) if isinstance(block, bytes) else block
            for values in rows:
                # Interned, because thousands of rows repeat the same names.
                yield self._make(*[shared.setdefault(each, each) if type(each) is str else each for each in values])


@attrs.define
class DecisionLines:
    """Formats each decision as a line, and keeps the first ``most`` lines."""

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
        # `repr` of a float has all of its digits, so the digest of a run
        # tells instants apart that differ in the last bit.
        return f"{at[0]!r} {text}\n"

    @property
    def lines(self) -> tuple[tuple[float, int, str], ...]:
        """The kept lines."""
        return tuple(self._lines)


_VERBS: Final = {Bind: "bind", Evict: "evict", Nominate: "promise"}


MOST_STAYS: Final = 200_000
"""Most stays of pods on nodes that are kept for charts, and most evictions; only sums are known of further ones."""
_DIGITS: Final = 6
_FEW: Final = 4


class Ending(StrEnum):
    """How a job ended."""

    DONE = "done"
    FAILED = "failed"
    """It crashed more often than its owner retries."""
    TIME_LIMIT = "time limit"
    """It ran for as long as it may."""
    TAKEN_BACK = "taken back"
    """Its owner reduced the replicas."""


class Loss(StrEnum):
    """Causes of lost work."""

    EVICTION = "eviction"
    NODE = "node failure"
    CRASH = "crash"


@attrs.define(kw_only=True, eq=False)
class JobRecord:
    """The history of one job.

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
    """Start-up and duration: its run time on a cluster of its own; None if it has no end."""
    arrival: float
    possible: float = nan
    """When a pod of it first had a place, or the promise of one."""
    start: float = nan
    """When enough of its pods first ran together."""
    end: float = nan
    ending: Ending | None = None
    waits: tuple[float, ...] = ()
    """The waits before each of its starts."""
    evictions: int = 0
    """Number of evicted pods."""
    lost: float = 0.0
    """GPU-seconds lost by evictions and failed nodes."""
    crashed: float = 0.0
    """GPU-seconds lost by crashes of its own."""
    nodes: tuple[str, ...] = ()
    gpus: float = 0.0
    """The most GPUs that its pods request together."""


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
    """An eviction: the victim, the job that gains, and the rule."""

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
    """Return empty rows for a frozen class."""
    names = [field.name for field in attrs.fields(cls)]
    return Rows(attrgetter(*names), lambda *values: cls(**dict(zip(names, values, strict=True))))


_FIELDS: Final = tuple(field.name for field in attrs.fields(JobRecord))
_VALUES: Final = attrgetter(*_FIELDS)


class JobRecords(Sequence[JobRecord]):
    """The records of all jobs by number. Cost: a closed job is stored as bytes."""

    def __init__(self) -> None:
        self._records: list[JobRecord | bytes] = []
        self._shared: dict[str, str] = {}
        """Interned names that many jobs share."""

    def append(self, record: JobRecord) -> None:
        """Add the record of a job that arrives."""
        self._records.append(record)

    def close(self, number: int) -> None:
        """Pack the record of a job that has ended."""
        record = self._records[number]
        if isinstance(record, JobRecord):
            # Only records that ended: packing one that still changes would cost more than it saves.
            self._records[number] = packed(_VALUES(record)) or record

    def changing(self, number: int) -> JobRecord:
        """Return a record for writing; a packed one is unpacked for it."""
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
        """Return the record of one job, or the records of several."""
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
    """By CronJob: runs that were due before the previous run had ended."""
    missed: Counter[str] = attrs.field(factory=Counter)
    """The runs among them that never ran."""
    ended: int = 0
    """Number of jobs that have ended."""
    unkept: int = 0
    """Number of stays and evictions that are not kept."""
    evicted_pods: int = 0
    evicted_gpus: float = 0.0
    gained_gpus: float = 0.0
    """GPUs of jobs for which others were evicted."""
    _gained: tuple[float, int] = (nan, -1)
    later: dict[TaskPlan, str] = attrs.field(factory=dict)
    """By task whose later pods have not run together yet: the text of a note about them."""
    held: dict[str, str] = attrs.field(factory=dict)
    """By job that its controller has not created yet: the text of a note about it."""
    saving: int = 0
    """Number of jobs that save their work at checkpoints."""
    losses: dict[Loss, float] = attrs.field(factory=lambda: dict.fromkeys(Loss, 0.0))
    """GPU-seconds."""

    def arrive(self, plan: JobPlan, now: float) -> int:
        """Record the arrival of a job, and return its number."""
        self.held.pop(plan.key, None)
        first = [task.gpus for task in plan.tasks if not task.after]
        after = [task.gpus for task in plan.tasks if task.after]
        # At one time: a Job with 100 completions and parallelism 2 never holds more than two of its pods.
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

    def hold(self, plan: JobPlan) -> None:
        """Record that a job waits for its controller to create it."""
        words = " and ".join(dict.fromkeys(each.words for each in plan.follows))
        self.held[plan.key] = f"{plan.name} of {plan.owner}, which comes {words}"

    def come_later(self, job: int, task: TaskPlan) -> None:
        """Record that later pods of a job were created."""
        pods = task.pods[-task.late :]
        gpus = sum(each.gpus for each in pods)
        size = f"{counted(len(pods), 'pod')} ({counted(gpus, 'GPU')})"
        self.later[task] = f"{size} of {self.jobs[job].name}, which come {task.once}"

    def later_notes(self) -> Iterator[str]:
        """Yield a note on later pods that never ran together."""
        names = list(self.later.values())
        if names:
            yield f"Never ran together: {first_of(names, _FEW)}."
        if self.held:
            yield f"Never created: {first_of(list(self.held.values()), _FEW)}."

    def start(self, job: int, now: float, waited: float) -> None:
        """Record that enough pods of a job, or of a task of it, run together after it waited."""
        record = self.jobs.changing(job)
        if isnan(record.start):
            record.start = now
        record.waits = (*record.waits, round(waited, _DIGITS))

    def promise(self, job: int, now: float) -> None:
        """Record that a pod of a job has a place, or the promise of one."""
        record = self.jobs.changing(job)
        if isnan(record.possible):
            record.possible = now

    def end(self, job: int, now: float, ending: Ending) -> None:
        """Record the end of a job."""
        record = self.jobs.changing(job)
        record.end, record.ending = now, ending
        self.ended += 1
        self.jobs.close(job)

    def lose(self, job: int, gpu_seconds: float, loss: Loss) -> None:
        """Record lost work."""
        self.losses[loss] += gpu_seconds
        if loss is Loss.CRASH:
            self.jobs.changing(job).crashed += gpu_seconds
        else:
            self.jobs.changing(job).lost += gpu_seconds

    # --- Pods ------------------------------------------------------------------------------------------------------

    def wait(self, job: int, gpus: float, now: float) -> None:
        """Record a pod that waits."""
        self.meters.advance(now)
        self.meters.wait(self.jobs[job].queue, gpus, 1)

    def give_up(self, job: int, gpus: float, now: float) -> None:
        """Record that a pod stops waiting without having run."""
        self.meters.advance(now)
        self.meters.wait(self.jobs[job].queue, gpus, -1)

    def bind(self, job: int, asked: float, held: float, node: str, now: float) -> None:
        """Record that a waiting pod was bound to devices."""
        record, meters = self.jobs.changing(job), self.meters
        meters.advance(now)
        meters.wait(record.queue, asked, -1)
        meters.hold(record.queue, node, held)
        self.promise(job, now)
        if node not in record.nodes:
            record.nodes = (*record.nodes, node)

    def release(self, job: int, node: str, since: float, gpus: float, now: float) -> None:
        """Record that a pod releases its devices."""
        self.meters.advance(now)
        self.meters.hold(self.jobs[job].queue, node, -gpus)
        if len(self.stays) < MOST_STAYS:
            self.stays.append(Stay(job=job, node=node, start=since, end=now, gpus=gpus))
        else:
            self.unkept += 1

    def evict(self, eviction: Eviction) -> None:
        """Record an eviction."""
        self.jobs.changing(eviction.job).evictions += 1
        self.evicted_pods += 1
        self.evicted_gpus += eviction.gpus
        # Evictions of one statement come one after the other; its job gains once, whatever the number of victims.
        if eviction.aggressor >= 0 and (eviction.time, eviction.aggressor) != self._gained:
            self._gained = (eviction.time, eviction.aggressor)
            self.gained_gpus += self.jobs[eviction.aggressor].gpus
        if len(self.evictions) < MOST_STAYS:
            self.evictions.append(eviction)
        else:
            self.unkept += 1
