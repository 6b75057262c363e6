"""What a cycle is given: one value, from which the same decisions follow again."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import Pod
from kai.intake.aside import Aside
from kai.model.noroom import NoRoom
from kai.model.queue import Shares
from kai.scheduler.search_budget import Grants


@attrs.frozen(kw_only=True)
class CycleInput:
    """What a cycle was given."""

    objects: ClusterObjects
    now: float
    cycle: int
    awaited: tuple[str, ...] = ()
    """Keys of groups for which the cycle before evicted pods."""
    refused: tuple[NoRoom, ...] = ()
    """Binds that found no room."""
    evicted: tuple[tuple[str, int], ...] = ()
    """Thousandths of GPUs that pods of each queue lost in the hour before."""
    protected: tuple[str, ...] = ()
    """UIDs of pods that disruption budgets protected a moment before, and of stand-ins."""
    early: tuple[Pod, ...] = ()
    """Pods that are not among the objects: stand-ins stand for them until all have come that start with them."""
    usage: Mapping[str, Shares] = EMPTY
    """The past usage of queues."""
    aside: Aside = attrs.field(factory=dict)
    """The objects that were left out, since a cycle had failed at them."""
    grants: Grants = ()
    """What the search budget answered."""
