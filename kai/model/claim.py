"""Resource claims and the devices that can satisfy them (dynamic resource allocation, structured parameters).

Objects that plugins read, as they were written.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.model.constraints import NodeTerm, Taint, Toleration
from kai.model.units import IMPLICIT_RESOURCE

CAPACITY_PARTS = 1000
"""Capacities and counters are whole numbers of so many parts of their unit: drivers share half a core, too."""


def qualified(name: str, driver: str) -> str:
    """Return the name of an attribute or a capacity with its domain, which is the driver's unless it says otherwise."""
    return name if "/" in name else f"{driver}/{name}"


class VersionText(str):
    """A semantic version as an attribute of a device: devices with a plain text of the same letters do not agree."""

    __slots__ = ()


@attrs.frozen
class DeviceToleration(Toleration):
    """Which taints of its devices a request puts up with, those that evict for so many ``seconds`` (None: for good)."""

    seconds: int | None = None


@attrs.frozen(kw_only=True)
class DeviceConfig:
    """What a driver is told with the devices of ``requests`` (none: of all): ``body`` is JSON that only it can read."""

    body: str
    requests: tuple[str, ...] = ()


@attrs.frozen(kw_only=True)
class DeviceRequest:
    """One request of a claim. ``all_devices``: every matching device of the node; selectors are CEL expressions."""

    name: str
    device_class: str
    count: int = 1
    all_devices: bool = False
    selectors: tuple[str, ...] = ()
    alternatives: tuple["DeviceRequest", ...] = ()
    """First available: tried in order; the request itself then only carries the name."""
    capacity: tuple[tuple[str, int], ...] = ()
    """What each device is to have, or a share of it, by the name of the capacity as slices write it."""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()


@attrs.frozen(kw_only=True)
class DeviceConstraint:
    """All devices of ``requests`` (none: of all) must agree in (``distinct``: differ in) the attribute ``match``."""

    match: str
    requests: tuple[str, ...] = ()
    distinct: bool = False


