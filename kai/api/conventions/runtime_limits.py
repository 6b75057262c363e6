"""How long a pod group may run, who says so, and when it ends at the latest.

`bound` gathers every limit of one group: kai's annotation, the queues above it, and the fields of its owner by which
another controller ends it. kai enforces its annotation and the queues; the others only say when the group ends at the
latest. `owner_deadline` finds such a field in an owner, and the pod grouper copies it to the group.

A limit counts from the instant at which the minimum of the gang runs, and only while it runs. Where that clock stands
is in the group's status: ``runningSince`` and ``consumedRuntime``.
"""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.scheduling.queue import DEEPEST_QUEUE, Queue
from kai.api.values import WANTED_DURATION, BadValue, duration_text, seconds
from kai.basics.parsing import is_whole, mappings_of, part_of, text_of, unsigned

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from kai.api.scheduling.pod_group import PodGroup

WANTED: Final = 'a duration above 0 such as "90m" or "12h"'
LONGEST: Final = 100 * 365.25 * 86_400.0
"""Seconds: a longer limit is none, and a sum with it is still a date that can be written."""


class Policy(enum.StrEnum):
    """What kai does at the limit."""

    FAIL = "fail"
    REQUEUE = "requeue"
    YIELD = "yield"


class Force(enum.Enum):
    """Who ends a group at a limit."""

    KAI = "kai"
    OWNER = "the owner's own controller, or Kueue"
    NOTHING = "nothing"


@attrs.frozen(kw_only=True)
class Limit:
    """One limit of a run.

    Units: seconds of running time.
    """

    seconds: float
    source: str
    """The object and the field that say so."""
    force: Force = Force.KAI

    def left(self, consumed: float) -> float:
        """Return the seconds that a group may still run, after earlier runs of ``consumed`` seconds.

        Owners' controllers count from an instant that is not known here and no later than the present run, so that
        their whole limit from there is an upper bound.
        """
        return self.seconds if self.force is Force.OWNER else max(0.0, self.seconds - consumed)


@attrs.frozen(kw_only=True)
class End:
    """The latest end of a run, and the limit that sets it.

    Units: seconds since the epoch.
    """

    at: float
    limit: Limit


@attrs.frozen(kw_only=True)
class Bound:
    """Every limit of one group, the shortest first."""

    limits: tuple[Limit, ...] = ()
    policy: Policy = Policy.FAIL
    requeue_delay: float = 0.0
    expected: float | None = None
    """How long it will probably run; nothing ends there."""
    faults: tuple[BadValue, ...] = ()
    """Values that were ignored."""

    @property
    def least(self) -> Limit | None:
        """Return the shortest limit at which something ends the group."""
        return next((each for each in self.limits if each.force is not Force.NOTHING), None)

    @property
    def wish(self) -> float | None:
        """Return after how many seconds of running a group that yields gives way to others; None if it does not."""
        if self.policy is not Policy.YIELD:
            return None
        soft = self.of(Force.NOTHING)
        wishes = [each for each in (None if soft is None else soft.seconds, self.expected) if each is not None]
        return min(wishes, default=None)

    def of(self, force: Force) -> Limit | None:
        """Return the shortest limit with this force."""
        return next((each for each in self.limits if each.force is force), None)

    def end(self, since: float, consumed: float = 0.0) -> End | None:
        """Return when a group that runs ``since`` an instant ends at the latest; None if nothing ends it."""
        ends = (
            End(at=since + each.left(consumed), limit=each) for each in self.limits if each.force is not Force.NOTHING
        )
        return min(ends, key=lambda end: end.at, default=None)


UNBOUNDED: Final = Bound()


def bound(group: PodGroup, queues: Iterable[Queue]) -> Bound:
    """Return the limits of a group in the first of ``queues``, whose ancestors follow it.

    A queue's maximum holds for everything below it, so a child can only shorten it. The nearest default counts, only
    where neither the group nor its owner states a limit. A group may yield at its own limit and at a default; it
    cannot turn a queue's maximum into less than an end. Invalid values are ignored and returned as faults.
    """
    faults: list[BadValue] = []
    annotations = group.metadata.annotations
    policy = _policy(annotations, faults)
    soft = Force.NOTHING if policy is Policy.YIELD else Force.KAI
    stated = [*_stated(annotations, soft, faults), *_of_owner(group), *_of_kueue(group)]
    above: list[Limit] = []
    default: list[Limit] = []
    for each in queues:
        above += _of_queue(each, "maxRuntime", each.spec.max_runtime, Force.KAI, faults)
        if not stated and not default:
            default += _of_queue(each, "defaultRuntime", each.spec.default_runtime, soft, faults)
    return Bound(
        limits=tuple(sorted((*stated, *default, *above), key=lambda each: each.seconds)),
        policy=policy,
        requeue_delay=_duration(annotations, names.REQUEUE_DELAY, faults, is_valid=_is_delay) or 0.0,
        expected=_duration(annotations, names.EXPECTED_RUNTIME, faults),
        faults=tuple(faults),
    )


