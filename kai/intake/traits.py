"""Traits: what a pod demands of a node besides amounts, and the signature of pods that differ in amounts only.

Selectors, affinities, tolerations and ports of the API are converted into their form in shapes.
"""

import hashlib
import json
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.conventions.amounts import is_sidecar
from kai.api.kubernetes import node as api
from kai.api.kubernetes import pod as pod_api
from kai.api.kubernetes.meta import LabelSelector
from kai.api.kubernetes.node import Affinity, TopologySpreadConstraint
from kai.api.kubernetes.node import Toleration as ApiToleration
from kai.api.kubernetes.pod import PodSpec
from kai.facts.model.constraints import (
    AffinityTerm,
    HostPort,
    NodeTerm,
    Requirement,
    Selector,
    SpreadConstraint,
    Toleration,
)
from kai.facts.model.pod import ClaimReference, Constraints

ANY_ADDRESS = "0.0.0.0"  # noqa: S104 - the address that a host port without one occupies; nothing listens here


def selector(source: LabelSelector | None) -> Selector | None:
    """Return a label selector, None for an absent one (which selects nothing)."""
    if source is None:
        return None
    equal = [Requirement(key, "In", (value,)) for key, value in source.match_labels.items()]
    rest = [Requirement(each.key, each.operator, tuple(sorted(each.values))) for each in source.match_expressions]
    # In one order, so that selectors that mean the same make one shape.
    return Selector(tuple(sorted(equal + rest, key=_by_content)))


def _by_content(requirement: Requirement) -> tuple[str, str, tuple[str, ...]]:
    return (requirement.key, requirement.operator, requirement.values)


def _requirements(sources: tuple[api.NodeSelectorRequirement, ...]) -> tuple[Requirement, ...]:
    return tuple(Requirement(each.key, each.operator, each.values) for each in sources)


def node_terms(source: api.NodeSelector | None) -> tuple[NodeTerm, ...] | None:
    """Return the terms of a node selector; at least one must hold. None when there is no selector."""
    if source is None:
        return None
    return tuple(
        NodeTerm(_requirements(term.match_expressions), _requirements(term.match_fields))
        for term in source.node_selector_terms
    )


def affinity_terms(source: api.PodAffinity | None, namespace: str) -> tuple[AffinityTerm, ...]:
    """Return the required terms about other pods, of a pod in ``namespace``."""
    return tuple(_affinity_term(term, namespace, 0) for term in source.required) if source else ()


def preferred_terms(source: api.PodAffinity | None, namespace: str) -> tuple[AffinityTerm, ...]:
    """Return the preferred terms about other pods, of a pod in ``namespace``."""
    return (
        tuple(_affinity_term(each.pod_affinity_term, namespace, each.weight) for each in source.preferred)
        if source
        else ()
    )


def _affinity_term(term: api.PodAffinityTerm, namespace: str, weight: int) -> AffinityTerm:
    """Return one term. ``matchLabelKeys`` need no handling: the API server merges them into the selector."""
    # In one order and without repeats, so that terms that mean the same make one shape.
    named = tuple(sorted(set(term.namespaces)))
    # An absent selector stands for the pod's own namespace, an empty one for all.
    if not named and term.namespace_selector is None:
        named = (namespace,)
    return AffinityTerm(
        term.topology_key, selector(term.label_selector), named, selector(term.namespace_selector), weight
    )


def spread_constraints(sources: tuple[api.TopologySpreadConstraint, ...]) -> tuple[SpreadConstraint, ...]:
    """Return the required spread constraints; preferred ones are left out.

    So are constraints that an API server refuses, a skew below 1 or an empty key: no pod could satisfy them.
    """
    return tuple([_spread_constraint(each) for each in sources if _demands(each)]) if sources else ()


def _demands(source: api.TopologySpreadConstraint) -> bool:
    return source.when_unsatisfiable == "DoNotSchedule" and source.max_skew > 0 and bool(source.topology_key)


def _spread_constraint(source: api.TopologySpreadConstraint) -> SpreadConstraint:
    """Return one constraint; an unknown policy counts as Ignore, as in Kubernetes' scheduler."""
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
    """Return tolerations without duplicates, in a canonical order."""
    # The API server fills in the operator; a manifest may lack it.
    found = {Toleration(each.key, each.operator or "Equal", each.value, each.effect) for each in sources}
    return tuple(sorted(found, key=lambda each: (each.key, each.operator, each.value, each.effect)))


def host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the ports of the node that a pod occupies; on the host's network every container port is one."""
    found: set[HostPort] = set()
    # Other init containers end before these begin, and have no use for ports of the node any more.
    for container in (*spec.containers, *filter(is_sidecar, spec.init_containers)):
        for port in container.ports:
            # The API server fills in the host port of a pod on the host's network; a manifest may lack it.
            number = port.host_port or (port.container_port if spec.host_network else 0)
            if number:
                found.add(HostPort(port.protocol or "TCP", port.host_ip or ANY_ADDRESS, number))
    return () if not found else tuple(sorted(found, key=lambda each: (each.protocol, each.address, each.port)))


