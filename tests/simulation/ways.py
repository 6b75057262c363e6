"""Faults between processes and the server, and of the processes themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from tests.simulation.episodes import Episode, Kind, Kinds, Undo, replicas_of
from tests.simulation.replica import NAMESPACE
from tests.simulation.world import LEASE, ORDER, World

if TYPE_CHECKING:
    from tests.simulation.users import Life

KINDS: Final = Kinds()
_WEATHER: Final = {
    "slow": (1, "latency", 0.5, 6.0),
    "errors": (2, "errors", 0.1, 0.6),
    "lost": (3, "lost", 0.1, 0.6),
    "late": (3, "late", 0.05, 0.4),
    "throttling": (5, "throttled", 0.1, 0.5),
    "cuts": (7, "cuts", 0.1, 0.8),
    "lag": (11, "lag", 1.0, 12.0),
    "doubles": (9, "doubles", 0.2, 0.9),
    "expiries": (10, "expiries", 0.3, 1.0),
    "forbidden": (35, "forbidden", 0.1, 0.6),
}
"""Where the matrix has it, which part of the weather it is, and between what it is drawn."""


# --- The way to the server (1, 2, 3, 5, 6, 7, 8, 9, 11, 19, 35) ------------------------------------------------------


def _weather(name: str) -> Kind:
    _, field, least, most = _WEATHER[name]

    def begin(world: World, _: Life, episode: Episode) -> Undo:
        replicas, value = replicas_of(world, episode), least + (most - least) * episode.strength
        normal = attrs.fields_dict(type(replicas[0].weather))[field].default
        for each in replicas:
            setattr(each.weather, field, value)

        def end() -> None:
            for each in replicas:
                setattr(each.weather, field, normal)

        return end

    return begin


for _name, (_number, *_) in _WEATHER.items():
    KINDS.add(_number, _name)(_weather(_name))


@KINDS.add(2)
def away(world: World, _: Life, episode: Episode) -> Undo:
    """One process cannot reach the server."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        each.weather.is_away = True
    world.wire.restart()

    def end() -> None:
        for each in replicas:
            each.weather.is_away = False

    return end


@KINDS.add(8)
def silence(world: World, _: Life, episode: Episode) -> Undo:
    """Watches bring nothing, though their connections stand."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        each.weather.is_silent = True

    def end() -> None:
        for each in replicas:
            each.weather.is_silent = False
        # What was silent for so long is dead: the connection is given up by the network at last.
        world.wire.restart()

    return end


@KINDS.add(19)
def outage(world: World, _: Life, __: Episode) -> Undo:
    """The API server is away, and starts anew."""
    world.wire.is_down = True
    world.wire.restart()

    def end() -> None:
        world.wire.is_down = False

    return end


@KINDS.add(6)
def compaction(world: World, _: Life, __: Episode) -> Undo | None:
    """The server forgets, and cuts all watches."""
    world.server.storage.compact()
    world.wire.restart()
    return None


@KINDS.add(8)
def deafness(world: World, _: Life, episode: Episode) -> Undo | None:
    """Connections of watches stand for ever, and nothing comes over them: the process has to notice that by itself."""
    for each in replicas_of(world, episode):
        world.wire.forsake(each.weather)
    return None


@KINDS.add(9)
def behind(world: World, _: Life, episode: Episode) -> Undo:
    """Changes of one kind show much later than those of others."""
    replicas = replicas_of(world, episode)
    plural = ("pods", "nodes", "bindrequests", "podgroups", "queues")[int(episode.strength * 5)]
    for each in replicas:
        each.weather.behind = plural

    def end() -> None:
        for each in replicas:
            each.weather.behind = ""

    return end


@KINDS.add(20)
def compactions(world: World, _: Life, episode: Episode) -> Undo:
    """The server forgets every few seconds, and cuts the watches of one process or of all of them each time."""
    until = world.time + episode.seconds

    def forget() -> None:
        if world.time < until:
            world.server.storage.compact()
            world.wire.restart()
            world.loop.call_later(2.0 + 6.0 * episode.strength, forget)

    def end() -> None:
        nonlocal until
        until = 0.0

    forget()
    return end


@KINDS.add(20)
def headless(world: World, _: Life, __: Episode) -> Undo:
    """Etcd has no leader: what is read is there, and nothing is written."""
    world.wire.is_headless = True

    def end() -> None:
        world.wire.is_headless = False

    return end


@KINDS.add(22)
def sluggish(world: World, _: Life, episode: Episode) -> Undo:
    """Etcd is slow, for all processes alike."""
    for each in world.replicas:
        each.weather.latency = 0.5 + 2.0 * episode.strength

    def end() -> None:
        for each in world.replicas:
            each.weather.latency = 0.004

    return end


@KINDS.add(26)
def unserved(world: World, _: Life, episode: Episode) -> Undo:
    """One kind is not served, as if its definition were missing."""
    optional = ("topologies", "resourceclaims", "resourceslices", "deviceclasses", "csidrivers", "bindrequests")
    _serve_all_but(world, optional[int(episode.strength * len(optional))])
    world.wire.restart()
    return lambda: _serve_all_but(world, "")


def _serve_all_but(world: World, plural: str) -> None:
    if world.wire.unserved == ORDER.plural:
        world.orders_hidden = world.time
    world.wire.unserved = plural


# --- Processes and machines (13, 14, 15, 16, 17, 25) ------------------------------------------------------------------


@KINDS.add(16)
def kill(world: World, _: Life, episode: Episode) -> Undo:
    """A process ends at once, and another life of it begins later."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        each.kill()

    def end() -> None:
        for each in replicas:
            each.start()

    return end


