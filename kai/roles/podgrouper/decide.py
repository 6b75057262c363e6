"""The pod grouper's decision on one pod. Start reading here.

    outcome = group_pod(pod, lookup, settings, groupers)
    while isinstance(outcome, Needs): fetch what it names, add the answer, and call again

1. Is the pod ours? (scheduler, selectors, annotations)        ``_reason_to_ignore``
2. Which workload owns it?                                     ``find_owners``
3. Which group should that workload have?                      a grouper (``kai.roles.podgrouper.grouper``)
4. What must be written, given the group that exists?          ``reconcile``
5. What must be written on the pod?                            ``pod_patch``

The chain of owners starts at the pod's first owner reference, whether or not that is its controller, and ends at the
first owner without owners. An owner that may not be read ends it early: the last readable one then stands for the
workload.

Groups that exist are also looked up by the names, and recognised in the shapes, of earlier releases.

Other clients write to a group too: its queue, its node pool, markUnschedulable, its back-off, a topology constraint
that the workload does not set, and the limits of its run time belong to their last writer. The rest of ``spec`` and the
owner follow the workload. Labels and annotations are added, never removed, except for a deadline that the owner no
longer has. An object that would stay the same is not written.
"""

import enum
from collections.abc import Iterable, Mapping
from math import isinf
from typing import TypeAlias

import attrs

from kai.api import names
from kai.api.codec.structuring import structure_as
from kai.api.conventions.binding import bound_at
from kai.api.conventions.caps import REFUSED
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values import instant_text, nanoseconds
from kai.basics.errors import InputError, PluginError
from kai.basics.parsing import mapping_of, part_of
from kai.roles.podgrouper.grouper import NAMESPACE, POD, POD_GROUP, GroupDraft, Groupers, Request, Settings
from kai.roles.podgrouper.lookup import Absent, Get, Lookup, Read, Reader, Unread, Why
from kai.roles.podgrouper.resource import Manifest, OwnerReference, Resource, spec_text
from kai.roles.podgrouper.rules import group_name

KEPT_FIELDS = ("queue", "markUnschedulable", "schedulingBackoff")
"""Fields of ``spec`` that are kept from the existing group; if it lacks one, the field stays absent."""

KEPT_ANNOTATIONS = (
    names.MAX_RUNTIME,
    names.EXPECTED_RUNTIME,
    names.RUNTIME_POLICY,
    names.REQUEUE_DELAY,
    names.NOTED_USER,
)
"""Annotations that are kept from the existing group: the limit of a run is changed there, not at the owner, and the
user stays the one of its first pod."""

_APPLIED_METADATA = ("name", "namespace", "resourceVersion", "labels", "annotations", "ownerReferences")

_TEXTS = ("queue", "priorityClassName", "preemptibility")
_NUMBERS = ("minMember", "minSubGroup", "markUnschedulable", "schedulingBackoff")
_DURATIONS = ("preemptionDelay", "stalenessGracePeriod")
_LEVELS = ("topology", "requiredTopologyLevel", "preferredTopologyLevel")


class Verb(enum.Enum):
    """The kind of write that the group needs."""

    NOTHING = "nothing"
    CREATE = "create"
    UPDATE = "update"


@attrs.frozen
class GroupWrite:
    """The group after the write, and the kind of write.

    An update carries the ``resourceVersion`` that it was made from: it fails instead of undoing a concurrent change.
    """

    verb: Verb
    manifest: Manifest

    def apply_configuration(self) -> dict[str, object]:
        """Return the body of a server-side apply: the group without fields of the API server and of other clients.

        Two pods of a new group may both apply it. An update includes the ``resourceVersion``, so that it is refused,
        and decided again, if the group has changed meanwhile.
        """
        metadata = mapping_of(self.manifest, "metadata")
        sent = {key: metadata[key] for key in _APPLIED_METADATA if key in metadata}
        return {
            "apiVersion": POD_GROUP.api_version,
            "kind": POD_GROUP.kind,
            "metadata": sent,
            "spec": self.manifest.get("spec"),
        }


