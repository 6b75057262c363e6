"""Running so many objects through decoders; `python -m tests.fuzz` and the suite call it."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any, Final

from tests.fuzz import cluster
from tests.fuzz.mutation import mutated, mutated_bytes, mutated_within
from tests.fuzz.target import BrokenError, Target, try_out

if TYPE_CHECKING:
    from collections.abc import Iterator

SHARE: Final = 0.4
"""How much of a run are objects in clusters; the rest goes to the decoders of the table."""


def given(target: Target, number: int) -> Any:
    """Return what a target is given at a number: the same whenever it is asked for."""
    draw, known = Random(f"{target.name}/{number}"), target.samples()
    sample = draw.choice(known)
    if target.is_raw:
        return mutated_bytes(draw, sample, known)
    return mutated_within(draw, sample, target.within) if target.within else mutated(draw, sample)


def of_target(target: Target, numbers: range) -> Iterator[str]:
    """Yield what is wrong with a decoder, each thing once."""
    seen: set[str] = set()
    for number in numbers:
        wrong = given(target, number)
        try:
            try_out(target, wrong)
        except BrokenError as broken:
            place = str(broken).partition(": found")[0][:120]
            if place not in seen:
                seen.add(place)
                yield f"{target.name} {number}: {broken}; given {str(given(target, number))[:2000]}"


def of_clusters(seeds: range) -> Iterator[str]:
    """Yield what is wrong with batches, with the few objects that show it."""
    for seed in seeds:
        sound, bad = cluster.batch(seed)
        try:
            cluster.run(sound + bad)
        except BrokenError as broken:
            few = cluster.culprits(sound, bad)
            yield f"cluster {seed}: {broken}; given {[(each.__name__, text[:2000]) for each, text in few[:3]]}"


def numbers_of(targets: tuple[Target, ...], count: int, part: int, parts: int) -> Iterator[tuple[Target, range]]:
    """Yield for each target which numbers it is given in a part of a run of ``count`` objects."""
    total = sum(each.weight for each in targets)
    for each in targets:
        mine = max(parts, int(count * (1 - SHARE)) * each.weight // total)
        yield each, range(mine * part // parts, mine * (part + 1) // parts)


def batches_of(count: int, part: int, parts: int) -> range:
    """Return the seeds of the batches in a part of a run of ``count`` objects."""
    mine = max(parts, int(count * SHARE) // cluster.BATCH)
    return range(mine * part // parts, mine * (part + 1) // parts)
