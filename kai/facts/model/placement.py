"""The details of a placement besides the node, and the past that a cycle has to know.

Plugins choose the devices of claims once, when a pod is placed. These details travel with the decision to the service
that carries it out, and into the report of a cycle.

``Past`` is what no object records although decisions depend on it: refused binds, awaited groups, past usage.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from kai.facts.model.budgets import Key, Spent
from kai.facts.model.claim import AllocatedDevice, DeviceConfig, DeviceRequest
from kai.facts.model.constraints import NodeTerm
from kai.facts.model.groups import Shares
from kai.facts.model.units import Amounts


@attrs.frozen(kw_only=True)
class NoRoom:
    """A node that refused a pod for lack of room: the pod is not sent there as long as this is remembered."""

    namespace: str
    pod: str
    uid: str
    node: str
    reason: str
    """The binder's message, on one line."""


@attrs.frozen(kw_only=True)
class Past:
    """The outcome of earlier decisions, and the past usage of queues."""

    usage: Mapping[str, Shares] = attrs.field(factory=dict)
    """The past usage of queues, by name."""
    awaited: tuple[str, ...] = ()
    """Keys of groups that wait for places of pods that earlier cycles evicted for them."""
    refused: tuple[NoRoom, ...] = ()
    """Binds that found no room; shapes list the same."""
    evicted: tuple[tuple[str, int], ...] = ()
    """Thousandths of GPUs that pods of each queue lost in the last hour, by the name of the queue."""
    protected: tuple[str, ...] = ()
    """UIDs of pods that budgets protect, or that are being moved; their groups lose no pods."""
    spent: Mapping[Key, Spent] | None = None
    """What was used of the budgets of queues. Of one that is not among them nothing is known; None: what the status of
    queues says counts."""


@attrs.frozen
class Quantities:
    """Amounts that a bind request writes as quantities, by resource."""

    amounts: Amounts


@attrs.frozen(kw_only=True)
class AllocatedConfig:
    """The configuration for a driver with its devices, from the class (``of_class``) or the claim."""

    config: DeviceConfig
    of_class: bool


@attrs.frozen(kw_only=True)
class DeviceAllocation:
    """Devices that a bind request gives to ``claim``; its name makes the names of device shares unique."""

    claim: str
    devices: tuple[AllocatedDevice, ...]
    nodes: tuple[NodeTerm, ...] | None
    config: tuple[AllocatedConfig, ...] = ()


@attrs.frozen
class ContainerMappings:
    """Which request of a claim serves which container: its position, init containers first, and the resource."""

    containers: tuple[tuple[int, str, str], ...]


WIRE_RECORDS: Final = (Quantities, DeviceAllocation, ContainerMappings, DeviceRequest)
"""Types that a bind request may contain besides JSON values: intake knows their wire formats."""


@attrs.frozen(kw_only=True)
class ClaimAllocation:
    """The devices that one claim of a pod holds.

    ``reference`` is the name of the claim in the pod, ``claim`` is namespace and name of the object. ``nodes`` are
    those where the devices can be used (None: anywhere).
    """

    reference: str
    claim: tuple[str, str]
    devices: tuple[AllocatedDevice, ...]
    nodes: tuple[NodeTerm, ...] | None = None


@attrs.frozen(kw_only=True)
class ExtendedAllocation:
    """The devices for a pod's extended resources if the node's device plugin has none of them.

    ``requests`` are those of the claim that will be created. ``containers`` maps each container (by position, init
    containers first) and resource on the axis to the request that serves it.
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

    def for_resources(self) -> tuple[AllocatedDevice, ...]:
        """Return the devices that the pod requests as extended resources, by a claim to be made or by one made."""
        made = tuple(device for allocation in self.claims if not allocation.reference for device in allocation.devices)
        return made + (self.extended.devices if self.extended else ())
