"""Grove: the PodGang determines the group, and its top owner adds the fields that the PodGang leaves open.

A DynamoGraphDeployment is handled alike: the PodCliqueSet that it owns counts as the workload.
"""

from collections.abc import Mapping
from typing import ClassVar

import attrs

from kai.api import names
from kai.api.conventions.caps import APPLIED, few
from kai.roles.podgrouper.grouper import GroupDraft, KindPattern, Request, SubGroup, Topology
from kai.roles.podgrouper.lookup import Get
from kai.roles.podgrouper.resource import Fields, Kind, Resource
from kai.roles.podgrouper.rules import PREEMPTIBILITIES, parse_delay, queue, standard_draft, topology_of

POD_GANG = Kind("scheduler.grove.io", "v1alpha1", "PodGang")
POD_GANG_LABEL = "grove.io/podgang"
TOPOLOGY_NAMES = ("grove.io/topology-name", names.TOPOLOGY)


class Grove:
    """One gang for each PodGang."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (
        KindPattern("grove.io", "v1alpha1", "PodCliqueSet"),
        KindPattern("grove.io", "v1alpha1", "PodGangSet"),
    )

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the group of the PodGang that the pod names.

        Raises: InputError when there is no such PodGang, or it lacks a required value.
        Source: the peer's Grove grouper. It takes the queue of the PodGang or the pod only, and else the default queue.
        """
        pod = request.pod
        if POD_GANG_LABEL not in pod.labels:
            raise pod.error(f'metadata.labels["{POD_GANG_LABEL}"]', None, "the name of the pod's PodGang")
        gang = request.reader.need(Get(POD_GANG, pod.namespace, pod.labels[POD_GANG_LABEL]))
        topology = next((gang.annotations[key] for key in TOPOLOGY_NAMES if key in gang.annotations), "")
        draft = _with_spec(standard_draft(request, gang), gang.fields, topology)
        draft = _with_top_owner(draft, request.owner)
        named = {request.settings.queue_label, names.PROJECT}
        if named.isdisjoint(gang.labels) and named.isdisjoint(pod.labels):
            draft = attrs.evolve(draft, queue=queue(request, request.owner))
        parents, parent_of = _parents(gang.fields, topology)
        leaves, of_pod = _leaves(gang, topology, parent_of, pod)
        return attrs.evolve(
            draft,
            min_member=sum(leaf.min_member for leaf in leaves),
            subgroups=parents + leaves,
            pod_subgroup=of_pod,
        )


def _with_spec(draft: GroupDraft, fields: Fields, topology: str) -> GroupDraft:
    """Return the draft with the PodGang's own constraint and priority class."""
    constraint = _pack_constraint(fields.child("spec") or Fields({}, fields.subject, "spec"), topology)
    priority = fields.text("spec", "priorityClassName")
    return attrs.evolve(
        draft,
        topology=draft.topology if constraint is None else constraint,
        priority_class=draft.priority_class if priority is None else priority,
    )


def _with_top_owner(draft: GroupDraft, owner: Resource) -> GroupDraft:
    """Return the draft with defaults from the top owner's labels and annotations, and the settings that they imply.

    As with any owner, the annotation of `kubectl apply` is left out; of too many, only the ones that kai reads stay.
    """
    own = {key: text for key, text in owner.annotations.items() if key != APPLIED}
    labels = few({**owner.labels, **draft.labels}, {})[0]
    annotations = few({}, {**own, **draft.annotations})[1]
    preemptibility = labels.get(names.PREEMPTIBILITY, draft.preemptibility)
    if preemptibility not in PREEMPTIBILITIES:
        field = f'metadata.labels["{names.PREEMPTIBILITY}"]'
        raise owner.error(field, preemptibility, "preemptible or non-preemptible")
    text = annotations.get(names.PREEMPTION_DELAY)
    delay = None if text is None else parse_delay(text, lowest=0)
    stated = topology_of(annotations)
    return attrs.evolve(
        draft,
        labels=labels,
        annotations=annotations,
        priority_class=labels.get(names.PRIORITY_CLASS, draft.priority_class),
        preemptibility=preemptibility,
        preemption_delay=draft.preemption_delay if delay is None else delay,
        topology=Topology(
            draft.topology.name or stated.name,
            draft.topology.required or stated.required,
            draft.topology.preferred or stated.preferred,
        ),
    )


def _pack_constraint(holder: Fields, topology: str) -> Topology | None:
    """Return the constraint of a PodGang or a part of it, None if it has no level."""
    preferred = holder.text("topologyConstraint", "packConstraint", "preferred")
    required = holder.text("topologyConstraint", "packConstraint", "required")
    if preferred is None and required is None:
        return None
    if not topology:
        found = "levels without the name of a topology"
        raise holder.error(("topologyConstraint",), found, f"annotation {TOPOLOGY_NAMES[0]} on the PodGang")
    return Topology(topology, required or "", preferred or "")


def _parents(fields: Fields, topology: str) -> tuple[tuple[SubGroup, ...], Mapping[str, str]]:
    """Return the parents, and the parent of each leaf; the last parent that names a leaf has it."""
    parents = []
    parent_of: dict[str, str] = {}
    for config in fields.children("spec", "topologyConstraintGroupConfigs") or ():
        name = _needed_text(config, "name", "a name")
        members = config.texts("podGroupNames")
        if not members:
            continue
        parent_of |= dict.fromkeys(members, name)
        parents.append(SubGroup(name=name, min_subgroup=len(members), topology=_pack_constraint(config, topology)))
    return tuple(parents), parent_of


def _leaves(
    gang: Resource, topology: str, parent_of: Mapping[str, str], pod: Resource
) -> tuple[tuple[SubGroup, ...], str | None]:
    """Return the leaves, and the first of them that lists the pod."""
    leaves = []
    of_pod = None
    for part in gang.fields.children("spec", "podgroups") or ():
        name = _needed_text(part, "name", "a name")
        min_replicas = part.integer("minReplicas")
        if min_replicas is None or min_replicas <= 0:
            raise part.error(("minReplicas",), min_replicas, "at least 1 pod")
        if pod.name in _listed_pods(part, pod.namespace) and of_pod is None:
            of_pod = name
        constraint = _pack_constraint(part, topology)
        leaves.append(SubGroup(name=name, min_member=min_replicas, parent=parent_of.get(name), topology=constraint))
    return tuple(leaves), of_pod


def _listed_pods(part: Fields, namespace: str) -> frozenset[str]:
    """Return the names of the pods that a part lists; pods of other namespaces are refused."""
    references = part.children("podReferences")
    if references is None:
        raise part.error(("podReferences",), None, "the pods of this part")
    for reference in references:
        found = _needed_text(reference, "namespace", f'namespace "{namespace}" of the PodGang')
        if found != namespace:
            raise reference.error(("namespace",), found, f'namespace "{namespace}" of the PodGang')
    return frozenset(_needed_text(reference, "name", "the name of a pod") for reference in references)


def _needed_text(fields: Fields, key: str, wanted: str) -> str:
    value = fields.text(key)
    if value is None:
        raise fields.error((key,), None, wanted)
    return value
