"""Resource claims that are made for one pod: from a template when it is created, or for extended resources at its bind.

Source: the controller of resource claims in kube-controller-manager, and Kubernetes' scheduler.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

import attrs

from kai.api import names
from kai.api.fields import EMPTY
from kai.api.kubernetes.dra import (
    DeviceClaim,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimConsumer,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from kai.api.kubernetes.meta import ObjectMeta, OwnerReference
from kai.api.kubernetes.pod import ENDED, Pod, PodResourceClaim, PodResourceClaimStatus

ClaimKey = tuple[str, str]
"""Namespace and name."""

_NAME_ROOM: Final = 253 - len("-extended-resources-") - 10


def consumer_of(pod: Pod) -> ResourceClaimConsumer:
    """Return the consumer entry with which a claim is reserved for a pod."""
    return ResourceClaimConsumer(resource="pods", name=pod.metadata.name, uid=_uid(pod))


def is_made_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether a claim was made for this pod and is owned by it; then it is deleted with the pod."""
    return any(each.kind == "Pod" and each.uid == _uid(pod) for each in claim.metadata.owner_references)


def extended_claim_name(pod: Pod) -> str:
    """Return the name of the claim that is made for the extended resources of a pod."""
    digest = hashlib.sha256(_uid(pod).encode()).hexdigest()[:10]
    return f"{pod.metadata.name[:_NAME_ROOM].rstrip('.-')}-extended-resources-{digest}"


def extended_claim(pod: Pod, requests: Sequence[DeviceRequest]) -> ResourceClaim:
    """Return the claim for the extended resources of a pod, not yet allocated."""
    metadata = _metadata(pod, extended_claim_name(pod), EMPTY, {names.EXTENDED_RESOURCE_CLAIM: "true"})
    return ResourceClaim(metadata=metadata, spec=ResourceClaimSpec(devices=DeviceClaim(requests=tuple(requests))))


def with_claims(
    pod: Pod,
    template_of: Callable[[ClaimKey], ResourceClaimTemplate | None],
    claim_of: Callable[[ClaimKey], ResourceClaim | None],
) -> tuple[Pod, Sequence[ResourceClaim]]:
    """Return a pod that names the claims made from its templates, and those of the claims that do not exist yet.

    A pod that is bound, terminating or ended gets none. Where the API server appends random letters to a generated
    name, a number is appended here.
    """
    is_waiting = not pod.spec.node_name and pod.status.phase not in ENDED and pod.metadata.deletion_timestamp is None
    if not is_waiting or not any(each.resource_claim_template_name for each in pod.spec.resource_claims):
        return pod, ()
    claim_statuses = {each.name: each for each in pod.status.resource_claim_statuses}
    made: dict[ClaimKey, ResourceClaim] = {}
    for reference in pod.spec.resource_claims:
        template = template_of((pod.metadata.namespace, reference.resource_claim_template_name or ""))
        if template is None or _is_served(pod, claim_statuses.get(reference.name), claim_of):
            continue
        key = _free_name(pod, reference, lambda at: at in made or claim_of(at) is not None)
        labels, annotations = template.spec.metadata.labels, template.spec.metadata.annotations
        metadata = _metadata(pod, key[1], labels, {**annotations, names.POD_CLAIM_NAME: reference.name})
        made[key] = ResourceClaim(metadata=metadata, spec=template.spec.spec)
        claim_statuses[reference.name] = PodResourceClaimStatus(name=reference.name, resource_claim_name=key[1])
    if not made:
        return pod, ()
    status = attrs.evolve(pod.status, resource_claim_statuses=tuple(claim_statuses.values()))
    return attrs.evolve(pod, status=status), tuple(made.values())


def _is_served(
    pod: Pod, claim_status: PodResourceClaimStatus | None, claim_of: Callable[[ClaimKey], ResourceClaim | None]
) -> bool:
    """Return whether the claim in a pod's status exists, or the status says that the pod needs none."""
    if claim_status is None or not claim_status.resource_claim_name:
        return claim_status is not None
    claim = claim_of((pod.metadata.namespace, claim_status.resource_claim_name))
    return claim is not None and (not claim.metadata.owner_references or is_made_for(claim, pod))


def _free_name(pod: Pod, reference: PodResourceClaim, is_taken: Callable[[ClaimKey], bool]) -> ClaimKey:
    start = f"{pod.metadata.name}-{reference.name}"
    keys = ((pod.metadata.namespace, f"{start}-{number}") for number in count())
    return next(key for key in keys if not is_taken(key))


def _metadata(pod: Pod, name: str, labels: Mapping[str, str], annotations: Mapping[str, str]) -> ObjectMeta:
    owner = OwnerReference(
        api_version="v1",
        kind="Pod",
        name=pod.metadata.name,
        uid=_uid(pod),
        controller=True,
        block_owner_deletion=True,
    )
    return ObjectMeta(
        name=name,
        namespace=pod.metadata.namespace,
        labels=labels,
        annotations=annotations,
        owner_references=(owner,),
    )


def _uid(pod: Pod) -> str:
    """Return the UID of a pod; for a pod that no API server has seen, its name, as intake does."""
    return pod.metadata.uid or pod.metadata.name
