"""Terms: declarative requests of plugins to the kernels.

A term is data. The engine folds the terms of all plugins into one ``Rules`` value that kernels evaluate, node by
node, without calling Python. What no term can express needs a hook: a Python function over arrays.
"""

from collections.abc import Callable

import attrs

from kai.facts.model.axis import Bools, Float64s, Int64s


@attrs.frozen(kw_only=True)
class Density:
    """Prefer full nodes (``binpack``) or empty ones (``spread``), by CPU for pods without GPUs, else by GPU."""

    cpu_binpack: float = 0.0
    gpu_binpack: float = 0.0
    cpu_spread: float = 0.0
    gpu_spread: float = 0.0


@attrs.frozen
class CpuOnlyNodes:
    """Prefer nodes without GPUs for pods that need none, by ``weight``."""

    weight: float = 10.0


@attrs.frozen
class Availability:
    """Prefer nodes where the pod can start now to nodes where it must wait, by ``weight``."""

    weight: float = 1_000.0


@attrs.frozen
class SharedDevices:
    """Prefer nodes with a device in sharing that has room for the pod, by ``weight``."""

    weight: float = 10_000.0


@attrs.frozen(kw_only=True)
class DeviceOrder:
    """Fill shared devices (``pack``), or open new ones first (``spread``)."""

    pack: float = 0.0
    spread: float = 0.0


@attrs.frozen
class PriorityOrder:
    """Groups of higher priority first."""


@attrs.frozen
class ElasticOrder:
    """Groups below their minimum first, then those exactly at it, then those above."""


@attrs.frozen
class SubGroupFill:
    """Sub-groups that are not satisfied first, then by how full they are."""


@attrs.frozen(eq=False)
class FairShares:
    """What each queue is entitled to in this cycle; one plugin gives it.

    It orders queues, and says which of them pods may be reclaimed for and from. Quotas and limits are those of the
    queues themselves: a queue gets no more than its limit whatever its share is.

    ``takes_by_priority``: a queue within its quota may take from one of lower priority what that has within its own.

    Shapes: fair_share, allocatable, requested [Q, 3], total [3], models [Q, M], bound [G], past_use [Q].
    Units:  those of the axis: millicores, bytes, thousandths of a GPU.
    """

    fair_share: Float64s
    """What a queue gets of the total while others ask for theirs."""
    allocatable: Float64s
    """What it may hold before others may reclaim from it; -1 is unlimited."""
    total: Float64s
    """What is divided."""
    requested: Float64s
    """What a queue holds and asks for, with that of the queues below it."""
    takes_by_priority: bool = False
    divide: "Callable[[Float64s], FairShares] | None" = None
    """Returns the shares with weights that are multiplied by float64[Q, 3]; None: weights play no part in them."""
    models: Int64s | None = None
    """What it is owed of each GPU model that queues name, in thousandths of GPUs; None: no queue has a quota of one."""
    bound: Int64s | None = None
    """The model that all pods of a group with GPUs may run on alone, -1: several; None like ``models``.

    A group that stays within what its queue is owed of its model is served before those of other queues.
    """
    past_use: Float64s | None = None
    """How much it used before, for its weight: of queues that hold equal shares the one with less is served first.

    In any unit that siblings share; None: age alone decides.
    """


@attrs.frozen(eq=False)
class QueueWeights:
    """Multiply the weights by which queues divide what no quota covers, for this cycle.

    The plugin that gives `FairShares` divides again with them. Factors of several plugins are multiplied. Quotas,
    limits and priorities stay; a factor of 1 changes nothing, and 0 leaves a queue its quota alone.

    Shapes: factors [Q, 3], none negative or infinite.
    """

    factors: Float64s


@attrs.frozen(kw_only=True, eq=False)
class Fragmentation:
    """Prefer nodes and devices where a placement leaves most of the GPUs usable for typical pods.

    It replaces ``Density``, ``SharedDevices`` and ``DeviceOrder``, which are then ignored. Only one plugin may give it.
    ``kai.facts.kernels.fragments`` describes the computation.

    Shapes: T typical shapes, N nodes.
    """

    shapes: Int64s
    """[T] The rows of the shapes: whole GPUs, or parts of GPUs."""
    shares: Float64s
    """[T] The frequency of each; the sum is 1."""
    allowed: Bools
    """bool[T, N]: the nodes where they may run."""
    gpu_by_cpu: Float64s
    """[N] The GPUs per unit of CPU in the requests of pods that may run there."""
    gpu_by_memory: Float64s
    """[N] The same per unit of memory."""
    pressure: Float64s
    """[N] How often each GPU is requested by pods that may run there; 1 on average."""
    weight: float = 10.0
    """Points for each GPU that stays usable."""


Term = (
    Density
    | CpuOnlyNodes
    | Availability
    | SharedDevices
    | DeviceOrder
    | PriorityOrder
    | ElasticOrder
    | SubGroupFill
    | FairShares
    | QueueWeights
    | Fragmentation
)
