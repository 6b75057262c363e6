"""Selectors, affinities, tolerations and ports of the API in the form that shapes are made of."""

from kai.api.conventions.resizing import is_sidecar
from kai.api.kubernetes import selection as api
from kai.api.kubernetes.meta import LabelSelector
from kai.api.kubernetes.pod import PodSpec
from kai.model.constraints import (
    AffinityTerm,
    HostPort,
    NodeTerm,
    Requirement,
    Selector,
    SpreadConstraint,
    Toleration,
)

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the address that a host port without one occupies; nothing listens here


def selector(source: LabelSelector | None) -> Selector | None:
    """Return a label selector, None for an absent one (which selects nothing)."""
    if source is None:
        return None
    equal = [Requirement(key, "In", (value,)) for key, value in source.match_labels.items()]
    rest = [Requirement(each.key, each.operator, tuple(sorted(each.values))) for each in source.match_expressions]
    return Selector(tuple(sorted(equal + rest, key=_by_content)))


def _by_content(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return (requirement.key, requirement.operator, requirement.values)


def _requirements(sources: tuple[api.NodeSelectorRequirement, ...]) -> tuple[Requirement, ...]:
    return tuple(Requirement(each.key, each.operator, each.values) for each in sources)


def node_terms(source: api.NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """Return the terms of a node selector, one of which must hold; None when there is no selector."""
    if source is None:
        return None
    return tuple(
        NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in source.node_selector_terms
    )


def affinity_terms(source: api.PodAffinity | None, namespace: str) -> tuple[AffinityTerm, ...]:
    """Return the demands about other pods, of a pod in ``namespace``."""
    return tuple(_affinity_term(term, namespace, 0) for term in source.required) if source else ()


def preferred_terms(source: api.PodAffinity | None, namespace: str) -> tuple[AffinityTerm, ...]:
    """Return the wishes about other pods, of a pod in ``namespace``."""
    return (
        tuple(_affinity_term(each.pod_affinity_term, namespace, each.weight) for each in source.preferred)
        if source
        else ()
    )


def _affinity_term(term: api.PodAffinityTerm, namespace: str, weight: int) -> AffinityTerm:
    """Return one term; what ``matchLabelKeys`` add is in the selector already, the API server puts it there."""
    named = tuple(sorted(set(term.namespaces)))
    if not named and term.namespace_selector is None:
        named = (namespace,)
    return AffinityTerm(
        term.topology_key, selector(term.label_selector), named, selector(term.namespace_selector), weight
    )


def spread_constraints(sources: tuple[api.TopologySpreadConstraint, ...]) -> tuple[SpreadConstraint, ...]:
    """Return the demands to be spread; constraints that are wishes are left out.

    So are those that an API server refuses, a skew below 1 and an empty key: no pod could obey them.
    """
    return tuple([_spread_constraint(each) for each in sources if _demands(each)]) if sources else ()


def _demands(source: api.TopologySpreadConstraint) -> bool:
    return source.when_unsatisfiable == "DoNotSchedule" and source.max_skew > 0 and bool(source.topology_key)


def _spread_constraint(source: api.TopologySpreadConstraint) -> SpreadConstraint:
    """Return one constraint; a policy that is not known ignores, as for Kubernetes' scheduler."""
    return SpreadConstraint(
        source.topology_key,
        selector(source.label_selector),
        source.max_skew,
        max(1, source.min_domains or 1),
        tuple(sorted(set(source.match_label_keys))),
        honors_affinity=source.node_affinity_policy in {None, "Honor"},
        honors_taints=source.node_taints_policy == "Honor",
    )


def tolerations(sources: tuple[api.Toleration, ...]) -> tuple[Toleration, ...]:
    """Return tolerations without repetitions, in an order that does not depend on theirs."""
    found = {Toleration(each.key, each.operator or "Equal", each.value, each.effect) for each in sources}
    return tuple(sorted(found, key=lambda each: (each.key, each.operator, each.value, each.effect)))


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the ports of the node that a pod occupies; on the host's network every container port is one."""
    found: set[HostPort] = set()
    for container in (*spec.containers, *filter(is_sidecar, spec.init_containers)):
        for port in container.ports:
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                found.add(HostPort(port.protocol or "TCP", port.host_ip or ANY_ADDRESS, number))
    return () if not found else tuple(sorted(found, key=lambda each: (each.protocol, each.address, each.port)))
