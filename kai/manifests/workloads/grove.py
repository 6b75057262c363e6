"""Grove: PodCliqueSets, with the PodGangs that define which pods start together.

Source: Grove's operator 0.1.0-alpha.12. For each replica there is a PodGang of all cliques, with the minimum of
replicas of each scaling group; each further replica of a scaling group is a PodGang of its own. A topology constraint
names a domain, and a ClusterTopologyBinding maps it to a node label; from such a binding the operator makes a topology
of kai.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import attrs

from kai.basics.parsing import mapping_of, mappings_of, part_of
from kai.manifests.grouping import Index
from kai.manifests.workloads.making import Identity, Made, child, count, pods
from kai.roles.podgrouper.groupers.grove import POD_GANG, POD_GANG_LABEL, TOPOLOGY_NAMES
from kai.roles.podgrouper.lookup import Absent, Get
from kai.roles.podgrouper.resource import Fields, Kind, Resource

_GROVE: Final = "grove.io/v1alpha1"
_KAI: Final = "kai.scheduler/v1alpha1"
BINDING: Final = Kind("grove.io", "v1alpha1", "ClusterTopologyBinding")
LISTED: Final = ((_GROVE, BINDING.kind, "clustertopologybindings"),)
_EARLIER: Final = "ClusterTopology"
"""The name of the kind in earlier releases, which had one object of it."""
_USUAL: Final = "grove-topology"


@attrs.frozen(kw_only=True)
class _Clique:
    """One PodClique of a gang: its name there, and the fields of its pods."""

    name: str
    fields: Fields


@attrs.frozen(kw_only=True)
class _Gang:
    """One PodGang: its cliques, its topology constraint, and the constraints of groups of cliques in it."""

    name: str
    cliques: list[_Clique]
    constraint: Mapping[str, Any] | None = None
    groups: list[dict[str, Any]] = attrs.field(factory=list)


@attrs.frozen
class _Topology:
    """The levels that topology constraints of one set may name."""

    name: str
    keys: Mapping[str, str]
    """The node label of each domain."""

    def packed(self, holder: Fields | None) -> dict[str, Any] | None:
        """Return the topology constraint in a field as node labels; None if none of its domains is known."""
        stated = mapping_of(holder.value if holder is not None else None, "topologyConstraint")
        pack = mapping_of(stated, "pack")
        domains = {"required": pack.get("required") or stated.get("packDomain"), "preferred": pack.get("preferred")}
        found = {part: self.keys[str(domain)] for part, domain in domains.items() if str(domain) in self.keys}
        return {"packConstraint": found} if found else None


def is_binding(manifest: Mapping[str, Any]) -> bool:
    """Return whether an object maps the domains of a topology to node labels."""
    group = str(manifest.get("apiVersion")).rpartition("/")[0]
    return group == BINDING.group and manifest.get("kind") in {BINDING.kind, _EARLIER}


def topology_of(binding: Mapping[str, Any]) -> Made:
    """Return the topology of kai that the operator makes from a binding."""
    levels = [{"nodeLabel": each.get("key")} for each in mappings_of(binding, "spec", "levels")]
    name = part_of(binding, "metadata", "name")
    return {"apiVersion": _KAI, "kind": "Topology", "metadata": {"name": name}, "spec": {"levels": levels}}


def _topology(workload: Resource, template: Fields, index: Index) -> _Topology:
    """Return the topology that a set names; it has no levels if its binding is not in the input."""
    holders = [template, *(template.children("cliques") or ()), *(template.children("podCliqueScalingGroups") or ())]
    stated = [mapping_of(each.value, "topologyConstraint") for each in holders]
    name = next((str(each["topologyName"]) for each in stated if each.get("topologyName")), "")
    if not any(stated):
        return _Topology("", {})
    version = workload.kind.version
    kinds = (Kind(BINDING.group, version, BINDING.kind), Kind(BINDING.group, version, _EARLIER))
    found = [index.get(Get(kind, "", name or _USUAL)) for kind in kinds]
    binding = next((each for each in found if not isinstance(each, Absent)), None)
    if binding is None:
        # A remark and no error: all pods are known without the binding.
        wanted = f"a {BINDING.kind} of this name in the input: without it the constraint is left out"
        index.remarks.append(str(template.error(("topologyConstraint", "topologyName"), name or None, wanted)))
        return _Topology("", {})
    levels = mappings_of(binding, "spec", "levels")
    return _Topology(name or _USUAL, {str(each.get("domain")): str(each.get("key")) for each in levels})


def clique_set(workload: Resource, index: Index) -> Iterator[Made]:
    """Yield the gangs of all replicas, their cliques and pods.

    Raises: InputError for a set without cliques, and for a scaling group that names an unknown clique.
    """
    fields = workload.fields
    template = fields.child("spec", "template")
    cliques = template.children("cliques") if template is not None else None
    if template is None or not cliques:
        raise fields.error(("spec", "template", "cliques"), None, "at least 1 clique")
    topology = _topology(workload, template, index)
    for replica in range(count(fields, "spec", "replicas", default=1)):
        for gang in _gangs(workload, template, cliques, replica, topology):
            yield from _gang(workload, template, gang, topology)


def _gangs(
    workload: Resource, template: Fields, cliques: tuple[Fields, ...], replica: int, topology: _Topology
) -> Iterator[_Gang]:
    """Yield the gangs, first the one with the set's minimum."""
    base = f"{workload.name}-{replica}"
    known = {_name(each): each for each in cliques}
    scaled = template.children("podCliqueScalingGroups") or ()
    grouped = {name for group in scaled for name in group.texts("cliqueNames") or ()}
    first = [_Clique(name=f"{base}-{name}", fields=each) for name, each in known.items() if name not in grouped]
    whole = topology.packed(template)
    groups: list[dict[str, Any]] = []
    later: list[_Gang] = []
    for group in scaled:
        least = count(group, "minAvailable", default=1)
        packed = topology.packed(group)
        for index in range(count(group, "replicas", default=1)):
            place = f"{base}-{_name(group)}-{index}"
            members = [_Clique(name=f"{place}-{name}", fields=_known(group, known, name)) for name in _names(group)]
            if index >= least:
                # The operator numbers these gangs from 0, whatever the index of the replica.
                name = f"{base}-{_name(group)}-{index - least}"
                later.append(_Gang(name=name, cliques=members, constraint=packed or whole))
                continue
            first += members
            if packed is not None:
                names = [each.name for each in members]
                groups.append({"name": place, "podGroupNames": names, "topologyConstraint": packed})
    yield _Gang(name=base, cliques=first, constraint=whole, groups=groups)
    yield from later


