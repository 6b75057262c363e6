"""Pods that a controller creates later, as tasks of their job: after other tasks, or beside them once these run.

Pods of a group that has no pods before are a job of their own, which follows others.

The models of ``kai.manifests.workloads`` determine these pods and their conditions. Start reading at ``with_later``.

CronJobs over virtual time: a Job for each time of the schedule, named and owned as by the controller.

``kai.lab.virtual.running.workloads`` applies ``concurrencyPolicy`` to overlapping runs.
Source: the CronJob controller.
"""

from __future__ import annotations

import datetime as dt
import zoneinfo
from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of, part_of, place_of
from kai.basics.schedules import WANTED, Schedule
from kai.basics.wording import counted
from kai.lab.virtual.scenes.job_plans import Follow, Overlap, PodPlan, Series, TaskPlan, gang_of
from kai.manifests.workloads.making import Condition, Stage, uid_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai.api.kinds import Key
    from kai.api.kubernetes.pod import Pod


MOST_RUNS: Final = 100_000
"""Most runs of a CronJob; a schedule with more of them is probably a typo."""
_MOST_SECONDS: Final = 1 << 53
"""A longer starting deadline counts as none: a float has no exact value for every whole number beyond."""
_MINUTE: Final = dt.timedelta(minutes=1)


@attrs.frozen(kw_only=True)
class Runs:
    """The runs of one CronJob."""

    cron_job: Mapping[str, Any]
    """The manifest, with the UID that its Jobs refer to."""
    series: Series
    jobs: tuple[tuple[float, Mapping[str, Any]], ...]
    """The creation time of each run, in seconds since the epoch, and its manifest."""
    note: str


