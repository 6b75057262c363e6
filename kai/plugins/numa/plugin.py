"""The plugin for NUMA alignment: filters, scores, zones of placements, and the aligned requests of a pod.

A node with a strict policy is refused if it cannot align the pod. Of the others, those where the pod spans the fewest
zones are preferred. The zones are chosen when the pod is placed, charged for as long as it holds its place, and handed
to the binder, whose record the next cycle reads. Pods that ask for the same are placed in batches: a node has room for
as many of them as span the same number of zones there, and is counted again where that number changes. Searches for
victims look up which zones pods leave and get by what the zones of a node have left.

Requests are aligned for the whole pod or for each container. CPUs are pinned for guaranteed pods, and only if a
container requests whole ones; memory is aligned for guaranteed pods, devices for every pod.

Source: the peer's plugins/numa, after the kubelet.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import ClassVar

import attrs
import numpy as np

from kai.framework import (
    CPU,
    GPU,
    PLUGGED_GPU,
    Batch,
    Bools,
    ContainerRequest,
    Effect,
    Extension,
    Int64s,
    NodeFilter,
    NodeRow,
    NodeRows,
    NodeScore,
    Placement,
    PodRow,
    PodRows,
    Quantities,
    Rates,
    ResourceAxis,
    Scores,
    SessionView,
    Shape,
    Status,
    Taken,
    Tracked,
    Transitions,
)
from kai.framework.kept import Given, KeptAnswers, KeptTransitions, NodeStates
from kai.plugins.numa.kernels import (
    INFEASIBLE,
    POLICY_RESTRICTED,
    Requests,
    Zones,
    draw,
    is_aligned,
    place,
    rooms,
    spans,
)
from kai.plugins.numa.zones import (
    LAYOUTS,
    ON_REQUEST,
    Layouts,
    NumaPlacement,
    layouts_of,
    read_layouts,
    recorded_placements,
    records_of,
)

_WHOLE_CPU = 1000
_HUGE_PAGES = "hugepages-"


def is_pinned(resource: str) -> bool:
    """Return whether a resource is aligned for guaranteed pods only: CPU and memory of any kind, but no device."""
    return resource in ("cpu", "memory") or resource.startswith(_HUGE_PAGES)


def is_guaranteed(shape: Shape) -> bool:
    """Return whether every container requests CPU and memory, with equal limits."""
    if not shape.guaranteed or not shape.containers:
        return False
    return all(dict(each.requests).get(name, 0) > 0 for each in shape.containers for name in ("cpu", "memory"))


def read_requests(shape: Shape, axis: ResourceAxis, request: Int64s) -> Requests:
    """Return the aligned part of a pod whose whole request is ``request`` [R]."""
    containers = shape.containers
    guaranteed = is_guaranteed(shape)
    vectors = [_vector(each, axis, guaranteed=guaranteed) for each in containers]
    together = [vector for vector, each in zip(vectors, containers, strict=True) if not each.init or each.sidecar]
    in_turn = [vector for vector, each in zip(vectors, containers, strict=True) if each.init and not each.sidecar]
    pod = request.copy()
    peak = _peak(containers, vectors, len(axis))
    # Shared and claimed GPUs are no resource of a zone, and not all CPUs are pinned.
    pod[CPU], pod[GPU] = peak[CPU], peak[GPU]
    if PLUGGED_GPU in axis.index:
        pod[axis.index[PLUGGED_GPU]] = 0
    aligned = np.array([guaranteed or not is_pinned(name) for name in axis.names], np.bool_)
    return Requests(
        pod=pod.reshape(1, -1), together=_table(together, axis), in_turn=_table(in_turn, axis), aligned=aligned
    )


def devices_of(shape: Shape, axis: ResourceAxis) -> Bools:
    """Return bool[R]: devices that a pod requests in any way."""
    asked = {name for name, amount in shape.request if amount > 0 and not is_pinned(name)}
    return np.array([name in asked for name in axis.names], np.bool_)


def _vector(container: ContainerRequest, axis: ResourceAxis, *, guaranteed: bool) -> Int64s:
    out = axis.vector({name: amount for name, amount in container.requests if name in axis.index})
    # The kubelet pins whole CPUs of guaranteed pods only: other CPUs come from the shared pool of all zones.
    if not guaranteed or out[CPU] % _WHOLE_CPU:
        out[CPU] = 0
    return out


def _peak(containers: Iterable[ContainerRequest], vectors: Sequence[Int64s], width: int) -> Int64s:
    """Return int64[R]: the most that runs at a time: the lasting containers, or an init container with its sidecars."""
    lasting = np.zeros(width, np.int64)
    peak = np.zeros(width, np.int64)
    for container, vector in zip(containers, vectors, strict=True):
        if container.init and not container.sidecar:
            peak = np.maximum(peak, lasting + vector)
        else:
            lasting = lasting + vector
    return np.maximum(peak, lasting)


def _table(vectors: Sequence[Int64s], axis: ResourceAxis) -> Int64s:
    return np.array(vectors, np.int64).reshape(len(vectors), len(axis))


DETAIL = "numa"
BEST = 100.0
MOST_ASKS = 16
"""The most asks that are counted; pods with others are placed one by one."""
MOST_ROOM = 256
"""The most pods that are counted on a node at a time."""
_SPANS = 1 << 10
"""More than the zones of any node."""
REFUSED = "node cannot NUMA-align the pod's resources under its Topology Manager policy"


@attrs.frozen(kw_only=True)
class Numa:
    """Align pods to NUMA zones.

    ``ignore`` lists resources that zones report but nodes do not align. ``reconstruct_available`` works out what is
    left in zones from the records of pods rather than from what nodes report.
    """

    reads: ClassVar = (LAYOUTS,)

    ignore: tuple[str, ...] = ()
    reconstruct_available: bool = True

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Read the zones of all nodes; without zones, return nothing."""
        # The axis has one name for the GPUs of all vendors.
        ignored = frozenset("gpu" if name.endswith("gpu") else name for name in self.ignore)
        reported = layouts_of(session)
        recorded = recorded_placements(session.snapshot, records_of(session, reported), reported)
        left = recorded if self.reconstruct_available else None
        layouts = read_layouts(session.snapshot, reported, ignored, left)
        if layouts is None:
            return ()
        # What zones have is part of the state of a node; all else that answers depend on is in the reports.
        name = f"answers about zones without {sorted(ignored)}"
        kept = session.once(name, (reported, session.snapshot.axis), lambda: _Kept(layouts))
        aligner = _Aligner(session, layouts, recorded, kept)
        batch = _Batching(session, aligner).batch()
        return (
            NodeFilter(aligner.filter_nodes, concerns=aligner.concerns, explain=_explain),
            NodeScore(aligner.score_nodes, concerns=aligner.concerns),
            Placement(
                kind=DETAIL,
                choose=aligner.choose,
                recorded=aligner.recorded,
                effects=aligner.effects,
                encode=_encode,
                report=aligner.report_nodes,
                batch=batch,
                transitions=None if batch is None else aligner.transitions(),
                concerns=aligner.concerns,
            ),
        )


