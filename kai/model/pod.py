"""Pods, their shapes and where they stand, and the nodes that take them.

Where a pod stands, and the sets of statuses that decide what it counts for.

The values are small integers because they live in a column; the sets are bit masks so that a kernel tests membership
with one shift.

Source: the peer's pkg/scheduler/api/pod_status.

Pods and their shapes.

Every pod is interned into a *shape*: what it asks for and what it demands of a node. Ten thousand pods of one
workload are one shape, and masks, scores and refusals are properties of the shape, computed once.

Nodes: what they have, what they are called, whom they accept.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

import attrs

from kai.model.axis import GPU_UNIT
from kai.model.constraints import AffinityTerm, HostPort, NodeTerm, Requirement, SpreadConstraint, Taint, Toleration
from kai.model.units import axis_name, backed_name


class Status(IntEnum):
    """Where a pod is in its life, in a session. ``ALLOCATED`` and ``PIPELINED`` exist only inside a session."""

    PENDING = 0
    GATED = 1
    ALLOCATED = 2
    PIPELINED = 3
    BINDING = 4
    BOUND = 5
    RUNNING = 6
    RELEASING = 7
    STUCK_IN_RELEASING = 8
    SUCCEEDED = 9
    FAILED = 10
    UNKNOWN = 11

    @property
    def label(self) -> str:
        """The name under which the status is reported, e.g. ``StuckInReleasing``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


def status_mask(*statuses: Status) -> int:
    """Return the bit mask of ``statuses``."""
    return sum(1 << status for status in statuses)


ACTIVE_ALLOCATED = status_mask(Status.ALLOCATED, Status.PIPELINED, Status.BINDING, Status.BOUND, Status.RUNNING)
"""Already has a place: sizes chunks, says what an elastic group holds, may be a victim."""
TERMINATING = status_mask(Status.RELEASING, Status.STUCK_IN_RELEASING)
"""Told to go, and there still."""
ACTIVE_USED = ACTIVE_ALLOCATED | TERMINATING
"""Occupies its node; the test for gangs that became stale."""
COUNTED = status_mask(Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING)
"""Counts as used by its queue when a session opens."""
ALIVE = ACTIVE_ALLOCATED | status_mask(Status.PENDING, Status.GATED)
"""Still wants to run: readiness of a group, candidates for eviction."""
ENDED = status_mask(Status.SUCCEEDED, Status.FAILED)
"""No container runs any more, nor will."""


def within(status: int, statuses: int) -> bool:
    """Return whether ``status`` is in the bit mask ``statuses``."""
    return bool(statuses >> status & 1)


STAND_IN: Final = "~moved"
"""Ends name and UID of a pod that stands in for one that was moved; no name of an object has such a character."""


class GpuKind(IntEnum):
    """How a pod asks for GPUs."""

    NONE = 0
    WHOLE = 1
    FRACTION = 2
    MEMORY = 3
    MIG = 4


@attrs.frozen(kw_only=True)
class GpuRequest:
    """A pod's GPU request.

    ``portion`` is of one device (0 < portion <= 1), ``memory`` is MiB of one device, ``devices`` how many of them.
    """

    kind: GpuKind = GpuKind.NONE
    devices: int = 1
    portion: float = 1.0
    memory: int = 0
    legacy_mig: bool = False
    claimed: int = 0
    """Devices asked for through resource claims (DRA), counted in the pod's GPU amount as well."""
    not_had: int = 0
    """Thousandths of these that the claims do without, as they have parts of GPUs or can get nothing else."""
    spared: int = 0
    """Thousandths of these that cost the pod's queue nothing: what is not had, and claims that others of it hold."""
    most_spared: int = 0
    """The same where the claims get the smallest devices that serve them."""
    refusal: str = ""
    """Why no GPU can give what the pod asks for; a pod that has no node yet then gets none."""

    @property
    def sliced(self) -> bool:
        """Whether the pod asks for slices of devices, which are resources of their own."""
        return self.kind is GpuKind.MIG

    @property
    def shared(self) -> bool:
        """Whether the pod shares devices: a fraction, or an amount of device memory."""
        return self.kind in (GpuKind.FRACTION, GpuKind.MEMORY)


