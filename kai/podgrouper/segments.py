"""Segments: workers cut into runs of equal size that should sit close together.

Annotations on the pod come before those of the worker template, so that what the pod was created with stands.
"""

from collections.abc import Mapping

from kai.api import names
from kai.errors import InputError
from kai.podgrouper.draft import Topology
from kai.podgrouper.resource import Fields, Resource

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
