"""What a pod requests and what it holds: the requests of its containers, its share of GPUs, and the devices it claims.

The status of pod groups and the history of usage count alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

import attrs

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.conventions.amounts import Amount, effective_requests, exact, plus
from kai.api.conventions.binding import share_annotations
from kai.api.fields import INT64_MAX
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import PriorityClass
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import ENDED, Pod, claim_behind
from kai.api.values import BadValue, amount
from kai.basics.kubernetes_version import NEWEST, KubernetesVersion
from kai.basics.parsing import signed

_SIZE: Final = re.compile(r"[0-9].*")
_MEGABYTE: Final = 10**6

FindNode = Callable[[str], Node | None]
FindClaim = Callable[[str, str], ResourceClaim | None]
"""Finds a claim by namespace and name."""


@attrs.frozen(kw_only=True)
class Surroundings:
    """Other objects that decide how a pod counts."""

    node: FindNode
    claim: FindClaim
    priority_classes: tuple[PriorityClass, ...] = ()
    scheduler_name: str = names.SCHEDULER_NAME
    """Pods that other schedulers bound share no GPU, whatever their annotations are."""
    kubernetes: KubernetesVersion = NEWEST


def count(pod: Pod, around: Surroundings) -> tuple[dict[str, Amount], dict[str, Amount]]:
    """Return the amounts that a pod requests and holds; an ended pod counts nothing, its claims may be gone.

    Raises: BadValue if it cannot be counted.
    """
    if pod.status.phase in ENDED:
        return {}, {}
    devices, share = _claimed_devices(pod, around.claim), share_annotations(pod, around.scheduler_name)
    if pod.status.phase not in {"Pending", "Running"}:
        return {}, {}
    effective = effective_requests(pod, around.kubernetes)
    requested = plus(plus(effective, _requested_share(share)), devices)
    allocated: dict[str, Amount] = {}
    if is_placed(pod):
        received = _received_share(share, pod.spec.node_name, around.node)
        allocated = plus(plus(effective, received), devices)
    return requested, allocated


def is_placed(pod: Pod) -> bool:
    """Return whether a pod holds what it requests: it runs, or was scheduled."""
    if pod.status.phase != "Pending":
        return pod.status.phase == "Running"
    for condition in pod.status.conditions:
        if condition.type == names.POD_SCHEDULED_CONDITION:
            return condition.status == "True"
    return False


def _requested_share(annotations: Mapping[str, str]) -> dict[str, Amount]:
    """Return the GPU share that a pod requests, over all of its devices.

    Raises: BadValue if one of its annotations is not a quantity.
    """
    share: dict[str, Amount] = {}
    devices = _devices(annotations)
    if names.GPU_FRACTION in annotations:
        share[names.NVIDIA_GPU] = _annotated(annotations, names.GPU_FRACTION).times(devices)
    if names.GPU_MEMORY in annotations:
        share[names.GPU_MEMORY_RESOURCE] = _annotated(annotations, names.GPU_MEMORY).times(devices)
    return share


def _devices(annotations: Mapping[str, str]) -> int:
    if names.GPU_FRACTION_DEVICES not in annotations:
        return 1
    whole, rest = divmod(_annotated(annotations, names.GPU_FRACTION_DEVICES).billionths, 10**9)
    if rest:
        raise _bad(annotations, names.GPU_FRACTION_DEVICES, gpu_sharing.WANTED_DEVICES)
    return whole


def _received_share(annotations: Mapping[str, str], node: str, find: FindNode) -> dict[str, Amount]:
    """Return the GPU share that a pod was granted, over all of its devices; empty if it has none.

    Raises: BadValue if neither the pod nor its node tells the size of the share.
    """
    if annotations.get(names.RECEIVED_RESOURCE_TYPE) != names.FRACTION:
        return {}
    if names.GPU_FRACTION in annotations:
        portion = _annotated(annotations, names.GPU_FRACTION)
    elif names.GPU_MEMORY in annotations:
        portion = _portion_of_memory(annotations, node, find)
    else:
        wanted = f"{names.GPU_FRACTION} or {names.GPU_MEMORY} beside {names.RECEIVED_RESOURCE_TYPE}"
        raise BadValue(None, wanted, path=("metadata", "annotations"))
    return {names.NVIDIA_GPU: portion.times(_devices(annotations))}


def _portion_of_memory(annotations: Mapping[str, str], node_name: str, find: FindNode) -> Amount:
    memory = signed(annotations[names.GPU_MEMORY])
    if memory is None:
        raise _bad(annotations, names.GPU_MEMORY, "a whole number of MiB")
    node = find(node_name)
    if node is None:
        raise BadValue(node_name, "the name of a node that exists", path=("spec", "nodeName"))
    try:
        size = gpu_memory(node)
    except BadValue as error:
        raise error.of(f"node {node.metadata.name}") from None
    # The shortest decimal that identifies the float, which is what the peer writes; not its exact binary value.
    return exact(format(Decimal(repr(memory / size)), "f"))


def gpu_memory(node: Node) -> float:
    """Return the memory of one GPU of a node.

    Units: MiB from NVIDIA's label, megabytes from AMD's.
    Raises: BadValue if neither label exists, both do, or one is malformed.
    """
    labels = node.metadata.labels
    text = labels.get(names.NODE_GPU_MEMORY)
    nvidia = None if text is None else signed(text)
    if text is not None and nvidia is None:
        raise BadValue(text, "a whole number of MiB", path=("metadata", "labels", names.NODE_GPU_MEMORY))
    amd = next((size for label in sorted(labels) if (size := _amd_memory(label)) is not None), None)
    if nvidia is not None and amd is not None:
        raise BadValue("both", "the size of NVIDIA's GPUs or of AMD's", path=("metadata", "labels"))
    size = amd if nvidia is None else float(nvidia)
    if not size:
        wanted = f"{names.NODE_GPU_MEMORY} or {names.NODE_AMD_GPU_MEMORY_PREFIX}<size>, above 0"
        raise BadValue(size, wanted, path=("metadata", "labels"))
    return size


def _amd_memory(label: str) -> float | None:
    """Return the megabytes in the key of one of AMD's labels; None for another label.

    Raises: BadValue if the key holds no quantity.
    """
    size = _SIZE.search(label) if label.startswith(names.NODE_AMD_GPU_MEMORY_PREFIX) else None
    if size is None:
        return None
    try:
        return amount(size.group()) / _MEGABYTE
    except BadValue as error:
        raise BadValue(label, error.wanted, path=("metadata", "labels", label)) from None


def _claimed_devices(pod: Pod, find: FindClaim) -> dict[str, Amount]:
    """Return the GPUs that a pod's resource claims request, by device class.

    Claims made for extended resources are left out: the pod's requests count them already.

    Raises: BadValue if a claim does not exist.
    """
    counts: dict[str, int] = {}
    for index, reference in enumerate(pod.spec.resource_claims):
        name = claim_behind(pod, reference)
        if name == "":
            continue
        claim = find(pod.metadata.namespace, name) if name is not None else None
        if claim is None:
            wanted = "a resource claim that exists"
            raise BadValue(name or reference.name, wanted, path=("spec", "resourceClaims", index))
        if claim.metadata.annotations.get(names.EXTENDED_RESOURCE_CLAIM) == "true":
            continue
        device_class, count = _gpus_of(claim)
        if count > 0:
            counts[device_class] = min(counts.get(device_class, 0) + count, INT64_MAX)
    return {device_class: Amount(count * 10**9) for device_class, count in counts.items()}


def _gpus_of(claim: ResourceClaim) -> tuple[str, int]:
    """Return the first GPU device class of a claim, and the number of GPUs that the claim requests in all.

    Source: in the peer a class is a GPU class if its name contains "gpu"; "all devices" counts as one, an unknown mode
    as none.
    """
    first, count = "", 0
    for request in claim.spec.devices.requests:
        exactly = request.exactly
        if exactly is None or "gpu" not in exactly.device_class_name.lower():
            continue
        first = first or exactly.device_class_name
        if exactly.allocation_mode == "ExactCount":
            count += exactly.count or 1
        elif exactly.allocation_mode == "All":
            count += 1
    return first, count


def _annotated(annotations: Mapping[str, str], key: str) -> Amount:
    try:
        return exact(annotations[key])
    except BadValue as error:
        raise _bad(annotations, key, error.wanted) from None


def _bad(annotations: Mapping[str, str], key: str, wanted: str) -> BadValue:
    return BadValue(annotations[key], wanted, path=("metadata", "annotations", key))
