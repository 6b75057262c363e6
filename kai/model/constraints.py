"""What a pod demands of its node, and what a node demands of its pods: frozen facts.

The terms are hashable, so that equal demands become one pod shape. When they hold is said in ``matching``.

Whether labels satisfy a requirement, and whether a toleration covers a taint: each rule once, for every side.

The scheduler, the binder and the reader of disruption budgets must agree here. Where they did not, the scheduler would
never place what the binder would admit, or send for ever what the binder refuses.

Source: Kubernetes' component-helpers (node affinity), core/v1's Toleration.ToleratesTaint, apimachinery's
labels.Requirement.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from kai.basics.parsing import signed


class RequirementLike(Protocol):
    """One expression of a selector: ``key operator values``."""

    @property
    def key(self) -> str:
        """The label, or the field."""

    @property
    def operator(self) -> str:
        """In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    @property
    def values(self) -> tuple[str, ...]:
        """What the label is compared with."""


class TaintLike(Protocol):
    """What a node or a device repels pods with."""

    @property
    def key(self) -> str:
        """The name of the taint."""

    @property
    def value(self) -> str:
        """Its value."""

    @property
    def effect(self) -> str:
        """NoSchedule, PreferNoSchedule or NoExecute."""


class TolerationLike(TaintLike, Protocol):
    """What a pod puts up with. Empty ``key`` and ``effect`` stand for any."""

    @property
    def operator(self) -> str:
        """Equal (or nothing), Exists, Gt or Lt."""


def holds(requirement: RequirementLike, labels: Mapping[str, str]) -> bool:
    """Return whether ``labels`` satisfy ``requirement``. NotIn and DoesNotExist hold for a label that is absent."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value in requirement.values
        case "NotIn":
            return value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case _:
            return compares(value, requirement.operator, requirement.values)


def compares(value: str | None, operator: str, values: Sequence[str]) -> bool:
    """Return whether ``value`` is greater (Gt) or less (Lt) than the only one of ``values``, both being integers."""
    if operator not in {"Gt", "Lt"} or value is None or len(values) != 1:
        return False
    have, bound = signed(value), signed(values[0])
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def tolerates(toleration: TolerationLike, taint: TaintLike) -> bool:
    """Return whether ``toleration`` covers ``taint``. An operator that is unknown covers nothing."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "Exists":
            return True
        case "" | "Equal":
            return toleration.value == taint.value
        case _:
            return compares(taint.value, toleration.operator, (toleration.value,))


@attrs.frozen
class Requirement:
    """One expression of a selector: ``key operator values``.

    Operators as in Kubernetes (In, NotIn, Exists, DoesNotExist, Gt, Lt).
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether ``labels`` satisfy the expression."""
        return holds(self, labels)


@attrs.frozen
class Selector:
    """A label selector: all requirements must hold.

    An empty one matches everything; ``None`` in its place matches nothing.
    """

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return whether every requirement holds for ``labels``."""
        return all(requirement.matches(labels) for requirement in self.requirements)


@attrs.frozen
class NodeTerm:
    """One term of a node affinity: expressions over labels and over fields (``metadata.name``).

    A term without either matches no node.
    """

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()


@attrs.frozen
class AffinityTerm:
    """One term of an inter-pod (anti-)affinity."""

    topology_key: str
    selector: Selector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    weight: int = 0

    def selects(self, namespace: str, labels: Mapping[str, str], namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        """Return whether a pod with ``labels`` in ``namespace`` is meant.

        ``namespaces`` holds the labels of each namespace.
        """
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespaces.get(namespace, {}))


@attrs.frozen
class SpreadConstraint:
    """How evenly pods are to be spread: in no domain ``max_skew`` more of them than in the domain with the fewest.

    It is a demand on the pod that has it; constraints that are wishes are none of these. Pods of other namespaces are
    not meant.
    """

    topology_key: str
    selector: Selector | None
    max_skew: int
    min_domains: int = 1
    """Of fewer domains than these, the fewest pods in one are taken to be none."""
    match_label_keys: tuple[str, ...] = ()
    """Labels of which pods that are meant have the pod's own values; one that the pod lacks is not looked at."""
    honors_affinity: bool = True
    """Whether nodes that the pod does not select, by node selector or required affinity, are left out of domains."""
    honors_taints: bool = False
    """Whether nodes with a repelling taint that the pod does not tolerate are left out."""


@attrs.frozen
class Toleration:
    """What a pod puts up with. Empty ``key`` and ``effect`` stand for any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@attrs.frozen
class Taint:
    """What a node repels pods with."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@attrs.frozen
class HostPort:
    """A port that a pod opens on its node."""

    protocol: str
    address: str
    port: int


@attrs.frozen
class TopologyConstraint:
    """Where the pods of a sub-group may spread.

    A topology and levels of it as they are written, each a node label or its alias ("" when not asked for).
    """

    topology: str
    required: str = ""
    preferred: str = ""
