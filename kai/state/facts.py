"""From a snapshot to the tables that kernels read and the arena in which a cycle begins."""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.kernels.columns import Facts, GroupFacts, NodeFacts, PodFacts, QueueFacts, ShapeFacts
from kai.model.axis import GPU, GPU_UNIT
from kai.model.pod import GpuKind
from kai.model.podgroup import PodGroup, SubGroup
from kai.model.queue import Shares
from kai.model.rows import Bools, Float64s, Int64s
from kai.state.snapshot import Snapshot


def _triples(shares: list[Shares]) -> Float64s:
    return np.array([(s.cpu, s.memory, s.gpu) for s in shares], np.float64).reshape(len(shares), 3)


def slot_table(snapshot: Snapshot) -> tuple[Int64s, tuple[str, ...], dict[tuple[int, str], int]]:
    """Return where the slots of each node begin [N + 1], the name of each slot, and slot rows by (node, name).

    A slot that does not exist yet has the name "".

    A node gets a slot for every shared device it has and room for as many new ones as a cycle can open: each new
    device is a whole one that is idle or being released, and a device that is being released may be opened once more
    under a new name.
    """
    sharing = any(shape.gpu.shared for shape in snapshot.shapes)
    existing: list[set[str]] = [set() for _ in snapshot.nodes]
    for pod, devices in snapshot.pod_devices.items():
        node = int(snapshot.pod_node[pod])
        if node >= 0 and snapshot.shapes[snapshot.pod_shape[pod]].gpu.shared:
            existing[node].update(devices)
    start = [0]
    names: list[str] = []
    rows: dict[tuple[int, str], int] = {}
    for node, facts in enumerate(snapshot.nodes):
        for name in sorted(existing[node]):
            rows[node, name] = len(names)
            names.append(name)
        count = max(facts.gpu_count, facts.allocatable.get("gpu", 0) // GPU_UNIT)
        names += [""] * (2 * count + len(existing[node]) if sharing else 0)
        start.append(len(names))
    return np.array(start, np.int64), tuple(names), rows


def node_facts(snapshot: Snapshot, slot_start: Int64s, slot_names: tuple[str, ...]) -> NodeFacts:
    """Return the node table."""
    nodes, axis = snapshot.nodes, snapshot.axis
    legacy = np.zeros(len(nodes), np.bool_)
    old_fashioned = np.array([shape.gpu.legacy_mig for shape in snapshot.shapes], np.bool_)
    if old_fashioned.any():
        held = snapshot.pod_node[old_fashioned[snapshot.pod_shape]]
        legacy[held[held >= 0]] = True
    # Nodes of one kind share their amounts, so most vectors are made once.
    vectors = {
        id(node.allocatable): axis.vector(node.allocatable) for node in {id(n.allocatable): n for n in nodes}.values()
    }
    rows = [vectors[id(node.allocatable)] for node in nodes]
    return NodeFacts(
        allocatable=np.array(rows, np.int64).reshape(len(nodes), len(axis)),
        gpu_memory=np.array([node.gpu_memory for node in nodes], np.int64),
        gpu_memory_known=np.array([node.gpu_memory_known for node in nodes], np.bool_),
        gpu_count=np.array([node.gpu_count for node in nodes], np.int64),
        mig_enabled=np.array([node.mig_enabled for node in nodes], np.bool_),
        mig_strategy=np.array([node.mig_strategy for node in nodes], np.int64),
        cpu_only=np.array(
            [not node.mig_enabled and node.allocatable.get("gpu", 0) <= 0 and not node.dra_gpus for node in nodes],
            np.bool_,
        ),
        dra_gpus=np.array([node.dra_gpus > 0 for node in nodes], np.bool_),
        ready=np.array([node.ready for node in nodes], np.bool_),
        legacy_mig=legacy,
        slot_start=slot_start,
        slot_named=np.array([bool(name) for name in slot_names], np.bool_),
        gpu_weight=axis.gpu_weights(),
        mig_resource=axis.mig(),
        claimable=_claimable(snapshot),
        credits=np.zeros((2, len(nodes)), np.int64),
    )


def _claimable(snapshot: Snapshot) -> Bools:
    """Return bool[R]: extended resources that a device class backs. GPUs of drivers are part of what nodes have."""
    backed = {each.extended_resource for each in snapshot.catalog.claims.classes.values()}
    return np.array([name in backed for name in snapshot.axis.names], np.bool_)


def shape_facts(snapshot: Snapshot) -> ShapeFacts:
    """Return the shape table; masks and scores point to the neutral row until the policy has answers."""
    shapes = snapshot.shapes
    return ShapeFacts(
        request=snapshot.requests,
        kind=np.array([shape.gpu.kind for shape in shapes], np.int64),
        devices=np.array([shape.gpu.devices if shape.gpu.shared else 0 for shape in shapes], np.int64),
        portion=np.array(
            [shape.gpu.portion if shape.gpu.kind == GpuKind.FRACTION else 0.0 for shape in shapes], np.float64
        ),
        memory=np.array([shape.gpu.memory for shape in shapes], np.int64),
        claimed=np.array([shape.gpu.claimed for shape in shapes], np.int64),
        legacy_mig=np.array([shape.gpu.legacy_mig for shape in shapes], np.bool_),
        mask=np.zeros(len(shapes), np.int64),
        score=np.zeros(len(shapes), np.int64),
        credit=np.zeros(len(shapes), np.bool_),
    )


def pod_facts(snapshot: Snapshot) -> PodFacts:
    """Return the pod table."""
    group = snapshot.pod_group
    leaf = np.full(len(snapshot.pods), -1, np.int64)
    known = (group >= 0) & (snapshot.pod_subgroup >= 0)
    leaf[known] = snapshot.first_subgroup[group[known]] + snapshot.pod_subgroup[known]
    return PodFacts(shape=snapshot.pod_shape, group=group, leaf=leaf, reservation=snapshot.pod_reservation)


@attrs.frozen(kw_only=True, eq=False)
class TreeFacts:
    """Columns of one tree of sub-groups; rows count from its root."""

    minimum: Int64s
    parent: Int64s
    """-1 for the root."""
    leaf: Bools
    simple: bool
    """The tree is a root with one leaf, and nothing constrains where its pods go."""

    @classmethod
    def of(cls, subgroups: tuple[SubGroup, ...]) -> "TreeFacts":
        """Return the columns of ``subgroups``."""
        children = [0] * len(subgroups)
        for subgroup in subgroups:
            if subgroup.parent >= 0:
                children[subgroup.parent] += 1
        wanted = [children[at] if s.minimum is None and not s.leaf else s.minimum for at, s in enumerate(subgroups)]
        minimum = np.array([1 if count is None else count for count in wanted], np.int64)
        leaf = np.array([subgroup.leaf for subgroup in subgroups], np.bool_)
        free = not any(subgroup.constraint for subgroup in subgroups)
        simple = free and len(subgroups) == 2 and bool(leaf[1]) and minimum[0] == 1
        return cls(
            minimum=minimum,
            parent=np.array([subgroup.parent for subgroup in subgroups], np.int64),
            leaf=leaf,
            simple=bool(simple),
        )


def tree_facts(groups: Sequence[PodGroup]) -> list[TreeFacts]:
    """Return the columns of each group's tree; groups that share a tree share them."""
    known: dict[int, TreeFacts] = {}
    out = []
    for group in groups:
        tree = known.get(id(group.subgroups))
        if tree is None:
            tree = known[id(group.subgroups)] = TreeFacts.of(group.subgroups)
        out.append(tree)
    return out


def pods_by_leaf(leaf: Int64s, pod_order: Int64s, subgroups: int) -> tuple[Int64s, Int64s]:
    """Return where the pods of each sub-group begin [B + 1], and the pods of all leaves, each leaf's in pod order."""
    ordered = pod_order[leaf[pod_order] >= 0]
    leaves = leaf[ordered]
    start = np.zeros(subgroups + 1, np.int64)
    np.cumsum(np.bincount(leaves, minlength=subgroups), out=start[1:])
    return start, np.ascontiguousarray(ordered[np.argsort(leaves, kind="stable")], np.int64)


def group_facts(snapshot: Snapshot, pods: PodFacts, pod_order: Int64s) -> GroupFacts:
    """Return the tables of groups and sub-groups; ``pod_order`` [P] lists all pods in pod order."""
    groups = snapshot.groups
    trees = tree_facts(groups)
    nothing = [np.zeros(0, np.int64)]
    base = snapshot.first_subgroup[:-1]
    parent = np.concatenate([tree.parent for tree in trees] or nothing)
    offset = np.repeat(base, np.diff(snapshot.first_subgroup))
    pod_start, by_leaf = pods_by_leaf(pods.leaf, pod_order, int(snapshot.first_subgroup[-1]))
    return GroupFacts(
        queue=np.array([group.queue_row for group in groups], np.int64),
        preemptible=np.array([group.preemptible for group in groups], np.bool_),
        simple=np.array([tree.simple for tree in trees], np.bool_),
        first_subgroup=snapshot.first_subgroup,
        minimum=np.concatenate([tree.minimum for tree in trees] or nothing),
        leaf=np.concatenate([tree.leaf for tree in trees] or [np.zeros(0, np.bool_)]),
        parent=np.where(parent >= 0, parent + offset, -1),
        pod_start=pod_start,
        pods=by_leaf,
    )


def queue_facts(snapshot: Snapshot) -> QueueFacts:
    """Return the queue table; shares and totals are filled by whoever divides them (the proportion plugin)."""
    queues = snapshot.queues
    leaf = np.ones(len(queues), np.bool_)
    for queue in queues:
        if queue.parent >= 0:
            leaf[queue.parent] = False
    return QueueFacts(
        parent=np.array([queue.parent for queue in queues], np.int64),
        quota=_triples([queue.quota for queue in queues]),
        limit=_triples([queue.limit for queue in queues]),
        fair_share=np.zeros((len(queues), 3), np.float64),
        allocatable=np.zeros((len(queues), 3), np.float64),
        priority=np.array([queue.priority for queue in queues], np.int64),
        created=np.array([queue.created for queue in queues], np.float64),
        leaf=leaf,
        total=np.zeros(3, np.float64),
    )


def requested_amounts(snapshot: Snapshot, facts: NodeFacts, per_device: int) -> Float64s:
    """Return float64[K, 3]: CPU, memory and GPU that one pod of each shape is taken to want before it has a node.

    A request by GPU memory counts as the part of a device with ``per_device`` MiB that it is; 0 when no device's
    memory is known. The peer uses the smallest device for demand and order, the largest for limits.
    """
    requests = snapshot.requests
    out = np.zeros((len(snapshot.shapes), 3), np.float64)
    out[:, :2] = requests[:, :2]
    out[:, GPU] = requests @ facts.gpu_weight
    for row, shape in enumerate(snapshot.shapes):
        if shape.gpu.kind == GpuKind.MEMORY:
            out[row, GPU] = GPU_UNIT * shape.gpu.devices * shape.gpu.memory / per_device if per_device else 0.0
    return out


__all__ = [
    "Facts",
    "group_facts",
    "node_facts",
    "pod_facts",
    "queue_facts",
    "requested_amounts",
    "shape_facts",
    "slot_table",
]
