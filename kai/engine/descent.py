"""Walks down trees that may be deeper than Python's recursion allows.

A step of such a walk is a generator: where a function would call itself, it yields the step for the child, and receives
what that step returns. The open steps lie in a list, so that the depth of a tree costs memory and nothing else.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")

Descent: TypeAlias = Generator[Any, Any, T]
"""A step that returns a T. It yields other steps of its kind, and is sent what they return."""


def descend(first: Descent[T]) -> T:
    """Return what the step ``first`` returns.

    Holds: what a step raises, this function raises; the steps above it do not see it.
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
