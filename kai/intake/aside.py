"""Leaving objects out of a snapshot: an object that made a cycle fail must not make the next one fail as well.

A pod group that is set aside is read with no requests and only its queue. Its waiting pods are left out; its placed
pods keep their place, are charged to the queue and can be reclaimed. Only the data on which places and charges depend
is kept of these pods and groups. Any other object is left out as if it did not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from kai.api import names
from kai.api.cluster_objects import FIELD_OF, ClusterObjects
from kai.api.kinds import BY_CLASS, ApiObject, key_of
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.pod import ENDED, Pod, PodSchedulingGate, PodSpec
from kai.api.scheduling.pod_group import PodGroup, PodGroupSpec
from kai.intake.bind_requests import has_failed

FIELD_OF_KIND: Final = {BY_CLASS[cls].kind: field for cls, field in FIELD_OF.items()}
"""The field of ClusterObjects that holds objects of a kind."""
_OURS: Final = (
    "kai.scheduler/",
    "run.ai/",
    "runai",
    "gpu-",
    names.MIG_PREFIX,
    names.POD_GROUP,
    names.RECEIVED_RESOURCE_TYPE,
)
"""Prefixes of the labels and annotations on which the place and the charge of a pod depend."""
_GATE: Final = PodSchedulingGate(name="kai.scheduler/set-aside")


@attrs.frozen(order=True)
class Suspect:
    """An object that may have made a cycle fail, by kind, namespace and name."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.lower()} {self.namespace}/{self.name}"

    @classmethod
    def of(cls, source: ApiObject) -> Suspect:
        """Return an object as a suspect."""
        return cls(BY_CLASS[type(source)].kind, source.metadata.namespace, source.metadata.name)


Aside = Mapping[Suspect, bool]
"""Objects that are set aside. True: entirely, even if some of their pods may occupy a node."""


def suspect_of_pod(pod: Pod, groups: Mapping[tuple[str, str], object]) -> Suspect:
    """Return the group of a pod, or the pod where ``groups``, by namespace and name, has no such group."""
    metadata = pod.metadata
    group = metadata.annotations.get(names.POD_GROUP, "")
    if (metadata.namespace, group) in groups:
        return Suspect("PodGroup", metadata.namespace, group)
    return Suspect.of(pod)


def without(objects: ClusterObjects, aside: Aside) -> ClusterObjects:
    """Return ``objects`` without those set aside.

    Cost: nothing if there are none; else a look at each pod and each pod group.
    """
    if not aside:
        return objects
    changed: dict[str, Sequence[ApiObject]] = {}
    for kind in {each.kind for each in aside} - {"Pod", "PodGroup"}:
        field = FIELD_OF_KIND[kind]
        changed[field] = tuple(each for each in getattr(objects, field) if Suspect.of(each) not in aside)
    groups = {(each.namespace, each.name): gone for each, gone in aside.items() if each.kind == "PodGroup"}
    pods = {(each.namespace, each.name): gone for each, gone in aside.items() if each.kind == "Pod"}
    changed["pod_groups"] = tuple(_groups(objects.pod_groups, groups))
    ordered = {(each.metadata.namespace, each.spec.pod_name) for each in objects.bind_requests if not has_failed(each)}
    kept: list[Pod] = []
    for pod in objects.pods:
        metadata = pod.metadata
        gone = pods.get((metadata.namespace, metadata.name))
        if gone is True:
            continue
        of_group = groups.get((metadata.namespace, metadata.annotations.get(names.POD_GROUP, "")))
        if gone is None and of_group is None:
            kept.append(pod)
        # It may hold a place, which must not be given away; other pods of it are left out.
        elif pod.status.phase not in ENDED and (pod.spec.node_name or (metadata.namespace, metadata.name) in ordered):
            kept.append(_plain_pod(pod, is_member=not of_group))
    chosen: dict[str, Any] = {**changed, "pods": tuple(kept)}
    return attrs.evolve(objects, **chosen)


def _groups(sources: Iterable[PodGroup], aside: Mapping[tuple[str, str], bool]) -> Iterable[PodGroup]:
    for group in sources:
        gone = aside.get(key_of(group))
        if gone is None:
            yield group
        elif not gone:
            yield _plain_group(group)


def _plain_group(group: PodGroup) -> PodGroup:
    spec = group.spec
    return PodGroup(
        metadata=_plain_metadata(group.metadata, frozenset()),
        spec=PodGroupSpec(
            queue=spec.queue,
            priority_class_name=spec.priority_class_name,
            preemptibility=spec.preemptibility,
            # With its own minimum the gang could count as stale, and what runs would be evicted.
            min_member=1,
        ),
    )


def _plain_pod(pod: Pod, *, is_member: bool) -> Pod:
    """Return a pod with only the data for its place and its charge; a waiting one is not tried."""
    spec = pod.spec
    plain = PodSpec(
        containers=spec.containers,
        init_containers=spec.init_containers,
        node_name=spec.node_name,
        scheduler_name=spec.scheduler_name,
        priority=spec.priority,
        scheduling_gates=() if spec.node_name else (_GATE,),
        resource_claims=spec.resource_claims,
        volumes=spec.volumes,
        overhead=spec.overhead,
        resources=spec.resources,
        host_network=spec.host_network,
    )
    hidden = {names.SUBGROUP} if is_member else {names.SUBGROUP, names.POD_GROUP}
    return attrs.evolve(pod, metadata=_plain_metadata(pod.metadata, hidden), spec=plain)


def _plain_metadata(metadata: ObjectMeta, hidden: Iterable[str]) -> ObjectMeta:
    def is_ours(key: str) -> bool:
        return key == names.APP or key.startswith(_OURS)

    def kept(texts: Mapping[str, str]) -> Mapping[str, str]:
        return {key: value for key, value in texts.items() if key not in hidden and is_ours(key)}

    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        creation_timestamp=metadata.creation_timestamp,
        deletion_timestamp=metadata.deletion_timestamp,
        labels=kept(metadata.labels),
        annotations=kept(metadata.annotations),
        owner_references=metadata.owner_references,
    )
