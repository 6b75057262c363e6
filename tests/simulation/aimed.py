"""Faults that wait for a moment: what happens between a decision and its write, or while a term ends.

A fault that begins at a drawn time hardly ever meets the few milliseconds in which a defence matters. These lie in wait
at the line between a process and the server, and strike at a call.

Ambushes are drawn apart from all other faults, so that a seed has the same others with them as without.
"""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from typing import Any, Final

from kai.cluster.calls import STRATEGIC_PATCH
from tests.doubles.rest_server.storage import Manifest
from tests.simulation.episodes import Episode, Kinds, Undo, replicas_of
from tests.simulation.replica import Replica
from tests.simulation.users import Life
from tests.simulation.world import GPU, HOMES, NODE, ORDER, POD, World, gpus_of, is_leaving, is_over, node_of, path_of

KINDS: Final = Kinds()
AMBUSHES: Final = Kinds()
"""Kinds of which every seed may draw some, besides those that its swarm has."""
_STALL: Final = 16.0
"""Longer than a lease lasts."""
_BEFORE, _DONE = 0, 1
_WITHDRAWN: Final = 3
_KEPT: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
"""What a pod that takes the place of another has in common with it."""
_TAINT: Final = {"key": "aimed", "value": "yes", "effect": "NoSchedule"}


def _lie_in_wait(world: World, name: str, strike: Callable[[str, str, int], bool]) -> Undo:
    """Give every call of a process that is not of its lease to a function, until that says that it is satisfied."""

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        return process == name and "/leases" not in path and strike(method, path, when)

    return _set_trap(world, is_met)


def _set_trap(world: World, is_met: Callable[[str, str, str, int], bool]) -> Undo:
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
    replica, seconds = replicas_of(world, episode)[0], _STALL + 14.0 * episode.strength
    left = int(episode.strength * 1000) % 5

    def strike(method: str, path: str, when: int) -> bool:
        nonlocal left
        # What is read or ordered here is followed by a binding.
        is_eve = (method == "GET" and "/pods/" in path) or (method == "POST" and path.endswith("/bindrequests"))
        if when != _DONE or not is_eve:
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
    how = (_cordon, _fill, _taint, _leave)[int(episode.strength * 4)]

    def strike(method: str, path: str, when: int) -> bool:
        nonlocal left
        if when != _DONE or method != "POST" or not path.endswith("/bindrequests"):
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


def _cordon(world: World, node: Manifest, _: Manifest) -> Undo:
    return _changed(world, node, {"unschedulable": True})


def _taint(world: World, node: Manifest, _: Manifest) -> Undo:
    return _changed(world, node, {"taints": [_TAINT]})


def _changed(world: World, node: Manifest, spec: dict[str, Any]) -> Undo:
    world.patch("admin", NODE, node, {"spec": spec})
    return lambda: _patched(world, node, {"spec": dict.fromkeys(spec)}, "")


