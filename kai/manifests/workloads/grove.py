"""Grove: PodCliqueSets, with the PodGangs that say what starts together.

Source: Grove's operator: for each replica a PodGang of all cliques, of a scaling group as many replicas as it needs at
least; each further replica of a scaling group is a PodGang of its own.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from kai.lenient import mapping_of
from kai.manifests.workloads.making import Identity, Made, child, count, pods
from kai.podgrouper.groupers.grove import POD_GANG, POD_GANG_LABEL
from kai.podgrouper.resource import Fields, Resource

_GROVE: Final = "grove.io/v1alpha1"


@attrs.frozen(kw_only=True)
class _Clique:
    """One PodClique of a gang: its name there, and what its pods are made of."""

    name: str
    fields: Fields


def clique_set(workload: Resource) -> Iterator[Made]:
    """Yield the gangs of all replicas, their cliques and pods.

    Raises: InputError for a set without cliques, and for a scaling group that names one that is not there.
    """
    fields = workload.fields
    template = fields.child("spec", "template")
    cliques = template.children("cliques") if template is not None else None
    if template is None or not cliques:
        raise fields.error(("spec", "template", "cliques"), None, "at least 1 clique")
    for replica in range(count(fields, "spec", "replicas", default=1)):
        for name, members in _gangs(workload, template, cliques, replica):
            yield from _gang(workload, template, name, members)


def _gangs(
    workload: Resource, template: Fields, cliques: tuple[Fields, ...], replica: int
) -> Iterator[tuple[str, list[_Clique]]]:
    """Yield the names of gangs with their cliques: first that which the set needs at least."""
    base = f"{workload.name}-{replica}"
    known = {_name(each): each for each in cliques}
    scaled = template.children("podCliqueScalingGroups") or ()
    grouped = {name for group in scaled for name in group.texts("cliqueNames") or ()}
    first = [_Clique(name=f"{base}-{name}", fields=each) for name, each in known.items() if name not in grouped]
    later: list[tuple[str, list[_Clique]]] = []
    for group in scaled:
        least = count(group, "minAvailable", default=1)
        for index in range(count(group, "replicas", default=1)):
            place = f"{base}-{_name(group)}-{index}"
            members = [_Clique(name=f"{place}-{name}", fields=_known(group, known, name)) for name in _names(group)]
            if index < least:
                first += members
            else:
                later.append((f"{base}-{_name(group)}-{index - least}", members))
    yield base, first
    yield from later


def _gang(workload: Resource, template: Fields, name: str, members: list[_Clique]) -> Iterator[Made]:
    parts, made = [], []
    for clique in members:
        spec = clique.fields.child("spec") or Fields({}, clique.fields.subject, clique.fields.path)
        replicas = count(spec, "replicas", default=1)
        least = count(spec, "minAvailable", default=replicas)
        holder = child(workload, _GROVE, "PodClique", clique.name, {"replicas": replicas})
        identities = [
            Identity(name=f"{clique.name}-{at}", labels={POD_GANG_LABEL: name, "grove.io/podclique": clique.name})
            for at in range(replicas)
        ]
        made += [holder, *pods(Resource.of(holder), _pod_template(clique.fields, spec), identities)]
        references = [{"namespace": workload.namespace, "name": each.name} for each in identities]
        parts.append({"name": clique.name, "minReplicas": least, "podReferences": references})
    priority = template.text("priorityClassName")
    spec_of_gang = {"podgroups": parts, **({"priorityClassName": priority} if priority else {})}
    # The gang belongs to the set and to no pod, so that no pod is looked for below it.
    yield child(workload, f"{POD_GANG.group}/{POD_GANG.version}", POD_GANG.kind, name, spec_of_gang)
    yield from made


def _pod_template(clique: Fields, spec: Fields) -> Fields:
    """Return the template of a clique's pods in the form that other workloads have.

    Raises: InputError for a clique without the spec of its pods.
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
