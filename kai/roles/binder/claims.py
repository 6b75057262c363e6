"""The step that gives a pod its devices by resource claims, and the selectors of nodes and volumes.

A claim must list the pod in its reservedFor before the kubelet prepares the devices. The scheduler's allocation is
written only to a claim that has none. The claim first gets a finalizer, because Kubernetes frees devices only of claims
with that finalizer once their last user is gone. For devices behind extended resources a claim is created. Its name
derives from the pod, so that a lost answer does not lead to a second claim.

Source: KAI-Scheduler's binder, with two differences. A failed bind gives back its reservations, as a claim reserved for
a pod that runs nowhere would keep its devices from all others. And the finalizer is set as in Kubernetes' scheduler.

`is_wanted`, `untolerated` and the selector functions have the semantics of Kubernetes' node selectors, label selectors
and taints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.conventions.device_claims import consumer_of, extended_claim, extended_claim_name, is_made_for
from kai.api.kinds import title
from kai.api.kubernetes.dra import AllocationResult, ResourceClaim, ResourceClaimConsumer
from kai.api.kubernetes.node import Node, NodeSelector, NodeSelectorTerm, Taint
from kai.api.kubernetes.pod import Pod, claim_behind
from kai.api.plans import Plan, Reason, Ref, RefusedError, create, delete, find, patch
from kai.facts.model.constraints import holds, tolerates
from kai.roles.binder.outcome import BindContext, BindFailureError

if TYPE_CHECKING:
    from kai.api.kubernetes.meta import LabelSelector
    from kai.api.scheduling.bind_request import BindRequest, ExtendedResourceClaimAllocation

_KEEPS_AWAY: Final = frozenset({"NoSchedule", "NoExecute"})
_UNSCHEDULABLE: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")


def is_wanted(pod: Pod, node: Node) -> bool:
    """Return whether a node satisfies the node selector and the required node affinity of a pod."""
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in pod.spec.node_selector.items()):
        return False
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required if affinity is not None else None
    return required is None or node_selector_matches(required, node)


def untolerated(pod: Pod, node: Node) -> Taint | None:
    """Return a taint of the node that the pod does not tolerate; None if there is none."""
    # A cordon sets the field at once; the taint follows when the node controller has seen the field.
    taints = [*node.spec.taints, *([_UNSCHEDULABLE] if node.spec.unschedulable else [])]
    for taint in taints:
        if taint.effect in _KEEPS_AWAY and not any(tolerates(each, taint) for each in pod.spec.tolerations):
            return taint
    return None


def node_selector_matches(selector: NodeSelector, node: Node) -> bool:
    """Return whether one of the terms matches the node; a term without conditions matches none."""
    return any(_term_matches(term, node) for term in selector.node_selector_terms)


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Return whether labels match a selector; None matches all."""
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(requirement, labels) for requirement in selector.match_expressions)


def _term_matches(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.metadata.name}
    return all(holds(r, node.metadata.labels) for r in term.match_expressions) and all(
        holds(r, fields) for r in term.match_fields
    )


_ATTEMPTS: Final = 5
_IMMUTABLE: Final = "field is immutable"
"""Part of the API server's error message for a write that would change an immutable spec."""