VolumeKind: TypeAlias = tuple[bool, bool, object, object]


class TraitKey(NamedTuple):
    """The inputs of a pod's traits; names of objects come with their namespace."""

    priority_class: str = ""
    priority: int | None = None
    nominated: str = ""
    node_selector: tuple[tuple[str, str], ...] = ()
    affinity: Affinity | None = None
    tolerations: tuple[ApiToleration, ...] = ()
    spread: tuple[TopologySpreadConstraint, ...] = ()
    ports: tuple[HostPort, ...] = ()
    volumes: tuple[VolumeKind, ...] = ()
    volume_claims: tuple[str, ...] = ()
    config_maps: tuple[str, ...] = ()
    claims: tuple[ClaimReference, ...] = ()
    namespace: str = ""
    features: tuple[str, ...] = ()


OWN: Final = ""
EVERYWHERE: Final = "*"
"""Stands for all namespaces; no namespace can have this name."""
_FEW: Final = 4
"""A term that names more namespaces counts as a term about all: any user may name thousands, and as many labels."""


class References(IntEnum):
    """The kinds of other objects that a pod's shape refers to; each value includes those before it."""

    NONE = 0
    CONFIG_MAPS = 1
    """Also for pods whose shape names their namespace, since they refer to volume claims."""
    CLAIMS = 2
    """Resource claims."""


@attrs.frozen(kw_only=True, eq=False)
class Traits:
    """The traits that pods with one key share."""

    constraints: Constraints
    signature: str
    config_maps: tuple[str, ...] = ()
    """Config maps that must exist; only missing ones become part of a shape."""
    term_labels: frozenset[tuple[str, str]] | None = None
    """Namespaces and label keys of other pods that the required and preferred terms look at; None: there are no terms.
    ``OWN`` is the namespace of the pod, ``EVERYWHERE`` any."""
    references: References


def trait_key(source: pod_api.Pod, *, finished: bool) -> TraitKey:
    """Return the inputs of a pod's traits; a finished pod demands nothing any more."""
    spec = source.spec
    if finished:
        return TraitKey(spec.priority_class_name, spec.priority)
    affinity = spec.affinity
    kinds, volume_claims = _volumes(source) if spec.volumes else ((), ())
    claims = _claims(source) if spec.resource_claims else ()
    # Without such references pods of all namespaces share their traits.
    refers = volume_claims or claims or (affinity is not None and (affinity.pod_affinity or affinity.pod_anti_affinity))
    return TraitKey(
        spec.priority_class_name,
        spec.priority,
        source.status.nominated_node_name,
        tuple(spec.node_selector.items()) if spec.node_selector else (),
        affinity,
        spec.tolerations,
        spec.topology_spread_constraints,
        host_ports(spec),
        kinds,
        volume_claims,
        _config_maps(source),
        claims,
        source.metadata.namespace if refers else "",
        _features(spec),
    )


def _features(spec: pod_api.PodSpec) -> tuple[str, ...]:
    """Return the names of the features that a node must declare to run the pod.

    Source: the features that component-helpers of Kubernetes 1.37 infers for scheduling; 1.36 knows the first two.
    """
    found: set[str] = set()
    if spec.host_network and spec.host_users is False:
        found.add("UserNamespacesHostNetworkSupport")
    for container in (*spec.containers, *spec.init_containers):
        if container.restart_policy_rules and any(
            rule.action == "RestartAllContainers" for rule in container.restart_policy_rules
        ):
            found.add("RestartAllContainersOnContainerExits")
        if container.volume_mounts and any(mount.bind_mount_options for mount in container.volume_mounts):
            found.add("VolumeBindMountOptions")
    return tuple(sorted(found)) if found else ()


def _volumes(source: pod_api.Pod) -> tuple[tuple[VolumeKind, ...], tuple[str, ...]]:
    """Return the kinds of a pod's volumes, without names, and the volume claims that they refer to.

    A claim that is created for the pod has a name made of the pod's and the volume's. Config maps and secrets do not
    count as kinds.
    """
    kinds: list[VolumeKind] = []
    claims: list[str] = []
    for volume in source.spec.volumes:
        claim, ephemeral = volume.persistent_volume_claim, volume.ephemeral
        # Their names and numbers say nothing about nodes, and would split pods into more signatures.
        if volume.config_map is None and volume.secret is None:
            kinds.append((claim is not None, ephemeral is not None, volume.projected, volume.csi))
        if claim is not None:
            claims.append(claim.claim_name)
        elif ephemeral is not None:
            claims.append(f"{source.metadata.name}-{volume.name}")
    return tuple(kinds), tuple(sorted(set(claims))) if claims else ()