@attrs.frozen(kw_only=True)
class ClaimReference:
    """A resource claim that a pod uses. ``claim`` is its object name ("" while it does not exist yet)."""

    name: str
    claim: str
    template: bool = False


@attrs.frozen(kw_only=True)
class Constraints:
    """What a pod demands of a node besides amounts."""

    node_selector: tuple[tuple[str, str], ...] = ()
    node_affinity: tuple[NodeTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[AffinityTerm, ...] = ()
    anti_affinity: tuple[AffinityTerm, ...] = ()
    preferred_affinity: tuple[AffinityTerm, ...] = ()
    preferred_anti_affinity: tuple[AffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    volume_claims: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    claims: tuple[ClaimReference, ...] = ()
    features: tuple[str, ...] = ()
    """What a node must declare for the pod to run there."""
    nominated_node: str = ""
    refusing: tuple[tuple[str, str], ...] = ()
    """Nodes that refused the pod at its bind, each with what was said."""


@attrs.frozen(kw_only=True)
class ContainerRequest:
    """Amounts of one container by resource name, in axis units."""

    requests: tuple[tuple[str, int], ...]
    init: bool = False
    sidecar: bool = False


@attrs.frozen(kw_only=True)
class Shape:
    """What identical pods have in common. ``request`` is by resource name in axis units and always holds one ``pods``.

    ``namespace`` is part of a shape only where a demand refers to it ("" otherwise), ``labels`` only where an
    inter-pod term or a spread constraint may look at them.
    """

    request: tuple[tuple[str, int], ...]
    gpu: GpuRequest = GpuRequest()
    constraints: Constraints = Constraints()
    containers: tuple[ContainerRequest, ...] = ()
    """What each container asks for, init containers first."""
    guaranteed: bool = False
    """Whether containers may use of CPU and memory exactly what they ask for."""
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def plugged_gpus(self) -> int:
        """Thousandths of the GPUs that a device plugin has to give: whole ones that no claim and no class gives."""
        if self.gpu.kind is not GpuKind.WHOLE:
            return 0
        return max(0, dict(self.request).get("gpu", 0) - self.gpu.claimed * GPU_UNIT - self._called_after_classes)

    @property
    def _called_after_classes(self) -> int:
        """Thousandths of the GPUs that containers ask for by the names of device classes."""
        running = most = 0
        for each in self.containers:
            amount = sum(many for name, many in each.requests if axis_name(name) == "gpu" != backed_name(name))
            most = max(most, running + amount)
            running += 0 if each.init and not each.sidecar else amount
        return most


@attrs.frozen(kw_only=True, weakref_slot=False)
class Pod:
    """One pod: identity, order and belonging. What it asks for is in its shape; where it stands is in the columns."""

    name: str
    namespace: str
    uid: str
    created: float
    labels: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    annotations: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    scheduler: str = ""
    group: str = ""
    subgroup: str = ""
    signature: str = ""
    """Equal for pods that only differ in amounts; see the peer's scheduling constraints signature."""
    bind_request: str = ""
    """Name of the live BindRequest, "" when there is none."""
    priority: int | None = None
    node_pool: str = ""
    refused: str = ""
    """Why the pod is not scheduled: what it says too much of, or what refused its bind; "" for all others."""
    refused_code: str = "PodRefused"
    """The code of that."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_stand_in(self) -> bool:
        """Whether it is no pod, but the place that is kept for one that was moved."""
        return self.name.endswith(STAND_IN)


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


__all__ = [
    "STAND_IN",
    "ClaimReference",
    "Constraints",
    "ContainerRequest",
    "GpuKind",
    "GpuRequest",
    "Pod",
    "Requirement",
    "Shape",
]