def _fill(world: World, node: Manifest, _: Manifest) -> Undo:
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
        if when != _BEFORE or not path.endswith("/binding"):
            return False
        parts = path.strip("/").split("/")
        where = path_of(POD, parts[parts.index("namespaces") + 1], parts[-2], "status")
        condition = {"type": "Touched", "status": "True", "reason": f"At{int(world.time * 1000)}"}
        world.ask("stranger", "PATCH", where, {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)
        left -= 1
        return left <= 0

    return _lie_in_wait(world, replica.name, strike)


# --- Ambushes --------------------------------------------------------------------------------------------------------


def _ambush(world: World, strike: Callable[[Replica, str], bool]) -> Undo:
    """Give every write that a process is about to send to a function, until that says that it is satisfied."""

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        sender = next((each for each in world.replicas if each.name == process), None)
        is_write = when == _BEFORE and method != "GET" and "/leases" not in path
        return sender is not None and is_write and strike(sender, path)

    return _set_trap(world, is_met)


def _later(world: World, seconds: float, function: Callable[..., object], *args: object) -> None:
    """Call a function later, outside of the process in whose call this is: that may stand still by then."""
    world.loop.call_later(seconds, function, *args, context=contextvars.Context())


@AMBUSHES.add(14)
def halt(world: World, _: Life, episode: Episode) -> Undo:
    """A process stands still as it sends a write, until its term is over: what it would have sent next waits in it."""
    seconds = _STALL + 14.0 * episode.strength
    what = ("/binding", "/bindrequests", "/podgroups")[int(episode.strength * 1000) % 3]

    def strike(sender: Replica, path: str) -> bool:
        if what not in path:
            return False
        world.say(f"{sender.name} stands still as it sends a write")
        world.loop.freeze(sender.name)
        _later(world, seconds, world.loop.thaw, sender.name)
        return True

    return _ambush(world, strike)


@AMBUSHES.add(15)
def leaseless(world: World, _: Life, episode: Episode) -> Undo:
    """A process hears nothing of the lease, and goes on with everything else."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        each.weather.is_leaseless = True

    def end() -> None:
        for each in replicas:
            each.weather.is_leaseless = False

    return end


@AMBUSHES.add(12)
def substitute(world: World, _: Life, __: Episode) -> Undo:
    """As a bind is sent, which then takes seconds, the pods that wait are replaced by others of the same names."""
    left = 2

    def strike(sender: Replica, path: str) -> bool:
        nonlocal left
        if not path.endswith(("/binding", "/bindrequests")):
            return False
        sender.weather.latency = 4.0
        _later(world, 0.01, setattr, sender.weather, "latency", 0.004)
        _replace(world, path)
        left -= 1
        return left <= 0

    return _ambush(world, strike)


def _replace(world: World, path: str) -> None:
    """Replace the pods that wait in the namespace of a path."""
    namespace = path.split("/namespaces/")[1].partition("/")[0]
    for pod in world.all(POD, namespace):
        if namespace not in HOMES or node_of(pod) or is_leaving(pod) or is_over(pod):
            continue
        metadata = {key: pod["metadata"][key] for key in _KEPT if key in pod["metadata"]}
        world.delete("user", POD, pod, grace=0)
        world.create("user", POD, {"metadata": metadata, "spec": pod["spec"]})


@AMBUSHES.add(31)
def withdrawn(world: World, _: Life, __: Episode) -> Undo:
    """A user deletes a pod as its binding is sent, and a finalizer of others keeps it for a while."""
    kept: list[Manifest] = []

    def strike(_: Replica, path: str) -> bool:
        parts = path.strip("/").split("/")
        pod = world.server.storage.get(POD, (parts[parts.index("namespaces") + 1], parts[-2]))
        if not path.endswith("/binding") or pod is None or is_leaving(pod) or pod["metadata"]["namespace"] not in HOMES:
            return False
        world.patch("stranger", POD, pod, {"metadata": {"finalizers": ["others/keep"]}})
        world.delete("user", POD, pod)
        kept.append(pod)
        return len(kept) >= _WITHDRAWN

    end = _ambush(world, lambda sender, path: "/namespaces/" in path and strike(sender, path))

    def undo() -> None:
        end()
        for pod in kept:
            world.patch("stranger", POD, pod, {"metadata": {"finalizers": None}})

    return undo


@AMBUSHES.add(12)
def meanwhile(world: World, _: Life, episode: Episode) -> Undo:
    """Cycles take seconds, and as soon as one has begun, pods that wait are replaced by others of the same names."""
    left, namespace = 2, sorted(HOMES)[int(episode.strength * 2)]

    def begin() -> None:
        nonlocal left
        waits = any(not node_of(each) and not is_leaving(each) for each in world.all(POD, namespace))
        if left > 0 and waits:
            left -= 1
            _later(world, 0.05, _replace, world, f"/namespaces/{namespace}/pods")

    for each in world.replicas:
        each.cpu.longest, each.cpu.on_begin = 3.0, begin

    def end() -> None:
        for each in world.replicas:
            each.cpu.longest, each.cpu.on_begin = 0.05, None

    return end
