"""What a cycle is given: one value, from which the same decisions follow again."""

from __future__ import annotations

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.pod import Pod
from kai.intake.aside import Aside
from kai.kubernetes_version import NEWEST, KubernetesVersion
from kai.model.past import Past
from kai.scheduler.search_budget import Grants


@attrs.frozen(kw_only=True)
class CycleInput:
    """What a cycle was given."""

    objects: ClusterObjects
    now: float
    cycle: int
    past: Past = attrs.field(factory=Past)
    kubernetes: KubernetesVersion = NEWEST
    """The version of the API server."""
    early: tuple[Pod, ...] = ()
    """Pods that are not among the objects: stand-ins stand for them until all have come that start with them."""
    aside: Aside = attrs.field(factory=dict)
    """The objects that were left out, since a cycle had failed at them."""
    grants: Grants = ()
    """What the search budget answered."""
