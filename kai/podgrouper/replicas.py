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
    Raises: InputError when the run policy says nothing and a role is missing, or no role has replicas.
    Source: the peer's Kubeflow groupers, which refuse roles without ``replicas``, or with 0 of them, and want workers
        in each XGBoostJob and MPIJob; the operators make the pods of such jobs.
    """
    draft = standard_draft(request, request.owner)
    fields = request.owner.fields
    min_available = fields.integer(*MIN_AVAILABLE)
    if min_available is None:
        min_available = _count_replicas(fields, replica_specs, mandatory)
    return attrs.evolve(draft, min_member=min_available)


def _count_replicas(fields: Fields, replica_specs: str, mandatory: Iterable[str]) -> int:
    roles = fields.child("spec", replica_specs)
    if roles is None:
        raise fields.error(("spec", replica_specs), None, "the replica specs of the job")
    for role in mandatory:
        if role not in roles.value:
            raise roles.error((role,), None, "a replica spec for this role")
    total = sum(replicas_of(roles, role) for role in roles.value)
    if total <= 0:
        raise fields.error(("spec", replica_specs), total, "at least 1 replica in all")
    return total


def replicas_of(roles: Fields, role: str) -> int:
    """Return how many replicas a role has, whether or not it is there: 1 where that is not said.

    Raises: InputError when it is said and no number of pods.
    """
    if role not in roles.value:
        return 0
    replicas = roles.integer(role, "replicas")
    if replicas is not None and replicas < 0:
        raise roles.error((role, "replicas"), replicas, "at least 0 replicas")
    return 1 if replicas is None else replicas