def queue_chain(name: str, find: Callable[[str], Queue | None]) -> tuple[Queue, ...]:
    """Return a queue and its ancestors, nearest first; a circle of parents ends where it closes."""
    chain: dict[str, Queue] = {}
    while name and name not in chain and len(chain) < DEEPEST_QUEUE:
        queue = find(name)
        if queue is None:
            break
        chain[name] = queue
        name = queue.spec.parent_queue
    return tuple(chain.values())


def is_limited(group: PodGroup, queues: Iterable[Queue]) -> bool:
    """Return whether kai counts the run time of a group, or has done so. Cost: a few look-ups."""
    status = group.status
    return (
        names.MAX_RUNTIME in group.metadata.annotations
        or status.running_since is not None
        or ended_at(group) is not None
        or any(map(limits_runs, queues))
    )


def has_end(group: PodGroup, queues: Iterable[Queue]) -> bool:
    """Return whether a group may have a limit, kai's or another's. Cost: a few look-ups."""
    metadata = group.metadata
    return (
        names.MAX_RUNTIME in metadata.annotations
        or names.OWNER_DEADLINE in metadata.annotations
        or names.KUEUE_MAX_EXECUTION in metadata.labels
        or any(map(limits_runs, queues))
    )


def limits_runs(queue: Queue) -> bool:
    """Return whether a queue has a limit for groups, or a default."""
    return queue.spec.max_runtime is not None or queue.spec.default_runtime is not None


def ended_at(group: PodGroup) -> float | None:
    """Return when kai ended a group at its limit; None if it did not, or lets it run again."""
    for each in group.status.conditions:
        if each.type == names.TIME_LIMIT and each.status == "True":
            return each.last_transition_time or 0.0
    return None


def _stated(annotations: Mapping[str, str], force: Force, faults: list[BadValue]) -> Iterator[Limit]:
    found = _duration(annotations, names.MAX_RUNTIME, faults)
    if found is not None:
        yield Limit(seconds=found, source=f"annotation {names.MAX_RUNTIME}", force=force)


def _of_queue(queue: Queue, field: str, found: float | None, force: Force, faults: list[BadValue]) -> Iterator[Limit]:
    if found is None:
        return
    if _is_limit(found):
        yield Limit(seconds=found, source=f"queue {queue.metadata.name}: spec.{field}", force=force)
    else:
        subject = f"queue {queue.metadata.name}"
        faults.append(BadValue(duration_text(found), WANTED, subject=subject, path=("spec", field)))


def _of_owner(group: PodGroup) -> Iterator[Limit]:
    """Yield the limit that the pod grouper found in the owner."""
    deadline, _, field = group.metadata.annotations.get(names.OWNER_DEADLINE, "").partition(" ")
    found = _seconds(deadline)
    if found is not None and _is_limit(found):
        owner = group.metadata.owner_references[0] if group.metadata.owner_references else None
        whose = f"{owner.kind} {owner.name}: " if owner is not None else ""
        yield Limit(seconds=found, source=f"{whose}{field or 'its deadline'}", force=Force.OWNER)


def _of_kueue(group: PodGroup) -> Iterator[Limit]:
    found = unsigned(group.metadata.labels.get(names.KUEUE_MAX_EXECUTION, ""), bits=31)
    if found:
        yield Limit(seconds=float(found), source=f"label {names.KUEUE_MAX_EXECUTION}", force=Force.OWNER)


def _policy(annotations: Mapping[str, str], faults: list[BadValue]) -> Policy:
    text = annotations.get(names.RUNTIME_POLICY)
    if text is None:
        return Policy.FAIL
    try:
        return Policy(text)
    except ValueError:
        path = ("metadata", "annotations", names.RUNTIME_POLICY)
        faults.append(BadValue(text, f"one of {', '.join(Policy)}", path=path))
        return Policy.FAIL


def _duration(
    annotations: Mapping[str, str],
    key: str,
    faults: list[BadValue],
    is_valid: Callable[[float], bool] | None = None,
) -> float | None:
    """Return the duration in an annotation; None if it is missing or invalid."""
    text = annotations.get(key)
    if text is None:
        return None
    found = _seconds(text)
    if found is not None and (is_valid or _is_limit)(found):
        return found
    faults.append(BadValue(text, WANTED_DURATION if is_valid else WANTED, path=("metadata", "annotations", key)))
    return None


