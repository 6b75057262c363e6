"""The colour of a queue: the hue of its branch, the pattern of its place in it. A queue keeps it in every picture.

Hues differ by 3:1 from white and from the dark ground, and from each other under the three kinds of colour blindness.
Beyond twenty queues all others are grey; a name stands beside each colour, so none carries a meaning alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from kai.ancestry import ancestry

HUES: Final = 5
PATTERNS: Final = 4
OTHERS: Final = "x"


class Branching(Protocol):
    """A queue as a place in the tree."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def parent(self) -> str | None:
        """The queue above it, if there is one."""
        ...

    @property
    def leaf(self) -> bool:
        """Whether no queue is below it."""
        ...


def colors_of(queues: Sequence[Branching]) -> Mapping[str, str]:
    """Return the colour of each queue by name, as the name of a class and of a pattern: ``2-1``; ``x`` is grey."""
    parents = {line.name: line.parent for line in queues}
    ordered = sorted(queues, key=lambda line: (len({*ancestry(line.name, parents)}), line.name))
    found: dict[str, str] = {}
    for hue, top in enumerate(branches(queues)):
        below = {top}
        place = 0
        for line in ordered:
            if line.parent in below or line.name == top:
                below.add(line.name)
                if line.name == top:
                    found[line.name] = f"{hue}-0" if hue < HUES else OTHERS
                elif line.leaf:
                    found[line.name] = f"{hue}-{place}" if hue < HUES and place < PATTERNS else OTHERS
                    place += 1
                else:
                    found[line.name] = f"{hue}-0" if hue < HUES else OTHERS
    return found


def branches(queues: Sequence[Branching]) -> list[str]:
    """Return the queues that the tree branches into, by name: the topmost of which there are several."""
    names = {line.name for line in queues}
    level = [line for line in queues if line.parent not in names]
    while len(level) == 1 and not level[0].leaf:
        below = [line for line in queues if line.parent == level[0].name]
        if not below:
            break
        level = below
    return sorted(line.name for line in level)


__all__ = ["HUES", "OTHERS", "PATTERNS", "Branching", "branches", "colors_of"]
