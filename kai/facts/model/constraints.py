"""What a pod requires of its node and a node of its pods, as frozen facts, and the rules that match them.

The terms are hashable, so that equal constraints become one pod shape.

Each rule for labels and tolerations is implemented once, because the scheduler, the binder and the reader of disruption
budgets must agree. Otherwise the scheduler would never place pods that the binder would admit, or would forever send
pods that the binder refuses.

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
        """The name of the label or field."""

    @property
    def operator(self) -> str:
        """In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    @property
    def values(self) -> tuple[str, ...]:
        """The values to compare the label with."""


class TaintLike(Protocol):
    """A taint of a node or a device."""

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
    """A toleration. An empty ``key`` or ``effect`` stands for any."""

    @property
    def operator(self) -> str:
        """Equal (also if empty), Exists, Gt or Lt."""


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
    """Return whether ``value`` is greater (Gt) or less (Lt) than the only item of ``values``, both integers."""
    if operator not in {"Gt", "Lt"} or value is None or len(values) != 1:
        return False
    have, bound = signed(value), signed(values[0])
    # As in Kubernetes, a label that is no integer is neither greater nor less.
    if have is None or bound is None:
        return False
    return have > bound if operator == "Gt" else have < bound


def tolerates(toleration: TolerationLike, taint: TaintLike) -> bool:
    """Return whether ``toleration`` covers ``taint``. An unknown operator covers nothing."""
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
        """Return whether the term applies to a pod with ``labels`` in ``namespace``.

        ``namespaces`` holds the labels of each namespace.
        """
        if self.selector is None or not self.selector.matches(labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(namespaces.get(namespace, {}))


@attrs.frozen
class SpreadConstraint:
    """A topology spread constraint: no domain may have ``max_skew`` more pods than the domain with the fewest.

    Only required constraints (DoNotSchedule) are represented, not preferred ones. Pods of other namespaces do not
    count.
    """

    topology_key: str
    selector: Selector | None
    max_skew: int
    min_domains: int = 1
    """With fewer domains than this, the fewest pods in a domain count as 0."""
    match_label_keys: tuple[str, ...] = ()
    """Labels in which counted pods must equal the pod itself; labels that the pod lacks are ignored."""
    honors_affinity: bool = True
    """Whether nodes excluded by the pod's node selector or required affinity are left out of domains."""
    honors_taints: bool = False
    """Whether nodes with a repelling taint that the pod does not tolerate are left out."""


@attrs.frozen
class Toleration:
    """A toleration of a pod. An empty ``key`` or ``effect`` stands for any."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


@attrs.frozen
class Taint:
    """A taint of a node."""

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
    """Where the pods of a sub-group may be spread.

    ``topology`` and levels are as written; a level is a node label or its alias ("" if not requested).
    """

    topology: str
    required: str = ""
    preferred: str = ""
