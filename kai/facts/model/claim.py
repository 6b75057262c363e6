"""Resource claims and devices (dynamic resource allocation, structured parameters), and raw objects."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import attrs

from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.facts.model.constraints import NodeTerm, Taint, Toleration
from kai.facts.model.units import IMPLICIT_RESOURCE, backed_name

CAPACITY_PARTS = 1000
"""Capacities and counters are integers in this fraction of their unit, because drivers share half a core, too."""


def qualified(name: str, driver: str) -> str:
    """Return the name of an attribute or capacity with its domain; without one, the driver is the domain."""
    return name if "/" in name else f"{driver}/{name}"


class VersionText(str):
    """A semantic version as an attribute of a device; constraints never take it for a text with the same letters."""

    __slots__ = ()


@attrs.frozen
class DeviceToleration(Toleration):
    """The device taints that a request tolerates; evicting taints for ``seconds`` (None: forever)."""

    seconds: int | None = None


@attrs.frozen(kw_only=True)
class DeviceConfig:
    """Driver configuration for the devices of ``requests`` (none: all); ``body`` is JSON for the driver only."""

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
    """The amount that each device, or a share of it, must have, by the capacity's name as slices write it."""
    admin_access: bool = False
    tolerations: tuple[DeviceToleration, ...] = ()


@attrs.frozen(kw_only=True)
class DeviceConstraint:
    """All devices of ``requests`` (none: all) must agree in (``distinct``: differ in) the attribute ``match``."""

    match: str
    requests: tuple[str, ...] = ()
    distinct: bool = False


@attrs.frozen(kw_only=True)
class AllocatedDevice:
    """A device that a claim holds, by the request it serves.

    ``shared``: it is one of several shares of the device; ``share`` is its name once it is written. ``consumed`` is
    what the share has of each capacity, in thousandths, by capacity names as the slice writes them.
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
"""The alternatives of one request, as ``request/alternative``, and the number of GPUs of each."""


@attrs.frozen(kw_only=True)
class Claim:
    """A resource claim.

    ``allocation`` is None while nothing is allocated. ``nodes`` are those where the allocation can be used (None:
    anywhere).
    """

    namespace: str
    name: str
    uid: str
    requests: tuple[DeviceRequest, ...]
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    queue: str | None = None
    """The value of the claim's queue label, None without it: a shared GPU claim belongs to one queue."""
    gpus: int = 0
    """GPUs that quota counts for the claim; the most among open alternatives."""
    choices: tuple[Choice, ...] = ()
    """Requests for GPUs with open alternatives."""
    all_gpus: tuple[str, ...] = ()
    """Requests, or ``request/alternative``, for all GPUs of a node: each counts as one until it is allocated."""
    not_had: tuple[int, int] = (0, 0)
    """Thousandths of these GPUs that the claim does not get because it gets parts of GPUs: minimum and maximum."""
    owner_pod: str = ""
    """Uid of the owning pod: the claim was made from a template."""
    allocation: tuple[AllocatedDevice, ...] | None = None
    nodes: tuple[NodeTerm, ...] | None = None
    reserved_for: tuple[str, ...] = ()
    """Uids of the pods that use the claim."""
    deleting: bool = False
    """Whether the claim is being deleted: it accepts no more users."""
    awaited: tuple[str, ...] = ()
    """Devices of the allocation with conditions that their drivers have not met yet, or failed to meet."""
    has_other_users: bool = False
    """Whether the status lists users that are not pods."""

    @property
    def most_spared(self) -> int:
        """The number of its GPUs that the claim does not use if it gets the smallest alternatives."""
        return sum(max(gpus) - min(gpus) for gpus in ([gpus for _, gpus in each] for each in self.choices))

    def spared(self, devices: Iterable[AllocatedDevice]) -> int:
        """Return the number of its GPUs that the claim does not use with ``devices``."""
        if not self.choices:
            return 0
        served = {device.request for device in devices}
        taken = (max((gpus for name, gpus in each if name in served), default=0) for each in self.choices)
        return sum(max(gpus for _, gpus in each) for each in self.choices) - sum(taken)

    def settled(self, devices: Iterable[AllocatedDevice]) -> "Claim":
        """Return the claim without open alternatives, given its ``devices``; admin access is not counted."""
        if not self.choices and not self.all_gpus:
            return self
        held = Counter(device.request for device in devices if not device.admin_access)
        # Less one, which counts already while the number is open.
        more = sum(max(0, held[name] - 1) for name in self.all_gpus)
        return attrs.evolve(self, gpus=self.gpus - self.spared(devices) + more, choices=(), all_gpus=())


