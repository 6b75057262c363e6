"""Faults that wait for a moment: what happens between a decision and its write, or while a term ends.

A fault that begins at a drawn time hardly ever meets the few milliseconds in which a defence matters. These lie in wait
at the line between a process and the server, and strike at a call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kai.cluster.transport.calls import STRATEGIC_PATCH
from tests.simulation.episodes import Episode, Kinds, Undo, replicas_of
from tests.simulation.world import (
    GPU,
    NODE,
    ORDER,
    POD,
    World,
    gpus_of,
    is_leaving,
    is_over,
    node_of,
    path_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.rest_server.storage import Manifest
    from tests.simulation.users import Life

KINDS: Final = Kinds()
STALL: Final = 16.0
"""Longer than a lease lasts."""
BEFORE, DONE = 0, 1
_TAINT: Final = {"key": "aimed", "value": "yes", "effect": "NoSchedule"}


def _lie_in_wait(world: World, name: str, strike: Callable[[str, str, int], bool]) -> Undo:
    """Give every call of a process that is not of its lease to a function, until that says that it is satisfied."""

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        return process == name and "/leases" not in path and strike(method, path, when)

    return set_trap(world, is_met)


def set_trap(world: World, is_met: Callable[[str, str, str, int], bool]) -> Undo:
    """Give every call of a process to a function, until that says that it is satisfied."""

    def spring(process: str, method: str, path: str, when: int) -> None:
        if spring in world.wire.traps and is_met(process, method, path, when):
            world.wire.traps.remove(spring)

    def end() -> None:
        if spring in world.wire.traps:
            world.wire.traps.remove(spring)

    world.wire.traps.append(spring)
    return end


@KINDS.add(14)
def stall(world: World, _: Life, episode: Episode) -> Undo:
    """A process stands still with an answer on its way, until its term is over; then it goes on where it was."""
    replica, seconds = replicas_of(world, episode)[0], STALL + 14.0 * episode.strength
    left = int(episode.strength * 1000) % 5

    def strike(method: str, path: str, when: int) -> bool:
        nonlocal left
        # What is read or ordered here is followed by a binding.
        is_eve = (method == "GET" and "/pods/" in path) or (method == "POST" and path.endswith("/bindrequests"))
        if when != DONE or not is_eve:
            return False
        left -= 1
        if left >= 0:
            return False
        world.say(f"{replica.name} stands still with an answer on its way")
        world.loop.freeze(replica.name)
        world.loop.call_later(seconds, world.loop.thaw, replica.name)
        return True

    return _lie_in_wait(world, replica.name, strike)


@KINDS.add(30)
def swerve(world: World, life: Life, episode: Episode) -> Undo:
    """A node, or the pod itself, changes once a bind is ordered, and before it is carried out."""
    replica, undone = replicas_of(world, episode)[0], []
    left = 2 + int(episode.strength * 1000) % 3
    how = (cordon, fill, _taint, _leave)[int(episode.strength * 4)]

    def strike(method: str, path: str, when: int) -> bool:
        nonlocal left
        if when != DONE or method != "POST" or not path.endswith("/bindrequests"):
            return False
        order = max(world.all(ORDER), key=lambda each: int(each["metadata"]["resourceVersion"]), default=None)
        node = None if order is None else world.server.storage.get(NODE, ("", order["spec"]["selectedNode"]))
        if order is None or node is None:
            return False
        life.changed_at[node["metadata"]["name"]] = world.time
        undone.append(how(world, node, order))
        left -= 1
        return left <= 0

    end = _lie_in_wait(world, replica.name, strike)

    def undo() -> None:
        end()
        for each in undone:
            each()

    return undo


def cordon(world: World, node: Manifest, _: Manifest) -> Undo:
    return _changed(world, node, {"unschedulable": True})


def _taint(world: World, node: Manifest, _: Manifest) -> Undo:
    return _changed(world, node, {"taints": [_TAINT]})


def _changed(world: World, node: Manifest, spec: dict[str, Any]) -> Undo:
    world.patch("admin", NODE, node, {"spec": spec})
    return lambda: _patched(world, node, {"spec": dict.fromkeys(spec)}, "")


def fill(world: World, node: Manifest, _: Manifest) -> Undo:
    """Let a node lose the GPUs that no pod holds."""
    name = node["metadata"]["name"]
    used = sum(gpus_of(each) for each in world.all(POD) if node_of(each) == name and not is_over(each))
    before = node["status"]["allocatable"].get(GPU, "0")
    world.patch("admin", NODE, node, {"status": {"allocatable": {GPU: str(used)}}}, "status")
    return lambda: _patched(world, node, {"status": {"allocatable": {GPU: before}}}, "status")


def _patched(world: World, node: Manifest, patch: dict[str, Any], subresource: str) -> None:
    world.patch("admin", NODE, node, patch, subresource)


def _leave(world: World, _: Manifest, order: Manifest) -> Undo:
    pod = world.server.storage.get(POD, (order["metadata"]["namespace"], order["spec"]["podName"]))
    if pod is not None and not is_leaving(pod):
        world.delete("user", POD, pod)
    return lambda: None


@KINDS.add(33)
def stubborn(world: World, _: Life, episode: Episode) -> None:
    """A webhook of others refuses the bindings of all pods that wait now, until all faults are over."""
    waiting = [each["metadata"]["name"] for each in world.workers() if not node_of(each)]
    world.refused_binds |= set(waiting[: 2 + int(episode.strength * 6)])


@KINDS.add(3)
def unheard(world: World, _: Life, episode: Episode) -> Undo:
    """Answers are lost, and what was done shows seconds later: nothing tells a process soon what became of a write."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        each.weather.lost, each.weather.lag = 0.3 + 0.5 * episode.strength, 6.0

    def end() -> None:
        for each in replicas:
            each.weather.lost, each.weather.lag = 0.0, 0.004

    return end


@KINDS.add(31)
def touched(world: World, _: Life, episode: Episode) -> Undo:
    """A user writes a condition into a pod between the look at it and the binding, so that its version is another."""
    replica = replicas_of(world, episode)[0]
    left = 3

    def strike(method: str, path: str, when: int) -> bool:
        nonlocal left
        if when != BEFORE or not path.endswith("/binding"):
            return False
        parts = path.strip("/").split("/")
        where = path_of(POD, parts[parts.index("namespaces") + 1], parts[-2], "status")
        condition = {"type": "Touched", "status": "True", "reason": f"At{int(world.time * 1000)}"}
        world.ask("stranger", "PATCH", where, {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)
        left -= 1
        return left <= 0

    return _lie_in_wait(world, replica.name, strike)
