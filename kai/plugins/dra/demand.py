"""The demand of a claim, resolved against the existing devices.

A request becomes one or more *wants*, tried in order: an exact request has one, a prioritized list has several. A want
knows which devices match its class and selectors; that is computed once per want.

The capacity of a device that a request gets is its requested amount, rounded up to what the driver's policy allows.

Source: the consumable capacity of Kubernetes' allocator (resource.k8s.io/v1, CapacityRequestPolicy).
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import attrs
import numpy as np

from kai.framework import Bools, Int64s, Toleration, tolerates
from kai.framework.claims import Claim, Device, DeviceClass, DeviceRequest, DeviceToleration, SharePolicy
from kai.framework.expressions import Fault, Selectors
from kai.plugins.dra.inventory import Inventory


def consumption(device: Device, asked: Sequence[tuple[str, int]]) -> Mapping[str, int] | None:
    """Return how much of each capacity of ``device`` a request for ``asked`` gets, by name.

    None if the device cannot serve it even if unused: it lacks a capacity, has too little of one, or its policy allows
    no such amount.
    """
    wanted = dict(asked)
    if not wanted.keys() <= device.capacity.keys():
        return None
    found: dict[str, int] = {}
    for name in sorted(device.capacity):
        whole = device.capacity[name]
        had = _share(wanted.get(name), whole, device.policies.get(name))
        if had is None or had > whole:
            return None
        found[name] = had
    return found


def _share(asked: int | None, whole: int, policy: SharePolicy | None) -> int | None:
    """Return the amount for a request of ``asked`` (None: no request); None if ``policy`` has no such amount."""
    if policy is None:
        return whole if asked is None else asked
    if asked is None:
        if policy.default is not None:
            return policy.default
        asked = whole
    if policy.ranged:
        return _in_range(asked, policy)
    if policy.values:
        # None: a request above the largest value cannot be met, however large the device is.
        return min((value for value in policy.values if value >= asked), default=None)
    return asked


def _in_range(asked: int, policy: SharePolicy) -> int | None:
    over = max(0, asked - policy.least)
    # Steps count from the least amount, not from zero, and are rounded up without floats.
    found = policy.least + (-(-over // policy.step) * policy.step if policy.step else over)
    return None if policy.most is not None and found > policy.most else found


MOST_DEVICES = 32
"""Devices that one claim may hold; resource.k8s.io/v1, AllocationResultsMaxSize."""

MOST_REQUESTS = 128
"""Requests whose devices are kept; users write them, so there is no end of them."""

# The third effect of a device's taint, None, keeps no pod away: it only shows what a rule would taint.
_REPELLING = frozenset({"NoSchedule", "NoExecute"})


@attrs.frozen(kw_only=True, eq=False)
class Want:
    """Devices of one kind. ``name`` is that of the request, with that of the alternative behind a slash."""

    name: str
    count: int
    every: bool
    admin: bool
    tolerations: tuple[DeviceToleration, ...]
    consumes: Mapping[int, Mapping[str, int]]
    """What it has of each capacity of a device that may be allocated many times, by row and name."""
    matching: Bools
    """[D]"""
    meant: Bools
    """[D] Matching devices that are tainted or attached later: unavailable, but part of "all devices"."""
    later: Bools
    """[D] Devices that would be available but for conditions that their driver meets after the allocation."""
    tainted: Bools
    """[D] Devices that would be available but for their taints."""
    barred: Bools
    """[D] Matching devices in pools from which nothing is allocated."""
    sharable: Int64s
    """GPUs of nodes among ``matching`` that it may have beside others: in shares, or to look on as administrator."""
    partitioned: Int64s
    """GPUs of nodes among ``matching`` that have partitions, or are some."""
    faulty: Bools
    """[D] Devices on which a selector failed: a search that comes to one of them ends without a result."""
    fault: str = ""
    """The first failure, or why there can be no device at all."""


@attrs.frozen(kw_only=True, eq=False)
class Demand:
    """The wants of each request of a claim, with what its devices must have in common."""

    claim: Claim
    requests: tuple[tuple[Want, ...], ...]
    fault: str = ""

    @property
    def simple(self) -> bool:
        """Whether counting free devices answers it: one request, one way, nothing in common, nothing shared."""
        return (
            not self.fault
            and not self.claim.constraints
            and len(self.requests) == 1
            and len(self.requests[0]) == 1
            and not self.requests[0][0].every
            and not self.requests[0][0].consumes
        )

    @property
    def may_need_less(self) -> bool:
        """Whether some device that it may get counts less than what the claim asks for."""
        wants = (want for wants in self.requests for want in wants)
        return bool(self.claim.most_spared) or any(len(want.sharable) or len(want.partitioned) for want in wants)


class Demands:
    """Resolves claims of one snapshot; equal requests share their answers."""

    def __init__(self, inventory: Inventory, classes: Mapping[str, DeviceClass], selectors: Selectors) -> None:
        """Resolve against ``inventory`` and ``classes``."""
        self._inventory = inventory
        self._classes = classes
        self._selectors = selectors
        self._known: dict[DeviceRequest, Want] = {}
        self._matching: dict[tuple[str, ...], tuple[Bools, Bools, str]] = {}

    def of(self, claim: Claim) -> Demand:
        """Return the demand of ``claim``."""
        requests = tuple(self._wants(request) for request in claim.requests)
        fewest = sum(min((want.count for want in wants if not want.every), default=1) for wants in requests)
        fault = ""
        if fewest > MOST_DEVICES:
            fault = f"claim {claim.namespace}/{claim.name}: wants {fewest} devices, at most {MOST_DEVICES} are allowed"
        return Demand(claim=claim, requests=requests, fault=fault)

    def _wants(self, request: DeviceRequest) -> tuple[Want, ...]:
        if request.alternatives:
            return tuple(self._want(each, f"{request.name}/{each.name}") for each in request.alternatives)
        return (self._want(request, request.name),)

    def _want(self, request: DeviceRequest, name: str) -> Want:
        if len(self._known) > MOST_REQUESTS:
            self._known.clear()
            self._matching.clear()
        found = self._known.get(request)
        # Alternatives of two requests may be equal but for the name of the request.
        if found is None or found.name != name:
            found = self._known[request] = self._resolved(request, name)
        return found

    def _resolved(self, request: DeviceRequest, name: str) -> Want:
        device_class = self._classes.get(request.device_class)
        if device_class is None:
            selected = faulty = np.zeros_like(self._inventory.barred)
            fault = f"no device class {request.device_class}"
        else:
            selected, faulty, fault = self._matched((*device_class.selectors, *request.selectors))
        consumes, enough = self._consumed(selected & ~self._inventory.barred, request.capacity)
        tolerated, ready = self._tolerated(request.tolerations), self._ready
        matching = enough & tolerated & ready
        return Want(
            name=name,
            count=max(request.count, 1),
            every=request.all_devices,
            admin=request.admin_access,
            tolerations=request.tolerations,
            consumes=consumes,
            matching=matching,
            meant=enough,
            later=enough & tolerated & ~ready,
            tainted=enough & ready & ~tolerated,
            barred=selected & self._inventory.barred,
            sharable=self._sharable(matching, admin=request.admin_access),
            partitioned=np.flatnonzero(matching & self._inventory.partitioned & (self._inventory.node >= 0)),
            faulty=faulty,
            fault=fault,
        )

    def _matched(self, expressions: tuple[str, ...]) -> tuple[Bools, Bools, str]:
        found = self._matching.get(expressions)
        if found is None:
            found = self._matching[expressions] = self._match(expressions)
        return found

    def _match(self, expressions: tuple[str, ...]) -> tuple[Bools, Bools, str]:
        """Return which devices match, on which an expression failed, and the first failure.

        An expression is not asked about a device that an earlier one refused. A failure on a device that is not
        allocated anyway is none.
        """
        inventory = self._inventory
        mask = np.ones_like(inventory.barred)
        faulty = np.zeros_like(mask)
        fault = ""
        contents = self._contents
        for expression in expressions:
            known: dict[int, bool | Fault] = {}
            for row in np.flatnonzero(mask).tolist():
                answer = known.get(contents[row])
                if answer is None or isinstance(answer, Fault):  # the text of a failure names the device
                    answer = self._selectors.selects(expression, inventory.keys[row][0], inventory.devices[row])
                    known[contents[row]] = answer
                mask[row] = answer is True
                if isinstance(answer, Fault) and not inventory.barred[row]:
                    faulty[row] = True
                    fault = fault or answer.text
        return mask, faulty, fault

    @cached_property
    def _contents(self) -> list[int]:
        """Equal numbers for devices that no expression can tell apart; most nodes have the same ones."""
        numbers: dict[tuple[str, str, str, bool], int] = {}
        contents: list[int] = []
        for (driver, _, _), each in zip(self._inventory.keys, self._inventory.devices, strict=True):
            # As text, true is not 1.
            key = driver, repr(each.attributes), repr(each.capacity), each.multiple_allocations
            contents.append(numbers.setdefault(key, len(numbers)))
        return contents

    def _tolerated(self, tolerations: Sequence[Toleration]) -> Bools:
        """Return bool[D]: devices without a taint that keeps the request away."""
        devices = self._inventory.devices
        return np.array([not device.taints or _is_tolerated(device, tolerations) for device in devices], np.bool_)

    @property
    def _ready(self) -> Bools:
        """Return bool[D]: devices that are ready as soon as they are allocated.

        Others become ready once their driver has met conditions. The binder waits for none, so the pod would start
        before its device is there.
        """
        return np.array([not device.attached_later for device in self._inventory.devices], np.bool_)

    def _sharable(self, matching: Bools, *, admin: bool) -> Int64s:
        inventory = self._inventory
        gpus = matching & inventory.gpu & (inventory.node >= 0)
        return np.flatnonzero(gpus if admin else gpus & inventory.multiple).astype(np.int64)

    def _consumed(
        self, matching: Bools, capacity: Sequence[tuple[str, int]]
    ) -> tuple[Mapping[int, Mapping[str, int]], Bools]:
        """Return the shared amounts of devices, and bool[D]: which ``matching`` devices have ``capacity`` at all."""
        inventory = self._inventory
        rows = np.flatnonzero(matching if capacity else matching & inventory.multiple)
        enough = matching.copy()
        consumes: dict[int, Mapping[str, int]] = {}
        for row in map(int, rows):
            found = consumption(inventory.devices[row], capacity)
            if found is None:
                enough[row] = False
            elif inventory.multiple[row]:
                consumes[row] = found
        return consumes, enough


def _is_tolerated(device: Device, tolerations: Sequence[Toleration]) -> bool:
    return all(
        taint.effect not in _REPELLING or any(tolerates(each, taint) for each in tolerations) for taint in device.taints
    )
