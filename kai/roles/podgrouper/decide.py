"""The pod grouper's decision on one pod. Start reading here.

    outcome = group_pod(pod, lookup, settings, groupers)
    while isinstance(outcome, Needs): fetch what it names, add the answer, and call again

1. Is the pod ours? (scheduler, selectors, annotations)        ``_reason_to_ignore``
2. Which workload owns it?                                     ``find_owners``
3. Which group should that workload have?                      ``kai.roles.podgrouper.grouper`` → a grouper →
``GroupDraft`` 4. What must be written, given the group that exists?          ``kai.roles.podgrouper.update``
5. What must be written on the pod?                            ``pod_patch``

The chain of owners starts at the pod's first owner reference, whether or not that is its controller, and ends at the
first owner without owners. An owner that may not be read ends it early: the last readable one then stands for the
workload.

Groups that exist are also looked up by the names, and recognised in the shapes, of earlier releases.
"""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from kai.api import names
from kai.basics.errors import InputError, PluginError
from kai.roles.podgrouper.draft import NAMESPACE, POD, POD_GROUP, GroupDraft
from kai.roles.podgrouper.grouper import Groupers, Request, Settings
from kai.roles.podgrouper.lookup import Absent, Get, Lookup, Read, Reader, Unread, Why
from kai.roles.podgrouper.resource import Manifest, OwnerReference, Resource, spec_text
from kai.roles.podgrouper.rules import group_name
from kai.roles.podgrouper.update import GroupWrite, reconcile


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
        if pod.is_terminating:
            return Grouping(ignored="the pod is being deleted, and so is its owner")
        raise
    for owner in chain.owners:
        if _is_skipped(owner):
            return Grouping(ignored=f"{owner} carries {names.SKIP}")
    draft = _draft(pod, chain, reader, settings, groupers)
    if draft is None:
        return Grouping(ignored=f"its owner, {chain.top}, asks for no group")
    draft = _with_node_pool(draft, pod, settings.node_pool_label)
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
