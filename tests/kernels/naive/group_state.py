"""Twins of ``kai.facts.kernels.victims``: all groups described anew."""

from collections.abc import Sequence

import attrs

from tests.kernels.naive.groups import (
    describe_holding,
    describe_waiting,
    elastic_state,
    find_placed,
    find_waiting,
)
from tests.kernels.naive.world import World

Triple = tuple[float, float, float]


@attrs.frozen
class Looked:
    """What is known of all groups."""

    states: list[float]
    holding: list[Triple]
    wanting: dict[int, Triple]
    waiting: list[int]
    unknown: set[int]
    placed: list[bool]


def look_again(world: World, requested: Sequence[Sequence[float]]) -> Looked:
    """Look at all groups, whether they changed or not; the rows of groups are their ages."""
    described = describe_waiting(world, requested)
    waiting = [row for row, waits in enumerate(find_waiting(world)) if waits]
    return Looked(
        [elastic_state(group) for group in world.groups],
        [held for _, held in describe_holding(world).values()],
        {row: described[row][1] for row in waiting if row in described},
        waiting,
        {row for row in waiting if row not in described},
        find_placed(world),
    )


def list_all(world: World, groups: Sequence[int]) -> dict[int, list[int]]:
    """Return, for each leaf queue that has any, which of ``groups`` it has, in their order."""
    found: dict[int, list[int]] = {}
    for row in groups:
        queue = world.groups[row].queue
        if queue >= 0:
            found.setdefault(queue, []).append(row)
    return found


def keep_queues(world: World, queues: Sequence[bool], member: Sequence[bool]) -> list[bool]:
    """Say of each group whether it is a member and of one of the queues."""
    return [mine and group.queue >= 0 and queues[group.queue] for group, mine in zip(world.groups, member, strict=True)]
