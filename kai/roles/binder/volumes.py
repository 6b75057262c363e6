"""The step that gives a pod its volumes: claims that waited for the pod's node are bound to a volume there.

A bound claim must be usable from the node. A claim whose class waits for the first consumer is matched with an existing
volume, or an annotation names the node for its provisioner. Then the step waits until the cluster's volume controller
completes the binding. A claim stays bound if the bind of the pod fails: claims outlive pods.

Source: the volume binding of the Kubernetes scheduler, from filter to pre-bind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.kinds import key_of, title
from kai.api.kubernetes.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from kai.api.plans import Now, Plan, Ref, every, find, patch, wait_until
from kai.api.values import amount
from kai.roles.binder.claims import label_selector_matches, node_selector_matches
from kai.roles.binder.outcome import BindContext, BindFailureError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.api.kubernetes.node import Node
    from kai.api.kubernetes.pod import Pod

_NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
_FILESYSTEM: Final = "Filesystem"


@attrs.frozen(kw_only=True)
class VolumeBinding:
    """Binds the claims of a pod to volumes that its node can use."""

    timeout_seconds: float = 120.0
    """Limit for all claims of a pod together."""
    name: str = "volumebinding"

    def prepare(self, context: BindContext, /) -> Plan[None]:
        """Bind every claim of the pod to a volume that the node can use, and wait until that is complete.

        Raises: BindFailureError; RefusedError.
        """
        claims: list[PersistentVolumeClaim] = []
        for name in claim_names(context.pod):
            claim = yield from _claim(context.pod, name)
            claims.append(claim)
        waiting = [claim for claim in claims if not is_bound(claim)]
        for claim in claims:
            if is_bound(claim):
                yield from _check_reachable(claim, context.node)
        if not waiting:
            return
        provisioned = yield from _start_binding(waiting, context.node)
        started: float = yield Now()
        for claim in waiting:
            now: float = yield Now()
            # One limit for all claims: a pod with ten of them must not hold its place ten times as long.
            left = max(0.0, self.timeout_seconds - (now - started))
            yield from _wait_for(claim, context.node, left, is_provisioned=claim in provisioned)

    def undo(self, context: BindContext, /) -> Plan[None]:
        """Do nothing: a claim keeps its volume."""
        yield from ()


def claim_names(pod: Pod) -> tuple[str, ...]:
    """Return the names of the claims that a pod mounts, each once; ephemeral ones are named after pod and volume."""
    found: dict[str, None] = {}
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None:
            found[volume.persistent_volume_claim.claim_name] = None
        elif volume.ephemeral is not None:
            found[f"{pod.metadata.name}-{volume.name}"] = None
    return tuple(found)


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a claim is bound, and the volume controller has completed that."""
    # A name alone is not enough: the controller adds the annotation once both sides agree.
    return bool(claim.spec.volume_name) and names.VOLUME_BIND_COMPLETED in claim.metadata.annotations


def _claim(pod: Pod, name: str) -> Plan[PersistentVolumeClaim]:
    ref = Ref(PersistentVolumeClaim, name, pod.metadata.namespace)
    claim = yield from find(ref)
    if claim is None:
        raise BindFailureError(f"{ref}: does not exist", retryable=True)
    if claim.metadata.deletion_timestamp is not None:
        raise BindFailureError(f"{title(claim)}: is being deleted", retryable=True)
    return claim


def _check_reachable(claim: PersistentVolumeClaim, node: Node) -> Plan[None]:
    volume = yield from find(Ref(PersistentVolume, claim.spec.volume_name))
    if volume is None:
        message = f"{title(claim)}: its volume {claim.spec.volume_name} does not exist"
        raise BindFailureError(message, retryable=True)
    if not _is_reachable(volume, node):
        raise BindFailureError(f"{title(volume)}: cannot be used from {title(node)}", retryable=False)


def _is_reachable(volume: PersistentVolume, node: Node) -> bool:
    affinity = volume.spec.node_affinity
    required = affinity.required if affinity is not None else None
    return required is None or node_selector_matches(required, node)


# --- Starting ------------------------------------------------------------------------------------------------------


def _start_binding(claims: Iterable[PersistentVolumeClaim], node: Node) -> Plan[tuple[PersistentVolumeClaim, ...]]:
    """Match each claim with a free volume, or have one provisioned; nothing is written before all claims are decided.

    Returns the claims that need provisioning.
    """
    volumes = yield from every(PersistentVolume)
    # The store shows a match only after its write, so two claims of one pod could choose the same volume.
    taken: set[str] = set()
    matched: list[tuple[PersistentVolumeClaim, PersistentVolume]] = []
    provisioned: list[PersistentVolumeClaim] = []
    for claim in claims:
        storage_class = yield from _waiting_class(claim)
        volume = find_volume(claim, (v for v in volumes if v.metadata.name not in taken), node)
        if volume is not None:
            taken.add(volume.metadata.name)
            matched.append((claim, volume))
        else:
            _check_can_provision(claim, storage_class, node)
            provisioned.append(claim)
    for claim, volume in matched:
        yield from _offer_volume(claim, volume)
    for claim in provisioned:
        yield from _ask_for_volume(claim, node)
    return tuple(provisioned)


