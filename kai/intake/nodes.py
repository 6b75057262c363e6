"""Nodes: their resources, and their GPUs by labels."""

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from kai.api import names
from kai.api.conventions.gpu_sharing import gpu_model
from kai.api.kubernetes import node as api
from kai.basics import parsing
from kai.basics.kubernetes_version import V1_36
from kai.facts.model.axis import GPU_UNIT
from kai.facts.model.constraints import Taint
from kai.facts.model.partitions import Gpus
from kai.facts.model.pod import UNKNOWN_GPU_MEMORY, MigStrategy, Node
from kai.facts.model.units import amounts
from kai.intake.settings import IntakeSettings

_BYTES_FROM = 1 << 20
"""Such a label is in bytes: no GPU has this many MiB."""
_GPU_MEMORY_STEP = 100
_COUNT_BITS = 16
"""The most bits of a device count; a larger number is invalid, and tables are as long as the count."""
_MOST_GPUS = ((1 << _COUNT_BITS) - 1) * GPU_UNIT
_PRESSURES = frozenset({"MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"})
_STRATEGIES = {"single": MigStrategy.SINGLE, "mixed": MigStrategy.MIXED}


def is_wanted(source: api.Node, settings: IntakeSettings) -> bool:
    """Return whether the node is part of the snapshot."""
    labels = source.metadata.labels
    if settings.restrict_node_scheduling and not (
        settings.cpu_worker_label in labels or settings.gpu_worker_label in labels
    ):
        return False
    return settings.owns(labels)


@attrs.define(kw_only=True, eq=False)
class NodeRecord:
    """The record of one node, from its object and from other objects that describe it."""

    source: api.Node
    order: tuple[str, str]
    plain: Node | None
    """The node by its object alone; None for a node that is not part of the snapshot."""
    node: Node | None
    """The node, with the data from other objects."""
    products: frozenset[str] = frozenset()
    """The products of GPUs that drivers offered when ``node`` was made."""


class NodeReader:
    """Reads node objects; an object with the same content as the last of its name becomes the same node.

    Most changes of a node object are heartbeats.
    """

    def __init__(self, settings: IntakeSettings) -> None:
        self._settings = settings
        self._last: dict[str, NodeRecord] = {}

    def __len__(self) -> int:
        """Return the number of memoized node names."""
        return len(self._last)

    def read(self, source: api.Node) -> NodeRecord:
        """Return the record of a node."""
        name = source.metadata.name
        if not is_wanted(source, self._settings):
            return NodeRecord(source=source, order=("", name), plain=None, node=None)
        node, last = self._node(source), self._last.get(name)
        if last is not None and last.plain == node:
            # With the node of before: what follows from nodes compares identities, and sees no change in a heartbeat.
            record = attrs.evolve(last, source=source)
        else:
            record = NodeRecord(source=source, order=("", name), plain=node, node=node)
        self._last[name] = record
        return record

    def _node(self, source: api.Node) -> Node:
        labels = source.metadata.labels
        allocatable = amounts(tuple(source.status.allocatable.items()))
        if allocatable.get("gpu", 0) > _MOST_GPUS:
            allocatable = {**allocatable, "gpu": _MOST_GPUS}
        memory = _gpu_memory(labels.get(names.NODE_GPU_MEMORY, ""))
        return Node(
            name=source.metadata.name,
            labels=labels,
            allocatable=allocatable,
            taints=tuple([Taint(taint.key, taint.value, taint.effect) for taint in source.spec.taints]),
            unschedulable=source.spec.unschedulable,
            deleting=source.metadata.deletion_timestamp is not None,
            failing_conditions=_failing(source),
            gpu_memory=memory,
            gpu_memory_known=memory > UNKNOWN_GPU_MEMORY,
            gpu_count=_gpu_count(labels.get(names.NODE_GPU_COUNT, ""), allocatable),
            gpu_model=gpu_model(labels, has_gpus=_has_gpus(allocatable)),
            mig_enabled=_mig_enabled(labels.get(self._settings.mig_worker_label), allocatable),
            mig_strategy=_STRATEGIES.get(labels.get(names.NODE_MIG_STRATEGY, ""), MigStrategy.NONE),
            features=frozenset(source.status.declared_features) if self._settings.kubernetes >= V1_36 else None,
        )


