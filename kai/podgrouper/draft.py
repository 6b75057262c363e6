"""The group that a workload should have, before it is compared with the one that exists.

Groupers return a ``GroupDraft``; ``manifest`` renders it as the PodGroup object it stands for. A draft names the
sub-group of the pod at hand only: other pods of the group are other decisions.

Kinds of objects that the pod grouper reads and writes whatever the workload is.

Segments: workers cut into runs of equal size that should sit close together.

Annotations on the pod come before those of the worker template, so that what the pod was created with stands.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from kai.api import names
from kai.errors import InputError
from kai.podgrouper.resource import INT32_MAX, Fields, Kind, OwnerReference, Resource

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
        """Return the constraint as a manifest writes it, without unset fields."""
        fields = {
            "topology": self.name,
            "requiredTopologyLevel": self.required,
            "preferredTopologyLevel": self.preferred,
        }
        return {key: value for key, value in fields.items() if value}


@attrs.frozen(kw_only=True)
class SubGroup:
    """A leaf counts pods (``min_member``), a parent counts sub-groups (``min_subgroup``, which is then set)."""

    name: str
    min_member: int = 0
    min_subgroup: int | None = None
    parent: str | None = None
    topology: Topology | None = None

    def manifest(self) -> dict[str, object]:
        """Return the sub-group as a manifest writes it."""
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

    ``pod_subgroup`` names the leaf of the pod at hand, if the grouper knows one. ``notes`` say what was found wrong and
    passed over, one sentence each; ``delays`` are Go durations in their normal form.
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

        Raises: InputError when a minimum is one that no PodGroup can have.
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
    """Return the one minimum that is written: of pods also when it is 0, which means fully elastic."""
    field, value = ("minMember", min_member) if min_subgroup is None else ("minSubGroup", min_subgroup)
    if not 0 <= value <= INT32_MAX:
        raise InputError.about(subject, field, found=value, wanted=f"a number in 0...{INT32_MAX}")
    return {field: value}


MOST_SEGMENTS = 10_000


def template_annotation(template: Fields | None, key: str) -> str | None:
    """Return an annotation of a pod template; nothing where there is no template or no annotation.

    Raises: InputError when the annotation is not a string.
    """
    return None if template is None else template.text("metadata", "annotations", key)


def segment_topology(pod: Resource, template: Fields | None, owner: Resource) -> Topology | None:
    """Return the constraint on each segment, or nothing when no topology, or no level of one, is named."""
    name = _stated(pod.annotations, template, names.TOPOLOGY) or owner.annotations.get(names.TOPOLOGY, "")
    required = _stated(pod.annotations, template, names.SEGMENT_TOPOLOGY_REQUIRED)
    preferred = _stated(pod.annotations, template, names.SEGMENT_TOPOLOGY_PREFERRED)
    return Topology(name, required, preferred) if name and (required or preferred) else None


def check_segment_count(count: int, owner: Resource) -> None:
    """Refuse more segments than a group can reasonably hold.

    Raises: InputError above ``MOST_SEGMENTS``.
    """
    if count > MOST_SEGMENTS:
        raise InputError.about(str(owner), "number of segments", found=count, wanted=f"at most {MOST_SEGMENTS}")


def _stated(annotations: Mapping[str, str], template: Fields | None, key: str) -> str:
    try:
        return annotations.get(key) or template_annotation(template, key) or ""
    except InputError:
        return ""  # a template that states it in a wrong type states nothing, as in the peer
