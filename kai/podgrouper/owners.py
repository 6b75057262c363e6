"""From a pod to the workload it belongs to.

The chain starts at the pod's first owner reference, whether or not that is its controller, and ends at the first owner
without owners. An owner that may not be read ends it early: the last readable one then stands for the workload.
"""

import attrs

from kai.errors import InputError
from kai.podgrouper.lookup import Absent, Get, Reader, Why
from kai.podgrouper.resource import OwnerReference, Resource

LONGEST_CHAIN = 32
"""Far longer than any real chain; a chain that bites its own tail ends here."""


@attrs.frozen
class OwnerChain:
    """``owners`` from the nearest to the farthest; ``top`` is the last of them, or the pod when there is none."""

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
    """Return the owner, or nothing when reading it is not permitted."""
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
