"""Jobs of the Kubeflow training operator that are plain gangs: TFJob, XGBoostJob, JAXJob."""

from typing import ClassVar

from kai.podgrouper.draft import GroupDraft
from kai.podgrouper.grouper import Request
from kai.podgrouper.replicas import distributed_draft
from kai.podgrouper.settings import KindPattern

ROLES = {
    "JAXJob": ("jaxReplicaSpecs", ("Worker",)),
    "TFJob": ("tfReplicaSpecs", ()),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master",)),
}
"""Kind → the field with its replica specs, and the roles that must be there."""


class Kubeflow:
    """One gang of all replicas."""

    kinds: ClassVar[tuple[KindPattern, ...]] = tuple(KindPattern("kubeflow.org", "v1", kind) for kind in ROLES)

    def draft(self, request: Request, /) -> GroupDraft:
        """Return the standard group with all replicas, or the run policy's minimum, as its minimum.

        Raises: InputError when replicas are missing.
        """
        kind = request.owner.kind.kind
        if kind not in ROLES:
            raise request.owner.error("kind", kind, f"one of {', '.join(ROLES)}")
        replica_specs, mandatory = ROLES[kind]
        return distributed_draft(request, replica_specs, mandatory)
