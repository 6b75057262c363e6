"""What a pod demands of its node, and what a node demands of its pods: frozen facts.

The terms are hashable, so that equal demands become one pod shape. When they hold is said in ``matching``.
"""

from collections.abc import Mapping

import attrs

from kai.model import matching


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
        return matching.holds(self, labels)


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
