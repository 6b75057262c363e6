"""Small and nasty clusters: snapshots drawn straight from the model, without manifests.

Everything that stands somewhere fits there, as in a real cluster: no node, device or place for pods is taken twice.
What is nasty about them are the mixtures: devices in sharing beside whole ones, devices that are being released, gangs
in trees, queues without anything, two objects made in the same second.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from zlib import crc32

import attrs
import numpy as np
from hypothesis import strategies as st

from kai.facts.model.axis import GPU_UNIT, ResourceAxis
from kai.facts.model.claim import RawObject
from kai.facts.model.constraints import TopologyConstraint
from kai.facts.model.groups import ModelBounds, PodGroup, Queue, Shares, SubGroup
from kai.facts.model.pod import (
    UNKNOWN_GPU_MEMORY,
    Constraints,
    GpuKind,
    GpuRequest,
    MigStrategy,
    Node,
    Pod,
    Shape,
    Status,
)
from kai.facts.state.snapshot import Snapshot

Draw = Callable[[st.SearchStrategy[Any]], Any]

NOW = 1_000_000.0
GB = 10**9
ZONE, RACK = "zone", "rack"
LEVELS = {"levels": [{"nodeLabel": ZONE}, {"nodeLabel": RACK}]}
TREE = RawObject(name="tree", labels={}, annotations={}, write=lambda: {"spec": LEVELS})
MIG = "nvidia.com/mig-2g.20gb"
SCHEDULER = "kai-scheduler"


def shape(cpu: int = 0, memory: int = 0, gpu: GpuRequest | None = None, *, mig: int = 0, **demands: Any) -> Shape:
    """Return the shape of a pod that asks for so many millicores, gigabytes and GPUs."""
    gpu = gpu or GpuRequest()
    amount = 0
    if gpu.kind is GpuKind.WHOLE:
        amount = gpu.devices * GPU_UNIT
    elif gpu.kind is GpuKind.FRACTION:
        amount = round(gpu.portion * 100) * gpu.devices * (GPU_UNIT // 100)
    asked = {"cpu": cpu, "memory": memory * GB, "gpu": amount, "pods": 1, MIG: mig}
    request = tuple(sorted((name, value) for name, value in asked.items() if value))
    if gpu.kind is GpuKind.WHOLE:
        gpu = attrs.evolve(gpu, devices=1)
    return Shape(request=request, gpu=gpu, constraints=Constraints(**demands))


def whole(devices: int = 1) -> GpuRequest:
    """Return a request for whole devices."""
    return GpuRequest(kind=GpuKind.WHOLE, devices=devices)


def fraction(portion: float, devices: int = 1) -> GpuRequest:
    """Return a request for a part of each of some devices."""
    return GpuRequest(kind=GpuKind.FRACTION, portion=portion, devices=devices)


def memory(mebibytes: int, devices: int = 1) -> GpuRequest:
    """Return a request for some memory of each of some devices."""
    return GpuRequest(kind=GpuKind.MEMORY, memory=mebibytes, devices=devices)


PLAIN = (
    shape(cpu=500, memory=1),
    shape(),
    shape(gpu=whole()),
    shape(cpu=1000, gpu=whole()),
    shape(gpu=whole(2)),
    shape(cpu=500, gpu=whole(), node_selector=((RACK, "a"),)),
)
SHARING = (
    shape(gpu=fraction(0.25)),
    shape(gpu=fraction(0.5)),
    shape(cpu=500, gpu=fraction(0.6)),
    shape(gpu=fraction(0.5, devices=2)),
    shape(gpu=memory(300)),
    shape(gpu=memory(5000)),
    shape(gpu=memory(700, devices=2)),
    shape(gpu=fraction(1.0)),
)
SLICES = (
    shape(gpu=GpuRequest(kind=GpuKind.MIG), mig=1),
    shape(gpu=GpuRequest(kind=GpuKind.MIG), mig=2),
    shape(gpu=GpuRequest(kind=GpuKind.MIG, legacy_mig=True), mig=1),
)
RESERVATION = shape(gpu=whole())
EVERY_SHAPE = PLAIN * 2 + SHARING + SLICES

GPUS_ONLY = (PLAIN[2], PLAIN[2], PLAIN[4], *SHARING)

_RACKS = (("a", "z"), ("b", "z"), ("c", "y"), ("", ""))
_AMOUNTS = (0.0, 1.0, 2.0, 4.0, -1.0)
_PLACED = (Status.RUNNING, Status.RUNNING, Status.RUNNING, Status.BINDING, Status.BOUND, Status.RELEASING)
_STANDING = (*_PLACED, Status.STUCK_IN_RELEASING)
_WAITING = (Status.PENDING, Status.PENDING, Status.PENDING, Status.PENDING, Status.GATED, Status.SUCCEEDED)


class _Row(st.SearchStrategy[tuple[Any, ...]]):
    """One value of each column, each as often as it stands there.

    It draws what tuples of ``st.sampled_from`` draw, from the same ranges. They note where the draw of each column
    begins and ends, and what may be copied there from others; in small tests that is most of the cost.
    """

    def __init__(self, columns: Iterable[Sequence[Any]]) -> None:
        super().__init__()
        self._columns = tuple((column, len(column) - 1) for column in columns)

    def calc_label(self) -> int:
        """Return the same for the same columns alone: rows with one label are copied over each other."""
        return crc32(repr(self._columns).encode())

    def do_draw(self, data: Any) -> tuple[Any, ...]:
        draw = data.draw_integer
        return tuple([column[draw(0, last)] for column, last in self._columns])


def one_of_each(*columns: Sequence[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Return a strategy for one value of each column."""
    return _Row(columns)


