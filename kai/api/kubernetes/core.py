"""The small kinds of the Kubernetes core: priority classes, config maps, namespaces, disruption budgets."""

from __future__ import annotations

import attrs

from kai.api.fields import EMPTY, Int32, Labels, NumberOrText, by_content
from kai.api.kubernetes.meta import LabelSelector, ObjectMeta


@attrs.frozen(kw_only=True)
class PriorityClass:
    """A named priority."""

    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = 0
    global_default: bool = False
    preemption_policy: str = ""


@attrs.frozen(kw_only=True)
class ConfigMap:
    """Text by key. Binary data is not kept."""

    metadata: ObjectMeta = ObjectMeta()
    data: Labels = attrs.field(default=EMPTY, eq=by_content)


@attrs.frozen(kw_only=True)
class Namespace:
    """A namespace; its labels are what namespace selectors select on."""

    metadata: ObjectMeta = ObjectMeta()


@attrs.frozen(kw_only=True)
class PodDisruptionBudgetSpec:
    """Which pods, and how many of them may be missing; amounts are numbers or percentages."""

    selector: LabelSelector | None = None
    min_available: NumberOrText | None = None
    max_unavailable: NumberOrText | None = None
    unhealthy_pod_eviction_policy: str = ""
    """AlwaysAllow, or IfHealthyBudget, which is the default."""


@attrs.frozen(kw_only=True)
class PodDisruptionBudgetStatus:
    """How many pods may go now. None: the disruption controller has not said it."""

    disruptions_allowed: Int32 | None = None
    current_healthy: Int32 = 0
    desired_healthy: Int32 = 0


@attrs.frozen(kw_only=True)
class PodDisruptionBudget:
    """A limit on voluntary disruptions."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()
