"""A trace to a scene: each row becomes a pod group with its pods, created only when it arrives."""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.cluster_objects import ClusterObjects, collect
from kai.api.codec.structuring import structure_all
from kai.api.kubernetes.meta import ObjectMeta, PriorityClass
from kai.api.kubernetes.node import (
    Affinity,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from kai.api.kubernetes.pod import Container, Pod, PodSpec, PodStatus, ResourceRequirements
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec, Preemptibility
from kai.api.scheduling.queue import Queue
from kai.basics.wording import first_of
from kai.facts.model.units import GPU_UNIT, amounts, gpus_among
from kai.lab.scenarios.shorthand import expand
from kai.lab.virtual.scenes.job_plans import Behaviour, JobPlan, PodPlan, TaskPlan, installed_classes
from kai.manifests import Document, RefusedError, read

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from kai.lab.traces.jobs import Demand, TraceJob, TraceNode
    from kai.lab.traces.trace_reading import Trace

NAMESPACE: Final = "trace"
QUEUE: Final = "default"
"""The queue of jobs whose trace has no queues."""
ROOT: Final = "all"
_PREEMPTIBILITY: Final[dict[bool | None, Preemptibility]] = {None: "", True: "preemptible", False: "non-preemptible"}
_POD: Final = PodStatus(phase="Pending")
_UNFIT: Final = re.compile(r"[\s/]+")
"""Characters that are invalid in a name, or would separate a namespace from it."""


def objects_of(
    documents: Sequence[Document], nodes: Sequence[TraceNode], trace: Trace, around: ClusterObjects
) -> tuple[ClusterObjects, bool]:
    """Return the objects that a trace adds to a cluster, with its queues, and whether queues had to be created."""
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
        # Nodes of a CSV are the cluster; else those of the cluster file are.
        gpus = sum(each.gpus for each in nodes) or _gpus_in(given)
        # A queue with children runs no jobs, so the root must not have the name of a queue of the trace.
        root = next(name for name in _roots() if name not in wanted)
        made += structure_all(expand({"queues": _queues(missing, gpus, known, root)}, "trace")).objects
    made += installed_classes([each for each in given if isinstance(each, PriorityClass)])
    return collect([*reading.objects, *made]), bool(missing)


def with_models(trace: Trace, nodes: Iterable[Node]) -> tuple[Trace, tuple[str, ...]]:
    """Return a trace with GPU types resolved to models of nodes, and notes on unknown types.

    A type means each model whose name has all of its words: a100 means NVIDIA-A100-SXM4-80GB.
    """
    models = sorted({model for node in nodes if (model := node.metadata.labels.get(names.NODE_GPU_PRODUCT))})
    types = sorted({each for job in trace.jobs for part in job.parts for each in part.types})
    if not types:
        return trace, ()
    if not models:
        return trace, (
            f"Types of GPUs count for nothing ({first_of(types)}): no node has the label {names.NODE_GPU_PRODUCT}.",
        )
    # By whole words: "a10" must not mean an A100.
    meant = {each: tuple(model for model in models if _words(each) <= _words(model)) or (each,) for each in types}
    notes = [
        f"No node has GPUs of the type {each}: jobs that ask for it never start. Models are {first_of(models)}."
        for each in types
        if meant[each] == (each,) and each not in models
    ]

    def matched(part: Demand) -> Demand:
        wanted = {model for each in part.types for model in meant[each]}
        return attrs.evolve(part, models=tuple(sorted(wanted))) if wanted else part

    jobs = tuple(attrs.evolve(job, parts=tuple(map(matched, job.parts))) for job in trace.jobs)
    return attrs.evolve(trace, jobs=jobs), tuple(notes)


def _words(text: str) -> set[str]:
    return set(re.split(r"[^a-z0-9.]+", text.lower())) - {""}


def plans_of(jobs: Iterable[TraceJob]) -> Iterator[JobPlan]:
    """Yield the jobs of a trace, each created when it arrives."""
    for job in jobs:
        yield plan_of(job)


def plan_of(job: TraceJob) -> JobPlan:
    """Return one job of a trace."""
    # The line is unique where names are not, and the same for every policy that is compared.
    name, uid = _UNFIT.sub("-", job.name), f"j{job.line}"
    numbers = count()
    pods = tuple(
        PodPlan(
            pod=_pod(job, part, f"{name}-{number}", f"{uid}-{number}", name),
            gpus=float(part.gpus) if part.share is None else part.share,
        )
        for part in job.parts
        for number in islice(numbers, part.pods)
    )
    # A trace knows its users, as admission does in a cluster.
    noted = {names.NOTED_USER: job.user} if job.user else {}
    group = PodGroup(
        metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=uid, annotations=noted),
        spec=PodGroupSpec(
            queue=job.queue or QUEUE,
            min_member=job.minimum,
            # The class that the pod grouper gives to workloads without one.
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


def _pod(job: TraceJob, part: Demand, name: str, uid: str, group: str) -> Pod:
    annotations = {names.POD_GROUP: group}
    if part.share is not None:
        annotations[names.GPU_FRACTION] = f"{part.share:g}"
    labels = {names.QUEUE: job.queue or QUEUE} | ({names.USER: job.user} if job.user else {})
    metadata = ObjectMeta(name=name, namespace=NAMESPACE, uid=uid, labels=labels, annotations=annotations)
    spec = _spec(part.gpus, part.cpus, part.memory_mib, part.models)
    return Pod(metadata=metadata, spec=spec, status=_POD)


@lru_cache(maxsize=1 << 14)
def _spec(gpus: int, cpus: float | None, memory_mib: float | None, models: tuple[str, ...]) -> PodSpec:
    """Return the spec of pods with equal requests; they share one object."""
    asked: dict[str, str] = {}
    if cpus:
        asked["cpu"] = f"{round(cpus * 1000)}m"
    if memory_mib:
        asked["memory"] = f"{round(memory_mib)}Mi"
    limits = {names.NVIDIA_GPU: str(gpus)} if gpus else {}
    affinity = None
    if models:
        term = NodeSelectorTerm(
            match_expressions=(
                NodeSelectorRequirement(key=names.NODE_GPU_PRODUCT, operator="In", values=tuple(sorted(models))),
            )
        )
        affinity = Affinity(node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=(term,))))
    # An extended resource needs equal requests and limits, so GPUs are in both.
    container = Container(name="main", resources=ResourceRequirements(requests={**asked, **limits}, limits=limits))
    return PodSpec(containers=(container,), scheduler_name=names.SCHEDULER_NAME, affinity=affinity)


