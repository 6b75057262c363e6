"""A storm of changes, and cycles that take minutes: the lease is kept, the newest state shows, and nothing piles up."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.doubles.rest_server.kinds import BY_KIND
from tests.simulation.actors import Kubelets
from tests.simulation.loop import SeededLoop, numbered_scopes
from tests.simulation.replica import NAMESPACE, Replica
from tests.simulation.schedule import end_all, prepared
from tests.simulation.stores import differences
from tests.simulation.world import GPU, GROUP, LEASE, NODE, POD, QUEUE, RESERVED, World, node_of
from tests.soak.census import census

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.doubles.rest_server.storage import Change

_TICK: Final = 0.01
_HOME: Final = "team"
_FREE: Final = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
_LONG: Final = 120.0
_REMEMBERED: Final = 50_000  # changes that the server keeps for watches: twice what may be on its way


@attrs.define
class Seen:
    """What became of a run."""

    leaders: set[str] = attrs.field(factory=set)
    epochs: set[int] = attrs.field(factory=set)
    renewals: list[float] = attrs.field(factory=list)
    bound_at: dict[str, float] = attrs.field(factory=dict)
    events: int = 0
    differences: list[str] = attrs.field(factory=list)
    counts: list[Counter[str]] = attrs.field(factory=list)

    @property
    def longest_without_renewal(self) -> float:
        """The longest time between two renewals of the lease."""
        return max(later - before for before, later in zip(self.renewals, self.renewals[1:], strict=False))


class _Whole(random.Random):
    """Draws what makes everything take as long as it may."""

    def random(self) -> float:
        return 1.0


@attrs.define(eq=False)
class Scene:
    """A small cluster, and what is noted of it."""

    world: World
    seen: Seen = attrs.field(factory=Seen)

    def __attrs_post_init__(self) -> None:
        world = self.world
        for name in (NAMESPACE, RESERVED, "kai-scale-adjust", _HOME):
            world.create("admin", BY_KIND["v1", "Namespace"], {"metadata": {"name": name}})
        for name, parent in (("top", ""), ("team", "top")):
            resources = {"cpu": _FREE, "memory": _FREE, "gpu": _FREE}
            spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
            world.create("admin", QUEUE, {"metadata": {"name": name}, "spec": spec})
        for number in range(4):
            size = {"cpu": "256", "memory": "256Gi", "pods": "110", GPU: "8"}
            status = {"allocatable": size, "capacity": size, "conditions": [{"type": "Ready", "status": "True"}]}
            world.create("admin", NODE, {"metadata": {"name": f"node-{number}"}, "status": status})
        Kubelets(world)
        world.server.storage.listeners.append(self._note)

    def _note(self, change: Change) -> None:
        if change.served is LEASE and change.after is not None:
            spec = change.after["spec"]
            self.seen.leaders.add(spec["holderIdentity"])
            self.seen.epochs.add(int(spec.get("leaseTransitions") or 0))
            self.seen.renewals.append(self.world.time)
        if change.served is POD and change.after is not None and node_of(change.after):
            self.seen.bound_at.setdefault(change.place[1], self.world.time)

    def submit(self, name: str) -> None:
        """Submit a gang of one pod with a GPU."""
        group = {"minMember": 1, "queue": "team"}
        self.world.create("user", GROUP, {"metadata": {"name": name, "namespace": _HOME}, "spec": group})
        resources = {"requests": {"cpu": "1"}, "limits": {GPU: "1"}}
        spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "main", "resources": resources}]}
        labels, annotations = {"kai.scheduler/queue": "team"}, {"pod-group-name": name}
        metadata = {"name": name, "namespace": _HOME, "labels": labels, "annotations": annotations}
        self.world.create("user", POD, {"metadata": metadata, "spec": spec})

    def crowd(self, pods: int) -> None:
        """Let pods of another scheduler run."""
        container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
        for number in range(pods):
            spec = {"schedulerName": "others", "nodeName": f"node-{number % 4}", "containers": [container]}
            self.world.create("user", POD, {"metadata": {"name": f"pod-{number}", "namespace": _HOME}, "spec": spec})


def storm(seconds: float, rate: int = 10_000, pods: int = 200) -> Seen:
    """Change pods so many times a second; one workload comes in the midst of it."""

    async def play(scene: Scene) -> None:
        world, storage = scene.world, scene.world.server.storage
        scene.crowd(pods)
        await asyncio.sleep(20.0)
        scene.seen.counts.append(census())
        end, number = world.time + seconds, 0
        scene.submit("early")
        while world.time < end:
            for _ in range(round(rate * _TICK)):
                number += 1
                pod = storage.get(POD, (_HOME, f"pod-{number % pods}"))
                assert pod is not None
                note = {**pod["metadata"].get("annotations", {}), "others/step": str(number)}
                storage.put(POD, {**pod, "metadata": {**pod["metadata"], "annotations": note}})
            del storage.history[POD][:-_REMEMBERED]
            await asyncio.sleep(_TICK)
            if number == round(rate * seconds / 2):
                scene.submit("amid")
                scene.seen.counts.append(census())
        scene.seen.events = number
        scene.seen.counts.append(census())
        await asyncio.sleep(30.0)

    return _run(play, replicas=2)


def long_cycles(seconds: float = 900.0) -> Seen:
    """Let every cycle take two minutes; workloads come and wait for theirs."""

    async def play(scene: Scene) -> None:
        await asyncio.sleep(20.0)
        for replica in scene.world.replicas:
            replica.cpu.longest, replica.cpu.draw = _LONG, _Whole()
        end, number = scene.world.time + seconds, 0
        while scene.world.time < end - 3 * _LONG:
            scene.submit(f"job-{number}")
            number += 1
            await asyncio.sleep(_LONG / 2)
        await asyncio.sleep(max(0.0, end - scene.world.time))
        scene.seen.events = number

    return _run(play, replicas=2)


def _run(play: Callable[[Scene], Awaitable[None]], replicas: int) -> Seen:
    loop = SeededLoop(random.Random(1))
    world = World(1, loop, random.Random(2), random.Random(3))

    async def live() -> Seen:
        scene = Scene(world)
        for number in range(replicas):
            replica = Replica(f"kai-{number}", world.wire, loop, random.Random(number))
            world.replicas.append(replica)
            replica.start()
        await play(scene)
        assert not world.violations, world.violations[0]
        found: list[Any] = [replica.problem for replica in world.replicas if replica.problem]
        assert not found, found
        scene.seen.differences = [text for _, text in differences(world)]
        return scene.seen

    with prepared(world), numbered_scopes():
        try:
            return loop.run_until_complete(live())
        finally:
            end_all(loop)
            loop.close()