def _gang(workload: Resource, template: Fields, gang: _Gang, topology: _Topology) -> Iterator[Made]:
    parts: list[dict[str, Any]] = []
    made: list[Made] = []
    for clique in gang.cliques:
        spec = clique.fields.child("spec") or Fields({}, clique.fields.subject, clique.fields.path)
        replicas = count(spec, "replicas", default=1)
        least = count(spec, "minAvailable", default=replicas)
        holder = child(workload, _GROVE, "PodClique", clique.name, {"replicas": replicas})
        identities = [
            Identity(name=f"{clique.name}-{at}", labels={POD_GANG_LABEL: gang.name, "grove.io/podclique": clique.name})
            for at in range(replicas)
        ]
        made += [holder, *pods(Resource.of(holder), _pod_template(clique.fields, spec), identities)]
        references = [{"namespace": workload.namespace, "name": each.name} for each in identities]
        packed = topology.packed(clique.fields)
        own = {} if packed is None else {"topologyConstraint": packed}
        parts.append({"name": clique.name, "minReplicas": least, "podReferences": references, **own})
    priority = template.text("priorityClassName")
    spec_of_gang = {
        "podgroups": parts,
        **({"priorityClassName": priority} if priority else {}),
        **({"topologyConstraint": gang.constraint} if gang.constraint else {}),
        **({"topologyConstraintGroupConfigs": gang.groups} if gang.groups else {}),
    }
    more = {"annotations": {TOPOLOGY_NAMES[0]: topology.name}} if topology.name else {}
    # The gang has the set as owner and owns no pod, so the expansion searches no pods below it.
    version = f"{POD_GANG.group}/{POD_GANG.version}"
    yield child(workload, version, POD_GANG.kind, gang.name, spec_of_gang, **more)
    yield from made


def _pod_template(clique: Fields, spec: Fields) -> Fields:
    """Return the template of a clique's pods in the form of other workloads.

    Raises: InputError for a clique without a pod spec.
    """
    inner = spec.child("podSpec")
    if inner is None:
        raise spec.error(("podSpec",), None, "the spec of the pods")
    metadata = {key: mapping_of(clique.value, key) for key in ("labels", "annotations")}
    return Fields({"metadata": metadata, "spec": inner.value}, clique.subject, clique.path)


def _name(holder: Fields) -> str:
    name = holder.text("name")
    if not name:
        raise holder.error(("name",), name, "a name")
    return name


def _names(group: Fields) -> tuple[str, ...]:
    return tuple(group.texts("cliqueNames") or ())


def _known(group: Fields, known: Mapping[str, Fields], name: str) -> Fields:
    if name not in known:
        raise group.error(("cliqueNames",), name, f"one of the cliques: {', '.join(known)}")
    return known[name]
