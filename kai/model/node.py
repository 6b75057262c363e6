"""Nodes: what they have, what they are called, whom they accept."""

from collections.abc import Mapping
from enum import IntEnum

import attrs

from kai.model.axis import GPU_UNIT
from kai.model.constraints import Taint

UNKNOWN_GPU_MEMORY = 100
"""MiB per GPU that stands for "not known": a missing or unusable label means this value."""


class MigStrategy(IntEnum):
    """How a node exposes its MIG devices."""

    NONE = 0
    SINGLE = 1
    MIXED = 2


@attrs.frozen(kw_only=True)
class Node:
    """One node. ``allocatable`` is by resource name in axis units; ``gpu_memory`` is MiB of each GPU."""

    name: str
    labels: Mapping[str, str] = attrs.field(factory=dict, hash=False)
    allocatable: Mapping[str, int] = attrs.field(factory=dict, hash=False)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    deleting: bool = False
    """Whether it goes once its finalizers are done."""
    failing_conditions: tuple[str, ...] = ()
    """Types of the conditions that keep pods away, e.g. ``Ready`` (not true) or ``MemoryPressure``."""
    gpu_memory: int = UNKNOWN_GPU_MEMORY
    gpu_memory_known: bool = False
    gpu_count: int = 0
    mig_enabled: bool = False
    mig_strategy: MigStrategy = MigStrategy.NONE
    features: frozenset[str] | None = None
    """What its kubelet declares that pods may need; None where the cluster's nodes declare nothing."""
    dra_gpus: int = 0
    """GPUs that drivers offer on the node; they are part of ``allocatable``."""

    @property
    def ready(self) -> bool:
        """Whether the node takes pods at all: schedulable, there to stay, and without a failing condition."""
        return not (self.unschedulable or self.deleting or self.failing_conditions)

    @property
    def closed(self) -> str:
        """What keeps all pods away, as people call it; "" where nothing does."""
        found = ["cordoned"] if self.unschedulable else []
        found += ["not ready" if each == "Ready" else f"under {each}" for each in self.failing_conditions]
        return " and ".join([*found, *(["being deleted"] if self.deleting else [])])

    @property
    def plugged_gpus(self) -> int:
        """Thousandths of the GPUs that a device plugin offers on the node; claims cannot have these."""
        return max(0, self.allocatable.get("gpu", 0) - self.dra_gpus * GPU_UNIT)
