"""Places each pod where most GPUs stay usable for typical pods, and orders waiting pods so that most fit.

    pods that run and wait -> typical shapes, and where they may run -> the term that kernels evaluate
    pods that wait         -> the order in which most of them fit

Typical shapes are the most frequent ones among running and waiting pods. The term rates nodes and devices for one pod
after the other; ``kai.facts.kernels.fragments`` describes the computation.

The order is: large pods, then parts of GPUs, then pods without GPUs. Whole GPUs are found while nodes are empty; parts
of GPUs fill the rest. Parts of different sizes take turns, each size by age, because they complete each other on a
device. A size that leaves much of a device unused in any combination goes later.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023. The paper's measure counts neither memory nor what pods
    after the next will lack, nor which nodes only some pods may use; and it does not order pods.
"""

from collections.abc import Callable, Sequence
from typing import Self

import attrs
import numpy as np
from attrs.validators import ge, gt, instance_of

from kai.framework import (
    ALIVE,
    CPU,
    GPU,
    GPU_UNIT,
    MEMORY,
    Bools,
    Extension,
    Float64s,
    GpuKind,
    GroupOrder,
    GroupRows,
    Int64s,
    Node,
    NodeTerm,
    Requirement,
    SessionView,
    Shape,
    Status,
    Taint,
    Toleration,
    tolerates,
)
from kai.framework import Fragmentation as FragmentationTerm

BOUNDLESS = 1e12
"""The GPUs per unit of a resource that the pods on a node do not request."""
STRONGEST = 8.0
"""Bounds the value of a node that nearly all pods and hardly any other may use, so that other scores still matter."""
REPELLING = ("NoSchedule", "NoExecute")

Demand = tuple[tuple[tuple[str, str], ...], tuple[NodeTerm, ...] | None, tuple[Toleration, ...]]


@attrs.frozen(kw_only=True, eq=False)
class Kinds:
    """The shapes that ask for whole GPUs or for parts of them; shapes with equal requests are one kind.

    Shapes: K shapes, D kinds, Q places where kinds may run, N nodes.
    """

    of_shape: Int64s
    """[K] The kind of each shape, -1 for shapes that request no GPU, or slices, or claimed devices."""
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


def term_of(session: SessionView, kinds: Kinds, most: int, weight: float) -> FragmentationTerm | None:
    """Return the term for the ``most`` frequent kinds of running and waiting pods; None if none of these uses GPUs.

    The pressure on nodes derives from all kinds, because a rare GPU model may be used by few pods.

    Cost: O(pods + (most + places) x nodes).
    """
    facts = session.facts
    # A reservation pod holds the device for pods that share it, and these count themselves.
    alive = (((ALIVE >> session.columns.status) & 1) > 0) & ~facts.pods.reservation
    by_shape = np.bincount(facts.pods.shape[alive], minlength=len(kinds.of_shape))
    asking = kinds.of_shape >= 0
    counts = np.bincount(kinds.of_shape[asking], weights=by_shape[asking], minlength=len(kinds.shapes))
    counts[kinds.wants[:, GPU] <= 0] = 0  # by memory, where that of no device is known: such pods fit nowhere
    # Stable: of kinds that are equally frequent the first ones are taken, and equal snapshots decide alike.
    usual = np.argsort(-counts, kind="stable")[:most]
    usual = usual[counts[usual] > 0]
    if not len(usual):
        return None
    wants = np.zeros((len(kinds.allowed), len(kinds.wants[0])), np.float64)
    np.add.at(wants, kinds.place, counts[:, None] * kinds.wants)
    by_node = wants.T @ kinds.allowed.astype(np.float64)
    return FragmentationTerm(
        shapes=kinds.shapes[usual],
        shares=counts[usual] / counts[usual].sum(),
        allowed=np.ascontiguousarray(kinds.allowed[kinds.place[usual]]),
        gpu_by_cpu=_ratio(by_node[GPU], by_node[CPU]),
        gpu_by_memory=_ratio(by_node[GPU], by_node[MEMORY]),
        pressure=_pressure(wants[:, GPU], kinds.allowed, facts.nodes.gpu_count),
        weight=weight,
    )


def _ratio(gpus: Float64s, amounts: Float64s) -> Float64s:
    """Return GPUs per unit; infinite where pods request none of the resource, and where none may run."""
    out = np.full(len(gpus), BOUNDLESS)
    np.divide(gpus, amounts, out=out, where=(amounts > 0) & (gpus > 0))
    return out


