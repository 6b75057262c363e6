"""Crowds: namespaces with so many waiting groups, or kinds of them, that a cycle considers only some of them."""

from collections.abc import Mapping

import attrs
import numpy as np

from kai.model.rows import GroupRows


@attrs.frozen(kw_only=True)
class Crowd:
    """One such namespace."""

    namespace: str
    shapes: int
    """How many shapes its pending pods have."""
    considered: int
    """How many of them a cycle considers at most; 0 is all."""
    pods: int
    """How many of its pods wait."""
    at_a_time: int
    """How many of them a cycle considers at most; 0 is all."""
    turns: int
    """After how many cycles each was considered once."""
    groups: GroupRows = attrs.field(eq=False)
    """Those that wait for their turn."""


@attrs.frozen(kw_only=True)
class Crowds:
    """All of them."""

    by_namespace: Mapping[str, Crowd] = attrs.field(factory=dict)
    waiting: GroupRows = attrs.field(factory=lambda: np.zeros(0, np.int64), eq=False)
    """Groups that wait for their turn, ascending."""

    @property
    def turns(self) -> int:
        """After how many cycles every group was considered once; 1 without a crowd."""
        return max((each.turns for each in self.by_namespace.values()), default=1)
