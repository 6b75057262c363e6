"""The pod grouper's decision on one pod. Start reading here.

    outcome = group_pod(pod, lookup, settings, groupers)
    while isinstance(outcome, Needs): fetch what it names, add the answer, and call again

1. Is the pod ours? (scheduler, selectors, annotations)        ``_reason_to_ignore``
2. Whose is it?                                               ``kai.podgrouper.owners``
3. What group should that workload have?                      ``kai.podgrouper.registry`` → a grouper → ``GroupDraft``
4. What is to be written, given the group that exists?        ``kai.podgrouper.update``
5. What is to be written on the pod?                          ``kai.podgrouper.assign``
"""

from collections.abc import Mapping
from typing import TypeAlias

import attrs

from kai.api import names
from kai.errors import InputError, PluginError
from kai.podgrouper import kinds
from kai.podgrouper.assign import pod_patch
from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.existing import find_group
from kai.podgrouper.grouper import Groupers, Request
from kai.podgrouper.lookup import Absent, Get, Lookup, Read, Reader, Unread
from kai.podgrouper.owners import OwnerChain, find_owners
from kai.podgrouper.resource import Manifest, Resource, spec_text
from kai.podgrouper.rules import group_name
from kai.podgrouper.settings import Settings
from kai.podgrouper.update import GroupWrite, reconcile


@attrs.frozen
class Needs:
    """A read without which nothing can be decided; answer it and ask again."""

    read: Read


@attrs.frozen(kw_only=True)
class Grouping:
    """What is to be done about a pod: first write the group, then patch the pod.

    A ``failure`` is to be shown on the pod and tried again later; ``ignored`` says why a pod is left alone; ``notes``
    say what was passed over because it was not valid.
    """

    group: GroupWrite | None = None
    pod_patch: Mapping[str, object] | None = None
    failure: str = ""
    ignored: str = ""
    notes: tuple[str, ...] = ()


Outcome: TypeAlias = Grouping | Needs


def group_pod(pod: Manifest, lookup: Lookup, settings: Settings, groupers: Groupers) -> Outcome:
    """Return what is to be done about ``pod``, or the read that stands in the way.

    Never raises for what an object says: that is a ``failure``. A grouper that breaks its contract is a PluginError.
    """
    try:
        return _decide(Resource.of(pod, kinds.POD), Reader(lookup), settings, groupers)
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
        namespace = reader.get(Get(kinds.NAMESPACE, "", pod.namespace))
        if isinstance(namespace, Absent) or not _matches(namespace, settings.namespace_labels):
            return "the labels of the pod's namespace are not selected"
    return ""


def _lacks_own_group(pod: Resource, reader: Reader) -> bool:
    """Return whether a pod names a group made for it alone, by its UID, that does not exist.

    An earlier life of ours wrote the link with the binding, and ended before it wrote the group.
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