def is_repeated(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object is a CronJob that starts Jobs."""
    is_batch = str(manifest.get("apiVersion")).startswith("batch/")
    return is_batch and manifest.get("kind") == "CronJob" and part_of(manifest, "spec", "suspend") is not True


def runs_of(manifest: Mapping[str, Any], since: float, until: float) -> Runs:
    """Return the runs of a CronJob from ``since`` to before ``until``, in seconds since the epoch.

    Raises: InputError for an invalid schedule, time zone or policy.
    """
    metadata, spec = mapping_of(manifest, "metadata"), mapping_of(manifest, "spec")
    place = place_of(manifest)
    title = f"CronJob {place[0]}/{place[1]}"
    schedule, zone = _schedule(spec, title)
    owner = {
        **metadata,
        "namespace": place[0],
        "name": place[1],
        "uid": metadata.get("uid") or uid_of("CronJob", *place),
    }
    found: list[tuple[float, Mapping[str, Any]]] = []
    start = dt.datetime.fromtimestamp(since, tz=zone)
    # `after` is exclusive. A CronJob that is created at a time of its
    # schedule runs then; an interval begins with a pause.
    before = start if schedule.every else start - _MINUTE
    for moment in schedule.after(before):
        at = moment.timestamp()
        if at >= until:
            break
        # Counted before it is reached: a run of years with a schedule of each
        # second must fail here and not fill the memory.
        if len(found) == MOST_RUNS:
            wanted = f"at most {MOST_RUNS} runs"
            raise InputError.about(title, "spec.schedule", found=spec.get("schedule"), wanted=wanted)
        if at >= since:
            found.append((at, _job(owner, spec, int(at))))
    deadline = spec.get("startingDeadlineSeconds")
    return Runs(
        cron_job={**manifest, "metadata": owner},
        series=Series(
            name=f"{place[0]}/{place[1]}",
            overlap=_overlap(spec, title),
            deadline=float(deadline) if isinstance(deadline, int) and abs(deadline) <= _MOST_SECONDS else inf,
        ),
        jobs=tuple(found),
        note=f"CronJob {place[1]} comes {counted(len(found), 'time')}, by its schedule in {zone}.",
    )


def once_note(manifest: Mapping[str, Any]) -> str:
    """Return the note on a CronJob in a run without a horizon."""
    name = part_of(manifest, "metadata", "name")
    return f"CronJob {name} runs once, when it arrives: its schedule counts with --until."


def _schedule(spec: Mapping[str, Any], title: str) -> tuple[Schedule, dt.tzinfo]:
    text, name = spec.get("schedule"), spec.get("timeZone")
    try:
        schedule = Schedule.read(str(text))
    except ValueError:
        raise InputError.about(title, "spec.schedule", found=text, wanted=WANTED) from None
    if not name:
        return schedule, dt.UTC
    try:
        return schedule, zoneinfo.ZoneInfo(str(name))
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        wanted = "the name of a time zone that this machine knows"
        raise InputError.about(title, "spec.timeZone", found=name, wanted=wanted) from None


def _overlap(spec: Mapping[str, Any], title: str) -> Overlap:
    text = spec.get("concurrencyPolicy") or Overlap.ALLOW.value
    try:
        return Overlap(text)
    except ValueError:
        wanted = "one of " + ", ".join(each.value for each in Overlap)
        raise InputError.about(title, "spec.concurrencyPolicy", found=text, wanted=wanted) from None


def _job(owner: Mapping[str, Any], spec: Mapping[str, Any], at: int) -> Mapping[str, Any]:
    """Return the Job of a run; its name ends in the minutes since the epoch, as the controller names it."""
    template = mapping_of(spec, "jobTemplate")
    written = mapping_of(template, "metadata")
    reference = {"apiVersion": "batch/v1", "kind": "CronJob", "name": owner["name"], "uid": owner["uid"]}
    metadata = {
        **{key: written[key] for key in ("labels", "annotations") if written.get(key)},
        "name": f"{owner['name']}-{at // 60}",
        "namespace": owner["namespace"],
        "ownerReferences": [{**reference, "controller": True, "blockOwnerDeletion": True}],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": template.get("spec")}


def missed_notes(came: Mapping[str, int], missed: Mapping[str, int]) -> Iterator[str]:
    """Yield notes on runs that were due before the previous run had ended."""
    for name, count in came.items():
        runs = counted(count, "run")
        yield f"CronJob {name}: {runs} came before the last one had ended, {missed.get(name, 0)} of them left out."


@attrs.frozen(kw_only=True)
class LaterPods:
    """Pods of a job that are created once conditions hold, and its group with them included."""

    conditions: tuple[Condition, ...]
    pods: tuple[PodPlan, ...]
    group: PodGroup


def with_later(tasks: Sequence[TaskPlan], later: Sequence[LaterPods], arrival: float) -> tuple[TaskPlan, ...]:
    """Return the tasks of a job, later ones included.

    Pods that wait until others are ready or have a node work together with these, and join their task. Pods that wait
    until others complete are a task of their own.
    """
    found = list(tasks)
    turns: dict[str, tuple[Condition, ...]] = {}
    for each in later:
        awaited = {
            at for at, task in enumerate(found) if any(_is_awaited(pod, each.conditions, turns) for pod in task.pods)
        }
        # Later parts may wait for earlier later ones, so these count as awaited from here on.
        turns |= {plan.pod.metadata.name: each.conditions for plan in each.pods}
        is_after = any(condition.stage is Stage.COMPLETE for condition in each.conditions)
        # Pods that wait for several tasks belong to none of them, and neither do pods that begin when others are over.
        if not is_after and len(awaited) == 1:
            at = awaited.pop()
            found[at] = _joined(found[at], each)
        else:
            needed = _needed(each.group.spec, each.pods)
            group = attrs.evolve(each.group, spec=_lowered(each.group.spec, each.pods))
            after, once = tuple(sorted(awaited)), _words(each.conditions)
            found.append(TaskPlan(pods=each.pods, needed=needed, arrival=arrival, after=after, once=once, group=group))
    return tuple(found)


def _is_awaited(plan: PodPlan, conditions: Sequence[Condition], turns: Mapping[str, tuple[Condition, ...]]) -> bool:
    """Return whether other pods wait for a pod."""
    labels, own = plan.pod.metadata.labels, turns.get(plan.pod.metadata.name, ())
    for condition in conditions:
        # Of pods with equal labels that come one after the other, only the turn before is awaited.
        turn = max((each.turn for each in own if each.labels == condition.labels), default=0)
        if condition.labels.items() <= labels.items() and (not condition.turn or turn == condition.turn - 1):
            return True
    return False


def _joined(task: TaskPlan, later: LaterPods) -> TaskPlan:
    pods = (*task.pods, *later.pods)
    return attrs.evolve(
        task,
        pods=pods,
        needed=_needed(later.group.spec, pods),
        late=task.late + len(later.pods),
        once=task.once or _words(later.conditions),
        group=later.group,
    )


def _words(conditions: Sequence[Condition]) -> str:
    return " and ".join(dict.fromkeys(map(str, conditions)))


def follows(conditions: Sequence[Condition], members: Mapping[Key, Sequence[Mapping[str, str]]]) -> tuple[Follow, ...]:
    """Return the conditions of a job that comes later; ``members`` are the labels of the pods of each group."""
    found = {}
    for condition in conditions:
        wanted = condition.labels.items()
        jobs = tuple(key for key, pods in members.items() if any(wanted <= labels.items() for labels in pods))
        is_over = condition.stage is Stage.COMPLETE
        found[jobs, is_over] = Follow(jobs=jobs, is_over=is_over, words=str(condition))
    return tuple(found.values())


def _needed(spec: PodGroupSpec, pods: Sequence[PodPlan]) -> int:
    """Return how many of the pods of a group must run: by the minimums of its sub-groups, else by that of the group."""
    if not spec.sub_groups:
        return gang_of(spec, len(pods))
    least = {each.name: 1 if each.min_member is None else each.min_member for each in spec.sub_groups}
    # No more than there are: a sub-group whose further pods come later makes progress with the pods that exist.
    return max(1, sum(min(count, least.get(name, 1)) for name, count in _by_sub_group(pods).items()))


def _lowered(spec: PodGroupSpec, pods: Sequence[PodPlan]) -> PodGroupSpec:
    """Return a group with its minimum lowered to the existing pods, where others have completed.

    Source: ``kai.intake.held``, which counts the pods that have succeeded; here they are gone.
    """
    if not spec.sub_groups:
        return attrs.evolve(spec, min_member=min(spec.minimum, len(pods)))
    there = _by_sub_group(pods)
    parts = tuple(
        attrs.evolve(each, min_member=min(each.min_member, there[each.name]))
        if each.min_member is not None and each.name in there
        else each
        for each in spec.sub_groups
    )
    return attrs.evolve(spec, sub_groups=parts)


def _by_sub_group(pods: Sequence[PodPlan]) -> Counter[str]:
    return Counter(_sub_group(each.pod) for each in pods)


def _sub_group(pod: Pod) -> str:
    return pod.metadata.labels.get(names.SUBGROUP, names.DEFAULT_SUBGROUP)
