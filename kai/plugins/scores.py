"""Scores of nodes: one small plugin for each preference.

Nodes where a pod can start now. Source: the peer's plugins/nodeavailability.

Fuller nodes, so that whole nodes stay free for large pods. Source: the peer's plugins/nodeplacement, strategy binpack.

Emptier nodes, for even use. Source: the peer's plugins/nodeplacement, strategy spread.

Nodes with a shared device that has room for the pod. The engine keeps the books of shared devices. Source: the peer's
plugins/gpusharingorder, which rates every kind of pod, also one that shares nothing.

Nodes without GPUs, for pods that need none. Source: the peer's plugins/resourcetype.

The node that a pod was nominated to in an earlier cycle. Source: the peer's plugins/nominatednode.
"""

from collections.abc import Sequence

import attrs
import numpy as np
from attrs.validators import ge

from kai.framework import (
    NONE,
    CpuOnlyNodes,
    Density,
    Dependence,
    Extension,
    NodeRows,
    NodeScore,
    PodRow,
    Scores,
    SessionView,
    Shape,
    SharedDevices,
)
from kai.framework import Availability as Term


@attrs.frozen(kw_only=True)
class Availability:
    """Prefer idle resources to resources that are still being released."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the availability term."""
        del session
        return (Term(),)


@attrs.frozen(kw_only=True)
class Binpack:
    """Prefer nodes with little left: of CPU for pods without GPUs (``cpu``), of GPU for the others (``gpu``).

    A number is the weight against other scores: 0 is off, 1 is on.
    """

    cpu: bool | float = attrs.field(default=1.0, validator=ge(0.0))
    gpu: bool | float = attrs.field(default=1.0, validator=ge(0.0))

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the density term."""
        del session
        return (Density(cpu_binpack=float(self.cpu), gpu_binpack=float(self.gpu)),)


@attrs.frozen(kw_only=True)
class Spread:
    """Prefer nodes with much left: of CPU for pods without GPUs (``cpu``), of GPU for the others (``gpu``)."""

    cpu: bool = True
    gpu: bool = True

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the density term."""
        del session
        return (Density(cpu_spread=float(self.cpu), gpu_spread=float(self.gpu)),)


@attrs.frozen(kw_only=True)
class GpuSharing:
    """Prefer nodes with a fitting shared device to nodes where a new one would have to be opened."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (SharedDevices(),)


@attrs.frozen(kw_only=True)
class ResourceType:
    """Prefer nodes without GPUs for pods that need none."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (CpuOnlyNodes(),)


@attrs.frozen(kw_only=True)
class NominatedNode:
    """Prefer the node that a pod's status nominates, by ``weight``: more than all other scores together."""

    weight: float = 10_000_000.0

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the score, for the shapes with a nominated node of this snapshot."""
        rows = session.snapshot.node_rows

        def row_of(shape: Shape) -> int:
            return rows.get(shape.constraints.nominated_node, NONE)

        nominated = np.array(session.snapshot.by_shape("nominated nodes", row_of, rows), np.int64)
        # Nominations are rare, and a score that is always 0 would cost a call for each pod.
        if not (nominated >= 0).any():
            return ()

        def score_nodes(pod: PodRow, nodes: NodeRows) -> Scores:
            # The nominated node is a part of the shape, so one answer serves all pods of it.
            return np.where(nodes == nominated[session.shape_of(pod)], self.weight, 0.0)

        return (NodeScore(score_nodes, depends=Dependence.SHAPE, concerns=nominated >= 0),)