@KINDS.add(17)
def stop(world: World, _: Life, episode: Episode) -> Undo:
    """A process is asked to end, and another life of it begins later."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        each.terminate()

    def end() -> None:
        for each in replicas:
            each.start()

    return end


@KINDS.add(14)
def pause(world: World, _: Life, episode: Episode) -> Undo:
    """A process stands still, and goes on later as if nothing had been."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        world.loop.freeze(each.name)

    def end() -> None:
        for each in replicas:
            world.loop.thaw(each.name)

    return end


@KINDS.add(13)
def clock(world: World, _: Life, episode: Episode) -> Undo:
    """The wall clock of a machine is set."""
    replicas, shift = replicas_of(world, episode), 7200.0 * (episode.strength - 0.5)
    for each in replicas:
        each.clock.wall += shift

    def end() -> None:
        for each in replicas:
            each.clock.wall -= shift

    return end


@KINDS.add(25)
def busy(world: World, _: Life, episode: Episode) -> Undo:
    """Cycles take long."""
    replicas = replicas_of(world, episode)
    for each in replicas:
        each.cpu.longest = 20.0 * episode.strength

    def end() -> None:
        for each in replicas:
            each.cpu.longest = 0.05

    return end


@KINDS.add(15)
def theft(world: World, _: Life, __: Episode) -> Undo | None:
    """A stranger writes himself into the lease, and is gone."""
    lease = world.server.storage.get(LEASE, (NAMESPACE, "kai-scheduler"))
    if lease is not None:
        spec = {"holderIdentity": "stranger", "leaseTransitions": int(lease["spec"].get("leaseTransitions") or 0) + 1}
        world.patch("kai-stranger", LEASE, lease, {"spec": spec})
    return None


@KINDS.add(16)
def trap(world: World, _: Life, episode: Episode) -> Undo | None:
    """A process is killed at a write: before it is sent, once it is sent, or once it is answered."""
    replica, moment = replicas_of(world, episode)[0], int(episode.strength * 3)
    left = int(episode.strength * 1000) % 4

    def is_it(process: str, method: str, path: str) -> bool:
        nonlocal left
        if process != replica.name or method == "GET" or "/leases" in path:
            return False
        left -= 1
        return left < 0

    def die() -> None:
        world.wire.traps.remove(spring)
        world.say(f"{replica.name} is killed at a write")
        replica.kill()
        world.loop.call_later(3.0, replica.start)

    def spring(process: str, method: str, path: str, when: int) -> None:
        if when == moment and is_it(process, method, path):
            die()

    world.wire.traps.append(spring)

    def end() -> None:
        if spring in world.wire.traps:
            world.wire.traps.remove(spring)

    return end
