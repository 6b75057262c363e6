"""Crowds: namespaces with so many kinds of waiting groups that a cycle considers only some of them."""

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
    """How many of them a cycle considers at most."""
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