def unwritten(pod: Pod, write: GroupWrite) -> PodGroup:
    """Return the group of a bare pod as it is while only this process has it: as old as its pod, and with its start.

    Raises: InputError for a group that our own codec cannot read.
    """
    metadata = mapping_of(write.manifest, "metadata")
    annotations = dict(mapping_of(metadata, "annotations"))
    if pod.spec.node_name and names.LAST_START not in annotations and not isinf(start := bound_at(pod)):
        # Whole seconds, as the API server keeps them: else the group would change when it is written.
        annotations[names.LAST_START] = instant_text(float(int(start)))
    created = instant_text(pod.metadata.creation_timestamp or 0.0)
    shown = {"creationTimestamp": created, **metadata, "annotations": annotations}
    return structure_as(PodGroup, {**write.manifest, "metadata": shown})


def reconcile(existing: Manifest | None, desired: Manifest, settings: Settings) -> GroupWrite:
    """Return the write that makes the group ``desired``, in the fields that the pod grouper owns.

    Source: the peer's pod group handler.
    """
    if existing is None:
        return GroupWrite(Verb.CREATE, desired)
    spec = _kept_spec(mapping_of(existing, "spec"), mapping_of(desired, "spec"))
    old, new = mapping_of(existing, "metadata"), mapping_of(desired, "metadata")
    old_labels = mapping_of(old, "labels")
    labels = {**old_labels, **_own_labels(old_labels, mapping_of(new, "labels"), settings)}
    # This annotation is added on arrival to a group that exceeds a cap. It was never written, so it is neither kept
    # nor a difference.
    old_annotations = {key: text for key, text in mapping_of(old, "annotations").items() if key != REFUSED}
    added = mapping_of(new, "annotations")
    kept = {key: old_annotations[key] for key in KEPT_ANNOTATIONS if key in old_annotations}
    annotations = {**old_annotations, **added, **kept}
    if names.OWNER_DEADLINE not in added:
        annotations.pop(names.OWNER_DEADLINE, None)
    owners = new.get("ownerReferences") or []
    is_same = (
        comparable(spec) == comparable(mapping_of(existing, "spec"))
        and labels == old_labels
        and annotations == old_annotations
        and owners == (old.get("ownerReferences") or [])
    )
    if is_same:
        return GroupWrite(Verb.NOTHING, existing)
    metadata = {**old, "labels": labels, "annotations": annotations, "ownerReferences": owners}
    return GroupWrite(Verb.UPDATE, {**existing, "metadata": metadata, "spec": spec})


def comparable(spec: Mapping[str, object]) -> object:
    """Return a value that is equal for two equivalent specs: the ways to leave a field unset are all equal."""
    texts = tuple(spec.get(name) or "" for name in _TEXTS)
    numbers = tuple(spec.get(name) for name in _NUMBERS)
    durations = tuple(_duration(spec.get(name)) for name in _DURATIONS)
    subgroups = spec.get("subGroups")
    parts = (
        tuple(_comparable_subgroup(mapping_of(each)) for each in subgroups)
        if isinstance(subgroups, list | tuple)
        else ()
    )
    return texts, numbers, durations, _levels(spec), parts


def _comparable_subgroup(subgroup: Mapping[str, object]) -> object:
    called = (subgroup.get("name") or "", subgroup.get("parent") or "")
    return called, subgroup.get("minMember"), subgroup.get("minSubGroup"), _levels(subgroup)


def _kept_spec(old: Mapping[str, object], new: Mapping[str, object]) -> dict[str, object]:
    kept = list(KEPT_FIELDS)
    if not part_of(new, "topologyConstraint", "topology"):
        kept.append("topologyConstraint")
    spec = {name: value for name, value in new.items() if name not in kept}
    return spec | {name: old[name] for name in kept if old.get(name) is not None}


def _own_labels(old: Mapping[str, object], new: Mapping[str, object], settings: Settings) -> dict[str, object]:
    """Return the labels of ``new`` that we own: neither node pool nor an existing queue label."""
    foreign = {settings.node_pool_label}
    if settings.queue_label in old:
        foreign.add(settings.queue_label)
    return {key: value for key, value in new.items() if key not in foreign}


def _levels(holder: Mapping[str, object]) -> tuple[object, ...]:
    constraint = mapping_of(holder, "topologyConstraint")
    return tuple(constraint.get(name) or "" for name in _LEVELS)


def _duration(value: object) -> object:
    try:
        return nanoseconds(value) if isinstance(value, str) else value
    except InputError:
        return value


