"""Ray clusters, alone or behind a RayJob or RayService: a head and groups of workers."""

from collections.abc import Iterator
from typing import ClassVar

import attrs

from kai.api import names
from kai.basics.parsing import text_of
from kai.roles.podgrouper.decide import find_group, has_subgroups
from kai.roles.podgrouper.grouper import GroupDraft, KindPattern, Request, SubGroup, Topology, template_annotation
from kai.roles.podgrouper.lookup import Get
from kai.roles.podgrouper.resource import Fields, Kind, Resource
from kai.roles.podgrouper.rules import standard_draft

CLUSTER = "RayCluster"
SUSPENDED = ("suspend", "suspended")
"""The field by which a worker group is suspended: KubeRay's, or the one that the peer reads."""
HEAD_GROUP = "headgroup"
GROUP_LABEL = "ray.io/group"
CLUSTER_LABEL = "ray.io/cluster"
ORIGIN_LABEL = "ray.io/originated-from-crd"
PRIORITY_LABEL = "ray.io/priority-class-name"

CLUSTER_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "RayCluster": (),
    "RayJob": (("status", "rayClusterName"),),
    "RayService": (
        ("status", "activeServiceStatus", "rayClusterName"),
        ("status", "pendingServiceStatus", "rayClusterName"),
    ),
}
"""Paths to the name of the cluster, by kind; the first that exists counts."""


class Ray:
    """One gang of the head and of as many workers as every group needs, each group a sub-group."""

    kinds: ClassVar[tuple[KindPattern, ...]] = tuple(
        KindPattern("ray.io", version, kind) for version in ("v1", "v1alpha1") for kind in CLUSTER_NAMES
    )

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the group of the top owner with the pods of its cluster.

        Raises: InputError when the cluster is not known yet, or its worker groups are invalid.
        Source: the peer's Ray groupers, and KubeRay for the number of workers. An existing group without sub-groups
            gets none. The pod that submits a job is not part of the cluster: in the peer it names no sub-group of the
            gang and waits for ever; here it has a group of its own.
        """
        owner = request.owner
        if _submits(request.pod):
            alone = standard_draft(request, owner)
            return attrs.evolve(alone, name=f"{alone.name}-submitter", min_member=1)
        cluster = _cluster(request)
        draft = standard_draft(request, owner)
        subgroups = tuple(_subgroups(cluster))
        draft = attrs.evolve(
            draft,
            min_member=sum(subgroup.min_member for subgroup in subgroups),
            priority_class=owner.labels.get(PRIORITY_LABEL, draft.priority_class),
        )
        existing = find_group(request.reader, draft.namespace, draft.name)
        if existing is not None and not has_subgroups(existing):
            return draft
        group = request.pod.labels.get(GROUP_LABEL)
        known = {subgroup.name for subgroup in subgroups}
        return attrs.evolve(draft, subgroups=subgroups, pod_subgroup=group if group in known else None)


def _submits(pod: Resource) -> bool:
    """Return whether KubeRay made a pod to submit a RayJob, in any cluster."""
    return pod.labels.get(ORIGIN_LABEL) == "RayJob" and CLUSTER_LABEL not in pod.labels


def _cluster(request: Request) -> Resource:
    """Return the cluster that the owner is or runs."""
    owner = request.owner
    places = CLUSTER_NAMES.get(owner.kind.kind, ())
    if not places:
        return owner
    fields = owner.fields
    name = next((name for name in (fields.text(*place) for place in places) if name is not None), None)
    if not name:
        raise fields.error(places[-1], name, "the name of the RayCluster that the Ray operator makes; is it running?")
    kind = Kind(owner.kind.group, owner.kind.version, CLUSTER)
    return request.reader.need(Get(kind, owner.namespace, name))


def _subgroups(cluster: Resource) -> Iterator[SubGroup]:
    """Yield the head and every worker group with workers."""
    fields = cluster.fields
    is_scaled = bool(fields.flag("spec", "enableInTreeAutoscaling"))
    head = fields.child("spec", "headGroupSpec")
    yield SubGroup(name=HEAD_GROUP, min_member=1, topology=None if head is None else _topology(head))
    for index, group in enumerate(fields.children("spec", "workerGroupSpecs") or ()):
        workers = _workers(group, is_scaled=is_scaled)
        if workers is not None:
            name = text_of(group.value, "groupName") or f"worker-group-{index}"
            yield SubGroup(name=name, min_member=workers, topology=_topology(group))


def _workers(group: Fields, *, is_scaled: bool) -> int | None:
    """Return the fewest pods that the group needs, None if it is suspended or needs none."""
    if any(group.flag(key) for key in SUSPENDED):
        return None
    wanted, least = wanted_replicas(group), group.integer("minReplicas") or 0
    if wanted == 0:
        return None
    hosts = group.integer("numOfHosts")
    # An autoscaler writes `replicas` as the number that it would like, which is not the number that the cluster needs.
    return (min(least, wanted) if least > 0 or is_scaled else wanted) * (1 if hosts is None else hosts)


def wanted_replicas(group: Fields) -> int:
    """Return how many replicas KubeRay makes of a worker group: the requested number, within its bounds."""
    replicas, least = (group.integer(key) or 0 for key in ("replicas", "minReplicas"))
    return within_bounds(replicas, least, group.integer("maxReplicas"))


def within_bounds(replicas: int, least: int, most: int | None) -> int:
    """Return ``replicas`` within its bounds as KubeRay does; the lower bound wins over the upper."""
    if replicas <= least:
        return least
    return replicas if most is None else min(replicas, max(most, 0))


def _topology(group: Fields) -> Topology | None:
    """Return the constraint in the group's pod template, None if it names no level."""
    template = group.child("template")
    name, required, preferred = (
        template_annotation(template, key) or ""
        for key in (names.TOPOLOGY, names.TOPOLOGY_REQUIRED, names.TOPOLOGY_PREFERRED)
    )
    if not required and not preferred:
        return None
    if not name:
        path = ("template", "metadata", "annotations", names.TOPOLOGY)
        raise group.error(path, None, "the topology whose levels the other annotations name")
    return Topology(name, required, preferred)
