"""From a snapshot to the tables that kernels read and the arena in which a cycle begins."""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import numpy as np

from kai.facts.kernels.columns import Facts, GroupFacts, NodeFacts, PodFacts, QueueFacts, ShapeFacts
from kai.facts.model.axis import GPU, GPU_UNIT, NONE, PLUGGED_GPU, Bools, Float64s, Int64s, locked
from kai.facts.model.groups import UNLIMITED, ModelBounds, Queue, Shares, lower_quotas, models_in, next_change
from kai.facts.model.pod import GpuKind, Node, Shape
from kai.facts.model.units import backed_name
from kai.facts.state.kept import ByLeaf, GroupColumns, SubGroupColumns, node_columns
from kai.facts.state.memory import Memory
from kai.facts.state.snapshot import Snapshot

_SLOTS: Final = "slots of nodes"
_NAMED: Final = "named models"


def _triples(shares: list[Shares]) -> Float64s:
    return np.array([(s.cpu, s.memory, s.gpu) for s in shares], np.float64).reshape(len(shares), 3)


def slot_table(snapshot: Snapshot) -> tuple[Int64s, tuple[str, ...], dict[tuple[int, str], int]]:
    """Return where the slots of each node begin [N + 1], the name of each slot, and slot rows by (node, name).

    A slot that does not exist yet has the name "".

    A node gets a slot for every shared device, and as many more as a cycle can open. Each new shared device comes from
    a whole one that is idle or being released, and a device that is being released may be opened once more under a new
    name.
    """
    # Asked of shapes and not of pods: a cluster without sharing pays a few looks and no column of slots.
    if not any(row.shared for row in shape_rows(snapshot)):
        start = snapshot.memory.once("no slots", (snapshot.nodes,), lambda: _no_slots(len(snapshot.nodes)))
        return start, (), {}
    held = _shared_devices(snapshot)
    # Compared by value, as opposed to `once`: the set is built anew for each snapshot, and equal sets keep the names
    # and rows that other tables are memoized with.
    known = snapshot.memory.recall(_SLOTS)
    if not isinstance(known, _Slots) or known.nodes is not snapshot.nodes or known.held != held:
        known = _slots(snapshot.nodes, held)
        snapshot.memory.keep(_SLOTS, known)
    return known.start, known.names, known.rows


class _Slots(NamedTuple):
    """The slots of nodes with these shared devices. Most cycles find the same as the one before."""

    nodes: Sequence[Node]
    held: frozenset[tuple[int, str]]
    """Node and name of each shared device."""
    start: Int64s
    names: tuple[str, ...]
    rows: dict[tuple[int, str], int]


def _shared_devices(snapshot: Snapshot) -> frozenset[tuple[int, str]]:
    """Return the shared devices that pods hold, by node and name."""
    found: set[tuple[int, str]] = set()
    for pod, devices in snapshot.pod_devices.items():
        node = int(snapshot.pod_node[pod])
        if node >= 0 and snapshot.shapes[snapshot.pod_shape[pod]].gpu.shared:
            found.update((node, name) for name in devices)
    return frozenset(found)


def _no_slots(nodes: int) -> Int64s:
    return locked(np.zeros(nodes + 1, np.int64))


