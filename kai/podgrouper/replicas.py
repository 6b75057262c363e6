"""How many pods a job of the Kubeflow training operator needs, from its map of replica specs."""

from collections.abc import Iterable

import attrs

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.resource import Fields
from kai.podgrouper.rules import standard_draft

MIN_AVAILABLE = ("spec", "runPolicy", "schedulingPolicy", "minAvailable")


def distributed_draft(request: Request, replica_specs: str, mandatory: Iterable[str] = ()) -> GroupDraft:
    """Return the standard group as a gang of all replicas, or of as many as the run policy says.

    ``replica_specs`` is the field of ``spec`` that maps roles to replica specs, ``mandatory`` the roles it must have.
    Raises: InputError when the run policy says nothing and a role is missing, or one has no replicas.
    Source: the peer's Kubeflow groupers.
    """
    draft = standard_draft(request, request.owner)
    fields = request.owner.fields
    min_available = fields.integer(*MIN_AVAILABLE)
    if min_available is None:
        min_available = count_replicas(fields, replica_specs, mandatory)
    return attrs.evolve(draft, min_member=min_available)


def count_replicas(fields: Fields, replica_specs: str, mandatory: Iterable[str]) -> int:
    """Return the sum of the replicas of all roles.

    Raises: InputError when a role is missing or has no replicas.
    """
    roles = fields.child("spec", replica_specs)
    if roles is None:
        raise fields.error(("spec", replica_specs), None, "the replica specs of the job")
    for role in mandatory:
        if role not in roles.value:
            raise roles.error((role,), None, "a replica spec for this role")
    total = 0
    for role in roles.value:
        replicas = roles.integer(role, "replicas")
        if not replicas:
            raise roles.error((role, "replicas"), replicas, "at least 1 replica")
        total += replicas
    if total <= 0:
        raise fields.error(("spec", replica_specs), total, "at least 1 replica in all")
    return total
