"""Filters that compare one pod with one node: selectors, taints, kinds of nodes, config maps, host ports.

Node selection: pods go only to nodes that match their node selectors, required affinity, and required features.
Preferred node affinity is not scored, as in the peer.
Source: the peer's plugins/predicates, which runs kube-scheduler's NodeAffinity filter; of Kubernetes 1.36 and later its
    NodeDeclaredFeatures filter.

Taints: only ``NoSchedule`` and ``NoExecute`` repel pods; ``PreferNoSchedule`` is not scored, as in the peer. A cordoned
node is refused before its ``node.kubernetes.io/unschedulable`` taint is checked, so tolerating that taint does not
help. Source: the peer's plugins/predicates, which runs kube-scheduler's TaintToleration filter.

Kinds of nodes: GPU pods and CPU pods go only to nodes with the label for their kind, if the scheduler's parameter
``restrict_node_scheduling`` is set. Nodes without either label are then not in the snapshot at all.
Source: the peer's plugins/predicates under its flag restrict-node-scheduling.

Config maps: a pod does not start if a config map that it needs does not exist.
Source: the peer's config map predicate, which is evaluated once for each attempt on a pod, before any node.

Host ports: no two pods open the same port on one node. A pod keeps its ports until it is gone. A terminating or evicted
pod excludes no other pod from its node; but the other is only promised its place there, and bound once the port is
free. Source: the peer's plugins/predicates, which runs kube-scheduler's NodePorts filter. There a terminating pod
excludes others as long as it is there, so no pod is ever evicted for a port.
"""

from collections.abc import Iterable, Sequence
from functools import cache

import attrs
import numpy as np

from kai.framework import (
    Bools,
    Code,
    Dependence,
    Extension,
    GpuKind,
    HostPort,
    Int64s,
    Node,
    NodeFilter,
    NodeRows,
    NodeTerm,
    NodeWait,
    PodFilter,
    PodRow,
    PodRows,
    Requirement,
    SessionView,
    Shape,
    Taint,
    Toleration,
    Verdict,
    tolerates,
)

REFUSED = "node(s) didn't match Pod's node affinity/selector"
LACKING = "node(s) didn't match Pod's required features"

Demand = tuple[tuple[tuple[str, str], ...], tuple[NodeTerm, ...] | None, frozenset[str]]


@attrs.frozen(kw_only=True)
class Affinity:
    """Refuse nodes without the labels, name or features that a pod selects, requires or needs."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, for the shapes that select nodes."""
        demands = session.snapshot.by_shape("where shapes want to be", _demand)
        concerns = np.array([any((selector, terms is not None, features)) for selector, terms, features in demands])
        if not concerns.any():
            return ()
        # By demand and not by shape: pods of many sizes select the same nodes.
        masks: dict[Demand, Bools] = {}

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            demand = demands[session.shape_of(pod)]
            if demand not in masks:
                masks[demand] = _matching(session, demand)
            return masks[demand][nodes]

        def explain(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            selected = _selected(session, demands[session.shape_of(pod)])[nodes]
            return [LACKING if fit else REFUSED for fit in selected.tolist()]

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, concerns=concerns, explain=explain),)


def _demand(shape: Shape) -> Demand:
    constraints = shape.constraints
    return constraints.node_selector, constraints.node_affinity, frozenset(constraints.features)


def _matching(session: SessionView, demand: Demand) -> Bools:
    mask, (_, _, features) = _selected(session, demand), demand
    if not features:
        return mask
    # None: the API server is too old to know features, so no node is refused for them.
    declared = [node.features is None or features <= node.features for node in session.snapshot.nodes]
    return mask & np.array(declared, np.bool_)


def _selected(session: SessionView, demand: Demand) -> Bools:
    selector, terms, _ = demand
    mask = session.node_labels.satisfies(Requirement(key, "In", (value,)) for key, value in selector)
    return mask if terms is None else mask & session.selected_nodes(terms)


REPELLING = ("NoSchedule", "NoExecute")
NO_TAINT = 0
"""The number that stands for no taint at all."""


