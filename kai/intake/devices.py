"""Devices of DRA drivers, and device classes, in the terms of the model."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from operator import is_

import attrs

from kai.api import values as quantity
from kai.api.cluster_objects import ClusterObjects
from kai.api.fields import JsonObject
from kai.api.kubernetes import dra as api
from kai.api.values import BadValue
from kai.basics.parsing import list_of
from kai.facts.model.claim import (
    CAPACITY_PARTS,
    Device,
    DeviceClass,
    DeviceConfig,
    DeviceSlice,
    SharePolicy,
    VersionText,
    qualified,
)
from kai.facts.model.constraints import Taint
from kai.facts.model.partitions import Gpus, gpus_of
from kai.intake import traits
from kai.intake.record_cache import in_order

_LARGEST = 2**63 - 1


@attrs.frozen(kw_only=True, eq=False)
class Devices:
    """Devices and classes, and the GPUs that the devices are."""

    objects: ClusterObjects
    """The objects that they were read from."""
    slices: tuple[DeviceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = attrs.field(factory=dict)
    gpus: Gpus = attrs.field(factory=Gpus)


def read_devices(objects: ClusterObjects, before: Devices) -> Devices:
    """Return the devices of a cluster; ``before`` itself while slices, rules and classes are the same objects."""
    then, slices, classes, gpus = before.objects, before.slices, before.classes, before.gpus
    if not (
        are_same(objects.resource_slices, then.resource_slices)
        and are_same(objects.device_taint_rules, then.device_taint_rules)
    ):
        slices = _slices(newest(in_order(objects.resource_slices)), in_order(objects.device_taint_rules))
        gpus = gpus_of(slices)
    if not are_same(objects.device_classes, then.device_classes):
        classes = {each.name: each for each in map(_class, in_order(objects.device_classes))}
    if slices is before.slices and classes is before.classes:
        return before
    return Devices(objects=objects, slices=slices, classes=classes, gpus=gpus)


def are_same(objects: Sequence[object], before: Sequence[object]) -> bool:
    """Return whether both have identical objects in the same order."""
    return len(objects) == len(before) and all(map(is_, objects, before))


def newest(slices: Iterable[api.ResourceSlice]) -> list[api.ResourceSlice]:
    """Return the slices of the newest generation of each pool; older ones describe devices that may be gone."""
    ordered = list(slices)
    generations: dict[tuple[str, str], int] = {}
    for source in ordered:
        key = _pool(source)
        generations[key] = max(generations.get(key, 0), source.spec.pool.generation)
    return [source for source in ordered if source.spec.pool.generation == generations[_pool(source)]]


def _slices(sources: Sequence[api.ResourceSlice], rules: Sequence[api.DeviceTaintRule]) -> tuple[DeviceSlice, ...]:
    """Return slices, each with whether its pool is incomplete; a pool without a number of slices is complete.

    Devices have the taints of ``rules`` beside their own.

    A driver that publishes a pool anew writes slice by slice. An allocation from the first slices might pick a device
    that a later slice describes differently.

    Source: Kubernetes' allocator, which takes no device of an incomplete pool.
    """
    there = Counter(map(_pool, sources))
    return tuple(
        _slice(each, rules, unfinished=each.spec.pool.resource_slice_count not in (0, there[_pool(each)]))
        for each in sources
    )


def _pool(source: api.ResourceSlice) -> tuple[str, str]:
    return (source.spec.driver, source.spec.pool.name)


def _class(source: api.DeviceClass) -> DeviceClass:
    return DeviceClass(
        name=source.metadata.name,
        selectors=expressions_of(source.spec.selectors),
        config=tuple(map(config_of, source.spec.config)),
        extended_resource=source.spec.extended_resource_name or "",
        created=source.metadata.creation_timestamp or 0.0,
    )


def _slice(source: api.ResourceSlice, rules: Iterable[api.DeviceTaintRule], *, unfinished: bool) -> DeviceSlice:
    spec, tainting = source.spec, _tainting(source, rules)
    return DeviceSlice(
        name=source.metadata.name,
        driver=spec.driver,
        pool=spec.pool.name,
        devices=tuple(_device(device, spec.driver, tainting) for device in spec.devices),
        node=spec.node_name or "",
        all_nodes=bool(spec.all_nodes),
        nodes=traits.node_terms(spec.node_selector),
        counters=tuple(
            (group.name, name, thousandths(counter.value))
            for group in spec.shared_counters
            for name, counter in sorted(group.counters.items())
        ),
        unfinished=unfinished,
    )


def _tainting(
    source: api.ResourceSlice, rules: Iterable[api.DeviceTaintRule]
) -> Sequence[tuple[str | None, api.DeviceTaint]]:
    """Return the taints that ``rules`` put on devices of a slice, each with the name of its device (None: all)."""
    driver, pool = _pool(source)
    return [
        (by.device, rule.spec.taint)
        for rule in rules
        if (by := rule.spec.device_selector) is not None and by.driver in (None, driver) and by.pool in (None, pool)
    ]


def _device(source: api.Device, driver: str, tainting: Sequence[tuple[str | None, api.DeviceTaint]]) -> Device:
    taints = (*source.taints, *(taint for name, taint in tainting if name in (None, source.name)))
    return Device(
        name=source.name,
        attributes={
            qualified(name, driver): value
            for name, each in source.attributes.items()
            if (value := _attribute(each)) is not None
        },
        capacity={name: thousandths(each.value) for name, each in source.capacity.items()},
        policies={
            name: _policy(each.request_policy)
            for name, each in source.capacity.items()
            if each.request_policy is not None
        },
        node=source.node_name or "",
        all_nodes=bool(source.all_nodes),
        nodes=traits.node_terms(source.node_selector),
        counters=tuple(
            (group.counter_set, name, thousandths(counter.value))
            for group in source.consumes_counters
            for name, counter in sorted(group.counters.items())
        ),
        multiple_allocations=bool(source.allow_multiple_allocations),
        # A taint with the effect None only informs.
        taints=tuple(Taint(each.key, each.value, each.effect) for each in taints if each.effect != "None"),
        binds_to_node=bool(source.binds_to_node),
        attached_later=bool(source.binding_conditions),
    )


def _policy(source: api.CapacityRequestPolicy) -> SharePolicy:
    bounds = source.valid_range or api.CapacityRequestPolicyRange()
    return SharePolicy(
        default=_amount(source.default),
        values=tuple(map(thousandths, source.valid_values)),
        ranged=source.valid_range is not None,
        least=_amount(bounds.min) or 0,
        most=_amount(bounds.max),
        step=_amount(bounds.step) or 0,
    )


def _amount(source: str | None) -> int | None:
    return None if source is None else thousandths(source)


def thousandths(text: str) -> int:
    """Return a quantity in thousandths of its unit, clamped to 64 bits.

    Raises: BadValue if the text is not a quantity, or one that does not fit into 64 bits in whole units.
    """
    whole = quantity.amount(text)
    # A capacity that no request can reach must not make the device unreadable.
    return quantity.amount(text, CAPACITY_PARTS) if whole <= _LARGEST // CAPACITY_PARTS else _LARGEST


def _attribute(source: api.DeviceAttribute) -> str | int | bool | None:
    """Return the value of an attribute; None for an unknown type, in which no two devices agree."""
    version = None if source.version is None else VersionText(source.version)
    # The API server lets one of them be set.
    values = (source.int_, source.bool_, source.string, version)
    return next((value for value in values if value is not None), None)


def amounts_of(source: Mapping[str, object]) -> tuple[tuple[str, int], ...]:
    """Return amounts by name from raw JSON; invalid quantities are left out."""
    found: list[tuple[str, int]] = []
    for name, text in sorted(source.items()):
        try:
            found.append((name, thousandths(str(text))))
        except BadValue:
            continue
    return tuple(found)


def config_of(source: JsonObject) -> DeviceConfig:
    """Return the configuration that is passed to a driver."""
    # Requests say for whom it is; what remains is meant for the driver alone.
    body = {key: value for key, value in source.items() if key != "requests"}
    return DeviceConfig(
        body=json.dumps(body, sort_keys=True, default=dict),
        requests=tuple(map(str, list_of(source, "requests"))),
    )


def expressions_of(selectors: Iterable[api.DeviceSelector]) -> tuple[str, ...]:
    """Return the expressions of selectors."""
    return tuple(each.cel.expression for each in selectors if each.cel is not None)
