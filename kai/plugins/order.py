"""Orders of groups, sub-groups, pods and devices: one small plugin for each.

Groups of higher priority come first. Source: the peer's plugins/priority.

Every group reaches its minimum before any group grows beyond it. Source: the peer's plugins/elastic.

Sub-groups that lack pods come first, then the emptiest. Source: the peer's plugins/subgrouporder.

Within a sub-group, masters and heads come first, then pods of higher priority; age breaks ties. Source: the peer's
plugins/kubeflow, ray and taskorder.

Sharing pods fill shared devices first, or open new ones first. Source: the peer's plugins/gpupack and gpuspread.
"""

import re
from collections.abc import Callable, Sequence

import attrs
import numpy as np

from kai.framework import (
    DeviceOrder,
    ElasticOrder,
    Extension,
    Float64s,
    PodOrder,
    PodRows,
    PriorityOrder,
    SessionView,
    SubGroupFill,
)


@attrs.frozen(kw_only=True)
class Priority:
    """Order the groups of a queue by the value of their priority class."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (PriorityOrder(),)


@attrs.frozen(kw_only=True)
class Elastic:
    """Order groups below their minimum before those at it, and those before the ones above it."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (ElasticOrder(),)


@attrs.frozen(kw_only=True)
class SubGroupOrder:
    """Order sub-groups by how far they are from what they need."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (SubGroupFill(),)


ROLE_LABEL = "training.kubeflow.org/job-role"
LEADING_ROLES = frozenset({"master", "launcher"})
RAY_NODE_LABEL = "ray.io/node-type"
PRIORITY_LABEL = "kai.scheduler/task-priority"
_INTEGER = re.compile("[+-]?[0-9]+")  # as Go reads one; Python's int takes 1_0 and digits of other scripts as well


def _keys(
    session: SessionView, label: str, key: Callable[[str], tuple[float, ...]], without: tuple[float, ...]
) -> Sequence[Extension]:
    """Order pods by ``key`` of the value of ``label``; pods without it get ``without``."""
    pods, labelled = session.snapshot.pods, session.pods_labelled(label)
    if not len(labelled):
        return ()

    def pod_keys(rows: PodRows) -> Float64s:
        keys = np.empty((len(pods), len(without)), np.float64)
        # All rows first: most pods lack the label, and a look at each label would cost a loop over all pods.
        keys[:] = without
        for row in labelled.tolist():  # hardly any pod has the label
            keys[row] = key(pods[row].labels[label])
        return keys[rows]

    return (PodOrder(pod_keys),)


@attrs.frozen(kw_only=True)
class KubeflowOrder:
    """Masters and launchers of Kubeflow jobs first."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the key."""
        return _keys(session, ROLE_LABEL, lambda role: (0.0 if role in LEADING_ROLES else 1.0,), (1.0,))


@attrs.frozen(kw_only=True)
class RayOrder:
    """The head of a Ray cluster first."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the key."""
        return _keys(session, RAY_NODE_LABEL, lambda kind: (0.0 if kind == "head" else 1.0,), (1.0,))


@attrs.frozen(kw_only=True)
class TaskPriorityOrder:
    """Pods with a higher ``kai.scheduler/task-priority`` first.

    Unreadable values come after readable ones, pods without the label last.
    """

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the keys."""
        return _keys(session, PRIORITY_LABEL, _declared, (2.0, 0.0))


def _declared(value: str) -> tuple[float, float]:
    # Numbers sort by size, the highest first; what is no number has one place behind them.
    return (0.0, -float(value)) if _INTEGER.fullmatch(value) else (1.0, 0.0)


@attrs.frozen(kw_only=True)
class PackDevices:
    """Fill the fullest shared device first, open a new one last."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (DeviceOrder(pack=1.0),)


@attrs.frozen(kw_only=True)
class SpreadDevices:
    """Open a new device first, then use the emptiest."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (DeviceOrder(spread=1.0),)