_nodes = one_of_each(
    (2, 1, 4, 2, 3, 0),  # devices
    (16300, 16300, 1000, UNKNOWN_GPU_MEMORY),  # MiB of each
    (64000, 8000, 2000),  # millicores
    (110, 5, 3),  # places for pods
    _RACKS,
    (0, 0, 0, 0, 0, 1, 2, 3),  # slices, or cordoned
)
_queues = one_of_each(
    (0, 1, 2, 3, -1),  # parent
    _AMOUNTS,  # quota of GPUs
    (-1.0, -1.0, -1.0, 2.0, 4.0, 0.5),  # limit of GPUs
    (0.0, 1.0, 1.0, 2.0),  # weight
    (100, 100, 100, 200),  # priority
    (0.0, 0.0, 1.0),  # made
    (False, True),  # only GPUs are bounded
)
MODELS = ("h100", "a100", "")
USERS = ("maria", "maria", "jo", "")
_bounds_of_users = st.sampled_from(
    (
        None,
        *(Shares(cpu=-1.0, memory=-1.0, gpu=gpu) for gpu in (1000.0, 1000.0, 2000.0, 500.0, 0.0, -1.0)),
        Shares(cpu=1000.0, memory=-1.0, gpu=2000.0),
    )
)
_bounds_of_models = st.dictionaries(
    st.sampled_from(("h100", "a100", "l4")),
    st.sampled_from((0.0, 500.0, 1000.0, 1000.0, 2000.0, 3000.0, -1.0)).map(lambda limit: ModelBounds(limit=limit)),
    max_size=2,
)
_quotas_of_models = st.dictionaries(
    st.sampled_from(("h100", "a100", "l4")),
    st.builds(
        ModelBounds,
        quota=st.sampled_from((0.0, 500.0, 1000.0, 1000.0, 2000.0, 3000.0, -1.0)),
        limit=st.sampled_from((-1.0, -1.0, 2000.0)),
    ),
    max_size=2,
)
_rivals = one_of_each(
    (-1, -1, 0),
    (1.0, 2.0, 0.0, 0.5),
    (-1.0,),
    (1.0, 1.0, 2.0),
    (100, 100, 200),
    (0.0, 1.0),
    (True,),
)
"""Queues that have no limits and little quota: what one gets, another has to give."""
_groups = one_of_each(
    (0, 1, 2, 3, 4, 5, 6, -1),  # queue
    (50, 50, 75, 100),  # priority
    (True, True, False),  # preemptible
    (0.0, 0.0, 1.0, 2.0),  # made
    range(9),  # tree
    (None, None, 30.0, 900_000.0),  # started so long ago
)
_pods = one_of_each(
    range(len(EVERY_SHAPE)),
    (-1, -1, 0, 1, 2, 0, 1),  # node, waiting below 0
    _STANDING,
    _WAITING,
    range(3),  # made
)


def _on_h100(wanted: Shape) -> Shape:
    return attrs.evolve(wanted, constraints=attrs.evolve(wanted.constraints, node_selector=(("model", "h100"),)))


def _leaf(name: str, minimum: int, parent: int = 0, constraint: TopologyConstraint | None = None) -> SubGroup:
    return SubGroup(name=name, parent=parent, leaf=True, minimum=minimum, constraint=constraint)


