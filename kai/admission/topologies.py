"""Topologies at the door: an alias must name one level, and never look like the label of another."""

from __future__ import annotations

from collections import Counter

from kai.admission.reading import piece_of
from kai.admission.review import ALLOWED, AdmissionRequest, AdmissionResponse, refused


def validate_topology(request: AdmissionRequest) -> AdmissionResponse:
    """Return whether a topology may be created or changed as asked; it may always be deleted.

    The CRD's own rules see to it that labels are unique.

    Raises: BadValue if the levels cannot be read.
    Source: rules and messages of the peer's topology webhook.
    """
    if request.operation == "DELETE":
        return ALLOWED
    levels = list(piece_of(request.object, "Topology")["spec"]["levels"].each())
    labels = {level["nodeLabel"].text() for level in levels}
    aliases = [alias for level in levels if (alias := level["alias"].text())]
    repeated = sorted(alias for alias, times in Counter(aliases).items() for _ in range(times - 1))
    taken = sorted(alias for alias in aliases if alias in labels)
    faults = []
    if repeated:
        faults.append(f"aliases must be unique within the topology; duplicated: [{' '.join(repeated)}]")
    if taken:
        faults.append(f"an alias must not equal a nodeLabel; conflicting: [{' '.join(taken)}]")
    return refused(f"invalid topology aliases: {'; '.join(faults)}") if faults else ALLOWED