def pod_patch(pod: Resource, draft: GroupDraft) -> dict[str, object] | None:
    """Return the merge patch that links ``pod`` to its group and sub-group; None if it is linked already.

    A sub-group label that another writer set stays when the grouper knows no sub-group.
    """
    metadata: dict[str, object] = {}
    if pod.annotations.get(names.POD_GROUP) != draft.name:
        metadata["annotations"] = {names.POD_GROUP: draft.name}
    if draft.pod_subgroup and pod.labels.get(names.SUBGROUP) != draft.pod_subgroup:
        metadata["labels"] = {names.SUBGROUP: draft.pod_subgroup}
    return {"metadata": metadata} if metadata else None


def group_exists(request: Request, name: str) -> bool:
    """Return whether a group of that name exists; always False if the settings switch the search off.

    Raises: InputError when the read fails.
    """
    return request.settings.legacy_groups and find_group(request.reader, request.pod.namespace, name) is not None


def find_group(reader: Reader, namespace: str, name: str) -> Resource | None:
    """Return the group of that name, None if it does not exist.

    Raises: InputError when the read fails.
    """
    read = Get(POD_GROUP, namespace, name)
    found = reader.get(read)
    if not isinstance(found, Absent):
        return found
    # A group that may not be read may exist: taken as absent, it would be written over.
    if found.why is not Why.NOT_FOUND:
        raise InputError(f"{read}: {found}")
    return None


def has_subgroups(group: Resource) -> bool:
    """Return whether an existing group has sub-groups."""
    spec = group.manifest.get("spec")
    return isinstance(spec, Mapping) and bool(spec.get("subGroups"))


LONGEST_CHAIN = 32
"""Far longer than any real chain; a cyclic chain ends here."""


@attrs.frozen
class OwnerChain:
    """``owners`` from the nearest to the farthest; ``top`` is the last of them, or the pod if there are none."""

    top: Resource
    owners: tuple[Resource, ...]


def find_owners(pod: Resource, reader: Reader) -> OwnerChain:
    """Return the owners of ``pod``.

    Raises: InputError when an owner does not exist, was replaced by another of the same name, or has several owners.
    Source: the peer's pod grouper.
    """
    top, owners = pod, list[Resource]()
    reference = pod.owner_references[0] if pod.owner_references else None
    while reference is not None:
        owner = _read(reference, pod, reader)
        if owner is None:
            break
        if len(owners) == LONGEST_CHAIN:
            raise InputError(
                f"{pod}: metadata.ownerReferences: found more than {LONGEST_CHAIN} owners above each other"
            )
        owners.append(owner)
        top = owner
        reference = _only_owner(owner)
    return OwnerChain(top, tuple(owners))


def _read(reference: OwnerReference, pod: Resource, reader: Reader) -> Resource | None:
    """Return the owner, None if reading it is not permitted."""
    read = Get(reference.kind, pod.namespace, reference.name)
    found = reader.get(read)
    if isinstance(found, Absent):
        if found.why is Why.FORBIDDEN:
            return None
        raise InputError(f'{pod}: owner {read} with uid "{reference.uid}": {found}')
    if found.uid != reference.uid:
        raise InputError(f'{pod}: owner {read}: found uid "{found.uid}", expected "{reference.uid}"; it was replaced')
    return attrs.evolve(found, kind=reference.kind)


def _only_owner(owner: Resource) -> OwnerReference | None:
    references = owner.owner_references
    if len(references) > 1:
        listed = ", ".join(str(each) for each in references)
        raise owner.error("metadata.ownerReferences", listed, "at most one owner above an owner")
    return references[0] if references else None


@attrs.frozen
class Needs:
    """A read without which no decision is possible; answer it and call again."""

    read: Read


@attrs.frozen(kw_only=True)
class Grouping:
    """The decision on a pod: first write the group, then patch the pod.

    A ``failure`` is to be shown on the pod and tried again later; ``ignored`` is the reason why a pod is not grouped;
    ``notes`` list invalid values that were ignored.
    """

    group: GroupWrite | None = None
    pod_patch: Mapping[str, object] | None = None
    failure: str = ""
    ignored: str = ""
    notes: tuple[str, ...] = ()


Outcome: TypeAlias = Grouping | Needs


def group_pod(pod: Manifest, lookup: Lookup, settings: Settings, groupers: Groupers) -> Outcome:
    """Return the decision on ``pod``, or the read that it needs first.

    An invalid object never raises: it is a ``failure``. A grouper that breaks its contract raises PluginError.
    """
    try:
        return _decide(Resource.of(pod, POD), Reader(lookup), settings, groupers)
    except Unread as unread:
        return Needs(unread.read)
    except InputError as error:
        return Grouping(failure=" ".join(str(error).split()))  # an event and a log line are one line