def _inner(name: str = "", parent: int = -1, minimum: int | None = None, level: str = "") -> SubGroup:
    constraint = TopologyConstraint(topology="tree", required=level) if level else None
    return SubGroup(name=name, parent=parent, leaf=False, minimum=minimum, constraint=constraint)


TREES: tuple[tuple[SubGroup, ...], ...] = (
    (_inner(), _leaf("default", 1)),
    (_inner(), _leaf("default", 1)),
    (_inner(), _leaf("default", 2)),
    (_inner(), _leaf("default", 3)),
    (_inner(), _leaf("default", 0)),
    (_inner(level=RACK), _leaf("default", 2)),
    (_inner(), _leaf("head", 1), _leaf("workers", 2)),
    (_inner(minimum=1), _leaf("one", 1), _leaf("two", 2)),
    (_inner(), _inner("left", 0, 1), _leaf("right", 1), _leaf("left-a", 1, 1), _leaf("left-b", 0, 1)),
)
WHOLE_TREES = tuple(tree for tree in TREES if all(each.leaf or each.minimum is None for each in tree))
"""Trees in which every leaf must be filled."""


@attrs.define
class _Left:
    """What is left of a node while pods are put on it."""

    node: Node
    amounts: dict[str, int]
    devices: dict[str, int]

    def takes(self, wanted: Shape, fresh: str) -> tuple[str, ...] | None:
        """Return the names of the shared devices that a pod gets, None if it has no place here."""
        asked = dict(wanted.request)
        gpus = asked.pop("gpu", 0)
        if not self._admits(wanted) or any(self.amounts.get(name, 0) < value for name, value in asked.items()):
            return None
        names: tuple[str, ...] = ()
        if wanted.gpu.shared:
            found = self._share(wanted, fresh)
            if found is None:
                return None
            names = found
        elif self.amounts["gpu"] < gpus:
            return None
        else:
            self.amounts["gpu"] -= gpus
        for name, value in asked.items():
            self.amounts[name] -= value
        return names

    def _admits(self, wanted: Shape) -> bool:
        if wanted.gpu.kind is GpuKind.MIG:
            return self.node.mig_enabled and not wanted.gpu.legacy_mig
        if wanted.gpu.kind is GpuKind.MEMORY and not self.node.gpu_memory_known:
            return False
        if wanted.gpu.kind is not GpuKind.NONE and self.node.mig_enabled:
            return False
        return all(self.node.labels.get(key) == value for key, value in wanted.constraints.node_selector)

    def _share(self, wanted: Shape, fresh: str) -> tuple[str, ...] | None:
        per_device = wanted.gpu.memory or int(wanted.gpu.portion * self.node.gpu_memory)
        if per_device > self.node.gpu_memory:
            return None
        names = [name for name, left in self.devices.items() if left >= per_device][: wanted.gpu.devices]
        missing = wanted.gpu.devices - len(names)
        if missing * GPU_UNIT > self.amounts["gpu"]:
            return None
        for at in range(missing):
            self.devices[f"{fresh}-{at}"] = self.node.gpu_memory
            names.append(f"{fresh}-{at}")
        self.amounts["gpu"] -= missing * GPU_UNIT
        for name in names:
            self.devices[name] -= per_device
        return tuple(names)


def _node(row: int, drawn: tuple[Any, ...]) -> Node:
    devices, per_device, cores, places, (rack, zone), special = drawn
    mig = special == 1
    amounts = {"cpu": cores, "memory": 64 * GB, "pods": places, "gpu": 0 if mig else devices * GPU_UNIT}
    if mig:
        amounts[MIG] = devices
    return Node(
        name=f"n{row}",
        labels={ZONE: zone, RACK: rack, "name": f"n{row}"} if rack else {"name": f"n{row}"},
        allocatable=amounts,
        gpu_memory=per_device,
        gpu_memory_known=per_device > UNKNOWN_GPU_MEMORY,
        gpu_count=0 if mig else devices,
        mig_enabled=mig,
        mig_strategy=MigStrategy.MIXED if mig else MigStrategy.NONE,
        unschedulable=special == 2,
    )


