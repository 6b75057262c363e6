"""Which pod of a sub-group goes first: masters, heads, then by declared priority; age settles the rest.

Source: the peer's plugins/kubeflow, ray and taskorder.
"""

from collections.abc import Callable, Mapping

import attrs
import numpy as np

from kai.framework.hooks import Hooks
from kai.framework.view import SessionView
from kai.model.rows import Float64s, PodRows

ROLE_LABEL = "training.kubeflow.org/job-role"
LEADING_ROLES = frozenset({"master", "launcher"})
RAY_NODE_LABEL = "ray.io/node-type"
PRIORITY_LABEL = "kai.scheduler/task-priority"

LabelKey = Callable[[Mapping[str, str]], tuple[float, ...]]


def _keys(session: SessionView, key: LabelKey, width: int) -> Hooks:
    pods = session.snapshot.pods

    def pod_keys(rows: PodRows) -> Float64s:
        return np.array([key(pods[row].labels) for row in rows], np.float64).reshape(len(rows), width)

    return Hooks(pod_keys=pod_keys)


@attrs.frozen(kw_only=True)
class KubeflowOrder:
    """Masters and launchers of Kubeflow jobs first."""

    def open(self, session: SessionView) -> Hooks:
        """Return the key."""
        return _keys(session, lambda labels: (0.0 if labels.get(ROLE_LABEL) in LEADING_ROLES else 1.0,), 1)


@attrs.frozen(kw_only=True)
class RayOrder:
    """The head of a Ray cluster first."""

    def open(self, session: SessionView) -> Hooks:
        """Return the key."""
        return _keys(session, lambda labels: (0.0 if labels.get(RAY_NODE_LABEL) == "head" else 1.0,), 1)


@attrs.frozen(kw_only=True)
class TaskPriorityOrder:
    """Pods with a higher ``kai.scheduler/task-priority`` first.

    Unreadable values after readable ones, pods without the label last.
    """

    def open(self, session: SessionView) -> Hooks:
        """Return the keys."""
        return _keys(session, _declared, 2)


def _declared(labels: Mapping[str, str]) -> tuple[float, float]:
    value = labels.get(PRIORITY_LABEL)
    if value is None:
        return (2.0, 0.0)
    try:
        return (0.0, -float(int(value)))
    except ValueError:
        return (1.0, 0.0)