@attrs.frozen(kw_only=True)
class Taints:
    """Refuse nodes with a repelling taint that a pod does not tolerate."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter; nothing if no node repels pods."""
        nodes = session.snapshot.nodes
        tainted = session.once("taints", (nodes,), lambda: Tainted(nodes))
        # Only the entry for no taint: no node repels pods, so no filter need be called.
        if len(tainted.taints) == 1:
            return ()
        covered = cache(tainted.covered)
        # Few sets of tolerations exist: most pods have what their controller or an admission plugin gives them.
        answers: dict[tuple[Toleration, ...], Int64s] = {}

        def offending(pod: PodRow) -> Int64s:
            tolerations = session.snapshot.shapes[session.shape_of(pod)].constraints.tolerations
            if tolerations not in answers:
                answers[tolerations] = tainted.first_of([covered(each) for each in tolerations])
            return answers[tolerations]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            mask: Bools = (offending(pod) == NO_TAINT)[tainted.kind_of[nodes]]
            return mask

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            return [_refusal(tainted.taints[taint]) for taint in offending(pod)[tainted.kind_of[nodes]].tolist()]

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, explain=explain_nodes),)


class Tainted:
    """Which nodes are tainted alike, and with which taints: mostly few kinds of nodes, but each may be of its own.

    Shapes: M kinds, T taints; the first taint is none.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        kinds: dict[tuple[Taint, ...], int] = {}
        kind_of = [
            kinds.setdefault(tuple(taint for taint in node.taints if taint.effect in REPELLING), len(kinds))
            for node in nodes
        ]
        self.kind_of = np.array(kind_of, np.int64)
        numbers: dict[Taint | None, int] = {None: NO_TAINT}
        # Each kind ends with the taint that stands for none, so that each has a first taint that is not tolerated.
        self._of_kinds = np.array(
            [numbers.setdefault(taint, len(numbers)) for kind in kinds for taint in (*kind, None)], np.int64
        )
        self._starts = np.cumsum([0, *(len(kind) + 1 for kind in kinds)], dtype=np.int64)[:-1]
        self.taints = tuple(numbers)
        self._by_key: dict[str, list[tuple[int, Taint]]] = {}
        for taint, number in numbers.items():
            if taint is not None:
                self._by_key.setdefault(taint.key, []).append((number, taint))

    def covered(self, toleration: Toleration) -> Sequence[int]:
        """Return the numbers of the taints that ``toleration`` covers. Cost: one look at each with its key."""
        # Without a key a toleration covers taints of every key (Kubernetes allows that with operator Exists only).
        found = [self._by_key.get(toleration.key, [])] if toleration.key else self._by_key.values()
        return [number for some in found for number, taint in some if tolerates(toleration, taint)]

    def first_of(self, covered: Iterable[Sequence[int]]) -> Int64s:
        """Return int64[M]: the first taint of each kind that is not ``covered``, ``NO_TAINT`` if all are.

        Cost: O(taints of all kinds) in columns.
        """
        repels = np.ones(len(self.taints), np.bool_)
        for some in covered:
            repels[some] = False
        at = np.where(repels[self._of_kinds], np.arange(len(self._of_kinds)), len(self._of_kinds))
        return self._of_kinds[np.minimum.reduceat(at, self._starts)]


def _refusal(taint: Taint | None) -> str:
    return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}" if taint else ""


@attrs.frozen(kw_only=True)
class WorkerNodes:
    """Refuse nodes without the label for the kind of pod; its value does not matter.

    Labels that are not given are those of the scheduler's parameters.
    """

    cpu_label: str = ""
    gpu_label: str = ""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, or nothing if scheduling is not restricted."""
        if not session.parameters.restrict_node_scheduling:
            return ()
        wants_gpu = np.array([_wants_gpu(shape) for shape in session.snapshot.shapes], np.bool_)
        for_cpu = session.label_codes(self.cpu_label or session.parameters.cpu_worker_label) > 0
        for_gpu = session.label_codes(self.gpu_label or session.parameters.gpu_worker_label) > 0

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            return (for_gpu if wants_gpu[session.shape_of(pod)] else for_cpu)[nodes]

        def explain_nodes(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
            kind = "gpu" if wants_gpu[session.shape_of(pod)] else "cpu"
            return [f"{kind} pods can't run on non {kind} nodes"] * len(nodes)

        return (NodeFilter(filter_nodes, depends=Dependence.SHAPE, explain=explain_nodes),)


def _wants_gpu(shape: Shape) -> bool:
    return shape.gpu.kind is not GpuKind.NONE or shape.gpu.claimed > 0


@attrs.frozen(kw_only=True)
class ConfigMaps:
    """Refuse pods that need a config map that does not exist."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the refusal, for the shapes that miss something."""
        catalog = session.snapshot.catalog
        # A scheduler that may not list config maps must not refuse every pod that needs one.
        if not catalog.config_maps_known:
            return ()
        known = catalog.config_maps

        def missed(shape: Shape) -> tuple[str, ...]:
            return tuple(name for name in shape.constraints.config_maps if (shape.namespace, name) not in known)

        missing = session.snapshot.by_shape("missing config maps", missed, known)
        concerns = np.array([bool(names) for names in missing], np.bool_)
        if not concerns.any():
            return ()

        def admit_pod(pod: PodRow) -> Verdict:
            names = " ".join(missing[session.shape_of(pod)])
            return Verdict.refused(Code.POD_REFUSED, rule="ConfigMap", text=f"Missing required configmaps: [{names}]")

        return (PodFilter(admit_pod, concerns=concerns),)


PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
ANY_ADDRESS = ("", "0.0.0.0")  # noqa: S104  how a pod says that it listens on every address; nothing listens here

PortSet = tuple[HostPort, ...]


@attrs.frozen(kw_only=True)
class Ports:
    """Refuse nodes where a pod holds a port that the pod wants."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the filter, for the shapes that want ports."""
        wanted = session.snapshot.by_shape("host ports of shapes", lambda shape: shape.constraints.host_ports)
        concerns = np.array([bool(ports) for ports in wanted], np.bool_)
        if not concerns.any():
            return ()
        wanting = session.once("shapes by port", (wanted,), lambda: _Wanting(wanted))
        rivals: dict[PortSet, PodRows] = {}

        def rivals_of(pod: PodRow) -> PodRows:
            ports = wanted[session.shape_of(pod)]
            if ports not in rivals:
                rivals[ports] = session.pods_of_shapes(wanting.rivals(ports))
            return rivals[ports]

        def filter_nodes(pod: PodRow, nodes: NodeRows) -> Bools:
            free = np.ones(len(session.snapshot.nodes), np.bool_)
            _, taken = session.staying(rivals_of(pod))
            free[taken] = False
            return free[nodes]

        def must_wait(pod: PodRow, nodes: NodeRows) -> Bools:
            waits = np.zeros(len(session.snapshot.nodes), np.bool_)
            _, taken = session.leaving(rivals_of(pod))
            waits[taken] = True
            return waits[nodes]

        return (
            # A pod that wants a port keeps off every other pod that wants the same, those like it too.
            NodeFilter(
                filter_nodes, depends=Dependence.SESSION, concerns=concerns, explain=_explain_ports, single=concerns
            ),
            NodeWait(must_wait, concerns=concerns),
        )


class _Wanting:
    """Which shapes want each port, by number: comparing each set of ports with all others would be quadratic."""

    def __init__(self, wanted: Sequence[PortSet]) -> None:
        self._count = len(wanted)
        self._shapes: dict[tuple[str, int], dict[str, list[int]]] = {}
        """By protocol and number, then by address."""
        for shape, ports in enumerate(wanted):
            for each in ports:
                self._shapes.setdefault((each.protocol, each.port), {}).setdefault(each.address, []).append(shape)

    def rivals(self, ports: PortSet) -> Bools:
        """Return bool[K]: the shapes of pods that cannot be on one node with a pod that wants ``ports``."""
        found = np.zeros(self._count, np.bool_)
        for port in ports:
            for address, shapes in self._shapes.get((port.protocol, port.port), {}).items():
                if _is_shared(port.address, address):
                    found[shapes] = True
        return found


def _is_shared(mine: str, theirs: str) -> bool:
    # A listener on every address conflicts with one on any single address.
    return mine == theirs or mine in ANY_ADDRESS or theirs in ANY_ADDRESS


def _explain_ports(pod: PodRow, nodes: NodeRows) -> Sequence[str]:
    del pod
    return [PORTS_TAKEN] * len(nodes)
