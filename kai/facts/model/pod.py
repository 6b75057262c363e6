"""Pods with their shapes and statuses, and nodes.

Statuses are small integers because they live in a column. Sets of statuses are bit masks, so that a kernel tests
membership with one shift.

Every pod is interned into a *shape*: what it requests and what it requires of a node. Ten thousand pods of one
workload are one shape. Masks, scores and refusals are properties of the shape, computed once.

A node has its capacity, its labels and its taints.

Source: the peer's pkg/scheduler/api/pod_status.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final

import attrs

from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.constraints import (
    AffinityTerm,
    HostPort,
    NodeTerm,
    Requirement,
    SpreadConstraint,
    Taint,
    Toleration,
)
from kai.facts.model.units import axis_name, backed_name


class Status(IntEnum):
    """The status of a pod in a session. ``ALLOCATED`` and ``PIPELINED`` exist only inside a session."""

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
"""Has a place: used for chunk sizes, the state of elastic groups, and possible victims."""
TERMINATING = status_mask(Status.RELEASING, Status.STUCK_IN_RELEASING)
"""Being deleted, but still there."""
ACTIVE_USED = ACTIVE_ALLOCATED | TERMINATING
"""Occupies its node; the test for gangs that became stale."""
COUNTED = status_mask(Status.ALLOCATED, Status.BINDING, Status.BOUND, Status.RUNNING)
"""Counts as used by its queue when a session opens."""
ALIVE = ACTIVE_ALLOCATED | status_mask(Status.PENDING, Status.GATED)
"""Wants to run: counts for the readiness of a group, and may be evicted."""
ENDED = status_mask(Status.SUCCEEDED, Status.FAILED)
"""No container runs any more, or will."""


def within(status: int, statuses: int) -> bool:
    """Return whether ``status`` is in the bit mask ``statuses``."""
    return bool(statuses >> status & 1)


STAND_IN: Final = "~moved"
"""The end of the name and UID of a placeholder for a moved pod; no object name has such a character."""


class GpuKind(IntEnum):
    """How a pod requests GPUs."""

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
    """Devices requested through resource claims (DRA); they are also part of the pod's GPU amount."""
    not_had: int = 0
    """Thousandths of these that the claims do not get, as they have parts of GPUs or can get nothing else."""
    named: int = 0
    """Those of the claimed devices that containers request by the name of a class that gives out parts of GPUs."""
    named_not_had: int = 0
    """Thousandths of the named devices that the pod certainly does not get; ``not_had`` has them too."""
    spared: int = 0
    """Thousandths of these that cost the pod's queue nothing: not obtained, or of claims that its other pods hold."""
    most_spared: int = 0
    """The same if the claims get the smallest devices that serve them."""
    refusal: str = ""
    """Why no GPU can satisfy the request; a pod without a node then gets none."""

    @property
    def sliced(self) -> bool:
        """Whether the pod requests slices of devices, which are resources of their own."""
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
    """What a pod requires of a node besides amounts."""

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
    """Features that a node must declare for the pod to run there."""
    nominated_node: str = ""
    refusing: tuple[tuple[str, str], ...] = ()
    """Nodes that refused the pod at its bind, each with the message."""


@attrs.frozen(kw_only=True)
class ContainerRequest:
    """Amounts of one container by resource name, in axis units."""

    requests: tuple[tuple[str, int], ...]
    init: bool = False
    sidecar: bool = False