def _queue(row: int, drawn: tuple[Any, ...]) -> Queue:
    parent, quota, limit, weight, priority, created, only_gpus = drawn
    gpus = Shares(cpu=-1.0, memory=-1.0, gpu=quota if quota < 0 else quota * GPU_UNIT)
    bounds = Shares(cpu=-1.0, memory=-1.0, gpu=limit if limit < 0 else limit * GPU_UNIT)
    if not only_gpus:
        gpus = attrs.evolve(gpus, cpu=1000.0, memory=float(GB))
    return Queue(
        name=f"q{row}",
        # A queue hangs below one that was drawn before it, or below none.
        parent=parent if parent < row else -1,
        priority=priority,
        created=created,
        quota=gpus,
        limit=bounds,
        weight=Shares(cpu=weight, memory=weight, gpu=weight),
    )


def _group(row: int, drawn: tuple[Any, ...], leaves: Sequence[int], trees: Sequence[tuple[SubGroup, ...]]) -> PodGroup:
    queue, priority, preemptible, created, tree, started = drawn
    queue_row = leaves[queue % len(leaves)] if leaves and queue >= 0 else -1
    return PodGroup(
        name=f"g{row}",
        namespace="default",
        uid=f"g{row}",
        queue=f"q{queue_row}",
        queue_row=queue_row,
        priority=priority,
        preemptible=preemptible,
        created=created,
        subgroups=trees[tree % len(trees)],
        last_start=None if started is None else NOW - started,
    )


@attrs.define
class _Pods:
    """Pods while they are drawn: columns and what is left of the nodes."""

    left: list[_Left]
    pods: list[Pod] = attrs.Factory(list)
    shapes: list[Shape] = attrs.Factory(list)
    shape: list[int] = attrs.Factory(list)
    group: list[int] = attrs.Factory(list)
    subgroup: list[int] = attrs.Factory(list)
    status: list[int] = attrs.Factory(list)
    node: list[int] = attrs.Factory(list)
    devices: dict[int, tuple[str, ...]] = attrs.Factory(dict)
    reservations: list[int] = attrs.Factory(list)

    def reserve(self) -> None:
        """Add the pod that holds the first shared device: it asks for a whole one, which is not counted twice."""
        for at, left in enumerate(self.left):
            if left.devices and left.amounts["pods"]:
                left.amounts["pods"] -= 1
                self.reservations.append(len(self.pods))
                self._append(RESERVATION, -1, -1, Status.RUNNING, at, None, 0)
                return

    def add(self, drawn: tuple[Any, ...], wanted: Shape, group: int, subgroup: int, owner: PodGroup | None) -> None:
        """Add a pod: on the node it was drawn for if that has room, else waiting."""
        _, at, standing, waiting, created = drawn
        row = len(self.pods)
        at = at % len(self.left) if at >= 0 and self.left else -1
        names = self.left[at].takes(wanted, f"d{row}") if at >= 0 else None
        if names:
            self.devices[row] = names
        if names is None:
            self._append(wanted, group, subgroup, waiting, -1, owner, created)
        else:
            self._append(wanted, group, subgroup, standing, at, owner, created)

    def _append(
        self, wanted: Shape, group: int, subgroup: int, status: Status, node: int, owner: PodGroup | None, created: int
    ) -> None:
        if wanted not in self.shapes:
            self.shapes.append(wanted)
        name = f"p{len(self.pods):02d}"
        self.shape.append(self.shapes.index(wanted))
        self.group.append(group)
        self.subgroup.append(subgroup)
        self.status.append(int(status))
        self.node.append(node)
        self.pods.append(
            Pod(
                name=name,
                namespace="default",
                uid=name,
                created=float(created),
                scheduler=SCHEDULER if owner else "other",
                group=owner.name if owner else "",
                signature=repr(wanted.constraints),
            )
        )


