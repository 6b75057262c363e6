"""The faults of a schedule: which of them a seed draws, and how they happen.

A seed draws which kinds it uses at all, so that some schedules have many of one and none of the others; and when they
come. What the kinds do is in `ways` (between processes and the server), in `disorder`
(in the cluster), in `aimed` (at one moment), and in `rare` (in few schedules).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from tests.simulation import aimed, disorder, rare, ways
from tests.simulation import ambushes as ambushing
from tests.simulation.episodes import Episode, Kind, Undo, vain
from tests.simulation.flips import FLIPS

if TYPE_CHECKING:
    import random

    from tests.simulation.users import Life
    from tests.simulation.world import World

_SWARM: Final[dict[str, Kind]] = {**ways.KINDS.functions, **disorder.KINDS.functions, **aimed.KINDS.functions}
KINDS: Final[dict[str, Kind]] = {**_SWARM, **ambushing.AMBUSHES.functions, **rare.RARE.functions, **FLIPS.functions}
NUMBERS: Final[dict[str, int]] = {
    **ways.KINDS.numbers,
    **disorder.KINDS.numbers,
    **aimed.KINDS.numbers,
    **ambushing.AMBUSHES.numbers,
    **rare.RARE.numbers,
    **FLIPS.numbers,
}
"""Where the fault matrix has each kind."""
_MOST_AMBUSHES: Final = 2
_RARELY: Final = 0.25
_BLINDING: Final = frozenset(
    {"lag", "behind", "silence", "deafness", "compactions", "headless", "sluggish", "unserved"}
    | {
        "pause",
        "late",
        "slow",
        "away",
        "outage",
        "lost",
        "stall",
        "unheard",
        "halt",
        "posthumous",
        "dawdling",
        "backup",
    }
)


def drawn(draw: random.Random, seconds: float, replicas: int) -> tuple[Episode, ...]:
    """Return the faults of a schedule, in the order of their beginning."""
    kinds = sorted(_SWARM)
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


def ambushes(draw: random.Random, seconds: float, replicas: int) -> tuple[Episode, ...]:
    """Return the ambushes of a schedule."""
    return tuple(
        Episode(
            kind=draw.choice(sorted(ambushing.AMBUSHES.functions)),
            start=draw.uniform(2.0, seconds / 2),
            seconds=draw.uniform(20.0, 40.0),
            replica=draw.choice((-1, *range(replicas))),
            strength=draw.random(),
        )
        for _ in range(draw.randint(0, _MOST_AMBUSHES))
    )


def rarities(draw: random.Random, seconds: float) -> tuple[Episode, ...]:
    """Return what one schedule in four has besides."""
    if draw.random() >= _RARELY:
        return ()
    kind, start = draw.choice(sorted(rare.RARE.functions)), draw.uniform(2.0, seconds / 2)
    return (Episode(kind=kind, start=start, seconds=seconds, replica=-1, strength=draw.random()),)


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
            if undo is not vain:
                world.happened[episode.kind] += 1
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


__all__ = ["KINDS", "NUMBERS", "Episode", "ambushes", "blindness", "drawn", "happen", "rarities"]
