"""What a fault is: an episode of a kind, with a beginning, a length, a place and a strength.

A kind is a function that lets an episode begin and returns what undoes it. The numbers are those of the fault matrix of
`docs/reliability.md`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from tests.simulation.users import Life
from tests.simulation.world import World

Undo: TypeAlias = Callable[[], None]


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


Kind: TypeAlias = Callable[[World, Life, Episode], Undo | None]


def lasting(world: World, undo: Undo) -> Undo:
    """Return an end that is done again whenever a backup is put back: that may have what the episode did."""

    def end() -> None:
        undo()
        world.on_backup.append(undo)

    return end


def vain() -> None:
    """Stand for the end of an episode that found nothing to disturb, and so does not count."""


@attrs.define
class Kinds:
    """Kinds of faults by name, and where the matrix has them."""

    functions: dict[str, Kind] = attrs.field(factory=dict)
    numbers: dict[str, int] = attrs.field(factory=dict)

    def add(self, number: int, name: str = "") -> Callable[[Kind], Kind]:
        """Return a decorator that adds a kind."""

        def register(function: Kind) -> Kind:
            known_as = name or function.__name__
            self.functions[known_as] = function
            self.numbers[known_as] = number
            return function

        return register


def replicas_of(world: World, episode: Episode) -> list[Any]:
    """Return the processes at which an episode happens."""
    return world.replicas if episode.replica < 0 else [world.replicas[episode.replica % len(world.replicas)]]


EVERYWHERE: Final = -1