@attrs.frozen(kw_only=True)
class SharePolicy:
    """The allowed amounts of a capacity for a share: one of ``values``, or ``least`` to ``most`` in steps of ``step``.

    ``default`` is for shares without a request (None: all). A step of 0 means no steps. Units: thousandths.
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

    Attributes are by qualified name (domain/name). Capacities are by the name in the slice, in thousandths of their
    unit: a request finds a capacity by that name only, as in Kubernetes.
    """

    name: str
    attributes: Mapping[str, str | int | bool] = attrs.field(factory=dict, eq=False)
    capacity: Mapping[str, int] = attrs.field(factory=dict, eq=False)
    policies: Mapping[str, SharePolicy] = attrs.field(factory=dict, eq=False)
    """The driver's policies for sharing capacities, where it has any."""
    node: str = ""
    all_nodes: bool = False
    nodes: tuple[NodeTerm, ...] | None = None
    counters: tuple[tuple[str, str, int], ...] = ()
    """Shared counters that the device consumes: (set, counter, amount in thousandths)."""
    multiple_allocations: bool = False
    taints: tuple[Taint, ...] = ()
    binds_to_node: bool = False
    """Whether a claim that holds the device can only be used from the node that it was allocated for."""
    attached_later: bool = False
    """Whether the device becomes usable only once its driver has met conditions after the allocation."""

    @property
    def product(self) -> str | None:
        """The name of its product, as drivers of GPUs publish it in the attribute ``productName``."""
        for name, value in self.attributes.items():
            # The domain is the driver's own, so any domain will do.
            if name.endswith("/productName") and isinstance(value, str) and value:
                return value
        return None


@attrs.frozen(kw_only=True)
class DeviceSlice:
    """Devices that one driver offers in one pool; ``unfinished``: more slices of that pool are expected."""

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
    """A device class: CEL selectors, driver configuration, and the extended resource that it names ("" for none)."""

    name: str
    selectors: tuple[str, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    extended_resource: str = ""
    created: float = 0.0

    @property
    def extended_resources(self) -> tuple[str, ...]:
        """The extended resources that the class backs: the named one, and the implicit one with the class's name."""
        return (*filter(None, (self.extended_resource,)), IMPLICIT_RESOURCE + self.name)


def backing_classes(classes: Mapping[str, DeviceClass]) -> Mapping[str, DeviceClass]:
    """Return the class that backs each extended resource, by the name under which containers request it.

    Of several it is the newest, as one may take the place of another; of those of one age the first by name.
    """
    out: dict[str, DeviceClass] = {}
    for each in sorted(classes.values(), key=lambda each: (-each.created, each.name)):
        for resource in each.extended_resources:
            out.setdefault(backed_name(resource), each)
    return out


@attrs.frozen(kw_only=True)
class ClaimCatalog:
    """All claims and devices of a snapshot; ``served`` says whether the cluster has that API at all.

    ``kubernetes`` is the version of its API server, because versions of Kubernetes allocate differently.
    """

    claims: Mapping[tuple[str, str], Claim] = attrs.field(factory=dict)
    slices: tuple[DeviceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = attrs.field(factory=dict)
    served: bool = False
    kubernetes: KubernetesVersion = NEWEST


@attrs.frozen(kw_only=True, eq=False)
class RawObject:
    """An object of a kind that plugins read. It compares by identity, so that readings can be memoized."""

    name: str
    namespace: str = ""
    uid: str = ""
    """Distinguishes it from earlier objects of its name."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owners: tuple[tuple[str, str], ...] = ()
    """Kind and uid of each owner."""
    deleting: bool = False
    """Whether it is being deleted and waits for its finalizers."""
    write: Callable[[], Mapping[str, Any]] = attrs.field(repr=False)
    """Makes ``content``, lazily: nothing is made for an object that no plugin reads."""

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def content(self) -> Mapping[str, Any]:
        """All fields but the metadata, as JSON; they must not be changed. Made anew at each access."""
        return self.write()

    @property
    def spec(self) -> Mapping[str, Any]:
        """The field ``spec`` of the content."""
        return self.content.get("spec") or {}

    @property
    def status(self) -> Mapping[str, Any]:
        """The field ``status`` of the content."""
        return self.content.get("status") or {}
