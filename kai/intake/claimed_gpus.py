"""The number of GPUs that claims request before they are allocated, and the parts of GPUs that they may get.

Source: the peer counts devices of classes with "gpu" in their names.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.claim import Choice, Device, DeviceClass, DeviceRequest, backing_classes
from kai.facts.model.partitions import Gpus, is_gpu
from kai.facts.model.pod import GpuKind, Node, Shape
from kai.facts.model.units import axis_name, mig_slices, packed, parts_of
from kai.intake.requests import MOST_DEVICES

# The expression language is imported only where devices are parts of GPUs.
if TYPE_CHECKING:
    from kai.facts.model.device_selectors import Selectors

_GPU = "gpu"
_WHOLE = (GPU_UNIT, GPU_UNIT)


@attrs.frozen(kw_only=True)
class Wanted:
    """The GPUs that the requests of a claim amount to."""

    gpus: int
    """GPUs, the most of all alternatives; "all of a node" counts as one until it is allocated."""
    choices: tuple[Choice, ...] = ()
    """The alternatives of requests that may amount to GPUs."""
    all_gpus: tuple[str, ...] = ()
    """Requests, or ``request/alternative``, for all GPUs of a node."""
    not_had: tuple[int, int] = (0, 0)
    """Thousandths of GPUs that the claim does not get, since it gets parts of GPUs: at least, and at most."""


@attrs.frozen(kw_only=True, eq=False, slots=False)
class ClaimedGpus:
    """The GPUs in requests of claims, for given devices; memoized."""

    gpus: Gpus = attrs.field(factory=Gpus)
    classes: Mapping[str, DeviceClass] = attrs.field(factory=dict)
    _known: dict[DeviceRequest, tuple[int, int]] = attrs.field(factory=dict, init=False)

    def of(self, requests: Iterable[DeviceRequest]) -> Wanted:
        """Return the GPUs that ``requests`` amount to.

        Source: the peer's count of DRA GPUs; but it leaves alternatives out, so that a queue could exceed its limit.
        """
        gpus = surely = at_most = 0
        choices: list[Choice] = []
        every: list[str] = []
        for request in requests:
            ways = request.alternatives or (request,)
            counts = [self._count(way) for way in ways]
            parts = [self._parts(way) if count else _WHOLE for way, count in zip(ways, counts, strict=True)]
            most = max(counts)
            gpus += most
            surely += most * GPU_UNIT - max(n * high for n, (_, high) in zip(counts, parts, strict=True))
            at_most += most * GPU_UNIT - min(n * low for n, (low, _) in zip(counts, parts, strict=True))
            names = [f"{request.name}/{way.name}" if request.alternatives else request.name for way in ways]
            every += [name for name, way, n in zip(names, ways, counts, strict=True) if n and way.all_devices]
            if request.alternatives and most:
                choices.append(tuple(zip(names, counts, strict=True)))
        return Wanted(gpus=gpus, choices=tuple(choices), all_gpus=tuple(every), not_had=(surely, at_most))

    def _count(self, request: DeviceRequest) -> int:
        """Return the number of GPUs, clamped to more than any claim gets: any user can write any number."""
        if not (is_gpu(request.device_class) or request.device_class in self.classes_of_partitions):
            return 0
        return 1 if request.all_devices else min(request.count, MOST_DEVICES)

    @cached_property
    def classes_of_partitions(self) -> frozenset[str]:
        """The classes that select partitions of GPUs without "gpu" in their names."""
        partitions = [each for each in self._devices if any(gpu.measures for gpu in self.gpus.of_device[each[0]])]
        return frozenset(
            each.name
            for each in self.classes.values()
            if not is_gpu(each.name)
            and any(self._selects(each.selectors, key[0], device) for key, device, _ in partitions)
        )

    @cached_property
    def parts_by_name(self) -> Mapping[str, tuple[int, int]]:
        """The resources that classes back with parts of GPUs, by the name under which containers request them.

        With each comes the smallest and the largest part, in thousandths.
        """
        if not self._devices:
            return {}
        asked = {name: DeviceRequest(name="", device_class=each.name) for name, each in self._backing.items()}
        found = {name: self._parts(request) for name, request in asked.items() if self._count(request)}
        return {name: parts for name, parts in found.items() if parts[0] < GPU_UNIT}

    @cached_property
    def _backing(self) -> Mapping[str, DeviceClass]:
        return backing_classes(self.classes)

    @cached_property
    def _devices(self) -> Sequence[tuple[tuple[str, str, str], Device, int]]:
        """The GPUs that claims may get, each with the part of a GPU that it is; empty where all of them are whole."""
        gpus = self.gpus
        return [(key, each, gpus.part(key)) for key, each in gpus.devices.items()] if gpus.are_divided else []

    @cached_property
    def _selectors(self) -> "Selectors":
        from kai.facts.model.device_selectors import Selectors  # noqa: PLC0415 - only clusters with partitions pay for it

        return Selectors()

    def _selects(self, expressions: Iterable[str], driver: str, device: Device) -> bool:
        return all(self._selectors.selects(each, driver, device) is True for each in expressions)

    def _parts(self, request: DeviceRequest) -> tuple[int, int]:
        """Return the smallest and the largest part of a GPU that a request may get, in thousandths."""
        device_class = self.classes.get(request.device_class)
        if device_class is None or request.all_devices or not self._devices:
            return _WHOLE
        found = self._known.get(request)
        if found is None:
            found = self._known[request] = self._asked((*device_class.selectors, *request.selectors), request.capacity)
        return found

    def _asked(self, expressions: Sequence[str], capacity: Sequence[tuple[str, int]]) -> tuple[int, int]:
        low = high = 0
        for key, device, whole in self._devices:
            part = _part_of(device, whole, capacity)
            # A device whose part lies between known parts changes nothing.
            if part and not (low and low <= part <= high) and self._selects(expressions, key[0], device):
                low, high = min(part, low or part), max(part, high)
        return (low, high) if low else _WHOLE


def with_parts_by_name(
    shapes: Sequence[Shape], nodes: Iterable[Node], parts: Mapping[str, tuple[int, int]]
) -> tuple[Shape, ...]:
    """Return ``shapes``, where what is requested by the names in ``parts`` counts as claims of parts of GPUs.

    Not by a name that a device plugin offers, too: which of both serves a pod depends on its node.
    """
    offered = {name for node in nodes for name in parts if node.plugs(name)} if parts else set[str]()
    left = {name: part for name, part in parts.items() if name not in offered}
    return tuple(_counted_as_claimed(each, left) for each in shapes) if left else tuple(shapes)


def _counted_as_claimed(shape: Shape, parts: Mapping[str, tuple[int, int]]) -> Shape:
    gpu, total = shape.gpu, dict(shape.request)
    for name, (low, high) in parts.items():
        count = shape.requested(name.__eq__) // parts_of(name)
        if not count:
            continue
        gpu = attrs.evolve(
            gpu,
            claimed=gpu.claimed + count,
            not_had=gpu.not_had + count * (GPU_UNIT - high),
            named=gpu.named + count,
            named_not_had=gpu.named_not_had + count * (GPU_UNIT - high),
            spared=gpu.spared + count * (GPU_UNIT - high),
            most_spared=gpu.most_spared + count * (GPU_UNIT - low),
        )
        if axis_name(name) != _GPU:
            total[_GPU] = total.get(_GPU, 0) + count * GPU_UNIT
        if mig_slices(name)[0]:
            total.pop(name, None)
    if gpu is shape.gpu:
        return shape
    slices = any(mig_slices(name)[0] for name in total)
    if not slices and not gpu.shared and total.get(_GPU, 0) <= gpu.claimed * GPU_UNIT:
        gpu = attrs.evolve(gpu, kind=GpuKind.NONE)
    return attrs.evolve(shape, request=packed(total), gpu=gpu)


def _part_of(device: Device, whole: int, capacity: Sequence[tuple[str, int]]) -> int:
    """Return the part of a GPU that a request for ``capacity`` gets from a device that is ``whole``; 0 for none."""
    amounts = [
        (max(asked, policy.least) if (policy := device.policies.get(name)) else asked, device.capacity.get(name, 0))
        for name, asked in capacity
    ]
    if not all(0 < asked <= there for asked, there in amounts):
        return 0
    if not (amounts and device.multiple_allocations):
        return whole
    return max(1, *(whole * asked // there for asked, there in amounts))
