"""What usually comes: the most frequent shapes among the pods that run and wait, and what follows for each node."""

from collections.abc import Sequence
from typing import Self

import attrs
import numpy as np

from kai.framework import (
    ALIVE,
    CPU,
    GPU,
    GPU_UNIT,
    MEMORY,
    Bools,
    Float64s,
    Fragmentation,
    GpuKind,
    Int64s,
    Node,
    NodeTerm,
    Requirement,
    SessionView,
    Shape,
    Taint,
    Toleration,
    tolerates,
)

BOUNDLESS = 1e12
"""GPUs for each unit of what the pods on a node do not ask for."""
STRONGEST = 8.0
"""Bounds what a node is worth that nearly all pods may use and hardly any other: other scores must keep their say."""
REPELLING = ("NoSchedule", "NoExecute")

Demand = tuple[tuple[tuple[str, str], ...], tuple[NodeTerm, ...] | None, tuple[Toleration, ...]]


@attrs.frozen(kw_only=True, eq=False)
class Kinds:
    """The shapes that ask for whole GPUs or for parts of them; those that ask for the same are one kind.

    Shapes: K shapes, D kinds, Q places where kinds may run, N nodes.
    """

    of_shape: Int64s
    """[K] The kind of each shape, -1 for those that ask for no GPU, or for slices or claimed devices."""
    shapes: Int64s
    """[D] A shape of each kind."""
    wants: Float64s
    """[D, 3] CPU, memory and GPUs."""
    place: Int64s
    """[D] Where each kind may run."""
    allowed: Bools
    """bool[Q, N]: the nodes of each place, by labels and taints. Few places suit many kinds."""

    @classmethod
    def of(cls, session: SessionView) -> Self:
        """Return the kinds of a session.

        Cost: O(K) in Python and a mask for each demand, when shapes or nodes change.
        """
        snapshot = session.snapshot
        return session.once("kinds of shapes", (snapshot.shapes, snapshot.nodes), lambda: cls._made(session))

    @classmethod
    def _made(cls, session: SessionView) -> Self:
        shapes, requests = session.snapshot.shapes, session.facts.shapes.request
        known, places = dict[object, int](), dict[Demand, int]()
        of_shape, first, place = np.full(len(shapes), -1, np.int64), list[int](), list[int]()
        for row, shape in enumerate(shapes):
            if shape.gpu.kind in (GpuKind.NONE, GpuKind.MIG) or shape.gpu.claimed:
                continue
            amounts, demand = tuple(requests[row, : GPU + 1].tolist()), _demand(shape)
            kind = known.setdefault((amounts, shape.gpu, demand), len(known))
            of_shape[row] = kind
            if kind == len(first):
                first.append(row)
                place.append(places.setdefault(demand, len(places)))
        rows = np.array(first, np.int64)
        wants = session.requested[rows].astype(np.float64)
        wants[:, GPU] /= GPU_UNIT
        allowed = _allowed(session, list(places))
        return cls(of_shape=of_shape, shapes=rows, wants=wants, place=np.array(place, np.int64), allowed=allowed)


def _demand(shape: Shape) -> Demand:
    constraints = shape.constraints
    return constraints.node_selector, constraints.node_affinity, constraints.tolerations


def _allowed(session: SessionView, demands: Sequence[Demand]) -> Bools:
    """Return bool[Q, N]: the nodes whose labels and taints suit each of ``demands``."""
    taints = _Taints(session.snapshot.nodes)
    out = np.empty((len(demands), len(session.nodes)), np.bool_)
    for at, (selector, terms, tolerations) in enumerate(demands):
        out[at] = session.node_labels.satisfies(Requirement(key, "In", (value,)) for key, value in selector)
        out[at] &= taints.tolerated(tolerations)
        if terms is not None:
            out[at] &= session.selected_nodes(terms)
    return out


class _Taints:
    """Which nodes are tainted alike: a cluster has few kinds of them."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        kinds: dict[tuple[Taint, ...], int] = {}
        repelling = (tuple(taint for taint in node.taints if taint.effect in REPELLING) for node in nodes)
        self._kind_of = np.array([kinds.setdefault(each, len(kinds)) for each in repelling], np.int64)
        self._kinds = tuple(kinds)

    def tolerated(self, tolerations: Sequence[Toleration]) -> Bools:
        """Return bool[N]: where ``tolerations`` cover every taint."""
        covered = [all(any(tolerates(by, taint) for by in tolerations) for taint in kind) for kind in self._kinds]
        mask: Bools = np.array(covered, np.bool_)[self._kind_of]
        return mask


def term_of(session: SessionView, kinds: Kinds, most: int, weight: float) -> Fragmentation | None:
    """Return the term for the ``most`` frequent kinds of pods that run and wait; None if none of these asks for GPUs.

    What nodes are asked for follows from all kinds, since few pods may use a rare model.

    Cost: O(pods + (most + places) x nodes).
    """
    facts = session.facts
    alive = (((ALIVE >> session.columns.status) & 1) > 0) & ~facts.pods.reservation
    by_shape = np.bincount(facts.pods.shape[alive], minlength=len(kinds.of_shape))
    asking = kinds.of_shape >= 0
    counts = np.bincount(kinds.of_shape[asking], weights=by_shape[asking], minlength=len(kinds.shapes))
    counts[kinds.wants[:, GPU] <= 0] = 0  # by memory, where that of no device is known: such pods fit nowhere
    usual = np.argsort(-counts, kind="stable")[:most]
    usual = usual[counts[usual] > 0]
    if not len(usual):
        return None
    wants = np.zeros((len(kinds.allowed), len(kinds.wants[0])), np.float64)
    np.add.at(wants, kinds.place, counts[:, None] * kinds.wants)
    by_node = wants.T @ kinds.allowed.astype(np.float64)
    return Fragmentation(
        shapes=kinds.shapes[usual],
        shares=counts[usual] / counts[usual].sum(),
        allowed=np.ascontiguousarray(kinds.allowed[kinds.place[usual]]),
        gpu_by_cpu=_ratio(by_node[GPU], by_node[CPU]),
        gpu_by_memory=_ratio(by_node[GPU], by_node[MEMORY]),
        pressure=_pressure(wants[:, GPU], kinds.allowed, facts.nodes.gpu_count),
        weight=weight,
    )


def _ratio(gpus: Float64s, amounts: Float64s) -> Float64s:
    """Return GPUs for each unit; boundless where pods ask for none of it, and where none may run."""
    out = np.full(len(gpus), BOUNDLESS)
    np.divide(gpus, amounts, out=out, where=(amounts > 0) & (gpus > 0))
    return out


def _pressure(wanted: Float64s, allowed: Bools, gpus: Int64s) -> Float64s:
    """Return float64[N]: how often each GPU is asked for if pods ask evenly for all GPUs that they may use.

    Pods that may use all nodes ask for each GPU alike; pods that few nodes suit ask for these.

    Shapes: wanted [Q] GPUs by place, allowed [Q, N], gpus [N].
    """
    may = allowed.astype(np.float64)
    supply = may @ gpus
    even = np.divide(wanted, supply, out=np.zeros_like(wanted), where=supply > 0)
    pressure: Float64s = np.minimum(even @ may * (gpus.sum() / wanted.sum()), STRONGEST)
    return pressure