@attrs.frozen(kw_only=True)
class AllocatedDevice:
    """A device that a claim holds, by the request it serves.

    ``shared``: it is one of several shares of the device, ``share`` names it once it is written; of each capacity the
    share has what ``consumed`` says, in thousandths. Names of capacities are as the slice writes them.
    """

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()
    consumed: tuple[tuple[str, int], ...] = ()
    shared: bool = False
    share: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Driver, pool and device: unique in a cluster."""
        return (self.driver, self.pool, self.device)


Choice = tuple[tuple[str, int], ...]
"""The alternatives of one request, as ``request/alternative``, and how many GPUs each comes to."""


@attrs.frozen(kw_only=True)
class Claim:
    """A resource claim.

    ``allocation`` is None while nothing is allocated; ``nodes`` says where an allocation can be used (None:
    anywhere).
    """

    namespace: str
    name: str
    uid: str
    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    queue: str | None = None
    """The queue that the claim is labelled with, None without the label: a shared GPU claim belongs to one queue."""
    gpus: int = 0
    """GPUs that the claim asks for, as far as quota counts them; of alternatives that are open, the most."""
    choices: tuple[Choice, ...] = ()
    """Requests of which alternatives are open, as far as they are about GPUs."""
    all_gpus: tuple[str, ...] = ()
    """Requests, or ``request/alternative``, for all GPUs of a node: each comes to one until it is allocated."""
    not_had: tuple[int, int] = (0, 0)
    """Thousandths of these GPUs that the claim does without where it gets parts of them: surely, and at most."""
    owner_pod: str = ""
    """Uid of the owning pod: the claim was made from a template."""
    allocation: tuple[AllocatedDevice, ...] | None = None
    nodes: tuple[NodeTerm, ...] | None = None
    reserved_for: tuple[str, ...] = ()
    """Uids of the pods that use the claim."""
    deleting: bool = False
    """Whether the claim is being deleted: it takes no further users."""
    awaited: tuple[str, ...] = ()
    """Devices of the allocation with conditions that their drivers have not met yet, or have failed to meet."""
    has_other_users: bool = False
    """Whether the status names users that are no pods."""

    @property
    def most_spared(self) -> int:
        """How many of its GPUs the claim does without where it gets the smallest alternatives."""
        return sum(max(gpus) - min(gpus) for gpus in ([gpus for _, gpus in each] for each in self.choices))

    def spared(self, devices: Iterable[AllocatedDevice]) -> int:
        """Return how many of its GPUs the claim does without, as it gets ``devices``."""
        if not self.choices:
            return 0
        served = {device.request for device in devices}
        taken = (max((gpus for name, gpus in each if name in served), default=0) for each in self.choices)
        return sum(max(gpus for _, gpus in each) for each in self.choices) - sum(taken)

    def settled(self, devices: Iterable[AllocatedDevice]) -> "Claim":
        """Return the claim with no alternative open, as it has ``devices``; what it looks on at is not counted."""
        if not self.choices and not self.all_gpus:
            return self
        held = Counter(device.request for device in devices if not device.admin_access)
        more = sum(max(0, held[name] - 1) for name in self.all_gpus)
        return attrs.evolve(self, gpus=self.gpus - self.spared(devices) + more, choices=(), all_gpus=())


@attrs.frozen(kw_only=True)
class SharePolicy:
    """How much of a capacity a share may have: one of ``values``, or from ``least`` in steps of ``step`` to ``most``.

    ``default`` is what a share has that asks for nothing (None: all). A step of 0 is none. Units: thousandths.
    """

    default: int | None = None
    values: tuple[int, ...] = ()
    ranged: bool = False
    least: int = 0
    most: int | None = None
    step: int = 0


@attrs.frozen(kw_only=True)
class Device:
    """One device of a slice.

    Attributes are by qualified name (domain/name), capacities by the name that the slice writes, in thousandths of
    their unit: a request finds a capacity by that name only, as in Kubernetes.
    """

    name: str
    attributes: Mapping[str, str | int | bool] = attrs.field(factory=dict, eq=False)
    capacity: Mapping[str, int] = attrs.field(factory=dict, eq=False)
    policies: Mapping[str, SharePolicy] = attrs.field(factory=dict, eq=False)
    """How capacities are shared, as far as the driver says so."""
    node: str = ""
    all_nodes: bool = False
    nodes: tuple[NodeTerm, ...] | None = None
    counters: tuple[tuple[str, str, int], ...] = ()
    """Shared counters that the device takes from: (set, counter, amount in thousandths)."""
    multiple_allocations: bool = False
    taints: tuple[Taint, ...] = ()
    binds_to_node: bool = False
    """Whether a claim that holds the device can only be used from the node that it was allocated for."""
    attached_later: bool = False
    """Whether the device is usable only once its driver has met conditions, after it was allocated."""


@attrs.frozen(kw_only=True)
class DeviceSlice:
    """Devices that one driver offers in one pool; ``unfinished``: of that pool slices are still to come."""

    name: str
    driver: str
    pool: str
    devices: tuple[Device, ...]
    node: str = ""
    all_nodes: bool = False
    nodes: tuple[NodeTerm, ...] | None = None
    counters: tuple[tuple[str, str, int], ...] = ()
    """Counters that the slice offers: (set, counter, amount in thousandths)."""
    unfinished: bool = False


@attrs.frozen(kw_only=True)
class DeviceClass:
    """A device class: CEL selectors, what drivers are told, and the extended resource that it names ("" for none)."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    extended_resource: str = ""
    created: float = 0.0

    @property
    def extended_resources(self) -> tuple[str, ...]:
        """The extended resources that the class backs: the one it names, and one that has the name of the class."""
        return (*filter(None, (self.extended_resource,)), IMPLICIT_RESOURCE + self.name)


@attrs.frozen(kw_only=True)
class ClaimCatalog:
    """Everything about claims in a snapshot; ``served`` says whether the cluster has that API at all.

    ``kubernetes`` is the version of its API server, as versions of Kubernetes allocate differently.
    """

    claims: Mapping[tuple[str, str], Claim] = attrs.field(factory=dict)
    slices: tuple[DeviceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = attrs.field(factory=dict)
    served: bool = False
    kubernetes: KubernetesVersion = NEWEST


@attrs.frozen(kw_only=True, eq=False)
class RawObject:
    """An object of a kind that plugins read. It is itself only, so that plugins can keep what they read of it."""

    name: str
    namespace: str = ""
    uid: str = ""
    """What tells it from earlier objects of its name."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[tuple[str, str], ...] = ()
    """Kind and uid of each owner."""
    deleting: bool = False
    """Whether it goes once its finalizers are done."""
    write: Callable[[], Mapping[str, Any]] = attrs.field(repr=False)
    """Makes ``content``: of an object that no plugin looks into nothing is made."""

    @property
    def key(self) -> str:
        """The name, behind the namespace and a slash where there is one."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def content(self) -> Mapping[str, Any]:
        """All fields but the metadata, as JSON has them; they are not to be changed. Made anew at each look."""
        return self.write()

    @property
    def spec(self) -> Mapping[str, Any]:
        """The field ``spec`` of the content."""
        return self.content.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        """The field ``status`` of the content."""
        return self.content.get("status") or {}
