"""Faults that lie in wait for the moment in which a defence matters, of which every seed may draw up to two.

Ambushes are drawn apart from all other faults, so that a seed has the same others with them as without.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Final

from tests.simulation.aimed import BEFORE, DONE, STALL, cordon, fill, set_trap
from tests.simulation.episodes import Episode, Kinds, Undo, lasting, replicas_of
from tests.simulation.world import (
    HOMES,
    LEASE,
    NODE,
    ORDER,
    POD,
    QUEUE,
    World,
    is_leaving,
    is_over,
    node_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.rest_server.storage import Backup, Manifest
    from tests.simulation.replica import Replica
    from tests.simulation.users import Life

AMBUSHES: Final = Kinds()
_WITHDRAWN: Final = 3
_STAYS: Final = 0.6
_AWAY: Final = 9.0
"""Long enough for each process to see that the server is away."""
_KEPT: Final = ("name", "namespace", "labels", "annotations", "ownerReferences")
"""What a pod that takes the place of another has in common with it."""


def _ambush(world: World, strike: Callable[[Replica, str], bool]) -> Undo:
    """Give every write that a process is about to send to a function, until that says that it is satisfied."""

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        sender = next((each for each in world.replicas if each.name == process), None)
        is_write = when == BEFORE and method != "GET" and "/leases" not in path
        return sender is not None and is_write and strike(sender, path)

    return set_trap(world, is_met)


def _later(world: World, seconds: float, function: Callable[..., object], *args: object) -> None:
    """Call a function later, outside of the process in whose call this is: that may stand still by then."""
    world.loop.call_later(seconds, function, *args, context=contextvars.Context())


def _slow_down(world: World, sender: Replica) -> None:
    """Let the call that is about to be sent take four seconds, whichever life of its process there is after it."""
    sender.weather.latency = 4.0
    _later(world, 0.0, lambda: setattr(sender.weather, "latency", 0.004))


@AMBUSHES.add(14)
def halt(world: World, _: Life, episode: Episode) -> Undo:
    """A process stands still as it sends a write, until its term is over: what it would have sent next waits in it."""
    seconds = STALL + 14.0 * episode.strength
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
        _slow_down(world, sender)
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

    return lasting(world, undo)


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

    return _during_cycles(world, begin)


def _during_cycles(world: World, begin: Callable[[], None]) -> Undo:
    """Let cycles take seconds, and call a function as each begins."""
    for each in world.replicas:
        each.cpu.longest = 3.0
        each.cpu.on_begin.append(begin)

    def end() -> None:
        for each in world.replicas:
            each.cpu.longest = 0.05
            each.cpu.on_begin.remove(begin)

    return end


@AMBUSHES.add(30)
def undermined(world: World, life: Life, episode: Episode) -> Undo:
    """As soon as a cycle has begun, nodes are cordoned, pods that wait are deleted and kept, or pods that run end."""
    how = (_cordon_half, _detain, _finish)[int(episode.strength * 3)]
    left, undone = 30 if how is _finish else 3, []

    def begin() -> None:
        nonlocal left
        if left > 0 and any(not node_of(each) and not is_leaving(each) for each in world.workers()):
            left -= 1
            _later(world, 0.05, lambda: undone.append(how(world, life)))

    end = _during_cycles(world, begin)

    def undo() -> None:
        nonlocal left
        left = 0
        end()
        for each in undone:
            each()

    return undo


def _cordon_half(world: World, life: Life) -> Undo:
    """Cordon every other node for some seconds."""
    undone = []
    for node in world.all(NODE)[::2]:
        life.changed_at[node["metadata"]["name"]] = world.time
        undone.append(cordon(world, node, node))

    def undo() -> None:
        for each in undone:
            each()

    _later(world, 8.0, undo)
    return undo


def _detain(world: World, _: Life) -> Undo:
    """Delete the pods that wait, and keep them by a finalizer of others."""
    pods = [each for each in world.workers() if not node_of(each) and not is_leaving(each)][:_WITHDRAWN]
    for pod in pods:
        world.patch("stranger", POD, pod, {"metadata": {"finalizers": ["others/keep"]}})
        world.delete("user", POD, pod)

    def undo() -> None:
        for pod in pods:
            world.patch("stranger", POD, pod, {"metadata": {"finalizers": None}})

    return lasting(world, undo)


def _finish(world: World, _: Life) -> Undo:
    """Let some of the pods that run and may be evicted end by themselves."""
    for pod in world.workers():
        if world.nature.random() < _STAYS:
            continue
        is_running = node_of(pod) and (pod.get("status") or {}).get("phase") == "Running" and not is_leaving(pod)
        if is_running and (pod["metadata"].get("labels") or {}).get("priorityClassName") == "train":
            world.patch("kubelet", POD, pod, {"status": {"phase": "Succeeded"}}, "status")
    return lambda: None


@AMBUSHES.add(1)
def dawdling(world: World, _: Life, __: Episode) -> Undo:
    """To delete, evict or patch pods and their groups takes four seconds, and everything else is as fast as ever."""

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        sender = next((each for each in world.replicas if each.name == process), None)
        is_patch = method == "PATCH" and ("/podgroups/" in path or "/pods/" in path)
        is_slow = is_patch or method == "DELETE" or path.endswith("/eviction")
        if sender is not None and when == BEFORE and is_slow:
            _slow_down(world, sender)
        return False

    return set_trap(world, is_met)


@AMBUSHES.add(33)
def capricious(world: World, _: Life, __: Episode) -> Undo:
    """A webhook of others refuses to have a pod bound once that is ordered, for some seconds; deletions take four."""
    left = 8

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        nonlocal left
        sender = next((each for each in world.replicas if each.name == process), None)
        if sender is None:
            return False
        if when == BEFORE and method == "DELETE":
            _slow_down(world, sender)
        if when != DONE or method != "POST" or not path.endswith("/bindrequests"):
            return False
        order = max(world.all(ORDER), key=lambda each: int(each["metadata"]["resourceVersion"]), default=None)
        if order is not None:
            name = order["spec"]["podName"]
            world.refused_binds.add(name)
            _later(world, 3.0, world.refused_binds.discard, name)
            left -= 1
        return left <= 0

    return set_trap(world, is_met)


@AMBUSHES.add(21)
def backup(world: World, life: Life, episode: Episode) -> Undo:
    """The server goes away, and comes back as it was some seconds before; only the lease is as it is.

    A process that stands still meanwhile would see no outage: then there is no more than that.
    """
    taken, is_over = world.server.storage.backup(), False

    def leave() -> None:
        if not is_over:
            world.wire.is_down = True
            world.wire.restart()
            _later(world, _AWAY, come_back)

    def come_back() -> None:
        if not is_over and not world.loop.is_any_frozen:
            _put_back(world, life, taken)
            world.wire.restart()  # whatever ended the outage before
        world.wire.is_down = False

    def end() -> None:
        nonlocal is_over
        is_over, world.wire.is_down = True, False

    _later(world, 3.0 + 8.0 * episode.strength, leave)
    return end


def _put_back(world: World, life: Life, taken: Backup) -> None:
    """Put a backup back, and let those who work on the cluster look at it anew."""
    changes = world.server.storage.restore(taken, LEASE)
    world.say(f"a backup is put back: {len(changes)} objects are other ones")
    world.undone |= {each.present["metadata"]["uid"] for each in changes if each.served is POD}
    for served in (NODE, QUEUE):
        for obj in world.all(served):
            life.changed_at[obj["metadata"]["name"]] = world.time
    for tell in world.on_backup:
        tell()
    life.look_anew(changes)


@AMBUSHES.add(30)
def crowded(world: World, life: Life, _: Episode) -> Undo:
    """As soon as a part of a GPU is ordered, its node loses the GPUs that no pod holds."""
    left, undone = 4, []

    def is_met(_: str, method: str, path: str, when: int) -> bool:
        nonlocal left
        if when != DONE or method != "POST" or not path.endswith("/bindrequests"):
            return False
        order = max(world.all(ORDER), key=lambda each: int(each["metadata"]["resourceVersion"]), default=None)
        node = None if order is None else world.server.storage.get(NODE, ("", order["spec"]["selectedNode"]))
        if order is None or node is None or not order["spec"].get("selectedGPUGroups"):
            return False
        life.changed_at[node["metadata"]["name"]] = world.time
        undone.append(fill(world, node, order))
        left -= 1
        return left <= 0

    end = set_trap(world, is_met)

    def undo() -> None:
        end()
        for each in undone:
            each()

    return undo


@AMBUSHES.add(20)
def reluctant(world: World, _: Life, episode: Episode) -> Undo:
    """What the server keeps of one kind cannot be written for a while; all other kinds can."""
    kinds = ("/bindrequests", "/binding", "/eviction", "/podgroups", "/pods/")
    world.wire.failing = kinds[int(episode.strength * 997) % len(kinds)]

    def end() -> None:
        world.wire.failing = ""

    return end


@AMBUSHES.add(3)
def posthumous(world: World, life: Life, episode: Episode) -> Undo:
    """An order is on its way for long, its process stands still, and two queues are closed before another leads."""
    undone: list[Undo] = []
    names = ("a1", "a2") if episode.strength < 0.5 else ("b1", "b2")

    def strike(sender: Replica, path: str) -> bool:
        if not path.endswith("/bindrequests"):
            return False
        world.say(f"{sender.name} stands still, and its order arrives much later")
        sender.weather.late = 1.0
        _later(world, 0.0, lambda: setattr(sender.weather, "late", 0.0))
        world.loop.freeze(sender.name)
        _later(world, STALL + 20.0, world.loop.thaw, sender.name)
        for name in names:
            queue = world.server.storage.get(QUEUE, ("", name))
            if queue is not None:
                undone.append(_closed(world, life, queue))
        return True

    end = _ambush(world, strike)

    def undo() -> None:
        end()
        for each in undone:
            each()

    return undo


def _closed(world: World, life: Life, queue: Manifest) -> Undo:
    """Let no more GPUs be used in a queue."""
    before = queue["spec"]["resources"]["gpu"]
    life.changed_at[queue["metadata"]["name"]] = world.time
    world.patch("admin", QUEUE, queue, {"spec": {"resources": {"gpu": {"quota": 0, "limit": 0}}}})

    def undo() -> None:
        life.changed_at[queue["metadata"]["name"]] = world.time
        world.patch("admin", QUEUE, queue, {"spec": {"resources": {"gpu": before}}})

    return undo
