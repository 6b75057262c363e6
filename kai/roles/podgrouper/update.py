"""The write that turns the existing group into the desired one.

Other clients write to a group too: its queue, its node pool, markUnschedulable, its back-off, a topology constraint
that the workload does not set, and the limits of its run time belong to their last writer. The rest of ``spec`` and the
owner follow the workload. Labels and annotations are added, never removed, except for a deadline that the owner no
longer has. An object that would stay the same is not written.
"""

import enum
from collections.abc import Mapping
from math import isinf

import attrs

from kai.api import names
from kai.api.codec.structuring import structure_as
from kai.api.conventions.binding import bound_at
from kai.api.conventions.caps import REFUSED
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values import instant_text, nanoseconds
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of, part_of
from kai.roles.podgrouper import draft
from kai.roles.podgrouper.grouper import Settings
from kai.roles.podgrouper.resource import Manifest

KEPT_FIELDS = ("queue", "markUnschedulable", "schedulingBackoff")
"""Fields of ``spec`` that are kept from the existing group; if it lacks one, the field stays absent."""

RUNTIME_KEYS = (names.MAX_RUNTIME, names.EXPECTED_RUNTIME, names.RUNTIME_POLICY, names.REQUEUE_DELAY)
"""Annotations that are kept from the existing group: the limit of a run is changed there, not at the owner."""

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
            "apiVersion": draft.POD_GROUP.api_version,
            "kind": draft.POD_GROUP.kind,
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
    old_annotations = {key: text for key, text in mapping_of(old, "annotations").items() if key != REFUSED}
    added = mapping_of(new, "annotations")
    kept = {key: old_annotations[key] for key in RUNTIME_KEYS if key in old_annotations}
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