def _pressure(wanted: Float64s, allowed: Bools, gpus: Int64s) -> Float64s:
    """Return float64[N]: the demand for each GPU if pods spread their requests evenly over all GPUs they may use.

    Pods that may use all nodes add to each GPU alike; pods that fit few nodes add only to these.

    Shapes: wanted [Q] GPUs by place, allowed [Q, N], gpus [N].
    """
    may = allowed.astype(np.float64)
    supply = may @ gpus
    even = np.divide(wanted, supply, out=np.zeros_like(wanted), where=supply > 0)
    pressure: Float64s = np.minimum(even @ may * (gpus.sum() / wanted.sum()), STRONGEST)
    return pressure


DELAY = 2.5
"""The delay of a size, as a fraction of all turns, for each device's worth that it leaves unused."""
LAST = 10.0
"""The key of groups that need no GPU."""


def order_keys(session: SessionView) -> Callable[[GroupRows], Float64s]:
    """Return the keys of groups: the largest request of one waiting pod, then the request of all together."""

    def keys(groups: GroupRows) -> Float64s:
        facts = session.facts
        pods = np.flatnonzero((session.columns.status == Status.PENDING) & (facts.pods.group >= 0))
        owner, shape = facts.pods.group[pods], facts.pods.shape[pods]
        count = len(session.snapshot.groups)
        wanted = session.requested[:, GPU]
        kinds = facts.shapes.kind
        shares = ((kinds == GpuKind.FRACTION) | (kinds == GpuKind.MEMORY)) & (facts.shapes.devices == 1)
        largest, together = np.zeros(count, np.float64), np.zeros(count, np.float64)
        # Not by an index on the left, which would keep the last pod of each group instead of its largest.
        np.maximum.at(largest, owner, np.where(shares, 0.0, wanted)[shape])
        np.add.at(together, owner, wanted[shape])
        parts = np.zeros(count, np.int64)
        np.maximum.at(parts, owner, np.where(shares, wanted, 0.0).astype(np.int64)[shape])
        out = np.full((count, 2), LAST)
        out[:, 1] = -together
        sharing = (parts > 0) & (largest == 0)
        out[largest > 0, 0] = -largest[largest > 0] / GPU_UNIT
        out[sharing, 0] = _turns(session.groups_by_age, sharing, parts)[sharing]
        return out[groups]

    return keys


def _turns(by_age: GroupRows, sharing: Bools, parts: Int64s) -> Float64s:
    """Return float64[G]: the rank of sharing groups by age, from 0 to 1, plus the delay of their size."""
    oldest = by_age[sharing[by_age]]
    sizes, size_of, counts = np.unique(parts[oldest], return_inverse=True, return_counts=True)
    unused = np.array(unused_beside(sizes.tolist(), counts.tolist()), np.float64)
    out = np.zeros(len(parts), np.float64)
    out[oldest] = np.arange(len(oldest)) / len(oldest) + DELAY * unused[size_of]
    return out


def unused_beside(sizes: Sequence[int], counts: Sequence[int]) -> list[float]:
    """Return how much of a device stays unused beside each of ``sizes``, on average, if all are packed densely.

    Shapes: sizes [n] ascending, in thousandths of a device; counts [n], how many there are of each.
    Holds:  each device takes the largest that is left, then the largest that fits, and so on.
    Cost:   O(n) for each of at most some n patterns.
    """
    left, unused = list(counts), [0] * len(sizes)
    for largest in reversed(range(len(sizes))):
        while left[largest] > 0:
            room, pattern = GPU_UNIT, []
            for at in range(largest, -1, -1):
                fitting = min(left[at], room // sizes[at])
                if fitting > 0:
                    pattern.append((at, fitting))
                    room -= fitting * sizes[at]
            if not pattern:  # larger than a device
                break
            devices = min(left[at] // fitting for at, fitting in pattern)
            for at, fitting in pattern:
                left[at] -= devices * fitting
                unused[at] += devices * fitting * room
    return [each / max(1, count) / GPU_UNIT for each, count in zip(unused, counts, strict=True)]


@attrs.frozen(kw_only=True)
class Fragmentation:
    """Keep the rest of GPUs usable for the usual pods.

    ``weight``: the points of score for a GPU that stays usable. ``shapes``: how many of the most frequent shapes count
    as usual. ``order``: serve large groups first and groups without GPUs last, so that more of the waiting pods fit.
    """

    weight: float = attrs.field(default=10.0, validator=gt(0.0))
    shapes: int = attrs.field(default=48, validator=[instance_of(int), ge(1)])
    order: bool = True

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term and the order; nothing if no pod requests a GPU."""
        term = self._term(session)
        if term is None:
            return ()
        return (term, GroupOrder(order_keys(session))) if self.order else (term,)

    def _term(self, session: SessionView) -> FragmentationTerm | None:
        return term_of(session, Kinds.of(session), self.shapes, self.weight)