def _explain(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
    del pod
    return [REFUSED] * len(nodes)


def _encode(pod: PodRow, node: NodeRow, detail: object) -> Mapping[str, object]:
    """Return the zones that the pod is expected to draw from, with the amounts."""
    del pod, node
    if not isinstance(detail, NumaPlacement) or not detail.names:
        return {}
    drawn = zip(detail.names, detail.amounts, strict=True)
    return {ON_REQUEST: [{"zone": name, "amount": Quantities(amounts)} for name, amounts in drawn]}


@attrs.frozen(eq=False)
class _Pod:
    """What matters of a shape."""

    requests: Requests
    guaranteed: bool
    devices: Bools
    ask: tuple[object, ...]
    """Equal for shapes with equal answers."""


def _scores_of(spanned: Int64s) -> Scores:
    """Return the scores of nodes on which a pod spans so many zones; 0 where it cannot be aligned."""
    # `np.where` computes both values, hence the maximum: there must be no division by zero.
    return np.where(spanned > 0, BEST / np.maximum(spanned, 1), 0.0)


class _Kept:
    """How many zones pods span, by what they ask for and by what the zones of a node have."""

    def __init__(self, layouts: Layouts) -> None:
        zones, names = layouts.zones, layouts.names
        sizes = np.diff(zones.start)
        static = (
            (
                names[node],
                zones.policy[node],
                zones.whole_pod[node],
                zones.aware[node].tobytes(),
                _part(zones, node),
            )
            for node in range(len(sizes))
        )
        numbers: dict[tuple[object, ...], int] = {}
        kinds = np.array([numbers.setdefault(each, len(numbers)) for each in static], np.int64)
        owners = np.repeat(np.arange(len(sizes)), sizes * zones.aware.shape[1])
        self._states = NodeStates(kinds, (owners,))
        self._spans = KeptAnswers(self._states, np.int64)
        self._rooms = KeptAnswers(self._states, np.int64)
        self.transitions = KeptTransitions(self._states)

    def rooms(
        self, ask: tuple[object, ...], left: Tracked, nodes: NodeRows, answer: Callable[[NodeRows], Int64s]
    ) -> Int64s:
        self._states.read((left,))
        return self._rooms.of(ask, nodes, answer)

    def spans(
        self, ask: tuple[object, ...], left: Tracked, nodes: NodeRows, answer: Callable[[NodeRows], Int64s]
    ) -> Int64s:
        self._states.read((left,))
        return self._spans.of(ask, nodes, answer)


def _part(zones: Zones, node: int) -> bytes:
    return zones.prefix[zones.start[node] : zones.start[node + 1]].tobytes()


class _Aligner:
    """Answers for one session."""

    def __init__(self, view: SessionView, layouts: Layouts, recorded: Mapping[int, NumaPlacement], kept: _Kept) -> None:
        self._view = view
        self._kept = kept
        self._recorded = recorded
        self._layouts = layouts
        self._axis = view.snapshot.axis
        # Tracked by the engine, so that the amounts of an undone placement come back without a word from this plugin.
        self.left = view.track(layouts.zones.available)
        self._known: dict[int, _Pod] = {}
        shapes = view.snapshot.shapes
        self.concerns = np.array(
            [
                is_guaranteed(shape) or bool((devices_of(shape, self._axis) & layouts.reported).any())
                for shape in shapes
            ],
            np.bool_,
        )

    def ask_of(self, pod: PodRow) -> _Pod:
        """Return what matters of the shape of ``pod``."""
        row = self._view.shape_of(pod)
        found = self._known.get(row)
        if found is None:
            snapshot = self._view.snapshot
            shape = snapshot.shapes[row]
            requests = read_requests(shape, self._axis, snapshot.requests[row])
            devices, guaranteed = devices_of(shape, self._axis), is_guaranteed(shape)
            tables = (requests.pod, requests.together, requests.in_turn, requests.aligned, devices)
            ask = (guaranteed, *(table.tobytes() for table in tables))
            found = self._known[row] = _Pod(requests, guaranteed, devices, ask)
        return found

    @cached_property
    def _zones(self) -> Zones:
        """The zones with their free amounts, live. Only valid once the session is open."""
        return self._layouts.zones.replace(available=self.left.values)

    def rooms(self, pod: PodRow, scratch: Int64s) -> Int64s:
        """Return int64[3, N]: what ``kernels.rooms`` says of all nodes; ``scratch`` [Z, R] is working memory."""
        facts, zones = self.ask_of(pod), self._layouts.zones.replace(available=scratch)
        # A copy, for the kernel is compiled for tables that may be written, and this one may not.
        widest, live = self._layouts.widest, self.left.values.copy()

        def answer(rows: NodeRows) -> Int64s:
            out = np.empty((len(rows), 3), np.int64)
            rooms(zones, facts.requests, facts.guaranteed, facts.devices, widest, MOST_ROOM, live, rows, out)
            # One number for each state, as kept answers are.
            return (out[:, 0] * _SPANS + out[:, 1] + 1) * 2 + out[:, 2]

        found = self._kept.rooms(facts.ask, self.left, self._view.nodes, answer)
        return np.stack([found // (2 * _SPANS), found // 2 % _SPANS - 1, found % 2])

    def draw(self, pod: PodRow, nodes: NodeRows) -> tuple[list[NumaPlacement], Int64s]:
        """Return where pods like ``pod`` are placed that come to ``nodes`` [n] one by one, and what is left [Z, R]."""
        facts, width = self.ask_of(pod), self._layouts.widest
        left = self.left.values.copy()
        drawn = np.empty((len(nodes) * width, len(self._axis)), np.int64)
        zones = self._layouts.zones.replace(available=left)
        draw(zones, facts.requests, facts.guaranteed, facts.devices, width, nodes, drawn)
        known: dict[tuple[object, bytes], NumaPlacement] = {}
        out: list[NumaPlacement] = []
        for node, table in zip(nodes.tolist(), drawn.reshape(len(nodes), width, len(self._axis)), strict=True):
            key = self._layouts.names[node], table.tobytes()
            if key not in known:
                known[key] = self._layouts.placement(node, table, self._axis)
            out.append(known[key])
        return out, left

    def _spans(self, pod: PodRow, nodes: NodeRows) -> Int64s:
        facts = self.ask_of(pod)

        def answer(rows: NodeRows) -> Int64s:
            out = np.empty(len(rows), np.int64)
            spans(self._zones, facts.requests, facts.guaranteed, facts.devices, self._layouts.widest, rows, out)
            return out

        return self._kept.spans(facts.ask, self.left, nodes, answer)

    def filter_nodes(self, pod: PodRow, nodes: NodeRows) -> Bools:
        """Refuse nodes with a strict policy that could not align ``pod``."""
        # Policies are numbered by strictness. From `restricted` on the kubelet rejects a pod that it cannot align;
        # below that it starts the pod anyway.
        strict = self._layouts.zones.policy[nodes] >= POLICY_RESTRICTED
        mask: Bools = ~(strict & (self._spans(pod, nodes) == INFEASIBLE))
        return mask

    def score_nodes(self, pod: PodRow, nodes: NodeRows) -> Scores:
        """Rate nodes by how few zones ``pod`` would span; 0 where it cannot be aligned at all."""
        return _scores_of(self._spans(pod, nodes))

    def choose(self, pod: PodRow, node: NodeRow) -> NumaPlacement | None:
        """Return the zones of ``node`` that ``pod`` draws from; none if it is not aligned there, None if it must be.

        A pod without a record keeps the zones that it had, if the open statement evicted it from there.
        """
        placement = self._placement(self._zones, pod, node)
        if placement is not None and not placement.zones:
            before = self._view.evicted_detail(pod, node, DETAIL)
            return before if isinstance(before, NumaPlacement) else placement
        return placement

    def transitions(self) -> Transitions:
        """Return the extension for searches for victims."""
        shapes, first = np.unique(self._view.snapshot.pod_shape, return_index=True)
        pods = {shape: PodRow(pod) for shape, pod in zip(shapes.tolist(), first.tolist(), strict=True)}

        def asks() -> list[tuple[object, PodRow] | None]:
            return [
                (self.ask_of(pods[shape]).ask, pods[shape]) if asked and shape in pods else None
                for shape, asked in enumerate(self.concerns.tolist())
            ]

        return self._kept.transitions.open(self._view, [self.left], asks, self.give, self.draws, self.recorded)

    def give(self, pod: PodRow, node: NodeRow, content: Int64s) -> Given:
        """Return what a pod gets on ``node`` if its zones have ``content`` [W * R] left."""
        facts, zones = self.ask_of(pod), self._supposed
        first, last = int(zones.start[node]), int(zones.start[node + 1])
        zones.available[first:last] = content.reshape(last - first, len(self._axis))
        out = np.empty(1, np.int64)
        spans(zones, facts.requests, facts.guaranteed, facts.devices, self._layouts.widest, np.array([node]), out)
        if zones.policy[node] >= POLICY_RESTRICTED and out[0] == INFEASIBLE:
            return Given(None)
        placement = self._placement(zones, pod, node)
        # A pod that is aligned in no zone keeps its former zones, see `choose`.
        is_sure = first == last or not is_aligned(zones, facts.guaranteed, facts.devices, int(node))
        is_sure = is_sure or bool(placement and placement.zones)
        return Given(placement, float(_scores_of(out)[0]), is_sure)

    @cached_property
    def _supposed(self) -> Zones:
        """The zones with free amounts that may be overwritten."""
        return self._layouts.zones.replace(available=self.left.initial.copy())

    def draws(self, node: NodeRow, detail: object) -> Sequence[Effect]:
        """Return the amounts that a placement draws from the zones of ``node``."""
        assert isinstance(detail, NumaPlacement)  # noqa: S101 - a detail of this plugin
        cells = self._layouts.cells(int(node), detail, self._axis)
        return [Effect(self.left, cell, -amount) for cell, amount in cells.items()]

    def _placement(self, zones: Zones, pod: PodRow, node: NodeRow) -> NumaPlacement | None:
        facts = self.ask_of(pod)
        size = int(zones.start[node + 1] - zones.start[node])
        if size == 0 or not is_aligned(zones, facts.guaranteed, facts.devices, int(node)):
            return NumaPlacement()
        drawn = np.zeros((size, len(self._axis)), np.int64)
        if place(zones, facts.requests, int(node), drawn) == INFEASIBLE:
            return None if zones.policy[node] >= POLICY_RESTRICTED else NumaPlacement()
        return self._layouts.placement(int(node), drawn, self._axis)

    def recorded(self, pod: PodRow) -> NumaPlacement:
        """Return the recorded zones of a pod that had a node, if that node aligns it."""
        node = int(self._view.snapshot.pod_node[pod])
        facts = self.ask_of(pod)
        # A record may be older than the policy of the node, or written by a user: then nothing is drawn.
        if node < 0 or not is_aligned(self._zones, facts.guaranteed, facts.devices, node):
            return NumaPlacement()
        return self._recorded.get(int(pod), NumaPlacement())

    def effects(self, pod: PodRow, node: NodeRow, detail: object) -> Sequence[Effect]:
        """Return the amounts that ``pod`` draws from the zones of ``node``."""
        return self.draws(node, detail if isinstance(detail, NumaPlacement) else self.recorded(pod))

    def report_nodes(self) -> Mapping[int, Mapping[str, object]]:
        """Return the free amounts in the zones of each node, for the resources that they report."""
        zones = self._zones
        out: dict[int, Mapping[str, object]] = {}
        for node, layout in enumerate(self._layouts.layouts):
            if layout is not None:
                left = zones.available[zones.start[node] : zones.start[node + 1]]
                reported = [at for at in range(len(self._axis)) if zones.aware[node, at]]
                amounts = (tuple((self._axis.names[at], int(row[at])) for at in reported) for row in left)
                out[node] = {"numaZonesAvailable": {str(at): Quantities(each) for at, each in enumerate(amounts)}}
        return out


class _Batching:
    """The asks of one session that pods wait with."""

    def __init__(self, view: SessionView, aligner: _Aligner) -> None:
        """Number the asks of pods that wait, the most frequent first."""
        self._view, self._aligner = view, aligner
        self._pods: list[PodRow] = []
        """A pod with each ask."""
        snapshot = view.snapshot
        self._ask = np.full(len(snapshot.shapes), -1, np.int64)
        waiting = np.flatnonzero((snapshot.pod_status == Status.PENDING) & aligner.concerns[snapshot.pod_shape])
        shapes, first, counts = np.unique(snapshot.pod_shape[waiting], return_index=True, return_counts=True)
        numbers: dict[tuple[object, ...], int] = {}
        for at in np.argsort(-counts, kind="stable").tolist():
            pod = PodRow(int(waiting[first[at]]))
            ask = aligner.ask_of(pod).ask
            if ask not in numbers and len(numbers) < MOST_ASKS:
                numbers[ask] = len(numbers)
                self._pods.append(pod)
            self._ask[shapes[at]] = numbers.get(ask, -1)

    def batch(self) -> Batch | None:
        """Return the extension, None if no pod waits."""
        if not self._pods:
            return None
        shape = len(self._pods), len(self._view.nodes)
        self._scratch = np.empty_like(self._aligner.left.initial)
        self._found = np.zeros((3, *shape), np.int64)
        room = self._view.track(np.zeros(shape, np.int64))
        return Batch(ask=self._ask, room=room, count=self.count, take=self.take, rate=self.rate)

    def count(self) -> Int64s:
        """Return int64[A, N]: how many more pods with each ask each node takes while it is rated as now."""
        for at, pod in enumerate(self._pods):
            self._found[:, at] = self._aligner.rooms(pod, self._scratch)
        counted: Int64s = self._found[0].copy()
        return counted

    def rate(self) -> Rates:
        """Return how nodes are rated for these pods, and where they are rated anew afterwards."""
        return Rates(scores=_scores_of(self._found[1]), ends=self._found[2] > 0)

    def take(self, pods: PodRows, nodes: NodeRows) -> Taken:
        """Return the zones of ``pods``, all with one ask, on ``nodes``."""
        left = self._aligner.left
        details, after = self._aligner.draw(PodRow(int(pods[0])), nodes)
        more = (after - left.values).ravel()
        cells = np.flatnonzero(more)
        return Taken(details=details, changes=[(left, cells, more[cells])])
