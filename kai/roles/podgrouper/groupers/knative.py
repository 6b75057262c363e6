"""Knative services: a gang for each revision, or a group for each pod if gangs are off or pods have groups already."""

from typing import ClassVar

from kai.api import names
from kai.basics.errors import InputError
from kai.basics.parsing import signed
from kai.roles.podgrouper.decide import find_group
from kai.roles.podgrouper.grouper import POD, GroupDraft, KindPattern, Request
from kai.roles.podgrouper.lookup import Absent, Get, Many
from kai.roles.podgrouper.resource import INT32_MAX, Kind, Resource
from kai.roles.podgrouper.rules import INFERENCE, group_annotations, group_labels, group_name, priority_class, queue

REVISION = Kind("serving.knative.dev", "v1", "Revision")
REVISION_LABEL = "serving.knative.dev/revision"
MIN_SCALE = "autoscaling.knative.dev/min-scale"


class Knative:
    """One gang of a revision's minimal scale. Preemptibility, delays and topology are not for services of this kind."""

    kinds: ClassVar[tuple[KindPattern, ...]] = (KindPattern("serving.knative.dev", "v1", "Service"),)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the group of the revision, or of the pod if pods of the revision already have groups of their own.

        Raises: InputError when the pod names no existing revision, or the kind of its groups cannot be determined.
        Source: the peer's Knative grouper.
        """
        pod = request.pod
        if REVISION_LABEL not in pod.labels:
            raise pod.error(f'metadata.labels["{REVISION_LABEL}"]', None, "the name of the pod's revision")
        revision = request.reader.need(Get(REVISION, pod.namespace, pod.labels[REVISION_LABEL]))
        if request.settings.knative_gangs and not _has_group_per_pod(request, revision):
            return _revision_draft(request, revision)
        return GroupDraft(
            name=group_name(pod),
            namespace=pod.namespace,
            owner=pod.reference,
            labels=group_labels(revision, pod),
            annotations=group_annotations(revision, pod),
            queue=queue(request, revision),
            priority_class=INFERENCE,
        )


def _revision_draft(request: Request, revision: Resource) -> GroupDraft:
    priority = priority_class(request, (revision,), INFERENCE)
    text = revision.annotations.get(MIN_SCALE, "1")
    min_scale = signed(text)
    notes = priority.notes
    if min_scale is None or not 0 <= min_scale <= INT32_MAX:
        min_scale = 1
        notes += (f'{revision}: metadata.annotations["{MIN_SCALE}"]: "{text}" is not valid and counts as 1',)
    return GroupDraft(
        name=group_name(revision),
        namespace=revision.namespace,
        owner=revision.reference,
        labels=group_labels(revision, request.pod),
        annotations=group_annotations(revision, request.pod),
        queue=queue(request, revision),
        priority_class=priority.value,
        min_member=min_scale,
        notes=notes,
    )


def _has_group_per_pod(request: Request, revision: Resource) -> bool:
    """Return whether pods of the revision have groups of their own; then the others get them too, to be alike."""
    read = Many(POD, revision.namespace, ((REVISION_LABEL, revision.name),))
    pods = request.reader.many(read)
    if isinstance(pods, Absent):
        raise InputError(f"{read}: {pods}")
    groups = [pod.annotations[names.POD_GROUP] for pod in pods if names.POD_GROUP in pod.annotations]
    # Two pods of one group: it is the gang of the revision.
    if len(set(groups)) != len(groups):
        return False
    if len(groups) != 1:
        return len(groups) > 1
    return _belongs_to_pod(request, revision, groups[0])


def _belongs_to_pod(request: Request, revision: Resource, name: str) -> bool:
    """Return whether the only group belongs to a pod, and not to the revision, and exists."""
    group = find_group(request.reader, revision.namespace, name)
    if group is None:
        return False
    owner = group.owner_references[0].kind.kind if group.owner_references else None
    if owner not in {REVISION.kind, POD.kind}:
        raise group.error("metadata.ownerReferences", owner, f"a {REVISION.kind} or a {POD.kind} as the owner")
    return owner == POD.kind
