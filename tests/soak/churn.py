"""A cluster in which nothing stays: each round has namespaces, queues, nodes and workloads of its own names.

A round ends as it began: all that it made is deleted. What kai holds afterwards cannot depend on how many rounds there
were, unless something is never forgotten.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.doubles.rest_server.kinds import BY_KIND, SERVED, Served
from tests.simulation.actors import SECONDS, GarbageCollector, Kubelets, NodeController
from tests.simulation.loop import SeededLoop, numbered_scopes
from tests.simulation.replica import NAMESPACE, Replica
from tests.simulation.schedule import end_all, prepared
from tests.simulation.world import (
    GPU,
    GROUP,
    JOB,
    LEASE,
    NODE,
    POD,
    QUEUE,
    RESERVED,
    World,
    is_leaving,
    is_over,
    node_of,
)
from tests.soak.census import census, growth, series

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.doubles.rest_server.storage import Manifest

_SPACE: Final = BY_KIND["v1", "Namespace"]
_CLAIM: Final = BY_KIND["v1", "PersistentVolumeClaim"]
_CONFIG_MAP: Final = BY_KIND["v1", "ConfigMap"]
_BUDGET: Final = BY_KIND["policy/v1", "PodDisruptionBudget"]
_PRIORITY: Final = BY_KIND["scheduling.k8s.io/v1", "PriorityClass"]
_TOPOLOGY: Final = BY_KIND["kai.scheduler/v1alpha1", "Topology"]
_STAYS: Final = frozenset({NAMESPACE, RESERVED, "kai-scale-adjust"})
_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_WORK: Final = 60.0
"""For so long users work, before the last of them comes and all is deleted."""
_LEAVING: Final = 30.0
_RESTS: Final = 340.0  # what was refused is remembered for five minutes
_ALONE: Final = 10.0
_GPUS: Final = 4


_BOUNDS: Final = {
    "kai.api.codec.json_values._MOST": 1,
    "kai.intake.snapshot._MANY": 0,
    "kai.intake.shapes._MANY": 0,
    "kai.intake.table._MANY": 0,
    "kai.cluster.requesting.foreign.MOST": 4,
    "kai.cluster.caching.tombstones._MOST": 1,
    "kai.cluster.transport.encoding._MOST_PATHS": 4,
    "kai.roles.scheduler.publishing.outgoing._MOST": 4,
    "kai.roles.scheduler.committing.binds._MOST_PARTS": 1,
    "kai.roles.podgrouper.owner_reading._KEPT": 4,
    "kai.roles.podgrouper.links._MOST_OPEN": 1,
}
"""Memories that have a bound, which is made small: a round is enough to reach it, and what grows on has none."""

_MOST: Final = {"kai.cluster.requesting.sending.Sender.sent": 200}
"""Counts whose bound lies in what there is to count: calls are counted by verb, kind and status, and a status may come
for the first time after days. One that stays within its bound has not grown."""


@attrs.frozen
class Sample:
    """What there was after a round."""

    round: int
    time: float
    counts: Counter[str]
    tasks: int
    bound: int
    """How many pods were bound so far."""
    evicted: int
    passed: int
    """How many objects were created so far."""


@attrs.define(eq=False)
class Churn:
    """Makes rounds in a world."""

    world: World
    passed: int = 0
    bound: int = 0
    evicted: int = 0

    def __attrs_post_init__(self) -> None:
        world = self.world
        for name in sorted(_STAYS):
            world.create("admin", _SPACE, {"metadata": {"name": name}})
        for name, value in {"train": 50, "build": 100}.items():
            world.create("admin", _PRIORITY, {"metadata": {"name": name}, "value": value})
        for actor in (Kubelets, NodeController, GarbageCollector):
            actor(world)
        world.server.storage.listeners.append(self._see)

    def _see(self, change: Any) -> None:
        self.passed += change.before is None
        if change.served is POD and change.before is not None and change.after is not None:
            self.bound += bool(node_of(change.after)) and not node_of(change.before)
            self.evicted += change.by.startswith("kai") and is_leaving(change.after) and not is_leaving(change.before)

    async def round(self, number: int, pods: int) -> None:
        """Make a round: build, work, delete, and wait until what was refused is forgotten."""
        space, queues = self._build(number, pods)
        for index in range(pods):
            self._submit(space, f"job-{number}-{index}", queues[index % 2], index)
            await asyncio.sleep(_WORK / pods)
        self._submit(space, f"late-{number}", queues[1], 0, priority="build")
        await asyncio.sleep(_WORK / 2)
        await self._clear(space)
        await asyncio.sleep(_RESTS)
        await self._end_alone(number)
        storage = self.world.server.storage
        storage.compact()
        for changes in storage.history.values():
            changes.clear()
        self.world.timeline.clear()

    # --- What is made ----------------------------------------------------------------------------------------------

    def _build(self, number: int, pods: int) -> tuple[str, tuple[str, str]]:
        world, space = self.world, f"space-{number}"
        world.create("admin", _SPACE, {"metadata": {"name": space}})
        self._queue(f"root-{number}")
        queues = (f"left-{number}", f"right-{number}")
        for name in queues:
            self._queue(name, f"root-{number}", quota=max(2, pods // 4))
        for index in range(max(1, pods // 16)):
            self._node(f"node-{number}-{index}")
        labels = {"matchLabels": {"app": f"app-{number}"}}
        budget = {"metadata": {"name": "budget", "namespace": space}, "spec": {"selector": labels, "minAvailable": 0}}
        world.create("user", _BUDGET, budget)
        world.create("user", _CONFIG_MAP, {"metadata": {"name": f"map-{number}", "namespace": space}, "data": {}})
        world.create(
            "admin", _TOPOLOGY, {"metadata": {"name": f"racks-{number}"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}
        )
        return space, queues

    def _queue(self, name: str, parent: str = "", quota: int = -1) -> None:
        gpu = {"quota": quota, "limit": -1, "overQuotaWeight": 1}
        spec = {"resources": {"cpu": _FREE, "memory": _FREE, "gpu": gpu}, **({"parentQueue": parent} if parent else {})}
        self.world.create("admin", QUEUE, {"metadata": {"name": name}, "spec": spec})

    def _node(self, name: str) -> None:
        size = {"cpu": "32", "memory": "256Gi", "pods": "60", GPU: str(_GPUS)}
        labels = {"kubernetes.io/hostname": name, "nvidia.com/gpu.memory": "81920", "nvidia.com/gpu.count": str(_GPUS)}
        status = {"allocatable": size, "capacity": size, "conditions": [{"type": "Ready", "status": "True"}]}
        labels["rack"] = f"rack-{name}"
        self.world.create("admin", NODE, {"metadata": {"name": name, "labels": labels}, "status": status})

    def _submit(self, space: str, name: str, queue: str, index: int, priority: str = "train") -> None:
        """Submit a workload, of a form that follows from its number."""
        form = ("job", "gang", "half", "cpu", "huge", "lost", "claim", "short")[index % 8]
        labels = {"kai.scheduler/queue": f"none-{name}" if form == "lost" else queue, "priorityClassName": priority}
        labels["app"] = f"app-{space.rpartition('-')[2]}"
        annotations = {"gpu-fraction": "0.5"} if form == "half" else {}
        if form == "short":
            annotations[SECONDS] = "15"
        resources: dict[str, Any] = {"requests": {"cpu": "1"}}
        if form not in {"half", "cpu"}:
            resources["limits"] = {GPU: "64" if form == "huge" else "1"}
        container = {"name": "main", "image": "work", "resources": resources}
        spec: dict[str, Any] = {"schedulerName": "kai-scheduler", "containers": [container]}
        if form == "claim":
            spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"none-{name}"}}]
        metadata: dict[str, Any] = {"namespace": space, "labels": labels, "annotations": annotations}
        if form == "gang":
            group = {"minMember": 2, "queue": queue, "priorityClassName": priority}
            self.world.create("user", GROUP, {"metadata": {"name": name, "namespace": space}, "spec": group})
            annotations["pod-group-name"] = name
        else:
            job = {"metadata": {"name": name, "namespace": space, "labels": labels}, "spec": {"completions": 1}}
            made = self.world.create("user", JOB, job)
            assert made is not None
            metadata["ownerReferences"] = [_owner(made)]
        for member in range(2 if form == "gang" else 1):
            self.world.create("user", POD, {"metadata": {**metadata, "name": f"{name}-{member}"}, "spec": spec})

    # --- What is deleted -------------------------------------------------------------------------------------------

    async def _clear(self, space: str) -> None:
        """Delete workloads, then what they stood in."""
        for served in (JOB, GROUP, POD, _BUDGET, _CONFIG_MAP, _CLAIM):
            self._delete(served, space)
        await asyncio.sleep(_LEAVING)
        for served in SERVED:
            if served.namespaced and served is not LEASE:
                self._delete(served, space)
        # Events run out by themselves, and kai does not watch them.
        self.world.server.storage.objects_of.pop(BY_KIND["v1", "Event"], None)
        for served in (NODE, QUEUE, _TOPOLOGY):
            self._delete(served)
        await asyncio.sleep(_LEAVING)
        # The controller of namespaces, which is not played, would end it now that it is empty.
        self.world.server.storage.remove(_SPACE, ("", space))

    async def _end_alone(self, number: int) -> None:
        """Let one pod come and go: the last change of pods, which kai holds, is of one pod after each round."""
        metadata = {"namespace": NAMESPACE, "name": f"last-{number}"}
        spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "image": "work"}]}
        pod = self.world.create("user", POD, {"metadata": metadata, "spec": spec})
        assert pod is not None
        await asyncio.sleep(_ALONE)
        self.world.delete("admin", POD, pod, grace=0)
        await asyncio.sleep(_ALONE)

    def _delete(self, served: Served, space: str = "") -> None:
        for each in self.world.all(served, space):
            grace = 0 if served is POD and is_over(each) else None
            self.world.delete("admin", served, each, grace=grace)

    def left(self) -> list[str]:
        """Return what is there beside what always is."""
        kinds = (_SPACE, POD, NODE, QUEUE, GROUP, JOB, BY_KIND["scheduling.run.ai/v1alpha2", "BindRequest"])
        names = (each["metadata"]["name"] for served in kinds for each in self.world.all(served))
        return [each for each in names if each not in _STAYS]


def _owner(job: Manifest) -> dict[str, Any]:
    metadata = job["metadata"]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


@contextmanager
def _short_memories() -> Iterator[None]:
    before = []
    for name, most in _BOUNDS.items():
        module, _, constant = name.rpartition(".")
        where = import_module(module)
        before.append((where, constant, getattr(where, constant)))
        setattr(where, constant, most)
    try:
        yield
    finally:
        for where, constant, most in before:
            setattr(where, constant, most)


def grown(moments: Sequence[Sample], warm: int) -> dict[str, tuple[int, int]]:
    """Return what there is more of after each of the last rounds than after each of the first ones, with both counts.

    The last rounds are a third of all, and two at least. Where the bound of a memory is reached, now more and now less
    of it is left; and a store keeps the last change of each kind, which is of one node in this round and of several in
    the next. What is never forgotten is there after all of them, and above the bound that it may have of itself.
    """
    highest: Counter[str] = Counter()
    for each in moments[:warm]:
        highest |= each.counts
    last = moments[-max(2, len(moments) // 3) :]
    least = last[0].counts
    for each in last:
        least = least & each.counts
    found = growth(highest, least)
    return {name: counts for name, counts in found.items() if counts[1] > _MOST.get(name, 0)}


def soak(rounds: int, pods: int, apart: float = 0.0, seed: int = 1) -> list[Sample]:
    """Make rounds, each of so many workloads and so many seconds after the one before, and count after each."""
    loop = SeededLoop(random.Random(seed))
    world = World(seed, loop, random.Random(seed + 1), random.Random(seed + 2))
    with prepared(world), numbered_scopes(), _short_memories():
        try:
            return loop.run_until_complete(_live(world, rounds, pods, apart))
        finally:
            end_all(loop)
            loop.close()


async def _live(world: World, rounds: int, pods: int, apart: float) -> list[Sample]:
    churn, moments = Churn(world), []
    replica = Replica("kai-0", world.wire, world.loop, random.Random(world.seed))
    world.replicas.append(replica)
    replica.start()
    await asyncio.sleep(30.0)
    for number in range(rounds):
        ends = world.time + apart
        await churn.round(number, pods)
        await asyncio.sleep(max(0.0, ends - world.time))
        assert not churn.left(), f"round {number}: {churn.left()[:5]} are left"
        assert replica.problem is None, replica.problem
        assert not world.violations, world.violations[0]
        assert replica.registry is not None
        counts = census() + series(replica.registry)
        tasks = len(asyncio.all_tasks(world.loop))
        moments.append(Sample(number, world.time, counts, tasks, churn.bound, churn.evicted, churn.passed))
    return moments