@attrs.frozen(kw_only=True)
class Shape:
    """What identical pods have in common. ``request`` is by resource name in axis units and always has one ``pods``.

    ``namespace`` is part of a shape only if a constraint refers to it ("" otherwise), ``labels`` only if an
    inter-pod term or a spread constraint may select by them.
    """

    request: tuple[tuple[str, int], ...]
    gpu: GpuRequest = GpuRequest()
    constraints: Constraints = Constraints()
    containers: tuple[ContainerRequest, ...] = ()
    """The request of each container, init containers first."""
    guaranteed: bool = False
    """Whether each container's limits equal its requests for CPU and memory."""
    namespace: str = ""
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def plugged_gpus(self) -> int:
        """Thousandths of the GPUs that a device plugin must provide: whole ones, not from claims or classes."""
        if self.gpu.kind is not GpuKind.WHOLE:
            return 0
        return max(0, dict(self.request).get("gpu", 0) - self.gpu.claimed * GPU_UNIT - self._called_after_classes)

    @property
    def _called_after_classes(self) -> int:
        """Thousandths of the GPUs that containers request by the names of device classes."""
        return self.requested(lambda name: axis_name(name) == "gpu" != backed_name(name))

    def requested(self, is_wanted: Callable[[str], bool]) -> int:
        """Return how much containers request at once, in axis units, of the resources of the names that are wanted."""
        running = most = 0
        for each in self.containers:
            amount = sum(many for name, many in each.requests if is_wanted(name))
            most = max(most, running + amount)
            # An init container ends before the next one begins; a sidecar goes on beside all that follow.
            running += 0 if each.init and not each.sidecar else amount
        return most


@attrs.frozen(kw_only=True, weakref_slot=False)
class Pod:
    """One pod: identity, order and group. Its request is in its shape; its status and node are in columns."""

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
    """Equal for pods that differ only in amounts; see the peer's scheduling constraints signature."""
    bind_request: str = ""
    """Name of the live BindRequest, "" when there is none."""
    priority: int | None = None
    node_pool: str = ""
    refused: str = ""
    """Why the pod is not scheduled: an oversized specification, or the refusal of its bind; "" for all others."""
    refused_code: str = "PodRefused"
    """The code of ``refused``."""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def is_stand_in(self) -> bool:
        """Whether this is no pod, but a placeholder that keeps the place of a moved pod."""
        return self.name.endswith(STAND_IN)


UNKNOWN_GPU_MEMORY = 100
"""The MiB per GPU that stand for "not known": used if the label is missing or unusable."""


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
    """Whether it is being deleted and waits for its finalizers."""
    failing_conditions: tuple[str, ...] = ()
    """Types of the conditions that keep pods away, e.g. ``Ready`` (not true) or ``MemoryPressure``."""
    gpu_memory: int = UNKNOWN_GPU_MEMORY
    gpu_memory_known: bool = False
    gpu_count: int = 0
    mig_enabled: bool = False
    mig_strategy: MigStrategy = MigStrategy.NONE
    features: frozenset[str] | None = None
    """Features that its kubelet declares for pods; None if the cluster's nodes declare none."""
    gpu_model: str = ""
    """The short name of the model of its GPUs, "" without GPUs."""
    dra_gpus: int = 0
    """GPUs that drivers offer on the node; they are part of ``allocatable``."""

    @property
    def ready(self) -> bool:
        """Whether the node takes pods at all: schedulable, not being deleted, and without a failing condition."""
        return not (self.unschedulable or self.deleting or self.failing_conditions)

    @property
    def closed(self) -> str:
        """What keeps all pods away, in words for users; "" if nothing does."""
        found = ["cordoned"] if self.unschedulable else []
        found += ["not ready" if each == "Ready" else f"under {each}" for each in self.failing_conditions]
        return " and ".join([*found, *(["being deleted"] if self.deleting else [])])

    @property
    def plugged_gpus(self) -> int:
        """Thousandths of the GPUs that a device plugin offers on the node; claims cannot have these."""
        return max(0, self.allocatable.get("gpu", 0) - self.dra_gpus * GPU_UNIT)

    def plugs(self, resource: str) -> bool:
        """Return whether a device plugin offers ``resource`` on the node: then it serves pods, not a claim."""
        return (self.plugged_gpus if resource == "gpu" else self.allocatable.get(resource, 0)) > 0


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
