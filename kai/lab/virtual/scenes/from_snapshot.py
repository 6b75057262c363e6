"""A snapshot as the cluster of a run: its nodes and queues stay, and its running groups are jobs from the start.

A snapshot does not contain their remaining run times, so they run until they are evicted. Waiting and terminating pods
cannot continue in the run: they are left out and counted.
"""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import numpy as np

from kai.answers.cases.case import Case, cluster_of
from kai.answers.offline.cluster_reaction import without_user
from kai.api.cluster_objects import ClusterObjects
from kai.api.conventions.device_claims import consumer_of
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import ENDED, Pod
from kai.basics.wording import counted
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.pod import GpuKind
from kai.intake import take_snapshot
from kai.lab.sources.archive import read_archive
from kai.lab.virtual.scenes.job_plans import ALWAYS, Behaviour, JobPlan, PodPlan, TaskPlan, gang_of
from kai.roles.scheduler.feedback.moved_pods import group_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kai.api.kubernetes.dra import ResourceClaim
    from kai.api.scheduling.pod_group import PodGroup

RUNS_ON: Final = (
    "Pods that run in the snapshot keep their GPUs until they are evicted: how long they work is not known."
)
_WAITS, _LEAVES, _BROUGHT = "that waits", "that is leaving", "that the workload brings itself"
_PLURALS: Final = {_WAITS: "that wait", _LEAVES: "that are leaving", _BROUGHT: _BROUGHT}


@attrs.frozen(kw_only=True, eq=False)
class Inherited:
    """The part of a snapshot that a run starts with."""

    case: Case
    objects: ClusterObjects
    """The objects without the pods and groups of jobs."""
    plans: tuple[JobPlan, ...]
    """The jobs that run in it."""
    notes: tuple[str, ...]
    """Notes on what was left out."""

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions about it."""
        return (RUNS_ON,) if self.plans else ()

    def with_brought(self, brought: ClusterObjects) -> tuple[ClusterObjects, tuple[str, ...]]:
        """Return the cluster with the objects of a workload, and notes on those left out: nodes, and duplicates."""
        left: Counter[str] = Counter()
        merged: dict[str, Any] = {}
        for field in attrs.fields(ClusterObjects):
            known, more = getattr(self.objects, field.name), getattr(brought, field.name)
            there = {(type(each), key_of(each)) for each in known}
            fresh = [each for each in more if field.name != "nodes" and (type(each), key_of(each)) not in there]
            merged[field.name] = (*known, *fresh)
            if field.name in {"nodes", "queues"}:
                left[field.name.removesuffix("s")] += len(more) - len(fresh)
        text = " and ".join(counted(count, kind) for kind, count in left.items() if count)
        return ClusterObjects(**merged), (
            (f"Left out of the workload, for the snapshot has its own: {text}.",) if text else ()
        )


def snapshot_in(path: str) -> Case:
    """Return the case in a snapshot.

    Raises: InputError for a damaged archive.
    """
    return cluster_of(read_archive(Path(path), path))


def inherited_from(case: Case, brought: Iterable[JobPlan] = ()) -> Inherited:
    """Return the start of a run from a snapshot; jobs of the workload replace those of the same name."""
    arriving = list(brought)
    taken = {key_of(each.group) for each in arriving}
    taken_pods = {key_of(each.pod) for plan in arriving for task in plan.tasks for each in task.pods}
    groups = {key_of(each): each for each in case.objects.pod_groups}
    members: dict[Key, list[Pod]] = {}
    others: list[Pod] = []
    left: Counter[str] = Counter()
    for pod in case.objects.pods:
        if pod.status.phase in ENDED:
            continue
        group = group_of(pod)
        if group in taken or key_of(pod) in taken_pods:
            left[_BROUGHT] += 1
        elif not pod.spec.node_name:
            left[_WAITS] += 1
        elif pod.metadata.deletion_timestamp is not None:
            left[_LEAVES] += 1
        elif group in groups:
            members.setdefault(group, []).append(pod)
        else:
            others.append(pod)
    kept = {consumer_of(pod).uid for pod in (*others, *chain.from_iterable(members.values()))}
    held = _held(case)
    said = ", ".join(counted(count, f"pod {how}", f"pods {_PLURALS[how]}") for how, count in left.items())
    return Inherited(
        case=case,
        objects=attrs.evolve(
            case.objects,
            pods=tuple(others),
            pod_groups=(),
            bind_requests=(),
            resource_claims=tuple(_used_by(kept, each) for each in case.objects.resource_claims),
        ),
        plans=tuple(_plan(groups[key], pods, held) for key, pods in members.items()),
        notes=(f"Left out of the snapshot: {said}.",) if said else (),
    )


def _used_by(kept: Collection[str], claim: ResourceClaim) -> ResourceClaim:
    """Return a claim without users that are left out; ``kept`` are the UIDs of the remaining pods."""
    for user in claim.status.reserved_for:
        if user.resource == "pods" and user.uid not in kept:
            claim = without_user(claim, user.uid)
    return claim


def _held(case: Case) -> dict[Key, float]:
    """Return the GPUs that each pod on a node holds, parts of devices as parts.

    Only a snapshot as a cycle takes it has this: GPU memory is a part of the node's GPUs, and claims are other objects.
    """
    snapshot = take_snapshot(case.objects, case.now, case.settings)
    asked = (snapshot.requests @ snapshot.axis.gpu_weights()).tolist()
    found: dict[Key, float] = {}
    for row in np.flatnonzero(snapshot.pod_node >= 0).tolist():
        pod, shape = snapshot.pods[row], int(snapshot.pod_shape[row])
        gpu = snapshot.shapes[shape].gpu
        share = gpu.portion
        if gpu.kind is GpuKind.MEMORY:
            device = snapshot.nodes[int(snapshot.pod_node[row])].gpu_memory
            share = max(1, GPU_UNIT * gpu.memory // device) / GPU_UNIT  # as cycles count it
        whole = (asked[shape] - gpu.not_had) / GPU_UNIT
        found[pod.namespace, pod.name] = gpu.devices * share if gpu.shared else whole
    return found


def _plan(group: PodGroup, pods: list[Pod], held: dict[Key, float]) -> JobPlan:
    """Return a running group as a job that is present from the start."""
    planned = tuple(PodPlan(pod=each, gpus=held.get(key_of(each), 0.0)) for each in pods)
    task = TaskPlan(pods=planned, needed=gang_of(group.spec, len(pods)), arrival=0.0)
    return JobPlan(
        arrival=0.0, group=group, tasks=(task,), behaviour=Behaviour(restarts=ALWAYS), owner=group.metadata.name
    )
