"""The faults of a schedule: episodes, each of one kind, at one process or at all of them, for a while.

A seed draws which kinds it uses at all, so that some schedules have many of one and none of the others; and when they
come. Numbers in brackets are those of the fault matrix of `docs/reliability.md`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from kai.cluster.calls import STRATEGIC_PATCH
from tests.doubles.rest_server.pods import BUDGET
from tests.simulation.replica import NAMESPACE
from tests.simulation.users import Life
from tests.simulation.world import GPU, HOME, LEASE, NODE, POD, QUEUE, World, is_leaving, node_of, path_of

Undo: TypeAlias = Callable[[], None]
_BLINDING: Final = frozenset({"lag", "silence", "pause", "late", "slow", "away", "outage", "lost"})
_WEATHER: Final = {
    "slow": ("latency", 0.5, 6.0),
    "errors": ("errors", 0.1, 0.6),
    "lost": ("lost", 0.1, 0.6),
    "late": ("late", 0.05, 0.4),
    "throttling": ("throttled", 0.1, 0.5),
    "cuts": ("cuts", 0.1, 0.8),
    "lag": ("lag", 1.0, 12.0),
    "doubles": ("doubles", 0.2, 0.9),
    "forbidden": ("forbidden", 0.1, 0.6),
}
"""Which part of the weather, and between what it is drawn."""


@attrs.frozen
class Episode:
    """One fault: its kind, when it begins, for how long, at which replica, and how bad it is."""

    kind: str
    start: float
    seconds: float
    replica: int
    """-1 for all of them."""
    strength: float

    def __str__(self) -> str:
        where = "all" if self.replica < 0 else f"kai-{self.replica}"
        return f"{self.kind} at {where} from {self.start:.1f} s for {self.seconds:.1f} s ({self.strength:.2f})"


def drawn(draw: random.Random, seconds: float, replicas: int) -> tuple[Episode, ...]:
    """Return the faults of a schedule, in the order of their beginning."""
    kinds = sorted(KINDS)
    chosen = draw.sample(kinds, draw.randint(1, min(7, len(kinds))))
    found = [
        Episode(
            kind=draw.choice(chosen),
            start=draw.uniform(8.0, seconds - 5.0),
            seconds=min(draw.uniform(1.0, 40.0), seconds),
            replica=draw.choice((-1, *range(replicas))),
            strength=draw.random(),
        )
        for _ in range(draw.randint(2, 14))
    ]
    return tuple(sorted(found, key=lambda each: each.start))


def blindness(episodes: tuple[Episode, ...]) -> float:
    """Return for how long kai may not know what others did."""
    return 110.0 if any(each.kind in _BLINDING for each in episodes) else 10.0


async def happen(world: World, life: Life, episodes: tuple[Episode, ...], ends_at: float) -> None:
    """Let faults happen, and undo them all at the end."""
    undone: list[tuple[float, Undo]] = []
    try:
        for episode in episodes:
            await _until(world, episode.start, undone)
            world.say(f"fault {episode}")
            undo = KINDS[episode.kind](world, life, episode)
            if undo is not None:
                undone.append((min(episode.start + episode.seconds, ends_at), undo))
        await _until(world, ends_at, undone)
    finally:
        for _, undo in undone:
            undo()


async def _until(world: World, time: float, undone: list[tuple[float, Undo]]) -> None:
    """Wait for a time, and undo on the way what is due."""
    undone.sort(key=lambda each: each[0])
    while undone and undone[0][0] <= time:
        await asyncio.sleep(max(0.0, undone[0][0] - world.time))
        undone.pop(0)[1]()
    await asyncio.sleep(max(0.0, time - world.time))


Kind: TypeAlias = Callable[[World, Life, Episode], Undo | None]
KINDS: Final[dict[str, Kind]] = {}


def kind(function: Kind) -> Kind:
    """Add a kind of fault."""
    KINDS[function.__name__.strip("_")] = function
    return function


def _chosen(world: World, episode: Episode) -> list[Any]:
    return world.replicas if episode.replica < 0 else [world.replicas[episode.replica % len(world.replicas)]]


# --- The way to the server (1, 2, 3, 5, 6, 7, 8, 9, 11, 19, 35) ------------------------------------------------------


def _weather(name: str) -> Kind:
    field, least, most = _WEATHER[name]

    def begin(world: World, _: Life, episode: Episode) -> Undo:
        replicas, value = _chosen(world, episode), least + (most - least) * episode.strength
        normal = attrs.fields_dict(type(replicas[0].weather))[field].default
        for each in replicas:
            setattr(each.weather, field, value)

        def end() -> None:
            for each in replicas:
                setattr(each.weather, field, normal)

        return end

    return begin


for _name in _WEATHER:
    KINDS[_name] = _weather(_name)


@kind
def away(world: World, _: Life, episode: Episode) -> Undo:
    """One process cannot reach the server."""
    replicas = _chosen(world, episode)
    for each in replicas:
        each.weather.is_away = True
    world.wire.restart()

    def end() -> None:
        for each in replicas:
            each.weather.is_away = False

    return end


@kind
def silence(world: World, _: Life, episode: Episode) -> Undo:
    """Watches bring nothing, though their connections stand."""
    replicas = _chosen(world, episode)
    for each in replicas:
        each.weather.is_silent = True

    def end() -> None:
        for each in replicas:
            each.weather.is_silent = False
        # What was silent for so long is dead: the connection is given up by the network at last.
        world.wire.restart()

    return end


@kind
def outage(world: World, _: Life, __: Episode) -> Undo:
    """The API server is away, and starts anew."""
    world.wire.is_down = True
    world.wire.restart()

    def end() -> None:
        world.wire.is_down = False

    return end


@kind
def compaction(world: World, _: Life, __: Episode) -> Undo | None:
    """The server forgets, and cuts all watches."""
    world.server.storage.compact()
    world.wire.restart()
    return None


# --- Processes and machines (13, 14, 15, 16, 17, 25) ------------------------------------------------------------------


@kind
def kill(world: World, _: Life, episode: Episode) -> Undo:
    """A process ends at once, and another life of it begins later."""
    replicas = _chosen(world, episode)
    for each in replicas:
        each.kill()

    def end() -> None:
        for each in replicas:
            each.start()

    return end


@kind
def stop(world: World, _: Life, episode: Episode) -> Undo:
    """A process is asked to end, and another life of it begins later."""
    replicas = _chosen(world, episode)
    for each in replicas:
        each.terminate()

    def end() -> None:
        for each in replicas:
            each.start()

    return end


@kind
def pause(world: World, _: Life, episode: Episode) -> Undo:
    """A process stands still, and goes on later as if nothing had been."""
    replicas = _chosen(world, episode)
    for each in replicas:
        world.loop.freeze(each.name)

    def end() -> None:
        for each in replicas:
            world.loop.thaw(each.name)

    return end


@kind
def clock(world: World, _: Life, episode: Episode) -> Undo:
    """The wall clock of a machine is set."""
    replicas, shift = _chosen(world, episode), 7200.0 * (episode.strength - 0.5)
    for each in replicas:
        each.clock.wall += shift

    def end() -> None:
        for each in replicas:
            each.clock.wall -= shift

    return end


@kind
def busy(world: World, _: Life, episode: Episode) -> Undo:
    """Cycles take long."""
    replicas = _chosen(world, episode)
    for each in replicas:
        each.cpu.longest = 20.0 * episode.strength

    def end() -> None:
        for each in replicas:
            each.cpu.longest = 0.05

    return end


@kind
def theft(world: World, _: Life, __: Episode) -> Undo | None:
    """A stranger writes himself into the lease, and is gone."""
    lease = world.server.storage.get(LEASE, (NAMESPACE, "kai-scheduler"))
    if lease is not None:
        spec = {"holderIdentity": "stranger", "leaseTransitions": int(lease["spec"].get("leaseTransitions") or 0) + 1}
        world.patch("kai-stranger", LEASE, lease, {"spec": spec})
    return None


# --- The cluster (29, 30, 31, 32, 33, 34, 39, 41) ---------------------------------------------------------------------


@kind
def node_loss(world: World, life: Life, episode: Episode) -> Undo | None:
    """A node is gone; another of the same name comes."""
    nodes = world.all(NODE)
    if len(nodes) < 2:
        return None
    node = nodes[int(episode.strength * len(nodes))]
    name = node["metadata"]["name"]
    world.delete("admin", NODE, node)
    life.changed_at[name] = world.time

    def end() -> None:
        life.add_node(name)
        life.changed_at[name] = world.time

    return end


@kind
def cordon(world: World, life: Life, episode: Episode) -> Undo | None:
    """A node takes no more pods."""
    nodes = world.all(NODE)
    node = nodes[int(episode.strength * len(nodes))]
    name = node["metadata"]["name"]
    world.patch("admin", NODE, node, {"spec": {"unschedulable": True}})
    life.changed_at[name] = world.time

    def end() -> None:
        world.patch("admin", NODE, node, {"spec": {"unschedulable": None}})

    return end


@kind
def shrink(world: World, life: Life, episode: Episode) -> Undo | None:
    """A node loses GPUs."""
    nodes = [each for each in world.all(NODE) if int(each["status"]["allocatable"].get(GPU, 0)) > 1]
    if not nodes:
        return None
    node = nodes[int(episode.strength * len(nodes))]
    before, name = node["status"]["allocatable"][GPU], node["metadata"]["name"]
    world.patch("admin", NODE, node, {"status": {"allocatable": {GPU: str(int(before) - 1)}}}, "status")
    life.changed_at[name] = world.time

    def end() -> None:
        world.patch("admin", NODE, node, {"status": {"allocatable": {GPU: before}}}, "status")
        life.changed_at[name] = world.time

    return end


@kind
def quota(world: World, life: Life, episode: Episode) -> Undo | None:
    """An administrator changes quota and limit of a queue."""
    queues = [each for each in world.all(QUEUE) if each["spec"].get("parentQueue") not in {None, "top"}]
    queue = queues[int(episode.strength * len(queues))]
    amount = int(episode.strength * 1000) % 6
    world.patch("admin", QUEUE, queue, {"spec": {"resources": {"gpu": {"quota": amount, "limit": amount}}}})
    life.changed_at[queue["metadata"]["name"]] = world.time
    return None


@kind
def namesakes(world: World, life: Life, episode: Episode) -> Undo | None:
    """Pods with names are deleted without grace, and made anew under their names at once."""
    for name in sorted(life.operator.wanted)[: 1 + int(episode.strength * 6)]:
        pod = world.server.storage.get(POD, (HOME, name))
        if pod is not None:
            world.delete("user", POD, pod, grace=0)
            world.create("operator", POD, life.operator.wanted[name])
    return None


@kind
def storm(world: World, _: Life, __: Episode) -> Undo | None:
    """All pods that wait are deleted."""
    for pod in world.all(POD, HOME):
        if not node_of(pod) and not is_leaving(pod):
            world.delete("user", POD, pod)
    return None


@kind
def refusals(_: World, life: Life, episode: Episode) -> Undo:
    """Kubelets refuse pods."""
    life.kubelets.refuses = 0.2 + 0.6 * episode.strength

    def end() -> None:
        life.kubelets.refuses = 0.0

    return end


@kind
def mute(_: World, life: Life, __: Episode) -> Undo:
    """Reservation pods do not say which GPU they have."""
    life.kubelets.is_mute = True

    def end() -> None:
        life.kubelets.is_mute = False

    return end


@kind
def sticking(_: World, life: Life, episode: Episode) -> Undo:
    """Pods that are to end take a minute."""
    life.kubelets.sticks = 0.3 + 0.7 * episode.strength

    def end() -> None:
        life.kubelets.sticks = 0.0

    return end


@kind
def webhook(world: World, _: Life, episode: Episode) -> Undo:
    """A webhook of others refuses to have some pods bound."""
    waiting = [each["metadata"]["name"] for each in world.all(POD, HOME) if not node_of(each)]
    refused = set(waiting[: 1 + int(episode.strength * 3)])
    world.refused_binds |= refused

    def end() -> None:
        world.refused_binds -= refused

    return end


@kind
def reservations(world: World, _: Life, __: Episode) -> Undo | None:
    """A user deletes the pods that hold shared GPUs."""
    for pod in world.all(POD, "kai-resource-reservation"):
        if not is_leaving(pod):
            world.delete("user", POD, pod)
    return None


@kind
def conditions(world: World, _: Life, __: Episode) -> Undo | None:
    """Another controller writes a condition into every pod, so that all versions count up."""
    for pod in world.all(POD, HOME):
        path = path_of(POD, HOME, pod["metadata"]["name"], "status")
        condition = {"type": "Seen", "status": "True", "reason": f"At{int(world.time)}"}
        world.ask("stranger", "PATCH", path, {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)
    return None


@kind
def budgets(world: World, _: Life, __: Episode) -> Undo | None:
    """A disruption budget allows no eviction at all."""
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"priorityClassName": "train"}}}
    if world.all(BUDGET, HOME):
        return None
    metadata = {"name": "none-may-go", "namespace": HOME}
    budget = world.create("admin", BUDGET, {"metadata": metadata, "spec": spec})
    if budget is None:
        return None
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
    world.patch("admin", BUDGET, budget, {"status": {"disruptionsAllowed": 0, **counts}}, "status")

    def end() -> None:
        world.delete("admin", BUDGET, budget)

    return end