@attrs.frozen(kw_only=True)
class DynamicResources:
    """Reserves and allocates the claims of a pod."""

    name: str = "dynamicresources"

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Reserve every claim of the request for the pod, and write its allocation.

        Raises: BindFailureError; RefusedError.
        """
        pod, request = context.pod, context.request
        for wanted in request.spec.resource_claim_allocations:
            if wanted.allocation is None:
                raise BindFailureError(f"{title(request)}: claim {wanted.name} has no allocation", retryable=False)
            ref = Ref(ResourceClaim, _claim_name(pod, wanted.name), pod.metadata.namespace)
            yield from _change_status(ref, _reservation(context, wanted.allocation), pod)
        extended = request.spec.extended_resource_claim_allocation
        if extended is not None:
            yield from _prepare_extended(context, extended)

    def undo(self, context: BindContext, /) -> Plan[None]:
        """Remove the pod from its claims, and the allocation from claims without other users; delete the created claim.

        Raises: RefusedError.
        """
        pod, request = context.pod, context.request
        for wanted in request.spec.resource_claim_allocations:
            try:
                ref = Ref(ResourceClaim, _claim_name(pod, wanted.name), pod.metadata.namespace)
            # The claim was never made, so there is nothing to release.
            except BindFailureError:
                continue
            yield from _change_status(ref, _release(pod, wanted.allocation), pod, missing_is_fine=True)
        if request.spec.extended_resource_claim_allocation is not None:
            yield from _undo_extended(pod, request.spec.extended_resource_claim_allocation.allocation)


# --- Claims that exist ---------------------------------------------------------------------------------------------

StatusChange = Callable[[ResourceClaim], dict[str, Any]]
"""Maps a claim to the merge patch of its status; {} if nothing changes."""


def _change_status(
    ref: Ref[ResourceClaim], change: StatusChange, pod: Pod, *, missing_is_fine: bool = False
) -> Plan[None]:
    """Change the present status of a claim; others change it too, so a conflict is retried on a fresh read."""
    for attempt in range(_ATTEMPTS):
        claim = yield from find(ref, fresh=attempt > 0)
        if claim is None:
            if missing_is_fine:
                return
            raise BindFailureError(f"{ref}: does not exist", retryable=True)
        status = change(claim)
        if not status:
            return
        try:
            # The finalizer goes first: a crash in between must not leave devices allocated that nothing frees.
            if status.get("allocation") and names.DRA_FINALIZER not in claim.metadata.finalizers:
                claim = yield from _protect(ref, claim, pod)
            metadata = claim.metadata
            yield from patch(
                ref,
                {"status": status},
                uid=metadata.uid,
                resource_version=metadata.resource_version,
                subresource="status",
            )
        except RefusedError as error:
            if error.reason is not Reason.CONFLICT or attempt == _ATTEMPTS - 1:
                raise
        else:
            return


def _protect(ref: Ref[ResourceClaim], claim: ResourceClaim, pod: Pod) -> Plan[ResourceClaim]:
    """Add the finalizer to a claim; return it unchanged if the API server refuses and the claim ends with ``pod``.

    Raises: BindFailureError if the devices of such a claim would never be freed; RefusedError.
    """
    metadata = claim.metadata
    body = {"metadata": {"finalizers": [*metadata.finalizers, names.DRA_FINALIZER]}}
    try:
        return (yield from patch(ref, body, uid=metadata.uid, resource_version=metadata.resource_version))
    except RefusedError as error:
        # The API server keeps device parameters as the text that the client wrote, and compares texts. After a patch
        # the text has no blanks, and `<`, `>` and `&` are escaped. So a claim that was written otherwise seems to
        # change its immutable spec.
        if error.reason is not Reason.REJECTED or _IMMUTABLE not in error.refusal.why:
            raise
    # The devices of a claim that ends with its pod are freed even without the finalizer.
    if is_made_for(claim, pod):
        return claim
    message = (
        f"{title(claim)}: spec.devices.config: the API server refuses each change of the claim, as the parameters were "
        "written with blanks between them or with <, > or &; make the claim anew with kubectl, which writes neither"
    )
    raise BindFailureError(message, retryable=False)


def _reservation(context: BindContext, allocation: AllocationResult) -> StatusChange:
    def change(claim: ResourceClaim) -> dict[str, Any]:
        status: dict[str, Any] = {}
        current = claim.status.allocation
        if current is None:
            status["allocation"] = unstructure(allocation)
        # Another pod of the claim was bound first, and its allocation stays: this node has to reach those devices.
        elif current.node_selector is not None and not node_selector_matches(current.node_selector, context.node):
            message = f"{title(claim)}: its devices cannot be used from {title(context.node)}"
            raise BindFailureError(message, retryable=False)
        consumer = consumer_of(context.pod)
        if consumer not in claim.status.reserved_for:
            status["reservedFor"] = _consumers([*claim.status.reserved_for, consumer])
        # Only a claim that has to be written is refused: one that already serves this pod does so until the pod ends.
        if status and claim.metadata.deletion_timestamp is not None:
            raise BindFailureError(f"{title(claim)}: is being deleted", retryable=True)
        return status

    return change


def _release(pod: Pod, allocation: AllocationResult | None) -> StatusChange:
    def change(claim: ResourceClaim) -> dict[str, Any]:
        consumer = consumer_of(pod)
        if consumer not in claim.status.reserved_for:
            return {}
        others = [other for other in claim.status.reserved_for if other != consumer]
        status: dict[str, Any] = {"reservedFor": _consumers(others) or None}
        # Devices of an unused claim stay allocated while the allocation is there. An allocation that differs from the
        # request's was there before, and must stay.
        if not others and allocation is not None and claim.status.allocation == allocation:
            status["allocation"] = None
        return status

    return change


def _consumers(consumers: Sequence[ResourceClaimConsumer]) -> list[dict[str, Any]]:
    return [unstructure(consumer) for consumer in consumers]


def _claim_name(pod: Pod, name: str) -> str:
    """Return the name of the ResourceClaim behind a claim of a pod.

    Raises: BindFailureError if the pod has no such claim, or its ResourceClaim does not exist yet.
    """
    for claim in pod.spec.resource_claims:
        if claim.name == name:
            found = claim_behind(pod, claim)
            if found:
                return found
            raise BindFailureError(f"{title(pod)}: no resource claim was made for its claim {name} yet", retryable=True)
    raise BindFailureError(f"{title(pod)}: has no claim {name}, which the bind request allocates", retryable=False)


# --- The claim for extended resources ------------------------------------------------------------------------------


def _prepare_extended(context: BindContext, extended: ExtendedResourceClaimAllocation) -> Plan[None]:
    pod = context.pod
    if extended.allocation is None:
        message = f"{title(context.request)}: extended resources have no allocation"
        raise BindFailureError(message, retryable=False)
    ref = Ref(ResourceClaim, extended_claim_name(pod), pod.metadata.namespace)
    found = yield from find(ref)
    if found is not None and found.metadata.deletion_timestamp is not None:
        # An earlier attempt was cut off during its undo: finish that first.
        yield from _drop_protection(ref)
        found = yield from find(ref, fresh=True)
    if found is None:
        claim = extended_claim(pod, extended.device_requests)
        # As Kubernetes' scheduler does: devices are freed only of claims with this finalizer.
        protected = attrs.evolve(claim.metadata, finalizers=(names.DRA_FINALIZER,))
        yield from create(ref, unstructure(attrs.evolve(claim, metadata=protected)))
    yield from _change_status(ref, _reservation(context, extended.allocation), pod)
    claim_status = {
        "resourceClaimName": ref.name,
        "requestMappings": [unstructure(mapping) for mapping in extended.container_mappings],
    }
    # The kubelet finds the claim of extended resources by this status, since the pod's spec names none.
    current = pod.status.extended_resource_claim_status
    if current is not None and unstructure(current) == {key: value for key, value in claim_status.items() if value}:
        return
    body = {"status": {"extendedResourceClaimStatus": claim_status}}
    yield from patch(Ref.to(pod), body, uid=pod.metadata.uid, subresource="status")


def _undo_extended(pod: Pod, allocation: AllocationResult | None) -> Plan[None]:
    ref = Ref(ResourceClaim, extended_claim_name(pod), pod.metadata.namespace)
    yield from _change_status(ref, _release(pod, allocation), pod, missing_is_fine=True)
    claim = yield from find(ref)
    if claim is not None:
        yield from delete(ref, uid=claim.metadata.uid)
        # No kubelet ever prepared its devices, so only our own finalizer blocks the deletion.
        yield from _drop_protection(ref)
    current = yield from find(Ref.to(pod), fresh=True)
    if (
        current is not None
        and current.metadata.uid == pod.metadata.uid
        and current.status.extended_resource_claim_status is not None
    ):
        body = {"status": {"extendedResourceClaimStatus": None}}
        yield from patch(Ref.to(pod), body, uid=pod.metadata.uid, subresource="status")


def _drop_protection(ref: Ref[ResourceClaim]) -> Plan[None]:
    claim = yield from find(ref, fresh=True)
    if claim is None or names.DRA_FINALIZER not in claim.metadata.finalizers:
        return
    kept = [finalizer for finalizer in claim.metadata.finalizers if finalizer != names.DRA_FINALIZER]
    metadata = claim.metadata
    yield from patch(
        ref,
        {"metadata": {"finalizers": kept or None}},
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


def requested_by_claim(request: BindRequest) -> frozenset[str]:
    """Return the extended resources that a claim serves; the node need not offer these as resources."""
    extended = request.spec.extended_resource_claim_allocation
    mappings = extended.container_mappings if extended is not None else ()
    return frozenset(mapping.resource_name for mapping in mappings)
