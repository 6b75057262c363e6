"""Which devices are one GPU, and the catalog of objects around pods and nodes.

With dynamic MIG, a driver lists a GPU beside the partitions that it can be cut into. Such devices consume the same
counters. So a GPU with all its partitions is one GPU, and a partition is the part of it that it consumes.

- A counter set is a GPU, unless all devices that consume from it also consume from a set with fewer devices: then it
  belongs to that GPU, or is shared by several GPUs and measures none of them.
- The used part of a GPU is the largest used share of a counter. Counters whose names differ only by a number are places
  of a GPU, such as its memory slices: they count together. A counter that each device consumes whole or not at all is a
  feature, such as an engine, and no measure. If a GPU has nothing but features, their number is the measure.

Source: partitionable devices of resource.k8s.io/v1, which leaves open how much of a GPU a partition is.

``Catalog`` holds what filters look up: config maps, namespaces, resource claims. These are frozen facts, keyed by
(namespace, name) where the object is namespaced.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs

from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.claim import AllocatedDevice, Claim, ClaimCatalog, Device, DeviceSlice

_GPU = "gpu"
_NUMBER = re.compile("[0-9]+")

DeviceKey = tuple[str, str, str]
"""Driver, pool, device."""
Measure = tuple[Mapping[DeviceKey, int], int]
"""The amount that each device consumes, and the total amount."""
_Counter = tuple[str, str]
"""Counter set, counter."""


def is_gpu(name: str) -> bool:
    """Return whether a driver or device class of this name is for GPUs.

    Source: the peer's common/resources, which looks for the letters anywhere in the name.
    """
    return _GPU in name.lower()


@attrs.frozen(kw_only=True)
class Gpu:
    """One GPU of a driver; ``node`` is the only node that can use it, "" if there are others."""

    node: str
    devices: tuple[DeviceKey, ...]
    measures: tuple[Measure, ...] = ()
    """Empty for a GPU that has no partitions."""

    def taken(self, devices: Iterable[DeviceKey]) -> int:
        """Return the thousandths of the GPU that ``devices`` take together, at most 1000."""
        return min(GPU_UNIT, self._sum(devices))

    def fits(self, devices: Iterable[DeviceKey]) -> bool:
        """Return whether the GPU has room for all of ``devices``."""
        return self._sum(devices) <= GPU_UNIT

    def _sum(self, devices: Iterable[DeviceKey]) -> int:
        # A set, since pods may share a device, which takes its part of the GPU once.
        held = {*devices}.intersection(self.devices)
        if not self.measures or not held:
            return len(held) * GPU_UNIT
        # By the counter that is used up the most: without it the rest of the others serves no device.
        return max(sum(drawn.get(key, 0) for key in held) * GPU_UNIT // whole for drawn, whole in self.measures)


@attrs.frozen(kw_only=True)
class Gpus:
    """The GPUs that drivers offer, pool by pool."""

    all: tuple[Gpu, ...] = ()
    of_device: Mapping[DeviceKey, tuple[Gpu, ...]] = attrs.field(factory=dict)
    """The GPUs that a device takes a part of: one, or all that it spans."""
    devices: Mapping[DeviceKey, Device] = attrs.field(factory=dict)

    @property
    def are_divided(self) -> bool:
        """Whether a device may be less than a GPU: a partition, or a device that several claims may share."""
        return any(gpu.measures for gpu in self.all) or any(each.multiple_allocations for each in self.devices.values())

    def part(self, device: DeviceKey) -> int:
        """Return the part of a GPU that a device is, in thousandths; more than 1000 if it spans several."""
        return sum(gpu.taken((device,)) for gpu in self.of_device[device])

    def part_had(self, held: AllocatedDevice) -> int:
        """Return the part of a GPU that a claim has with a device or a share of it; 0 if it is no GPU."""
        if held.key not in self.devices or held.admin_access:
            return 0
        whole, shares = self.part(held.key), _shares(self.devices[held.key], held.consumed) if held.shared else ()
        # Never 0, since a share of a GPU would then cost its queue nothing.
        return max(1, whole * max(shares) // GPU_UNIT) if shares else whole

    def not_had(self, held: Iterable[AllocatedDevice]) -> int:
        """Return the thousandths missing to one GPU per device of a claim; negative if devices span several GPUs."""
        counted = (each for each in held if each.key in self.devices and not each.admin_access)
        return sum(GPU_UNIT - self.part_had(each) for each in counted)

    def known_not_had(self, claim: Claim) -> int:
        """Return the thousandths of its GPUs that a claim certainly does not get."""
        if claim.allocation is None:
            return claim.not_had[0]
        return min(claim.gpus * GPU_UNIT, self.not_had(claim.allocation))


def _shares(device: Device, amounts: Iterable[tuple[str, int]]) -> Sequence[int]:
    """Return the share of each capacity of ``device`` that the ``amounts`` are, in thousandths."""
    found = ((amount, device.capacity.get(name, 0)) for name, amount in amounts)
    return [amount * GPU_UNIT // whole for amount, whole in found if whole > 0]


def gpus_of(slices: Iterable[DeviceSlice]) -> Gpus:
    """Return the GPUs that GPU drivers offer.

    A device that is offered twice counts once, at its first occurrence.
    """
    pools: dict[tuple[str, str], list[DeviceSlice]] = {}
    for source in slices:
        if is_gpu(source.driver):
            pools.setdefault((source.driver, source.pool), []).append(source)
    found = tuple(gpu for pool in pools.values() for gpu in _gpus_of_pool(pool))
    of_device: dict[DeviceKey, tuple[Gpu, ...]] = {}
    for gpu in found:
        for key in gpu.devices:
            of_device[key] = (*of_device.get(key, ()), gpu)
    devices: dict[DeviceKey, Device] = {}
    for (driver, name), pool in pools.items():
        for source in pool:
            for device in source.devices:
                devices.setdefault((driver, name, device.name), device)
    return Gpus(all=found, of_device=of_device, devices=devices)


def _gpus_of_pool(slices: Sequence[DeviceSlice]) -> Iterable[Gpu]:
    offered = {(group, name): amount for each in slices for group, name, amount in each.counters if amount > 0}
    nodes: dict[DeviceKey, str] = {}
    draws: dict[DeviceKey, Mapping[_Counter, int]] = {}
    for source in slices:
        for device in source.devices:
            key = (source.driver, source.pool, device.name)
            if key not in nodes:
                nodes[key] = source.node
                draws[key] = _draws(device, offered)
    # A device that consumes no counter is never a part of something: it is a GPU by itself.
    for key in (key for key, drawn in draws.items() if not drawn):
        yield Gpu(node=nodes[key], devices=(key,))
    for sets in _sets_of_gpus(draws):
        drawing = {key: drawn for key, drawn in draws.items() if any(group in sets for group, _ in drawn)}
        counters = [counter for counter in offered if counter[0] in sets]
        yield Gpu(
            node=nodes[next(iter(drawing))],
            devices=tuple(drawing),
            measures=tuple(_measures(drawing, {counter: offered[counter] for counter in counters})),
        )


def _draws(device: Device, offered: Mapping[_Counter, int]) -> Mapping[_Counter, int]:
    found = {(group, name): amount for group, name, amount in device.counters}
    # A counter that no slice offers has no total to measure against.
    return {counter: amount for counter, amount in found.items() if amount > 0 and counter in offered}


def _sets_of_gpus(draws: Mapping[DeviceKey, Mapping[_Counter, int]]) -> Iterable[frozenset[str]]:
    """Return the counter sets that measure each GPU."""
    together: Counter[frozenset[str]] = Counter(frozenset(group for group, _ in drawn) for drawn in draws.values())
    drawers = Counter({name: 0 for sets in together for name in sets})
    for sets, count in together.items():
        drawers.update(dict.fromkeys(sets, count))

    def main(sets: frozenset[str]) -> str:
        # A set that some device consumes alone measures that GPU, so it is none that several GPUs share.
        return min(sets, key=lambda name: (frozenset({name}) not in together, drawers[name], name))

    mains = {sets: main(sets) for sets in together if sets}
    found: dict[str, set[str]] = {name: {name} for name in mains.values()}
    for name in drawers.keys() - found.keys():
        of = {at for sets, at in mains.items() if name in sets}
        # A set that devices of several GPUs consume from measures none of them.
        if len(of) == 1:
            found[of.pop()].add(name)
    return map(frozenset, found.values())


def _measures(draws: Mapping[DeviceKey, Mapping[_Counter, int]], whole: Mapping[_Counter, int]) -> Iterable[Measure]:
    """Yield the measures of parts of a GPU: the consumption of counters of one name by devices, and their total."""
    alike: dict[_Counter, list[_Counter]] = {}
    for counter in whole:
        if any(counter in drawn for drawn in draws.values()):
            alike.setdefault((counter[0], _NUMBER.sub("", counter[1])), []).append(counter)
    features = [each[0] for each in alike.values() if len(each) == 1 and _is_feature(each[0], draws, whole)]
    measuring = [each for each in alike.values() if len(each) > 1 or each[0] not in features]
    for counters in measuring:
        drawn = {key: sum(each.get(counter, 0) for counter in counters) for key, each in draws.items()}
        yield drawn, sum(whole[counter] for counter in counters)
    if not measuring:
        yield {key: sum(counter in each for counter in features) for key, each in draws.items()}, len(features)


def _is_feature(
    counter: _Counter, draws: Mapping[DeviceKey, Mapping[_Counter, int]], whole: Mapping[_Counter, int]
) -> bool:
    """Return whether each device consumes all of a counter or nothing."""
    return all(drawn.get(counter, 0) in (0, whole[counter]) for drawn in draws.values())


def _empty() -> Mapping[Any, Any]:
    return {}


@attrs.frozen(kw_only=True)
class Catalog:
    """The other facts of a snapshot, besides pods, nodes, groups and queues."""

    namespaces: Mapping[str, Mapping[str, str]] = attrs.field(factory=_empty)
    """Labels of each namespace."""
    config_maps: frozenset[tuple[str, str]] = frozenset()
    config_maps_known: bool = False
    """Whether config maps were listed at all; if not, no pod is refused because one is missing."""
    claims: ClaimCatalog = ClaimCatalog()
    gpus: Gpus = Gpus()
    """The GPUs among the devices of drivers."""