def is_runtime(value: object, key: str) -> bool:
    """Return whether the value of annotation ``key`` counts."""
    found = _seconds(value) if isinstance(value, str) else None
    return found is not None and (_is_delay if key == names.REQUEUE_DELAY else _is_limit)(found)


def _seconds(text: str) -> float | None:
    try:
        return seconds(text)
    except BadValue:
        return None


def _is_limit(found: float) -> bool:
    return 0 < found <= LONGEST


def _is_delay(found: float) -> bool:
    return 0 <= found <= LONGEST


# --- Fields of queues that contradict each other -------------------------------------------------------------------

_MINIMA: Final = ("preemptMinRuntime", "reclaimMinRuntime")


@attrs.frozen(kw_only=True)
class Conflict:
    """A duration of a queue that a maximum makes void."""

    field: str
    found: str
    most: str
    owner: str
    """The queue with the maximum."""

    @property
    def is_promise(self) -> bool:
        """Whether the queue promises a run time that it does not grant."""
        return self.field in _MINIMA


def runtime_conflicts(queues: Iterable[Mapping[str, Any]]) -> Iterator[Conflict]:
    """Yield what is longer in the first of these manifests than a maximum of it or of its ancestors, which follow.

    Each field is yielded once, with the lowest maximum. Invalid durations are left to those who read the fields.
    """
    chain = tuple(queues)
    for row, field in ((0, "preemptMinRuntime"), (0, "reclaimMinRuntime"), (0, "defaultRuntime"), (1, "maxRuntime")):
        found = text_of(chain[0], "spec", field) if chain else ""
        limits = [
            (most, text_of(each, "spec", "maxRuntime"), text_of(each, "metadata", "name"))
            for each in chain[row:]
            if (most := _seconds(text_of(each, "spec", "maxRuntime"))) is not None and _is_limit(most)
        ]
        own = _seconds(found)
        if own is not None and limits and own > min(limits)[0]:
            yield Conflict(field=field, found=found, most=min(limits)[1], owner=min(limits)[2])


# --- Fields of owners ----------------------------------------------------------------------------------------------

_DEADLINES: Final = (("spec", "activeDeadlineSeconds"), ("spec", "runPolicy", "activeDeadlineSeconds"))
"""Jobs, bare pods, RayJobs and workflows; training jobs of Kubeflow."""
_SPARK: Final = re.compile(r"([0-9]+)(ms|s|m|min|h|d)?", re.ASCII)
_SPARK_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SPARK_TIMEOUT: Final = "spark.driver.timeout"


def owner_deadline(manifest: Mapping[str, Any]) -> str:
    """Return the annotation for the group of an owner: its deadline and the field that says so; "" without one.

    Values of a wrong type are no deadline: the owner's own controller refuses them, and says so.
    """
    found = min(_deadlines(manifest), default=None)
    return "" if found is None else f"{duration_text(found[0])} {found[1]}"


def _deadlines(manifest: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    for path in _DEADLINES:
        found = part_of(manifest, *path)
        if _is_deadline(found):
            yield float(found), ".".join(path)
    kind = text_of(manifest, "kind")
    if kind == "JobSet":
        yield from _of_job_set(manifest)
    elif kind == "SparkApplication":
        yield from _of_spark(manifest)


def _of_job_set(manifest: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """Yield the deadline after which some Job of a set fails; each restart of the set gives it as long again."""
    again = part_of(manifest, "spec", "failurePolicy", "maxRestarts")
    runs = 1 + (again if is_whole(again) and again > 0 else 0)
    for index, each in enumerate(mappings_of(manifest, "spec", "replicatedJobs")):
        path = ("template", "spec", "activeDeadlineSeconds")
        found = part_of(each, *path)
        if _is_deadline(found) and found * runs <= LONGEST:
            yield float(found * runs), f"spec.replicatedJobs[{index}].{'.'.join(path)}"


def _of_spark(manifest: Mapping[str, Any]) -> Iterator[tuple[float, str]]:
    """Yield the time after which Spark's driver ends itself; a number without a unit is in minutes."""
    text = text_of(manifest, "spec", "sparkConf", _SPARK_TIMEOUT)
    parts = _SPARK.fullmatch(text.strip().lower())
    if parts is not None and len(parts[1]) <= 12:
        found = int(parts[1]) * _SPARK_UNITS[parts[2] or "min"]
        if 0 < found <= LONGEST:
            yield found, f'spec.sparkConf["{_SPARK_TIMEOUT}"]'


def _is_deadline(found: object) -> bool:
    return is_whole(found) and 0 < found <= LONGEST