def _slots(nodes: Sequence[Node], held: frozenset[tuple[int, str]]) -> _Slots:
    existing: dict[int, list[str]] = {}
    # Sorted, since the order of a set differs between processes and slots are tried by their rows.
    for node, name in sorted(held):
        existing.setdefault(node, []).append(name)
    start = [0]
    names: list[str] = []
    rows: dict[tuple[int, str], int] = {}
    for node, facts in enumerate(nodes):
        here = existing.get(node, ())
        for name in here:
            rows[node, name] = len(names)
            names.append(name)
        count = max(facts.gpu_count, facts.allocatable.get("gpu", 0) // GPU_UNIT)
        names += [""] * (2 * count + len(here))
        start.append(len(names))
    return _Slots(nodes, held, locked(np.array(start, np.int64)), tuple(names), rows)


def node_facts(snapshot: Snapshot, slot_start: Int64s, slot_names: tuple[str, ...]) -> NodeFacts:
    """Return the node table; the same object as long as its inputs are unchanged."""
    nodes, axis, columns = snapshot.nodes, snapshot.axis, node_columns(snapshot)
    classes, models = snapshot.catalog.claims.classes, _models_of_nodes(snapshot)

    def table(legacy: Bools) -> NodeFacts:
        return NodeFacts(
            **columns._asdict(),
            legacy_mig=legacy,
            slot_start=slot_start,
            slot_named=named_slots(snapshot.memory, slot_names),
            model=models,
            gpu_weight=axis.gpu_weights(),
            mig_resource=axis.mig(),
            claimable=claimable(snapshot),
            credits=np.zeros((2, len(nodes)), np.int64),
            books_as_peer=False,
        )

    legacy = np.zeros(len(nodes), np.bool_)
    old_fashioned = shape_columns(snapshot).legacy_mig
    if not old_fashioned.any():
        inputs = (nodes, axis, classes, models, slot_start, slot_names, *columns)
        return snapshot.memory.once("node table", inputs, lambda: table(legacy))
    # It depends on where these pods are, so the table is made anew for each snapshot.
    held = snapshot.pod_node[old_fashioned[snapshot.pod_shape]]
    legacy[held[held >= 0]] = True
    return table(legacy)


def named_models(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the models of GPUs that queues name, by name; the same tuple as long as these do not change."""
    queues, memory = snapshot.queues, snapshot.memory
    found = memory.once("models in queues", (queues,), lambda: models_in(queues))
    known = memory.recall(_NAMED)
    # Queues change often, for amounts and shares; the models that they name hardly ever. The former tuple is given so
    # that tables made with it stay.
    if isinstance(known, tuple) and known == found:
        return known
    memory.keep(_NAMED, found)
    return found


def _models_of_nodes(snapshot: Snapshot) -> Int64s:
    """Return int64[N]: the place of each node's model among the named ones, -1 for another."""
    nodes, named = snapshot.nodes, named_models(snapshot)

    def models() -> Int64s:
        places = {model: at for at, model in enumerate(named)}
        if not named:
            return locked(np.full(len(nodes), NONE, np.int64))
        return locked(np.array([places.get(node.gpu_model, NONE) for node in nodes], np.int64))

    return snapshot.memory.once("models of nodes", (nodes, named), models)


def named_slots(memory: Memory, slot_names: tuple[str, ...]) -> Bools:
    """Return bool[S]: slots that have a name; the array must not be written."""

    def named() -> Bools:
        return locked(np.array([bool(name) for name in slot_names], np.bool_))

    return memory.once("named slots", (slot_names,), named)


def claimable(snapshot: Snapshot) -> Bools:
    """Return bool[R]: extended resources that a device class backs.

    A node's GPU amount includes the GPUs of drivers, so only GPUs of a device plugin can be missing.
    """
    classes = snapshot.catalog.claims.classes.values()
    backed = {name for each in classes for name in each.extended_resources}
    if any(backed_name(name) == "gpu" for name in backed):
        backed.add(PLUGGED_GPU)
    return np.array([name in backed for name in snapshot.axis.names], np.bool_)


class ShapeRow(NamedTuple):
    """The GPU request of a shape, besides amounts."""

    kind: int
    devices: int
    portion: float
    memory: int
    claimed: int
    not_had: int
    legacy_mig: bool
    shared: bool


class ShapeColumns(NamedTuple):
    """The same fields for all shapes [K]."""

    kind: Int64s
    devices: Int64s
    portion: Float64s
    memory: Int64s
    claimed: Int64s
    not_had: Int64s
    legacy_mig: Bools


def shape_rows(snapshot: Snapshot) -> tuple[ShapeRow, ...]:
    """Return the GPU request of each shape, read once per shape."""
    return snapshot.by_shape("GPUs of shapes", _shape_row)


def _shape_row(shape: Shape) -> ShapeRow:
    gpu = shape.gpu
    return ShapeRow(
        kind=int(gpu.kind),
        devices=gpu.devices if gpu.shared else 0,
        portion=gpu.portion if gpu.kind == GpuKind.FRACTION else 0.0,
        memory=gpu.memory,
        claimed=gpu.claimed,
        not_had=gpu.not_had,
        legacy_mig=gpu.legacy_mig,
        shared=gpu.shared,
    )


def shape_columns(snapshot: Snapshot) -> ShapeColumns:
    """Return the columns of all shapes."""

    def columns() -> ShapeColumns:
        kind, devices, portion, memory, claimed, not_had, legacy, _ = zip(*rows, strict=True) if rows else ((),) * 8
        whole = (np.array(column, np.int64) for column in (kind, devices, memory, claimed, not_had))
        kinds, counts, memories, claims, parts = whole
        return ShapeColumns(
            kind=kinds,
            devices=counts,
            portion=np.array(portion, np.float64),
            memory=memories,
            claimed=claims,
            not_had=parts,
            legacy_mig=np.array(legacy, np.bool_),
        )

    rows = shape_rows(snapshot)
    return snapshot.memory.once("columns of shapes", (rows,), columns)


def shape_facts(snapshot: Snapshot) -> ShapeFacts:
    """Return the shape table; masks and scores point to the neutral row until plugins have answered."""
    shapes, columns, requests = snapshot.shapes, shape_columns(snapshot), snapshot.requests

    def table() -> ShapeFacts:
        return ShapeFacts(
            request=requests,
            kind=columns.kind,
            devices=columns.devices,
            portion=columns.portion,
            memory=columns.memory,
            claimed=columns.claimed,
            not_had=columns.not_had,
            legacy_mig=columns.legacy_mig,
            mask=np.zeros(len(shapes), np.int64),
            score=np.zeros(len(shapes), np.int64),
            credit=np.zeros(len(shapes), np.bool_),
        )

    return snapshot.memory.once("shape table", (columns, requests), table)


def pod_facts(snapshot: Snapshot) -> PodFacts:
    """Return the pod table. Cost: that of pods that may have changed places, while sub-groups keep their rows."""
    group, subgroup, first = snapshot.pod_group, snapshot.pod_subgroup, snapshot.first_subgroup

    def read(rows: Sequence[int]) -> tuple[Int64s]:
        some = slice(None) if len(rows) == len(group) else rows
        found: Int64s = first[group[some]] + subgroup[some]
        # The row that was computed for them belongs to another group.
        found[(group[some] | subgroup[some]) < 0] = NONE  # one of the two is negative
        return (found,)

    (leaf,) = snapshot.memory.rows.columns("leaves", snapshot.versions.assigned, len(group), read, (first,))
    return PodFacts(shape=snapshot.pod_shape, group=group, leaf=leaf, reservation=snapshot.pod_reservation)


def group_facts(snapshot: Snapshot, groups: GroupColumns, subgroups: SubGroupColumns, by_leaf: ByLeaf) -> GroupFacts:
    """Return the tables of groups and sub-groups; ``by_leaf`` are the pods of sub-groups and where each one's begin."""
    start, pods = by_leaf
    return GroupFacts(
        queue=groups.queue,
        preemptible=groups.preemptible,
        simple=subgroups.simple,
        first_subgroup=snapshot.first_subgroup,
        minimum=subgroups.minimum,
        leaf=subgroups.leaf,
        parent=subgroups.parent,
        pod_start=start,
        pods=pods,
        bound=np.full(len(groups.queue), -1, np.int64),
        ahead=_falls_before_end(snapshot, groups),
        each_leaf=False,
    )


def _falls_before_end(snapshot: Snapshot, groups: GroupColumns) -> Int64s:
    """Return int64[G]: how many of the instants at which a quota falls come before the end of each group.

    Groups without an end count all instants; preemptible groups do too, since a fall does not concern them.
    """
    instants, count = _falls(snapshot), len(snapshot.groups)
    # Ends move with the clock for groups that wait, so only clusters with such groups pay for this column in each
    # cycle.
    bounded = ~groups.preemptible & np.isfinite(groups.runs) if len(instants) else None
    if bounded is None or not bounded.any():
        inputs = (instants, groups.queue)
        return snapshot.memory.once("no ends", inputs, lambda: locked(np.full(count, len(instants), np.int64)))
    now = snapshot.now
    ends = np.maximum(now, np.where(np.isnan(groups.runs_since), now, groups.runs_since) + groups.runs)
    return np.where(bounded, np.searchsorted(instants, ends, "left"), len(instants))


def _falls(snapshot: Snapshot) -> Float64s:
    """Return the instants at which the quota of some queue falls, ascending."""
    queues = snapshot.queues

    def find() -> Float64s:
        return np.array(sorted({at for queue in queues for at, _ in lower_quotas(queue)}), np.float64)

    return snapshot.memory.once("falls of quotas", (queues,), find)


def queue_facts(snapshot: Snapshot) -> QueueFacts:
    """Return the queue table; the plugin that divides (proportion) fills shares and totals."""
    return snapshot.memory.once(
        "queue table", (snapshot.queues,), lambda: _queue_table(snapshot.queues, _falls(snapshot))
    )


def next_quota_change(snapshot: Snapshot) -> float:
    """Return when the clock may change the amounts of a queue or its budgets next; infinity for never.

    Units: seconds since the epoch.
    """
    queues = snapshot.queues
    change = snapshot.memory.once("next quota change", (queues,), lambda: next_change(queues))
    return change if snapshot.budgets is None else min(change, snapshot.budgets.next_change)


def _queue_table(queues: Sequence[Queue], instants: Float64s) -> QueueFacts:
    falls = [lower_quotas(queue) for queue in queues]
    # A queue is a leaf unless another names it as parent, whatever its own fields say.
    leaf = np.ones(len(queues), np.bool_)
    for queue in queues:
        if queue.parent >= 0:
            leaf[queue.parent] = False
    return QueueFacts(
        parent=np.array([queue.parent for queue in queues], np.int64),
        quota=_triples([queue.quota for queue in queues]),
        fall_start=np.cumsum([0, *map(len, falls)], dtype=np.int64),
        falls=np.searchsorted(instants, [at for each in falls for at, _ in each]).astype(np.int64),
        fallen=_triples([lower for each in falls for _, lower in each]),
        limit=_triples([queue.limit for queue in queues]),
        model_limit=_of_models(queues, lambda bounds: bounds.limit, UNLIMITED),
        model_quota=_of_models(queues, lambda bounds: bounds.quota, 0.0),
        deserved=np.zeros((len(queues), 0), np.int64),
        fair_share=np.zeros((len(queues), 3), np.float64),
        allocatable=np.zeros((len(queues), 3), np.float64),
        priority=np.array([queue.priority for queue in queues], np.int64),
        rank=np.zeros(len(queues), np.int64),
        past_use=np.zeros(len(queues), np.float64),
        created=np.array([queue.created for queue in queues], np.float64),
        leaf=leaf,
        total=np.zeros(3, np.float64),
    )


def _of_models(queues: Sequence[Queue], read: Callable[[ModelBounds], float], otherwise: float) -> Float64s:
    """Return float64[Q, M]: what ``read`` returns for each model that a queue names, ``otherwise`` for the others."""
    named = models_in(queues)
    out = np.full((len(queues), len(named)), otherwise)
    for row, queue in enumerate(queues):
        for at, model in enumerate(named):
            if model in queue.models:
                out[row, at] = read(queue.models[model])
    return out


def requested_amounts(snapshot: Snapshot, facts: NodeFacts, *, largest: bool, able: bool = True) -> Float64s:
    """Return float64[K, 3]: CPU, memory and GPU that one pod of each shape is assumed to request before it has a node.

    A request by GPU memory counts as a part of a device: see ``gpus_by_memory``. Demand and order use the smallest
    part, limits the largest. The array is the same as long as shapes and nodes are, and must not be changed.
    """
    requests, shapes, weight = snapshot.requests, snapshot.shapes, facts.gpu_weight

    def amounts() -> Float64s:
        out = np.zeros((len(shapes), 3), np.float64)
        out[:, :2] = requests[:, :2]
        by_memory = gpus_by_memory(snapshot, largest=largest, able=able)
        out[:, GPU] = np.where(shape_columns(snapshot).kind == GpuKind.MEMORY, by_memory, requests @ weight)
        for row, shape in enumerate(shapes):
            if shape.gpu.spared:
                out[row, GPU] = max(0.0, out[row, GPU] - shape.gpu.spared)
        return out

    inputs = (shapes, requests, weight, snapshot.gpu_memories)
    return snapshot.memory.once(f"requested amounts {largest} {able}", inputs, amounts)


def gpus_by_memory(snapshot: Snapshot, *, largest: bool, able: bool = True) -> Float64s:
    """Return float64[K]: thousandths of devices for each shape that requests GPU memory.

    The memory is compared with the smallest device that can hold the pod, or with the ``largest``; if none can, with
    the smallest or largest of all. Rounding is as for a pod on a node (``kai.facts.kernels.booking``). 0 for other
    requests, and for all if no device's memory is known. Without ``able``, devices that are too small count too.

    Source: the peer compares with all devices, even those too small for the pod, and does not round the request.
    """
    known, out = snapshot.gpu_memories, np.zeros(len(snapshot.shapes), np.float64)
    for row in np.flatnonzero(shape_columns(snapshot).kind == GpuKind.MEMORY).tolist() if known else ():
        gpu = snapshot.shapes[row].gpu
        counting = [memory for memory in known if memory >= gpu.memory or not able] or known
        out[row] = max(1, GPU_UNIT * gpu.memory // (counting[-1] if largest else counting[0])) * gpu.devices
    return out


__all__ = [
    "Facts",
    "claimable",
    "gpus_by_memory",
    "group_facts",
    "named_slots",
    "node_facts",
    "pod_facts",
    "queue_facts",
    "requested_amounts",
    "shape_facts",
    "slot_table",
]