def _node(node: TraceNode) -> dict[str, Any]:
    labels = {"kubernetes.io/hostname": node.name}
    # Traces say nothing about the number of pods; a kubelet's 110 would bound nodes that the traced cluster filled.
    amounts = {"cpu": f"{round(node.cpus * 1000)}m", "memory": f"{round(node.memory_mib)}Mi", "pods": "1000"}
    if node.gpus:
        labels |= {names.NODE_GPU_COUNT: str(node.gpus), names.NODE_GPU_PRODUCT: node.model}
        amounts[names.NVIDIA_GPU] = str(node.gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "uid": node.name, "labels": labels},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _roots() -> Iterator[str]:
    """Yield names for the queue above those of a trace; it cannot have jobs, because it has children."""
    yield ROOT
    yield from (f"{ROOT}-{number}" for number in count(2))


def _queues(missing: Sequence[str], gpus: float, known: set[str], root: str) -> dict[str, Any]:
    """Return queues for names that the cluster lacks, with equal parts of everything below one root."""
    part = int(gpus / len(missing))
    above = {} if root in known else {root: {"quota": gpus}}
    return {**above, **{name: {"parent": root, "quota": part} for name in missing}}


def _gpus_in(objects: Iterable[object]) -> float:
    found = [amounts(tuple(each.status.allocatable.items())) for each in objects if isinstance(each, Node)]
    return sum(map(gpus_among, found)) / GPU_UNIT
