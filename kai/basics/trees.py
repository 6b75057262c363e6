"""Trees: ancestors and descendants, walks without recursion, and the colours of queues.

In the trees here each node names its parent, as queues do. User input need not be a tree: a parent may be missing, and
parents may form a cycle. All walks end nevertheless.

``descend`` walks trees that may be deeper than Python's recursion limit. A step of a walk is a generator: instead of
calling itself, it yields the step for the child and receives the result of that step. The open steps are in a list, so
depth costs only memory.

``colors_of`` gives each queue a colour: the hue of its branch, and a pattern by its place in the branch. A queue has
the same one in every picture. Hues differ by 3:1 from white and from the dark background, and from each other under the
three kinds of colour blindness. Beyond twenty queues all others are grey; a name stands beside each colour, so none
carries a meaning alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar

K = TypeVar("K", bound=Hashable)


def ancestry(node: K, parents: Mapping[K, K | None]) -> list[K]:
    """Return a node and its known ancestors, upwards. If they form a cycle, the walk ends where it closes.

    Cost: linear in the nodes that are returned.
    """
    found = {node: None}
    while (parent := parents.get(node)) is not None and parent in parents:
        # The node at which the circle closes comes twice, so that callers see that there is one.
        if parent in found:
            return [*found, parent]
        found[parent] = None
        node = parent
    return list(found)


def is_below_itself(node: K, parents: Mapping[K, K | None]) -> bool:
    """Return whether the parents of a node lead back to it."""
    return node in ancestry(node, parents)[1:]


def descendants(node: K, children: Callable[[K], Iterable[K]]) -> list[K]:
    """Return a node and all its descendants, each once, parents before their children.

    Cost: linear in the nodes that are returned.
    """
    found, waiting = {node: None}, [node]
    while waiting:
        new = [child for child in children(waiting.pop()) if child not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


T = TypeVar("T")

Descent: TypeAlias = Generator[Any, Any, T]
"""A step that returns a T. It yields other steps of its kind, and is sent their results."""


def descend(first: Descent[T]) -> T:
    """Run the step ``first`` and return its result.

    Holds: this function raises whatever a step raises; the steps above do not see it.
    """
    steps = [first]
    found: Any = None
    while True:
        try:
            below = steps[-1].send(found)
        except StopIteration as end:
            steps.pop()
            found = end.value
            if not steps:
                result: T = found
                return result
        else:
            steps.append(below)
            found = None


HUES: Final = 5
PATTERNS: Final = 4
OTHERS: Final = "x"


class Branching(Protocol):
    """A queue with its place in the tree."""

    @property
    def name(self) -> str:
        """The name of the queue."""
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
    """Return the queues at the first level with several queues, by name: these are the branches of the tree."""
    names = {line.name for line in queues}
    level = [line for line in queues if line.parent not in names]
    while len(level) == 1 and not level[0].leaf:
        below = [line for line in queues if line.parent == level[0].name]
        if not below:
            break
        level = below
    return sorted(line.name for line in level)
