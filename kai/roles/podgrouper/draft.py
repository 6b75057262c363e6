"""The group that a workload should have, kinds that grouping reads and writes, and segments of workers.

Groupers return a ``GroupDraft``; ``manifest`` renders it as a PodGroup object. It is not yet compared with the group
that exists. A draft names the sub-group of the given pod only: other pods of the group are other decisions.

The kinds here are read and written whatever the workload is.

Segments are runs of workers of equal size that should be placed close together. Annotations on the pod precede those of
the worker template, so that the annotations at the pod's creation count.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from kai.api import names
from kai.basics.errors import InputError
from kai.roles.podgrouper.resource import INT32_MAX, Fields, Kind, OwnerReference, Resource

POD: Final = Kind("", "v1", "Pod")
NAMESPACE: Final = Kind("", "v1", "Namespace")
CONFIG_MAP: Final = Kind("", "v1", "ConfigMap")
JOB: Final = Kind("batch", "v1", "Job")
PRIORITY_CLASS: Final = Kind("scheduling.k8s.io", "v1", "PriorityClass")
POD_GROUP: Final = Kind.of(names.POD_GROUP_VERSION, "PodGroup")
KARTA: Final = Kind("run.ai", "v1alpha1", "Karta")


@attrs.frozen
class Topology:
    """How close together pods must or should be; an empty string is an unset level or name."""

    name: str = ""
    required: str = ""
    preferred: str = ""

    def manifest(self) -> dict[str, object]:
        """Return the constraint in manifest form, without unset fields."""
        fields = {
            "topology": self.name,
            "requiredTopologyLevel": self.required,
            "preferredTopologyLevel": self.preferred,
        }
        return {key: value for key, value in fields.items() if value}


@attrs.frozen(kw_only=True)
class SubGroup:
    """A sub-group: a leaf counts pods (``min_member``), a parent sub-groups (``min_subgroup``, which is then set)."""

    name: str
    min_member: int = 0
    min_subgroup: int | None = None
    parent: str | None = None
    topology: Topology | None = None

    def manifest(self) -> dict[str, object]:
        """Return the sub-group in manifest form."""
        fields: dict[str, object] = {"name": self.name}
        if self.parent is not None:
            fields["parent"] = self.parent
        fields |= _minimum(self.min_member, self.min_subgroup, f'sub-group "{self.name}"')
        if self.topology is not None:
            fields["topologyConstraint"] = self.topology.manifest()
        return fields


@attrs.frozen(kw_only=True)
class GroupDraft:
    """The PodGroup that a pod should be in.

    ``pod_subgroup`` is the leaf of the given pod, if the grouper knows one. ``notes`` list invalid values that were
    ignored, one sentence each; ``delays`` are Go durations in their normal form.
    """

    name: str
    namespace: str
    owner: OwnerReference
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    queue: str
    priority_class: str
    preemptibility: str = ""
    preemption_delay: str | None = None
    staleness_grace_period: str | None = None
    min_member: int = 1
    min_subgroup: int | None = None
    topology: Topology = Topology()
    subgroups: tuple[SubGroup, ...] = ()
    pod_subgroup: str | None = None
    notes: tuple[str, ...] = ()

    def manifest(self) -> dict[str, object]:
        """Return the PodGroup object.

        Raises: InputError when a minimum is outside the range of a PodGroup.
        """
        metadata: dict[str, object] = {
            "name": self.name,
            "namespace": self.namespace,
            "labels": dict(self.labels),
            "annotations": dict(self.annotations),
            "ownerReferences": [self.owner.manifest()],
        }
        spec = _minimum(self.min_member, self.min_subgroup, f'PodGroup "{self.namespace}/{self.name}"')
        optional = {
            "queue": self.queue,
            "priorityClassName": self.priority_class,
            "preemptibility": self.preemptibility,
            "preemptionDelay": self.preemption_delay,
            "stalenessGracePeriod": self.staleness_grace_period,
            "topologyConstraint": self.topology.manifest(),
            "subGroups": [subgroup.manifest() for subgroup in self.subgroups],
        }
        spec |= {key: value for key, value in optional.items() if value}
        kind = POD_GROUP
        return {
            "apiVersion": kind.api_version,
            "kind": kind.kind,
            "metadata": {key: value for key, value in metadata.items() if value},
            "spec": spec,
        }


def _minimum(min_member: int, min_subgroup: int | None, subject: str) -> dict[str, object]:
    """Return the one minimum to write; a minimum of 0 pods is written too, since it means fully elastic."""
    field, value = ("minMember", min_member) if min_subgroup is None else ("minSubGroup", min_subgroup)
    if not 0 <= value <= INT32_MAX:
        raise InputError.about(subject, field, found=value, wanted=f"a number in 0...{INT32_MAX}")
    return {field: value}


MOST_SEGMENTS = 10_000


def template_annotation(template: Fields | None, key: str) -> str | None:
    """Return an annotation of a pod template; None without a template or annotation.

    Raises: InputError when the annotation is not a string.
    """
    return None if template is None else template.text("metadata", "annotations", key)


def segment_topology(pod: Resource, template: Fields | None, owner: Resource) -> Topology | None:
    """Return the constraint on each segment; None if no topology, or no level of one, is named."""
    name = _stated(pod.annotations, template, names.TOPOLOGY) or owner.annotations.get(names.TOPOLOGY, "")
    required = _stated(pod.annotations, template, names.SEGMENT_TOPOLOGY_REQUIRED)
    preferred = _stated(pod.annotations, template, names.SEGMENT_TOPOLOGY_PREFERRED)
    return Topology(name, required, preferred) if name and (required or preferred) else None


def check_segment_count(count: int, owner: Resource) -> None:
    """Reject more segments than a group can reasonably hold.

    Raises: InputError above ``MOST_SEGMENTS``.
    """
    if count > MOST_SEGMENTS:
        raise InputError.about(str(owner), "number of segments", found=count, wanted=f"at most {MOST_SEGMENTS}")


def _stated(annotations: Mapping[str, str], template: Fields | None, key: str) -> str:
    try:
        return annotations.get(key) or template_annotation(template, key) or ""
    except InputError:
        return ""  # a template with a value of the wrong type counts as unset, as in the peer
