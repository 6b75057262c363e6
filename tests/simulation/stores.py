"""What stores show: never less than before, in the end exactly what the server has, and nothing assumed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from tests.simulation.world import GROUP, NODE, ORDER, POD, QUEUE, World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.replica import Replica

_KINDS: Final[tuple[tuple[Any, Any], ...]] = (
    (POD, Pod),
    (NODE, Node),
    (ORDER, BindRequest),
    (GROUP, PodGroup),
    (QUEUE, Queue),
)


@attrs.define(eq=False)
class Stores:
    """Looks at the stores of all replicas from time to time."""

    world: World
    known: dict[tuple[int, Any, Any], tuple[str, int]] = attrs.field(factory=dict)

    _since: float = float("-inf")
    """When a backup was put back last."""

    def __attrs_post_init__(self) -> None:
        self.world.on_backup.append(self._forget)

    def _forget(self) -> None:
        self.known.clear()
        self._since = self.world.time

    def look(self) -> None:
        """Look whether a store has gone back; after a backup was put back it has to."""
        if self.world.time < self._since + self.world.blind:
            return
        for replica in self.world.replicas:
            if not replica.is_alive or replica.connection is None:
                continue
            number = id(replica.connection)
            for _, cls in _KINDS:
                versions: dict[Any, tuple[str, int]] = replica.connection.store.cache(cls).versions()
                for key, (uid, version) in versions.items():
                    before = self.known.get((number, cls, key))
                    if before is not None and before[0] == uid and 0 <= version < before[1]:
                        text = f"{cls.__name__} {'/'.join(key)} at version {version}, and had {before[1]}"
                        self.world.violate(25, f"the store of {replica.name} shows {text}")
                    self.known[number, cls, key] = (uid, version)


def differences(world: World) -> Iterator[tuple[int, str]]:
    """Return how stores differ from what the server has."""
    for replica in world.replicas:
        if replica.is_alive and replica.connection is not None:
            yield from _of_one(world, replica)


def _of_one(world: World, replica: Replica) -> Iterator[tuple[int, str]]:
    assert replica.connection is not None
    for served, cls in _KINDS:
        cache = replica.connection.store.cache(cls)
        there = {
            (each["metadata"].get("namespace", ""), each["metadata"]["name"]): int(each["metadata"]["resourceVersion"])
            for each in world.all(served)
        }
        versions = cache.versions()
        for key in sorted(there.keys() | versions.keys()):
            known = versions.get(key, ("", 0))[1]
            if known != there.get(key, 0):
                text = f"{served.plural} {'/'.join(key)} is at {there.get(key, 'no version')}, and shown at {known}"
                yield 19, f"{text} by {replica.name}"
        for key in sorted(cache._assumed):
            yield 19, f"{replica.name} assumes something of {served.plural} {'/'.join(key)}"
