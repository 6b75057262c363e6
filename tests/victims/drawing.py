"""Draw a cluster in which one group waits and others must leave for it, and write it as a scenario."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

import attrs

NOW: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
RACK: Final = "rack"
ASKS: Final = "asks"
MOST_NODES, MOST_VICTIMS = 12, 9
Object = dict[str, Any]


@attrs.frozen
class Job:
    """A group that runs."""

    name: str
    queue: str
    priority: int
    hours: int
    """Since it started."""
    nodes: tuple[int, ...]
    """Where its pods are, in the order of the pods."""
    gpus: int
    """Of each pod."""
    minimum: int
    preemptible: bool = True
    spared: bool = False
    """Whether a disruption budget holds its pods."""
    noisy: bool = False


@attrs.frozen
class Asker:
    """The group that waits."""

    queue: str
    priority: int
    parts: tuple[int, ...]
    """Pods of each sub-group; one entry for a group without sub-groups."""
    gpus: int
    together: str = ""
    """``group`` or ``parts``: what must be in one rack."""
    rack: int = -1
    """The rack that a node selector asks for."""
    apart: bool = False
    """Whether no two pods may share a node."""
    quiet: bool = False
    """Whether no noisy pod may be on its nodes."""


@attrs.frozen
class Drawn:
    """A cluster."""

    seed: int
    action: str
    nodes: tuple[tuple[int, int], ...]
    """GPUs and rack of each."""
    quotas: dict[str, int]
    runtimes: dict[str, int]
    """Hours for which groups of a queue are protected after their start."""
    jobs: tuple[Job, ...]
    asker: Asker

    def free(self) -> list[int]:
        """Return the idle GPUs of each node."""
        left = [gpus for gpus, _ in self.nodes]
        for job in self.jobs:
            for node in job.nodes:
                left[node] -= job.gpus
        return left


def draw(seed: int) -> Drawn:
    """Return the cluster of a seed."""
    random = Random(seed)
    action = random.choice(("reclaim", "reclaim", "preempt"))
    racks = random.choice((1, 2, 3, 3, 4))
    per_node = random.choice((1, 1, 2))
    count = random.randint(3, MOST_NODES)
    nodes = tuple((per_node, min(at * racks // count, racks - 1)) for at in range(count))
    owners = ["b", "c"][: random.choice((1, 2, 2))] if action == "reclaim" else ["a"]
    jobs = tuple(_jobs(random, nodes, owners))
    held = {queue: sum(job.gpus * len(job.nodes) for job in jobs if job.queue == queue) for queue in ("a", "b", "c")}
    asker = _asker(random, action, per_node, racks)
    wanted = asker.gpus * sum(asker.parts)
    quotas = {"a": wanted if action == "reclaim" else held["a"] + wanted}
    quotas |= {queue: random.randint(0, held[queue]) for queue in owners if queue != "a"}
    runtimes = {queue: 3 for queue in owners if random.random() < 0.25}
    return Drawn(seed, action, nodes, quotas, runtimes, jobs, asker)


def _jobs(random: Random, nodes: Sequence[tuple[int, int]], owners: Sequence[str]) -> Iterator[Job]:
    slots = [at for at, (gpus, _) in enumerate(nodes) for _ in range(gpus)]
    random.shuffle(slots)
    del slots[: random.choice((0, 0, 1, 2))]
    uneven = random.random() < 0.5
    for number in range(MOST_VICTIMS):
        gpus = 2 if nodes[0][0] == 2 and random.random() < 0.3 else 1
        size = random.choice((1, 1, 2, 2, 3))
        places: list[int] = []
        for node in dict.fromkeys(slots):
            while slots.count(node) >= gpus and len(places) < size and random.random() < 0.7:
                places.append(node)
                for _ in range(gpus):
                    slots.remove(node)
        if not places:
            continue
        yield Job(
            name=f"job-{number}",
            queue=random.choice(owners),
            priority=random.choice((40, 50, 60)) if uneven else 50,
            hours=random.choice((1, 2, 4, 8, 24)),
            nodes=tuple(places),
            gpus=gpus,
            minimum=len(places) if random.random() < 0.75 else random.randint(1, len(places)),
            preemptible=random.random() < 0.95,
            spared=random.random() < 0.08,
            noisy=random.random() < 0.3,
        )


def _asker(random: Random, action: str, per_node: int, racks: int) -> Asker:
    parts = random.choice(((1,), (2,), (2,), (3,), (4,), (1, 1), (2, 1), (2, 2)))
    together = random.choice(("", "group", "group")) if len(parts) == 1 else random.choice(("", "parts", "parts"))
    return Asker(
        queue="a",
        priority=50 if action == "reclaim" else 70,
        parts=parts,
        gpus=2 if per_node == 2 and random.random() < 0.4 else 1,
        together=together if racks > 1 else "",
        rack=random.randrange(racks) if random.random() < 0.15 else -1,
        apart=random.random() < 0.15,
        quiet=random.random() < 0.15,
    )


# ---------------------------------------------------------------------- as objects


def scenario(drawn: Drawn) -> Object:
    """Return the cluster as a scenario of one cycle."""
    return {
        "name": f"victims-{drawn.seed}",
        "now": NOW.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "actions": ["allocate", drawn.action],
        "cycles": 1,
        "stableCycles": 0,
        "objects": list(_objects(drawn)),
    }


def _objects(drawn: Drawn) -> Iterator[Object]:
    levels = [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]
    yield _object("kai.scheduler/v1alpha1", "Topology", {"name": "t"}, spec={"levels": levels})
    for value in (40, 50, 60, 70, 150):
        yield _object("scheduling.k8s.io/v1", "PriorityClass", {"name": f"p{value}"}, value=value)
    for at, (gpus, rack) in enumerate(drawn.nodes):
        labels = {
            RACK: f"r{rack}",
            "kubernetes.io/hostname": node_name(at),
            "nvidia.com/gpu.count": str(gpus),
            "nvidia.com/gpu.memory": "81920",
        }
        amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        yield _object("v1", "Node", {"name": node_name(at), "labels": labels}, spec={}, status=status)
    for queue, quota in drawn.quotas.items():
        yield _queue(queue, quota, drawn.runtimes.get(queue))
    for job in drawn.jobs:
        spec = {"queue": job.queue, "minMember": job.minimum}
        yield _group(job.name, job.hours, spec, job.priority, preemptible=job.preemptible)
        for at, node in enumerate(job.nodes):
            labels = {"noise": "loud"} if job.noisy else {}
            yield _pod(f"{job.name}-{at}", job.name, job.gpus, labels=labels, node=node)
    yield from _asking(drawn.asker)


def _asking(asker: Asker) -> Iterator[Object]:
    constraint = {"topology": "t", "requiredTopologyLevel": RACK}
    spec: Object = {"queue": asker.queue}
    if len(asker.parts) == 1:
        spec["minMember"] = asker.parts[0]
    else:
        spec["subGroups"] = [
            {
                "name": f"part-{at}",
                "minMember": count,
                **({"topologyConstraint": constraint} if asker.together == "parts" else {}),
            }
            for at, count in enumerate(asker.parts)
        ]
    if asker.together == "group":
        spec["topologyConstraint"] = constraint
    yield _group(ASKS, -1, spec, asker.priority)
    number = 0
    for part, count in enumerate(asker.parts):
        labels = {"app": ASKS, **({"kai.scheduler/subgroup-name": f"part-{part}"} if len(asker.parts) > 1 else {})}
        for _ in range(count):
            yield _pod(f"{ASKS}-{number}", ASKS, asker.gpus, labels=labels, asker=asker)
            number += 1


def node_name(at: int) -> str:
    """Return the name of a node."""
    return f"n{at:02}"


def _object(version: str, kind: str, metadata: Object, **fields: Any) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def _queue(name: str, quota: int, runtime: int | None) -> Object:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    spec: Object = {"resources": {"gpu": {**free, "quota": quota}, "cpu": free, "memory": free}}
    if runtime is not None:
        spec |= {"reclaimMinRuntime": f"{runtime}h", "preemptMinRuntime": f"{runtime}h"}
    return _object("scheduling.run.ai/v2", "Queue", {"name": name}, spec=spec)


def _group(name: str, hours: int, spec: Object, priority: int, *, preemptible: bool = True) -> Object:
    stamp = (NOW - timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")
    notes = {"kai.scheduler/last-start-timestamp": stamp} if hours >= 0 else {}
    created = NOW.strftime("%Y-%m-%dT%H:%M:%SZ") if hours < 0 else stamp
    metadata = {"name": name, "namespace": "default", "uid": name, "creationTimestamp": created, "annotations": notes}
    spec = {**spec, "priorityClassName": f"p{priority}" if preemptible else "p150"}
    return _object("scheduling.run.ai/v2alpha2", "PodGroup", metadata, spec=spec)


def _pod(
    name: str, group: str, gpus: int, *, labels: Object, node: int | None = None, asker: Asker | None = None
) -> Object:
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gpus)}
    main: Object = {"name": "main", "image": "registry.example/x:1"}
    main |= {"resources": {"requests": amounts, "limits": {"nvidia.com/gpu": str(gpus)}}}
    spec: Object = {"schedulerName": "kai-scheduler", "containers": [main]}
    if node is not None:
        spec["nodeName"] = node_name(node)
    if asker is not None:
        if asker.rack >= 0:
            spec["nodeSelector"] = {RACK: f"r{asker.rack}"}
        avoided = [{"app": ASKS}] if asker.apart else []
        avoided += [{"noise": "loud"}] if asker.quiet else []
        if avoided:
            terms = [
                {"labelSelector": {"matchLabels": each}, "topologyKey": "kubernetes.io/hostname"} for each in avoided
            ]
            spec["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels}
    metadata |= {"annotations": {"pod-group-name": group}, "creationTimestamp": NOW.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return _object("v1", "Pod", metadata, spec=spec, status={"phase": "Running" if node is not None else "Pending"})