def _decide(pod: Resource, reader: Reader, settings: Settings, groupers: Groupers) -> Grouping:
    reason = _reason_to_ignore(pod, reader, settings)
    if reason:
        return Grouping(ignored=reason)
    try:
        chain = find_owners(pod, reader)
    except InputError:
        # Garbage collection in the background, the default, deletes an owner before its pods: no failure to show.
        if pod.is_terminating:
            return Grouping(ignored="the pod is being deleted, and so is its owner")
        raise
    for owner in chain.owners:
        if _is_skipped(owner):
            return Grouping(ignored=f"{owner} carries {names.SKIP}")
    draft = _draft(pod, chain, reader, settings, groupers)
    if draft is None:
        return Grouping(ignored=f"its owner, {chain.top}, asks for no group")
    draft = _with_user(_with_node_pool(draft, pod, settings.node_pool_label), (pod, *chain.owners))
    desired = draft.manifest()
    existing = find_group(reader, draft.namespace, draft.name)
    write = reconcile(existing.manifest if existing else None, desired, settings)
    return Grouping(group=write, pod_patch=pod_patch(pod, draft), notes=draft.notes)


def _draft(
    pod: Resource, chain: OwnerChain, reader: Reader, settings: Settings, groupers: Groupers
) -> GroupDraft | None:
    grouper = groupers.choose(chain.top.kind, reader, settings)
    draft = grouper.draft(Request(pod, chain.top, chain.owners, reader, settings, groupers))
    if draft is not None and not isinstance(draft, GroupDraft):
        raise PluginError(
            f"returned {draft!r}, expected a GroupDraft or None", plugin=type(grouper).__name__, hook="draft"
        )
    return draft


def _with_user(draft: GroupDraft, chain: Iterable[Resource]) -> GroupDraft:
    """Note on the group the user of the nearest object of ``chain``, the pod first, that has a note.

    The nearest, because a note is made when an object is created: a pod of one user that names the workload of another
    as its owner has a note of its own. What the owner's annotations hand down is not taken.
    """
    user = next((note for each in chain if (note := each.annotations.get(names.NOTED_USER))), "")
    if draft.annotations.get(names.NOTED_USER, "") == user:
        return draft
    others = {key: text for key, text in draft.annotations.items() if key != names.NOTED_USER}
    return attrs.evolve(draft, annotations={**others, names.NOTED_USER: user} if user else others)


def _reason_to_ignore(pod: Resource, reader: Reader, settings: Settings) -> str:
    scheduler = spec_text(pod, "schedulerName")
    if scheduler != settings.scheduler_name:
        return f'the pod is for scheduler "{scheduler}"'
    if not _matches(pod, settings.pod_labels):
        return "the pod's labels are not selected"
    if _is_skipped(pod):
        return f"the pod carries {names.SKIP}"
    if names.POD_GROUP in pod.annotations and not pod.owner_references and not _lacks_own_group(pod, reader):
        return "the pod has no owner and was put into a group by another writer"
    if settings.namespace_labels:
        # Last, since it alone may need a read: a pod that is ignored for another reason must not cause one.
        namespace = reader.get(Get(NAMESPACE, "", pod.namespace))
        if isinstance(namespace, Absent) or not _matches(namespace, settings.namespace_labels):
            return "the labels of the pod's namespace are not selected"
    return ""


def _lacks_own_group(pod: Resource, reader: Reader) -> bool:
    """Return whether a pod names a group made for it alone, by its UID, that does not exist.

    An earlier process wrote the link with the binding, and ended before it wrote the group.
    """
    name = group_name(pod)
    return (
        pod.annotations[names.POD_GROUP] == name
        and not pod.is_terminating
        and find_group(reader, pod.namespace, name) is None
    )


def _matches(labelled: Resource, selector: Mapping[str, str]) -> bool:
    return all(labelled.labels.get(key) == value for key, value in selector.items())


def _is_skipped(annotated: Resource) -> bool:
    return annotated.annotations.get(names.SKIP) == "true"


def _with_node_pool(draft: GroupDraft, pod: Resource, key: str) -> GroupDraft:
    if not key or key in draft.labels or key not in pod.labels:
        return draft
    return attrs.evolve(draft, labels={**draft.labels, key: pod.labels[key]})
