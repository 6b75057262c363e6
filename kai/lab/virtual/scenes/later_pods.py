"""Pods that a controller creates later, as tasks of their job: after other tasks, or beside them once these run.

Pods of a group that has no pods before are a job of their own, which follows others.

The models of ``kai.manifests.workloads`` determine these pods and their conditions. Start reading at ``with_later``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from kai.api import names
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec
from kai.lab.virtual.scenes.job_plans import Follow, PodPlan, TaskPlan, gang_of
from kai.manifests.workloads.making import Condition, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kai.api.kinds import Key
    from kai.api.kubernetes.pod import Pod


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
        turns |= {plan.pod.metadata.name: each.conditions for plan in each.pods}
        is_after = any(condition.stage is Stage.COMPLETE for condition in each.conditions)
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
