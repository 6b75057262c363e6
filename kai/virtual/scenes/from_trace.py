"""A trace to a scene: each row becomes a pod group with its pods, made when it arrives and not before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final

from kai.api import names
from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.codec.structuring import structure_all
from kai.api.kubernetes.core import PriorityClass
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from kai.api.kubernetes.selection import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec, Preemptibility
from kai.api.scheduling.queue import Queue
from kai.manifests import Document, RefusedError, read
from kai.model.amounts import amounts, gpus_among
from kai.model.units import GPU_UNIT
from kai.simulation.scenarios.shorthand import expand
from kai.traces.jobs import TraceJob, TraceNode
from kai.traces.reading import Trace
from kai.virtual.scenes.job_plans import Behaviour, JobPlan, PodPlan, TaskPlan
from kai.virtual.scenes.priority_classes import installed_classes

NAMESPACE: Final = "trace"
QUEUE: Final = "default"
"""Of jobs whose trace knows no queues."""
ROOT: Final = "all"
MODEL: Final = "nvidia.com/gpu.product"
_PREEMPTIBILITY: Final[dict[bool | None, Preemptibility]] = {None: "", True: "preemptible", False: "non-preemptible"}
_POD: Final = PodStatus(phase="Pending")


def objects_of(
    documents: Sequence[Document], nodes: Sequence[TraceNode], trace: Trace, around: ClusterObjects
) -> tuple[ClusterObjects, bool]:
    """Return what a trace adds to a cluster, with a queue for each of its own, and whether queues had to be made."""
    reading = read(documents)
    refused = RefusedError.of(reading.findings)
    if refused is not None:
        raise refused
    given = [*around.nodes, *around.queues, *around.priority_classes, *reading.objects]
    known = {each.metadata.name for each in given if isinstance(each, Queue)}
    wanted = dict.fromkeys(job.queue or QUEUE for job in trace.jobs)
    missing = [name for name in sorted(wanted) if name not in known]
    made: list[Any] = []
    made += structure_all([_node(each) for each in nodes]).objects
    if missing:
        gpus = sum(each.gpus for each in nodes) or _gpus_in(given)
        root = next(name for name in _roots() if name not in wanted)
        made += structure_all(expand({"queues": _queues(missing, gpus, known, root)}, "trace")).objects
    made += installed_classes([each for each in given if isinstance(each, PriorityClass)])
    return collect([*reading.objects, *made]), bool(missing)


def plans_of(jobs: Iterable[TraceJob]) -> Iterator[JobPlan]:
    """Yield the jobs of a trace as they are made when they arrive."""
    for job in jobs:
        yield plan_of(job)


def plan_of(job: TraceJob) -> JobPlan:
    """Return one job of a trace."""
    name = f"j{job.line}"
    labels = {names.QUEUE: job.queue or QUEUE}
    annotations = {names.POD_GROUP: name}
    if job.share is not None:
        annotations[names.GPU_FRACTION] = f"{job.share:g}"
    spec = _spec(job.gpus, job.cpus, job.memory_mib, job.models)
    gpus = float(job.gpus) if job.share is None else job.share
    pods = tuple(
        PodPlan(
            pod=Pod(
                metadata=ObjectMeta(
                    name=f"{name}-{number}",
                    namespace=NAMESPACE,
                    uid=f"{name}-{number}",
                    labels=labels,
                    annotations=annotations,
                ),
                spec=spec,
                status=_POD,
            ),
            gpus=gpus,
        )
        for number in range(job.pods)
    )
    group = PodGroup(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=name),
        spec=PodGroupSpec(
            queue=job.queue or QUEUE,
            min_member=job.minimum,
            priority_class_name=job.priority or "train",
            preemptibility=_PREEMPTIBILITY[job.preemptible],
        ),
    )
    task = TaskPlan(pods=pods, needed=max(1, job.minimum), arrival=job.arrival)
    return JobPlan(
        arrival=job.arrival,
        group=group,
        tasks=(task,),
        behaviour=Behaviour(duration=job.duration),
        kind="trace",
        owner=job.name,
        user=job.user,
    )


@lru_cache(maxsize=1 << 14)
def _spec(gpus: int, cpus: float | None, memory_mib: float | None, models: tuple[str, ...]) -> PodSpec:
    """Return the spec of pods that ask for the same; one object for all of them."""
    asked: dict[str, str] = {}
    if cpus:
        asked["cpu"] = f"{round(cpus * 1000)}m"
    if memory_mib:
        asked["memory"] = f"{round(memory_mib)}Mi"
    limits = {names.NVIDIA_GPU: str(gpus)} if gpus else {}
    affinity = None
    if models:
        term = NodeSelectorTerm(
            match_expressions=(NodeSelectorRequirement(key=MODEL, operator="In", values=tuple(sorted(models))),)
        )
        affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    container = Container(name="main", resources=ResourceRequirements(requests={**asked, **limits}, limits=limits))
    return PodSpec(containers=(container,), scheduler_name=names.SCHEDULER_NAME, affinity=affinity)


def _node(node: TraceNode) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": node.name}
    amounts = {"cpu": f"{round(node.cpus * 1000)}m", "memory": f"{round(node.memory_mib)}Mi", "pods": "1000"}
    if node.gpus:
        labels |= {names.NODE_GPU_COUNT: str(node.gpus), MODEL: node.model}
        amounts[names.NVIDIA_GPU] = str(node.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _roots() -> Iterator[str]:
    """Yield names for the queue above those of a trace; no job may be in it, for it has children."""
    yield ROOT
    yield from (f"{ROOT}-{number}" for number in count(2))


def _queues(missing: Sequence[str], gpus: float, known: set[str], root: str) -> dict[str, Any]:
    """Return queues for names that the cluster has not: equal parts of everything below one root."""
    part = int(gpus / len(missing))
    above = {} if root in known else {root: {"quota": gpus}}
    return {**above, **{name: {"parent": root, "quota": part} for name in missing}}


def _gpus_in(objects: Iterable[object]) -> float:
    found = [amounts(tuple(each.status.allocatable.items())) for each in objects if isinstance(each, Node)]
    return sum(map(gpus_among, found)) / GPU_UNIT
