"""The next step for a pod group with a limit of its run time, as a value.

The shell that watches and writes is `kai.roles.controllers.runtime_service`.

The clock runs while some pod of the group runs, from the instant at which the minimum of the gang first ran. Both ends
of a run are rounded so that kai never ends a group early: the start is an instant at which the minimum ran for certain,
and the end the last instant at which a pod was seen to run. So a preemption gives a group at most `PERIOD` seconds.

All that must survive a restart is in the group's status, and each step is one write: the start of a run, its length,
the announcement, the end. What follows the end (the owner, the pods) is repeated until nothing is left to do. A process
that dies between two writes therefore loses nothing, and the next one takes the same step again.

The end is a condition of the group. While it is true the scheduler tries no pod of the group, so an owner that makes
its pods again does not run them for another limit.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.conventions.runtime_limits import Bound, End, Force, Limit, Policy
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, PodGroupCondition, least_members
from kai.api.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kai.api.kubernetes.meta import Job

PERIOD: Final = 10.0
"""Seconds between two looks at a group that runs, and between two tries to end one."""
LONGEST_NOTICE: Final = 300.0
_NOTICE: Final = 0.1
"""The part of a limit that is left when its end is announced."""
_TRUNCATED: Final = 1.0
"""Times in the status of a pod are cut to whole seconds."""


class Stage(enum.StrEnum):
    """The reason of the condition `names.TIME_LIMIT`; its status is true at `ENDED` only."""

    ANNOUNCED = "Announced"
    ENDED = names.TIME_LIMIT
    RELEASED = "MayRunAgain"


@attrs.frozen(kw_only=True)
class Write:
    """The next write of a group's status.

    Units: seconds; instants are seconds since the epoch.
    """

    running_since: float | None = None
    consumed: float = 0.0
    condition: PodGroupCondition | None = None
    """None: the condition stays as it is."""
    event: str = ""
    """The message of the event that goes with it; "" for none."""


@attrs.frozen(kw_only=True)
class Ending:
    """A group that is over its limit and must not run."""

    fails: bool
    """Whether its owner is to give up."""
    pods: tuple[Pod, ...]
    """Pods to evict."""
    message: str


@attrs.frozen(kw_only=True)
class Step:
    """What to do about a group now, and in how many seconds to look again; None: when something changes."""

    action: Write | Ending | None = None
    after: float | None = None


@attrs.frozen(kw_only=True)
class Sight:
    """The pods of a group at one instant."""

    now: float
    running: tuple[Pod, ...] = ()
    """Pods whose containers run; terminating pods count."""
    ended: int = 0
    """Pods that ran and succeeded."""
    last_running: float | None = None
    """When this process last saw a pod of the group run; None for never."""


def sight_of(pods: Iterable[Pod], now: float, last_running: float | None = None) -> Sight:
    """Return what is seen of the pods of a group."""
    running: list[Pod] = []
    ended = 0
    for each in pods:
        if each.status.phase == "Running":
            running.append(each)
        elif each.status.phase == "Succeeded":
            ended += 1
    return Sight(now=now, running=tuple(running), ended=ended, last_running=last_running)


def next_step(group: PodGroup, limits: Bound, sight: Sight) -> Step:
    """Return the next step for a group; applied until there is none, it is all that keeps the limit.

    Holds: no end before the group has run for its limit, and before half of its notice has passed.
    """
    status, condition = group.status, condition_of(group)
    consumed = status.consumed_runtime or 0.0
    limit = limits.of(Force.KAI)
    # First: a group that has ended takes no step of a running one, even while its pods still run.
    if condition is not None and condition.status == "True":
        return _after_the_end(condition, limits, sight, consumed)
    if status.running_since is None:
        since = _started(group, sight)
        if since is None or limit is None:
            return Step()
        return Step(action=Write(running_since=since, consumed=consumed))
    if not sight.running or _is_another_run(status.running_since, sight):
        return Step(action=Write(consumed=consumed + _run(status.running_since, sight)))
    if limit is None:
        return Step(after=PERIOD)  # a limit may come later, and then earlier runs count
    return _while_it_runs(limit, condition, sight, status.running_since, consumed)


def condition_of(group: PodGroup) -> PodGroupCondition | None:
    """Return the condition that says where a group stands with its limit."""
    return next((each for each in group.status.conditions if each.type == names.TIME_LIMIT), None)


def notice_of(limit: Limit) -> float:
    """Return how many seconds before its end a group gets a warning."""
    return min(LONGEST_NOTICE, limit.seconds * _NOTICE)


def deadline_for(job: Job, now: float) -> int | None:
    """Return the ``activeDeadlineSeconds`` that ends a Job now; None if it has ended, or ends anyway.

    The Job's controller compares whole seconds since ``startTime``, so the number is rounded down.
    """
    start, present = job.status.start_time, job.spec.active_deadline_seconds
    if start is None or any(
        each.type in {"Complete", "Failed"} and each.status == "True" for each in job.status.conditions
    ):
        return None
    wanted = max(1, math.floor(now - start))
    return wanted if present is None or present > wanted else None


def _while_it_runs(
    limit: Limit, condition: PodGroupCondition | None, sight: Sight, since: float, consumed: float
) -> Step:
    notice = notice_of(limit)
    due = since + limit.left(consumed)
    announced = _announced(condition, due - notice, since)
    if announced is None:
        wait = due - notice - sight.now
        if wait > 0:
            return Step(after=min(wait, PERIOD))
        end = max(due, sight.now + notice / 2)
        text = f"ends in {_rounded(end - sight.now)}: the limit is {_rounded(limit.seconds)} ({limit.source})"
        return Step(
            action=Write(
                running_since=since,
                consumed=consumed,
                condition=_condition(Stage.ANNOUNCED, sight.now, text),
                event=text,
            )
        )
    # A limit that is shortened, or a process that was away, announces late. Half of the notice is left in any case.
    end = max(due, announced + notice / 2)
    if sight.now < end:
        return Step(after=min(end - sight.now, PERIOD))
    text = f"ran for {_rounded(consumed + sight.now - since)}, the limit is {_rounded(limit.seconds)} ({limit.source})"
    over = max(consumed + sight.now - since, limit.seconds)  # the sum of floats may fall short of the limit
    return Step(action=Write(consumed=over, condition=_condition(Stage.ENDED, sight.now, text), event=text))


def _after_the_end(condition: PodGroupCondition, limits: Bound, sight: Sight, consumed: float) -> Step:
    limit, ended = limits.of(Force.KAI), condition.last_transition_time or 0.0
    if limit is None or consumed < limit.seconds:
        text = "the limit was lengthened" if limit is not None else "there is no limit any more"
        return Step(action=Write(consumed=consumed, condition=_condition(Stage.RELEASED, sight.now, text), event=text))
    staying = tuple(each for each in sight.running if each.metadata.deletion_timestamp is None)
    requeues = limits.policy is Policy.REQUEUE
    if requeues and not sight.running and sight.now >= ended + limits.requeue_delay:
        text = f"may run again for {_rounded(limit.seconds)}"
        return Step(action=Write(condition=_condition(Stage.RELEASED, sight.now, text), event=text))
    # Without pods as well: an owner that has not failed makes new ones.
    if staying or not requeues:
        return Step(action=Ending(fails=not requeues, pods=staying, message=condition.message))
    if sight.running:
        return Step(after=PERIOD)
    return Step(after=ended + limits.requeue_delay - sight.now)


def _announced(condition: PodGroupCondition | None, planned: float, since: float) -> float | None:
    """Return when the end was announced; None if it was not, or for a run or an end that has changed since."""
    if condition is None or condition.reason != Stage.ANNOUNCED:
        return None
    at = condition.last_transition_time or 0.0
    # The status has whole seconds, so an announcement seems up to a second earlier than it was.
    return at if at >= min(planned, math.floor(planned)) and at >= math.floor(since) else None


def _condition(stage: Stage, now: float, message: str) -> PodGroupCondition:
    return PodGroupCondition(
        type=names.TIME_LIMIT,
        status="True" if stage is Stage.ENDED else "False",
        reason=stage.value,
        message=message,
        last_transition_time=now,
    )


def _started(group: PodGroup, sight: Sight) -> float | None:
    """Return an instant at which the minimum ran and since when it does; None if it does not run now."""
    needed = max(1, least_members(group.spec) - sight.ended)
    if len(sight.running) < needed:
        return None
    # The pod that completed the minimum began the run. A pod without a time counts from now, so that no group ends
    # early.
    return sorted(min(_ready(each), sight.now) for each in sight.running)[needed - 1]


def _ready(pod: Pod) -> float:
    """Return an instant at which the containers of a pod ran for certain, from its status; infinite if it says none."""
    # Not `status.startTime`: images are pulled and init containers run after it.
    for each in pod.status.conditions:
        if each.type == "ContainersReady" and each.status == "True" and each.last_transition_time is not None:
            return each.last_transition_time + _TRUNCATED
    return math.inf


def _is_another_run(since: float, sight: Sight) -> bool:
    """Return whether the run that began at ``since`` ended while no process looked, and the pods are of a later one."""
    # Otherwise the pause between the two would count as run time.
    return sight.last_running is None and all(_placed(each) > since for each in sight.running)


def _placed(pod: Pod) -> float:
    """Return when a pod got its node, or was made, whichever is known and later."""
    instants = [pod.metadata.creation_timestamp or 0.0]
    instants += [
        each.last_transition_time
        for each in pod.status.conditions
        if each.type == names.POD_SCHEDULED_CONDITION and each.last_transition_time is not None
    ]
    return max(instants)


def _run(since: float, sight: Sight) -> float:
    """Return the length of a run that is over, up to the last instant at which a pod was seen to run."""
    return max(0.0, (since if sight.last_running is None else min(sight.last_running, sight.now)) - since)


def _rounded(seconds: float) -> str:
    return duration_text(float(round(seconds)))


def end_of(group: PodGroup, limits: Bound, pods: Sequence[Pod], now: float) -> End | None:
    """Return when a group ends at the latest, if it runs now and something ends it."""
    since = group.status.running_since
    if since is None:
        since = _started(group, sight_of(pods, now))
    return None if since is None else limits.end(since, group.status.consumed_runtime or 0.0)