@st.composite
def snapshots(
    draw: Draw,
    *,
    nodes: tuple[int, int] = (1, 3),
    queues: tuple[int, int] = (1, 5),
    groups: tuple[int, int] = (1, 5),
    pods: int = 4,
    shapes: Sequence[Shape] = EVERY_SHAPE,
    trees: Sequence[tuple[SubGroup, ...]] = TREES,
    rivals: bool = False,
    foreign: bool = True,
    models: bool = False,
    owed: bool = False,
    users: bool = False,
) -> Snapshot:
    """Draw a cluster with so many nodes, queues and groups (from, to) and up to ``pods`` pods for each leaf.

    ``models``: nodes have models of GPUs, and queues limits of these. ``owed``: queues have quotas of them, too, and
    some pods are bound to one. ``users``: queues limit what each user holds, and most groups have one.
    """
    if owed:
        # What has a right to one model alone is bound to it, and leaves GPUs of others idle.
        shapes = (*map(_on_h100, shapes), *map(_on_h100, shapes), *shapes)
    node_objects = [
        _node(row, drawn) for row, drawn in enumerate(draw(st.lists(_nodes, min_size=nodes[0], max_size=nodes[1])))
    ]
    drawn_queues = draw(st.lists(_rivals if rivals else _queues, min_size=queues[0], max_size=queues[1]))
    queue_objects = [_queue(row, drawn) for row, drawn in enumerate(drawn_queues)]
    if models:
        node_objects = [
            attrs.evolve(node, gpu_model=draw(st.sampled_from(MODELS[: 3 - owed]))) for node in node_objects
        ]
        bounds = _quotas_of_models if owed else _bounds_of_models
        queue_objects = [attrs.evolve(queue, models=draw(bounds)) for queue in queue_objects]
        if owed:
            node_objects = [
                attrs.evolve(each, labels={**each.labels, "model": each.gpu_model}) for each in node_objects
            ]
    parents = {queue.parent for queue in queue_objects}
    leaves = [row for row in range(len(queue_objects)) if row not in parents]
    drawn_groups = draw(st.lists(_groups, min_size=groups[0], max_size=groups[1]))
    group_objects = [_group(row, drawn, leaves, trees) for row, drawn in enumerate(drawn_groups)]
    table = _Pods([_Left(node, dict(node.allocatable), {}) for node in node_objects])
    for row, group in enumerate(group_objects):
        for position, subgroup in enumerate(group.subgroups):
            if not subgroup.leaf:
                continue
            # Most leaves have the pods that they need, so that something can happen.
            least = max(1, subgroup.minimum or 0) if position < 2 else 0
            members = draw(st.lists(_pods, min_size=least, max_size=max(least, pods)))
            for at, drawn in enumerate(members):
                # Most pods of a leaf are alike, as they are in life.
                wanted = shapes[(members[0] if at % 3 < 2 else drawn)[0] % len(shapes)]
                table.add(drawn, wanted, row, position, group)
    if foreign:
        for drawn in draw(st.lists(_pods, max_size=1)):
            table.add(drawn, PLAIN[drawn[0] % 4], -1, -1, None)
        if draw(st.booleans()):
            table.reserve()
    found = _snapshot(node_objects, queue_objects, group_objects, table)
    return _with_users(draw, found) if users else found


def _with_users(draw: Draw, snapshot: Snapshot) -> Snapshot:
    """Let queues limit what each user holds, and give users to most groups."""
    return attrs.evolve(
        snapshot,
        queues=tuple(attrs.evolve(queue, per_user=draw(_bounds_of_users)) for queue in snapshot.queues),
        groups=tuple(attrs.evolve(group, user=draw(st.sampled_from(USERS))) for group in snapshot.groups),
    )


def _snapshot(nodes: Sequence[Node], queues: Sequence[Queue], groups: Sequence[PodGroup], table: _Pods) -> Snapshot:
    return Snapshot(
        now=NOW,
        axis=ResourceAxis.of((MIG,)),
        nodes=tuple(nodes),
        pods=tuple(table.pods),
        shapes=tuple(table.shapes),
        groups=tuple(groups),
        queues=tuple(queues),
        foreign={("kai.scheduler/v1alpha1", "Topology"): (TREE,)},
        pod_shape=np.array(table.shape, np.int64),
        pod_group=np.array(table.group, np.int64),
        pod_subgroup=np.array(table.subgroup, np.int64),
        pod_status=np.array(table.status, np.int64),
        pod_node=np.array(table.node, np.int64),
        pod_reservation=np.isin(np.arange(len(table.pods)), table.reservations),
        pod_devices=table.devices,
    )


def contended(**options: Any) -> st.SearchStrategy[Snapshot]:
    """Draw a cluster with fewer devices than its queues ask for."""
    defaults: dict[str, Any] = {
        "nodes": (1, 3),
        "queues": (2, 4),
        "groups": (3, 6),
        "shapes": GPUS_ONLY,
        "rivals": True,
        "foreign": False,
    }
    return snapshots(**{**defaults, **options})


SMALLEST = _snapshot(
    [_node(0, (2, 1000, 8000, 110, ("a", "z"), 0))],
    [_queue(0, (-1, 2.0, -1.0, 1.0, 100, 0.0, True))],
    [_group(0, (0, 50, True, 0.0, 0, None), [0], TREES)],
    _Pods([]),
)
"""One node, one queue and one group without pods."""
