"""A world in which a history is written by hand, without kai; what checkers are tried on."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import attrs
import msgspec
import pytest

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.caching.store import Watched, WatchedStore
from kai.cluster.port import Term
from kai.cluster.transport.calls import Answer, Call, NoAnswer
from tests.simulation.checks import Checks
from tests.simulation.loop import SeededLoop
from tests.simulation.schedule import Watchers
from tests.simulation.users import Life
from tests.simulation.world import (
    GPU,
    GROUP,
    HOME,
    NODE,
    ORDER,
    POD,
    QUEUE,
    World,
    path_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.doubles.rest_server.storage import Manifest

_KINDS = ((POD, Pod), (NODE, Node), (ORDER, BindRequest), (GROUP, PodGroup), (QUEUE, Queue))


@attrs.define(eq=False)
class _Leading:
    term: Term | None = attrs.field(factory=lambda: Term(1, "kai-0"))


@attrs.define(eq=False)
class _Connection:
    store: WatchedStore
    leadership: _Leading = attrs.field(factory=_Leading)


@attrs.define(eq=False)
class _Silent:
    """A clock, and a replica with nothing but what checks look at."""

    loop: SeededLoop
    name: str = "kai-0"
    is_alive: bool = True
    connection: Any = None
    cpu: Any = attrs.field(factory=lambda: SimpleNamespace(given_at=float("inf")))

    def monotonic(self) -> float:
        return self.loop.time()


@attrs.define(eq=False)
class Trial:
    """A world without kai, in which a history is written."""

    world: World
    checks: Checks
    life: Life
    watchers: Watchers
    replica: _Silent

    def pod(self, name: str, *, namespace: str = HOME, **more: Any) -> Manifest:
        """Create a pod of a user that asks for one GPU of queue a1."""
        labels = {"kai.scheduler/queue": more.pop("queue", "a1"), **more.pop("labels", {})}
        limits = {GPU: str(more.pop("gpus", 1))}
        container = {"name": "main", "image": "x", "resources": {"limits": limits, "requests": {"cpu": "1"}}}
        annotations = more.pop("annotations", {})
        spec = {"schedulerName": "kai-scheduler", "containers": [container], **more}
        metadata = {"name": name, "namespace": namespace, "labels": labels, "annotations": annotations}
        made = self.world.create("user", POD, {"metadata": metadata, "spec": spec})
        assert made is not None
        return made

    def bind(self, pod: Manifest, node: str = "node-0") -> None:
        """Let kai bind a pod."""
        path = path_of(POD, pod["metadata"]["namespace"], pod["metadata"]["name"], "binding")
        body = {"metadata": {"name": pod["metadata"]["name"]}, "target": {"kind": "Node", "name": node}}
        assert self.world.ask("kai-0", "POST", path, body).is_good

    def order(self, pod: Manifest, by: str = "kai-0") -> Manifest:
        """Let kai, or whom ``by`` names, order that a pod is bound."""
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        metadata = {"name": name, "namespace": HOME, "ownerReferences": [owner]}
        spec = {"podName": name, "selectedNode": "node-1"}
        order = self.world.create(by, ORDER, {"metadata": metadata, "spec": spec})
        assert order is not None
        return order

    def evict(self, pod: Manifest) -> None:
        """Let kai evict a pod."""
        assert self.world.delete("kai-0", POD, pod)

    def show(self) -> None:
        """Let the store of the process see all that there is."""
        for served, cls in _KINDS:
            cache = self.replica.connection.store.cache(cls)
            cache.begin_list(self.world.server.storage.version)
            for each in self.world.all(served):
                cache.see(each)
            cache.end_list(self.world.server.storage.version)

    def send(self, pod: Manifest, verb: str = "binding", **metadata: Any) -> Call:
        """Let the process send a write about a pod."""
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        body = {"metadata": {"name": name, "uid": pod["metadata"]["uid"], **metadata}, "target": {"name": "node-0"}}
        call = Call(method="POST", path=path_of(POD, namespace, name, verb), body=msgspec.json.encode(body))
        self.world.wire.on_send("kai-0", call)
        return call

    def end(self, call: Call, outcome: Answer | NoAnswer) -> None:
        """Let a call of the process end."""
        self.world.wire.on_outcome("kai-0", call, outcome)

    def pass_time(self, seconds: float) -> None:
        """Let time pass, in which nothing happens."""
        self.world.loop._now += seconds

    @property
    def broken(self) -> set[int]:
        """Return the invariants that are broken."""
        return {each.invariant for each in self.world.violations}


@pytest.fixture
def trial() -> Iterator[Trial]:
    loop = SeededLoop(random.Random(1))
    world = World(1, loop, random.Random(2), random.Random(3))
    life = Life(world)
    replica = _Silent(loop)
    store = WatchedStore([Watched(cls=cls) for _, cls in _KINDS], cast("Any", replica))
    replica.connection = _Connection(store)
    world.replicas.append(cast("Any", replica))
    for node in world.all(NODE):
        size = {"cpu": "16", "memory": "256Gi", "pods": "60", GPU: "2"}
        world.patch("admin", NODE, node, {"status": {"allocatable": size}}, "status")
    for queue in world.all(QUEUE):
        world.patch("admin", QUEUE, queue, {"spec": {"resources": {"gpu": {"quota": 2, "limit": 3}}}})
    yield Trial(world, Checks(world, life), life, Watchers.of(world), replica)
    loop.close()
