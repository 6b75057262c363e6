"""Trees of which each node names its parent, as queues do: which nodes are above one, and which are below it.

What users write need not be a tree: a parent may be missing, and parents may lead in a circle. Walks end all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)


def ancestry(node: K, parents: Mapping[K, K | None]) -> list[K]:
    """Return a node and all above it that are known, upwards; where they lead in a circle, the last was there before.

    Cost: linear in the nodes that are returned.
    """
    found = {node: None}
    while (parent := parents.get(node)) is not None and parent in parents:
        if parent in found:
            return [*found, parent]
        found[parent] = None
        node = parent
    return list(found)


def is_below_itself(node: K, parents: Mapping[K, K | None]) -> bool:
    """Return whether the parents of a node lead back to it."""
    return node in ancestry(node, parents)[1:]


def descendants(node: K, children: Callable[[K], Iterable[K]]) -> list[K]:
    """Return a node and all below it, each once, parents before their children.

    Cost: linear in the nodes that are returned.
    """
    found, waiting = {node: None}, [node]
    while waiting:
        new = [child for child in children(waiting.pop()) if child not in found]
        found |= dict.fromkeys(new)
        waiting += new
    return list(found)


__all__ = ["ancestry", "descendants", "is_below_itself"]