@attrs.frozen
class Offered:
    """The GPUs that DRA drivers offer on a node, and the names of their products."""

    gpus: int = 0
    products: frozenset[str] = frozenset()


_NONE_OFFERED = Offered()


def offered_in(gpus: Gpus) -> Mapping[str, Offered]:
    """Return what DRA drivers offer, by node."""
    # A device that is tied to no node cannot be one of a node's GPUs.
    counts = Counter(gpu.node for gpu in gpus.all if gpu.node)
    products: dict[str, set[str]] = {}
    for gpu in gpus.all:
        for device in map(gpus.devices.get, gpu.devices if gpu.node else ()):
            named = None if device is None else device.product
            if named is not None:
                products.setdefault(gpu.node, set()).add(named)
    return {node: Offered(count, frozenset(products.get(node, ()))) for node, count in counts.items()}


def settle(records: Iterable[NodeRecord], gpus: Mapping[str, Offered]) -> tuple[Node, ...]:
    """Return the nodes with the GPUs that DRA drivers offer, which count like any others."""
    found: list[Node] = []
    for record in records:
        node = record.node
        if record.plain is None or node is None:
            continue
        offered = gpus.get(node.name, _NONE_OFFERED)
        if node.dra_gpus != offered.gpus or record.products != offered.products:
            record.node, record.products = _with(record.plain, offered), offered.products
            node = record.node
        found.append(node)
    return tuple(found)


def _with(node: Node, offered: Offered) -> Node:
    if not offered.gpus:
        return node
    allocatable = {**node.allocatable, "gpu": node.allocatable.get("gpu", 0) + offered.gpus * GPU_UNIT}
    model = gpu_model(node.labels, offered.products)
    count = _gpu_count(node.labels.get(names.NODE_GPU_COUNT, ""), allocatable)
    return attrs.evolve(node, allocatable=allocatable, gpu_count=count, gpu_model=model, dra_gpus=offered.gpus)


def _failing(source: api.Node) -> tuple[str, ...]:
    """Return the types of failing conditions; an absent condition keeps no pod away."""
    return tuple(
        condition.type
        for condition in source.status.conditions
        # Unknown counts as failing too: then the node has not been heard of for some time.
        if (condition.type == "Ready" and condition.status != "True")
        or (condition.type in _PRESSURES and condition.status != "False")
    )


def _gpu_memory(label: str) -> int:
    """Return the MiB of each GPU, rounded down to hundreds; an unusable label means "not known".

    Source: the peer's node_info, which rounds down so that devices of one model are equal.
    """
    memory = parsing.signed(label)
    if memory is None:
        return UNKNOWN_GPU_MEMORY
    if memory >= _BYTES_FROM:
        memory //= _BYTES_FROM
    memory -= memory % _GPU_MEMORY_STEP
    return memory if memory > 0 else UNKNOWN_GPU_MEMORY


def _gpu_count(label: str, allocatable: Mapping[str, int]) -> int:
    """Return the number of GPUs: that of the label, but no more than the node offers.

    The label also counts failed devices. If one of these were counted as spare, an account of shared GPUs would take a
    GPU in sharing for idle. For GPUs that are cut into slices, which are never shared, the label alone counts.
    """
    count, offered = parsing.unsigned(label, bits=_COUNT_BITS), allocatable.get("gpu", 0) // GPU_UNIT
    if count is None:
        return offered
    return count if _has_slices(allocatable) else min(count, offered)


def _mig_enabled(label: str | None, allocatable: Mapping[str, int]) -> bool:
    return _has_slices(allocatable) if label is None else parsing.truth(label) is True


def _has_gpus(allocatable: Mapping[str, int]) -> bool:
    return allocatable.get("gpu", 0) > 0 or _has_slices(allocatable)


def _has_slices(allocatable: Mapping[str, int]) -> bool:
    return any(name.startswith(names.MIG_PREFIX) and amount > 0 for name, amount in allocatable.items())
