"""What a placement says besides the node: which devices of which claims, and what a bind request tells of it.

Plugins choose these details once, when a pod is placed; they travel with the decision to the service that carries it
out, and into the report of a cycle.

A bind that was refused, as far as the next decisions have to know of it.

What a cycle is told of the time before it: no object says it, and decisions follow from it as from objects.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from kai.model.claim import AllocatedDevice, DeviceConfig, DeviceRequest
from kai.model.constraints import NodeTerm
from kai.model.groups import Shares
from kai.model.units import Amounts


@attrs.frozen(kw_only=True)
class NoRoom:
    """A node that refused a pod for lack of room: the pod is not sent there while this is remembered."""

    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    """What the binder said, on one line."""


@attrs.frozen(kw_only=True)
class Past:
    """What became of decisions before, and what queues used."""

    usage: Mapping[str, Shares] = attrs.field(factory=dict)
    """The past usage of queues, by name."""
    awaited: tuple[str, ...] = ()
    """Keys of groups for which pods were evicted in cycles before, and that wait for their places since."""
    refused: tuple[NoRoom, ...] = ()
    """Binds that found no room; shapes say the same."""
    evicted: tuple[tuple[str, int], ...] = ()
    """Thousandths of GPUs that pods of each queue lost in the hour before, by the name of the queue."""
    protected: tuple[str, ...] = ()
    """UIDs of pods that budgets protect, or that are being moved; their groups lose no pods."""


@attrs.frozen
class Quantities:
    """Amounts that a bind request tells as quantities, by resource."""

    amounts: Amounts


@attrs.frozen(kw_only=True)
class AllocatedConfig:
    """What a driver is told with devices, as the class says it (``of_class``) or the claim."""

    config: DeviceConfig
    of_class: bool


@attrs.frozen(kw_only=True)
class DeviceAllocation:
    """Devices that a bind request gives to ``claim``, whose name makes the names of shares of devices unique."""

    claim: str
    devices: tuple[AllocatedDevice, ...]
    nodes: tuple[NodeTerm, ...] | None
    config: tuple[AllocatedConfig, ...] = ()


@attrs.frozen
class ContainerMappings:
    """Which request of a claim serves which container: its position, init containers first, and the resource."""

    containers: tuple[tuple[int, str, str], ...]


WIRE_RECORDS: Final = (Quantities, DeviceAllocation, ContainerMappings, DeviceRequest)
"""What a bind request may be told besides what JSON has: intake knows their forms on the wire."""


@attrs.frozen(kw_only=True)
class ClaimAllocation:
    """The devices that one claim of a pod holds.

    ``reference`` is the name of the claim in the pod, ``claim`` namespace and name of the object; ``nodes`` says where
    the devices can be used (None: anywhere).
    """

    reference: str
    claim: tuple[str, str]
    devices: tuple[AllocatedDevice, ...]
    nodes: tuple[NodeTerm, ...] | None = None


@attrs.frozen(kw_only=True)
class ExtendedAllocation:
    """The devices that serve a pod's extended resources where the node's device plugin has none of them.

    ``requests`` are those of the claim that is to be made; ``containers`` says which request serves which container
    (its position, init containers first) for which resource on the axis.
    """

    requests: tuple[DeviceRequest, ...] = ()
    containers: tuple[tuple[int, str, str], ...] = ()
    devices: tuple[AllocatedDevice, ...] = ()
    nodes: tuple[NodeTerm, ...] | None = None


@attrs.frozen(kw_only=True)
class ClaimPlacement:
    """All devices that a pod gets through claims on its node."""

    claims: tuple[ClaimAllocation, ...] = ()
    extended: ExtendedAllocation | None = None

    def devices(self) -> tuple[AllocatedDevice, ...]:
        """Return the devices of all claims, in their order."""
        held = tuple(device for allocation in self.claims for device in allocation.devices)
        return held + (self.extended.devices if self.extended else ())