def _waiting_class(claim: PersistentVolumeClaim) -> Plan[StorageClass]:
    """Return the class of a claim that waits for its first consumer; no other unbound claim can be bound here."""
    name = claim.spec.storage_class_name
    found = (yield from find(Ref(StorageClass, name))) if name else None
    waits = found is not None and found.volume_binding_mode == "WaitForFirstConsumer"
    if found is None or not waits or claim.spec.volume_name:
        raise BindFailureError(f"{title(claim)}: is not bound to a volume yet", retryable=True)
    return found


def find_volume(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    node: Node,
) -> PersistentVolume | None:
    """Return the volume reserved for a claim, else the smallest one usable on a node; None if there is none."""
    usable = [volume for volume in volumes if _suits(volume, claim) and _is_reachable(volume, node)]
    if not usable:
        return None
    # The smallest, as in Kubernetes: a large volume would be lost to the small claims that come first.
    return min(usable, key=lambda v: (not _is_kept_for(v, claim), _size(v), v.metadata.name))


def _suits(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    spec = volume.spec
    # A released volume still has the data of its last claim: it is not free until an administrator clears it.
    free = spec.claim_ref is None and volume.status.phase == "Available"
    return (
        volume.metadata.deletion_timestamp is None
        and (free or _is_kept_for(volume, claim))
        and spec.storage_class_name == (claim.spec.storage_class_name or "")
        and (spec.volume_mode or _FILESYSTEM) == (claim.spec.volume_mode or _FILESYSTEM)
        and set(claim.spec.access_modes) <= set(spec.access_modes)
        and label_selector_matches(claim.spec.selector, volume.metadata.labels)
        and amount(claim.spec.resources.requests.get(names.STORAGE, "0")) <= _size(volume)
    )


def _is_kept_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    ref = volume.spec.claim_ref
    # An administrator reserves a volume by a name, without a UID.
    return ref is not None and (ref.namespace, ref.name) == key_of(claim) and ref.uid in {"", claim.metadata.uid}


def _size(volume: PersistentVolume) -> int:
    return amount(volume.spec.capacity.get(names.STORAGE, "0"))


def _check_can_provision(claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node) -> None:
    if storage_class.provisioner in {"", _NO_PROVISIONER}:
        raise BindFailureError(f"{title(claim)}: no volume suits it on {title(node)}", retryable=False)
    terms = storage_class.allowed_topologies
    labels = node.metadata.labels
    if terms and not any(
        all(labels.get(requirement.key) in requirement.values for requirement in term.match_label_expressions)
        for term in terms
    ):
        message = f"{title(claim)}: {title(storage_class)} provisions nothing on {title(node)}"
        raise BindFailureError(message, retryable=False)
    # Another attempt named that node. Its provisioner may be at work, and removes the annotation if it fails.
    chosen = claim.metadata.annotations.get(names.VOLUME_NODE)
    if chosen is not None and chosen != node.metadata.name:
        raise BindFailureError(f"{title(claim)}: is being provisioned on node {chosen}", retryable=True)


def _offer_volume(claim: PersistentVolumeClaim, volume: PersistentVolume) -> Plan[None]:
    if _is_kept_for(volume, claim) and volume.spec.claim_ref is not None and volume.spec.claim_ref.uid:
        return
    metadata = claim.metadata
    reference = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": metadata.namespace,
        "name": metadata.name,
        "uid": metadata.uid,
    }
    # Here the volume names the claim; the volume controller completes the claim. The annotation lets it undo both.
    body = {"metadata": {"annotations": {names.VOLUME_BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": reference}}
    yield from patch(
        Ref(PersistentVolume, volume.metadata.name),
        body,
        uid=volume.metadata.uid,
        resource_version=volume.metadata.resource_version,
    )


def _ask_for_volume(claim: PersistentVolumeClaim, node: Node) -> Plan[None]:
    if claim.metadata.annotations.get(names.VOLUME_NODE) == node.metadata.name:
        return
    # Provisioners wait for this annotation, which tells them where the volume must be usable.
    body = {"metadata": {"annotations": {names.VOLUME_NODE: node.metadata.name}}}
    metadata = claim.metadata
    yield from patch(
        Ref(PersistentVolumeClaim, metadata.name, metadata.namespace),
        body,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )


# --- Waiting -------------------------------------------------------------------------------------------------------


def _wait_for(claim: PersistentVolumeClaim, node: Node, seconds: float, *, is_provisioned: bool) -> Plan[None]:
    """Wait until a claim is bound; a provisioner that gives up removes the node annotation.

    A claim that was matched with a volume needs no such annotation.
    """
    ref = Ref.to(claim)
    unnamed = "" if is_provisioned else node.metadata.name

    def was_given_up(current: PersistentVolumeClaim) -> bool:
        return current.metadata.annotations.get(names.VOLUME_NODE, unnamed) != node.metadata.name

    known = yield from wait_until(ref, lambda current: is_bound(current) or was_given_up(current), seconds=seconds)
    if known is not None and not is_bound(known):
        raise BindFailureError(f"{title(claim)}: its provisioner gave up on {title(node)}", retryable=True)
    if known is None:
        raise BindFailureError(f"{title(claim)}: was not bound to a volume on {title(node)} in time", retryable=True)
    # The volume controller has the last word, and may have bound another volume than the one that was offered.
    yield from _check_reachable(known, node)
