"""Schedules of flips: nodes are cordoned, or change their pool, while gangs of pods are bound that end within seconds.

Nothing else goes wrong: one process leads all the time, its network is sound, and quotas stay. So each group that idle
nodes would take must be bound within a time that is known (``Liveness``), and not only in the end.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

import attrs

from tests.simulation.aimed import BEFORE, DONE, set_trap
from tests.simulation.checks import bound_members, members, succeeded_members
from tests.simulation.disorder import POOL
from tests.simulation.episodes import Episode, Kinds, Undo
from tests.simulation.outcome import free_rooms, has_room_for
from tests.simulation.users import MIN_MEMBER, Life
from tests.simulation.world import GROUP, HOME, HOMES, JOB, NODE, POD, World, is_leaving, is_over, key_of, node_of

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.doubles.rest_server.storage import Change, Manifest

FLIPS: Final = Kinds()
SECONDS: Final = 20.0
"""So long there are flips and users; a quarter of a minute more shows what came of them."""
_PATIENCE: Final = 10.0
"""How long a group may wait for idle nodes, besides the time that its refused pods rest."""
_MOST_REST: Final = 300.0
_LOSSES: Final = 0.25
"""How often a pod is deleted when a gang is submitted."""


# --- Faults --------------------------------------------------------------------------------------------------------


@FLIPS.add(30)
def cordons(world: World, life: Life, episode: Episode) -> Undo:
    """Nodes are cordoned and opened again, one after the other, several in a second."""
    return _flip(world, life, episode, _cordoned)


@FLIPS.add(39)
def moves(world: World, life: Life, episode: Episode) -> Undo:
    """Nodes leave their pool and come back, one after the other, several in a second."""
    return _flip(world, life, episode, _in_pool)


@FLIPS.add(39)
def jolt(world: World, life: Life, episode: Episode) -> Undo:
    """All nodes leave, or are cordoned, when the first pods of a gang are being bound; they are back seconds later."""
    changed = _in_pool if episode.strength < 0.5 else _cordoned
    until = world.time + episode.seconds
    # Of four pods that are bound at once, some are through when the news reaches the process.
    through = 1 + int(episode.strength * 1000) % 3
    left = through
    when_met = BEFORE if int(episode.strength * 10_000) % 2 else DONE

    def turn_all(*, is_good: bool) -> None:
        for node in world.all(NODE):
            life.changed_at[node["metadata"]["name"]] = world.time
            world.patch("admin", NODE, node, changed(is_good=is_good))

    def is_met(process: str, method: str, path: str, when: int) -> bool:
        nonlocal left
        is_bind = method == "POST" and path.endswith(("/binding", "/bindrequests"))
        if not process.startswith("kai") or when != when_met or not is_bind:
            return False
        left -= 1
        if left == 0:
            turn_all(is_good=False)
            world.loop.call_later(0.5 + 3.0 * world.nature.random(), _open_and_wait)
        return world.time >= until

    def _open_and_wait() -> None:
        nonlocal left
        turn_all(is_good=True)
        left = through

    end_trap = set_trap(world, is_met)

    def end() -> None:
        end_trap()
        turn_all(is_good=True)

    return end


def _cordoned(*, is_good: bool) -> dict[str, Any]:
    return {"spec": {"unschedulable": None if is_good else True}}


def _in_pool(*, is_good: bool) -> dict[str, Any]:
    return {"metadata": {"labels": {POOL: None if is_good else "theirs"}}}


def _flip(world: World, life: Life, episode: Episode, changed: Callable[..., dict[str, Any]]) -> Undo:
    until, pause = world.time + episode.seconds, 0.05 + 0.35 * episode.strength

    def turn() -> None:
        if world.time >= until:
            return
        nodes = world.all(NODE)
        node = nodes[int(world.nature.random() * len(nodes))]
        life.changed_at[node["metadata"]["name"]] = world.time
        world.patch("admin", NODE, node, changed(is_good=world.nature.random() < 0.5))
        world.loop.call_later(pause, turn)

    def end() -> None:
        nonlocal until
        until = 0.0
        for node in world.all(NODE):
            world.patch("admin", NODE, node, changed(is_good=True))

    turn()
    return end


def flips_of(draw: random.Random) -> tuple[Episode, ...]:
    """Return the flips of a schedule: one or two kinds of them, over all of its time."""
    kinds = draw.sample(sorted(FLIPS.functions), draw.choice((1, 1, 2)))
    return tuple(
        Episode(kind=kind, start=draw.uniform(1.0, 4.0), seconds=SECONDS, replica=-1, strength=draw.random())
        for kind in sorted(kinds)
    )


# --- Users ---------------------------------------------------------------------------------------------------------


async def use_briefly(world: World, life: Life, seconds: float) -> None:
    """Submit gangs of pods that end within seconds, about one in a second, and delete a pod now and then."""
    end = world.time + seconds
    while world.time < end:
        _submit(world, life)
        if world.shape.random() < _LOSSES:
            _lose(world)
        await asyncio.sleep(world.shape.uniform(0.3, 1.5))


def _submit(world: World, life: Life) -> None:
    draw = world.shape
    life.jobs += 1
    form, size = draw.choice(("job", "gang")), draw.choice((2, 2, 3, 4))
    seconds, queue = f"{draw.uniform(0.2, 4.0):.1f}", draw.choice(("a1", "a2", "b1", "b2"))
    world.say(f"user submits {form}{life.jobs}: {size} pods that start together, {seconds} s, queue {queue}")
    template = life.template(queue, "train", draw.choice((0, 1)), {"sim/seconds": seconds})
    if form == "gang":
        life.submit_gang(f"{form}{life.jobs}", size, queue, "train", template)
        return
    metadata = {
        "name": f"{form}{life.jobs}",
        "namespace": HOME,
        "labels": template["metadata"]["labels"],
        "annotations": {MIN_MEMBER: str(size)},
    }
    # One Job in three runs its pods in two rounds.
    completions = size * draw.choice((1, 1, 2))
    spec = {"completions": completions, "parallelism": size, "template": template}
    world.create("user", JOB, {"metadata": metadata, "spec": spec})


def _lose(world: World) -> None:
    """Delete a pod that has a node; its owner makes it anew."""
    pods = [each for each in world.workers() if node_of(each) and not is_over(each) and not is_leaving(each)]
    if pods:
        pod = world.shape.choice(pods)
        world.say(f"user deletes pod {key_of(pod)}")
        world.delete("user", POD, pod)


# --- Liveness ------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Liveness:
    """Looks for groups that idle nodes would take, and that wait all the same.

    A group whose binds were refused rests as long as it was tried, at most: each pause is twice the one before. So it
    may wait for ``_PATIENCE`` and as long as its pods had waited when the nodes were idle and no longer changed.
    """

    world: World
    longest: float = 0.0
    """How long a group waited for idle nodes, beyond the rest that is due to it."""
    _made: dict[str, float] = attrs.field(factory=dict)
    """When pods came, by UID."""
    _bound: dict[str, float] = attrs.field(factory=dict)
    """When they were bound."""
    _idle_since: dict[str, float] = attrs.field(factory=dict)
    """Since when groups wait although there is room, by key."""

    def __attrs_post_init__(self) -> None:
        self.world.server.storage.listeners.append(self.see)

    def see(self, change: Change) -> None:
        """Take a change."""
        if change.served is NODE:
            self._idle_since.clear()
        elif change.served is POD and change.after is not None:
            uid = change.after["metadata"]["uid"]
            self._made.setdefault(uid, self.world.time)
            if node_of(change.after):
                self._bound.setdefault(uid, self.world.time)

    def look(self) -> None:
        """Look at all groups."""
        world, free = self.world, free_rooms(self.world)
        waiting = {
            key_of(group): pods
            for group in world.all(GROUP)
            if group["metadata"]["namespace"] in HOMES and (pods := self._startable(group))
        }
        roomy = {key: pods for key, pods in waiting.items() if has_room_for(world, pods, free)}
        self._idle_since = {key: self._idle_since.get(key, world.time) for key in roomy}
        for key, pods in roomy.items():
            since = self._idle_since[key]
            rest = min(_MOST_REST, max(0.0, since - min(self._made[each["metadata"]["uid"]] for each in pods)))
            self.longest = max(self.longest, world.time - since - rest)
            if world.time - since > _PATIENCE + rest:
                text = f"{len(pods)} pods of {key} wait for {world.time - since:.0f} s while nodes have room for them"
                world.violate(18, text)

    def _startable(self, group: Manifest) -> list[Manifest]:
        """Return the pods of a group that must start next, if all that must be there are there.

        Pods that have succeeded count if they were bound while one that waits was there already, or if they and the
        others are just as many as must start together: those that wait were made anew then.
        """
        waiting = [each for each in members(self.world, group) if not node_of(each) and not is_leaving(each)]
        if not waiting:
            return []
        bound, least = len(bound_members(self.world, group)), int(group["spec"].get("minMember") or 1)
        oldest = min(self._made[each["metadata"]["uid"]] for each in waiting)
        done = [self._bound.get(each["metadata"]["uid"], -1.0) for each in succeeded_members(self.world, group)]
        there = bound + len(waiting)
        if there + sum(when >= oldest for when in done) < least and there + len(done) != least:
            return []
        return waiting[: max(1, least - bound)]


__all__ = ["FLIPS", "SECONDS", "Liveness", "flips_of", "use_briefly"]