def _claims(source: pod_api.Pod) -> tuple[ClaimReference, ...]:
    """Return the resource claims of a pod; one from a template has a name once it exists, unless it needs no object."""
    made = {each.name: each.resource_claim_name for each in source.status.resource_claim_statuses}
    found: list[ClaimReference] = []
    for each in source.spec.resource_claims:
        template = each.resource_claim_template_name is not None
        if not template:
            found.append(ClaimReference(name=each.name, claim=each.resource_claim_name or ""))
        elif each.name not in made or made[each.name]:
            found.append(ClaimReference(name=each.name, claim=made.get(each.name) or "", template=True))
    return tuple(found)


def _config_maps(source: pod_api.Pod) -> tuple[str, ...]:
    """Return the names of the config maps without which the pod cannot start.

    Config maps that the binder creates once the pod has its GPUs are not among them.

    Source: the peer's config map predicate: volumes and projected volumes that a container mounts, and the environment
        of all containers.
    """
    spec = source.spec
    found: list[str] = []
    mounted: set[str] = set()
    for container in (*spec.containers, *spec.init_containers, *spec.ephemeral_containers):
        if container.volume_mounts:
            mounted.update([mount.name for mount in container.volume_mounts])
        if container.env or container.env_from:
            found += _environment(container)
    if mounted:
        found += [name for volume in spec.volumes if volume.name in mounted for name in _shown(volume)]
    if not found:
        return ()
    shared = source.metadata.annotations.get(names.SHARED_GPU_CONFIG_MAP)
    return tuple(sorted({name for name in found if name and not (shared and name.startswith(shared))}))


def _shown(volume: pod_api.Volume) -> list[str]:
    parts = volume.projected.sources if volume.projected is not None else ()
    maps = [volume.config_map, *(part.config_map for part in parts)]
    return [each.name for each in maps if each is not None and not each.optional]


def _environment(container: pod_api.Container) -> list[str]:
    keys = [each.value_from.config_map_key_ref for each in container.env if each.value_from is not None]
    maps = [each.config_map_ref for each in container.env_from]
    return [each.name for each in (*keys, *maps) if each is not None and not each.optional]


def read_traits(key: TraitKey) -> Traits:
    """Return the traits of pods with a key."""
    affinity = key.affinity or Affinity()
    near, away = affinity.pod_affinity, affinity.pod_anti_affinity
    node_affinity = affinity.node_affinity
    constraints = Constraints(
        node_selector=tuple(sorted(key.node_selector)),
        node_affinity=node_terms(node_affinity.required) if node_affinity else None,
        tolerations=tolerations(key.tolerations),
        host_ports=key.ports,
        affinity=affinity_terms(near, key.namespace),
        anti_affinity=affinity_terms(away, key.namespace),
        preferred_affinity=preferred_terms(near, key.namespace),
        preferred_anti_affinity=preferred_terms(away, key.namespace),
        spread=spread_constraints(key.spread),
        volume_claims=key.volume_claims,
        claims=key.claims,
        nominated_node=key.nominated,
        features=key.features,
    )
    return Traits(
        constraints=constraints,
        signature=_signature(key),
        config_maps=key.config_maps,
        references=_references(key),
        term_labels=_term_labels(constraints),
    )


def _references(key: TraitKey) -> References:
    if key.claims:
        return References.CLAIMS
    return References.CONFIG_MAPS if key.config_maps or key.volume_claims else References.NONE


def _term_labels(constraints: Constraints) -> frozenset[tuple[str, str]] | None:
    terms = (
        *constraints.affinity,
        *constraints.anti_affinity,
        *constraints.preferred_affinity,
        *constraints.preferred_anti_affinity,
    )
    if not terms and not constraints.spread:
        return None
    found: set[tuple[str, str]] = set()
    for term in terms:
        are_few = term.namespace_selector is None and len(term.namespaces) <= _FEW
        keys = [each.key for each in term.selector.requirements] if term.selector else []
        found.update((place, key) for place in (term.namespaces if are_few else (EVERYWHERE,)) for key in keys)
    for spread in constraints.spread:
        own = [each.key for each in spread.selector.requirements] if spread.selector else []
        found.update((OWN, key) for key in (*own, *spread.match_label_keys))
    return frozenset(found)


def _signature(key: TraitKey) -> str:
    """Return a digest of a pod's placement constraints, without amounts and claims.

    Source: the peer's scheduling constraints signature; names of volumes, config maps and secrets are not part of it.
    """
    parts = [
        key.priority_class,
        key.priority,
        sorted(key.node_selector),
        unstructure(key.affinity) if key.affinity else None,
        sorted(json.dumps(unstructure(each), sort_keys=True) for each in key.tolerations),
        sorted(json.dumps(unstructure(each), sort_keys=True) for each in key.spread),
        [[port.protocol, port.address, port.port] for port in key.ports],
        sorted(json.dumps([_plain(part) for part in kind], sort_keys=True) for kind in key.volumes),
    ]
    if key.features:  # the peer has no node features
        parts.append(list(key.features))
    return digest(parts)


def digest(parts: object) -> str:
    """Return a short stable digest of plain values."""
    text = json.dumps(parts, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _plain(part: object) -> object:
    return unstructure(part) if attrs.has(type(part)) else part
