"""Admission of pods: the changes that kai makes to them, and the pods that it refuses.

Only pods of our scheduler are handled; all others pass unchanged.

`json_patch` returns the difference of two manifests as a JSON patch (RFC 6902).

A pod may request whole GPUs, or a share by fraction or by memory, but not both.

Pods could get at GPUs through ``NVIDIA_VISIBLE_DEVICES``: the container runtime opens every device in that variable,
whether or not Kubernetes granted it. With the switch on, a pod may set the variable only to a word that means none, and
it is set to such a word in containers without a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kai.api import names
from kai.api.conventions import gpu_sharing
from kai.api.conventions.caps import excess, excess_of
from kai.api.conventions.gpu_sharing import ContainerPlace
from kai.api.values import BadValue, amount
from kai.basics.parsing import floating, unsigned
from kai.roles.admission.podshape import (
    ContainerShape,
    Draw,
    PodDraft,
    PodShape,
    inject_memory_limit,
    inject_references,
    read_pod,
)
from kai.roles.admission.review import (
    ALLOWED,
    AdmissionRequest,
    AdmissionResponse,
    AdmissionSettings,
    piece_of,
    refused,
)


def json_patch(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """Return the operations that turn `before` into `after`, in order.

    Holds: applied to `before` they give `after`; equal manifests give none.
    Cost: parts that are the same object in both are not compared, so a caller that copies only the parts that it
        changes pays for the change, not for the manifest.
    """
    return tuple(_between(before, after, ""))


def _between(before: object, after: object, path: str) -> list[dict[str, Any]]:
    if before is after:
        return []
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return _between_mappings(before, after, path)
    if isinstance(before, list) and isinstance(after, list):
        return _between_lists(before, after, path)
    if before == after and type(before) is type(after):
        return []
    return [{"op": "replace", "path": path, "value": after}]


def _between_mappings(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for key in before:
        place = f"{path}/{pointer_step(key)}"
        if key in after:
            operations += _between(before[key], after[key], place)
        else:
            operations.append({"op": "remove", "path": place})
    operations += [
        {"op": "add", "path": f"{path}/{pointer_step(key)}", "value": after[key]} for key in after if key not in before
    ]
    return operations


def _between_lists(before: list[Any], after: list[Any], path: str) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        # Place by place, without a search for the longest common part: kai changes lists of a pod at their ends.
        operations += _between(old, new, f"{path}/{index}")
    # From the end, because a removal shifts the items after it.
    operations += [{"op": "remove", "path": f"{path}/{index}"} for index in range(len(before) - 1, len(after) - 1, -1)]
    operations += [
        {"op": "add", "path": f"{path}/{index}", "value": after[index]} for index in range(len(before), len(after))
    ]
    return operations


def pointer_step(key: str) -> str:
    """Return a key escaped for a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")


def refuse_gpu_requests(shape: PodShape) -> str:
    """Return why the pod's GPU requests are refused; empty if they are not.

    Source: the peer's messages in the peer's order, since scripts of its users match them. Whole GPUs are searched for
    in the limits of all containers.
    """
    fraction = shape.annotations.get(names.GPU_FRACTION)
    memory = shape.annotations.get(names.GPU_MEMORY)
    devices = shape.annotations.get(names.GPU_FRACTION_DEVICES)
    whole = any(names.NVIDIA_GPU in container.limits for container in (*shape.containers, *shape.init_containers))
    shares = fraction is not None or memory is not None
    if not shares and shape.annotations.get(names.MPS) == "true":
        return "MPS is only supported with GPU fraction request"
    if fraction is not None and whole:
        return "cannot have both GPU fraction request and whole GPU resource request/limit"
    if memory is not None and (fraction is not None or whole):
        return "cannot request both GPU and GPU memory"
    if devices is not None and not shares:
        return "cannot request multiple fractional devices without specifying fraction portion or gpu-memory"
    if memory is not None and not unsigned(memory):
        return "gpu-memory annotation value must be a positive integer greater than 0"
    if fraction is not None and (reason := _refuse_fraction(fraction)):
        return reason
    if devices is not None and not unsigned(devices):
        return "fraction count annotation value must be a positive integer greater than 0"
    return ""


def _refuse_fraction(text: str) -> str:
    number = floating(text)
    # NaN is neither too small nor too large; like a hexadecimal number it fails as a quantity below.
    if number is None or not (math.isnan(number) or 0 < number < 1):
        return "gpu-fraction annotation value must be a positive number smaller than 1.0"
    try:
        amount(text, 10**9)
    except BadValue:
        return (
            "gpu-fraction annotation value must be a float written with a decimal point or a scientific notation"
            f" .given value: {text}"
        )
    return ""


_HARMLESS: Final = ("void", "none")


def void_visible_devices(shape: PodShape, draft: PodDraft) -> None:
    """Hide all GPUs from every container without a GPU request; the one that shares GPUs gets its own value later.

    Source: the peer sets the literal value of the first such variable and leaves a reference beside it in place, which
    the API server then refuses; so do we, since a silently dropped reference would surprise more.
    """
    for place, container in _others(shape):
        if not container.requests_device:
            draft.change_container(place, env=_void(draft.container(place), container))


def void_in_added(shape: PodShape, draft: PodDraft, known: Collection[str]) -> None:
    """Hide all GPUs from ephemeral containers, except those in ``known``, which are immutable by now."""
    for index, container in enumerate(shape.ephemeral_containers):
        if container.name not in known:
            fields = draft.ephemeral_containers[index]
            draft.ephemeral_containers[index] = {**fields, "env": _void(fields, container)}


def refuse_visible_devices(shape: PodShape) -> str:
    """Return why the pod's own setting of the variable is refused; empty if it is not."""
    return _refuse_devices(container for _, container in _others(shape))


def refuse_in_added(shape: PodShape, known: Collection[str]) -> str:
    """Return why the setting of ephemeral containers outside ``known`` is refused; empty if it is not."""
    return _refuse_devices(container for container in shape.ephemeral_containers if container.name not in known)


def _void(fields: Mapping[str, Any], container: ContainerShape) -> list[dict[str, Any]]:
    """Return the variables of a container, with the one that hides all GPUs set."""
    variables = list(fields.get("env") or ())
    for index, variable in enumerate(container.variables):
        if variable.name == gpu_sharing.VISIBLE_DEVICES:
            variables[index] = {**variables[index], "value": "void"}
            return variables
    return [*variables, {"name": gpu_sharing.VISIBLE_DEVICES, "value": "void"}]


def _refuse_devices(containers: Iterable[ContainerShape]) -> str:
    for container in containers:
        for variable in container.variables:
            if variable.name != gpu_sharing.VISIBLE_DEVICES or variable.value in _HARMLESS:
                continue
            if variable.value:
                return (
                    f"container {container.name} has an environment variable NVIDIA_VISIBLE_DEVICES"
                    f" defined with a value of {variable.value}. This is forbidden due to conflicts with Nvidia's"
                    " device plugin. The only values that are allowed are 'void' or 'none'"
                )
            if variable.is_reference:
                return (
                    f"container {container.name} has an environment variable NVIDIA_VISIBLE_DEVICES defined with a"
                    " valueFrom reference. This is forbidden due to possible conflicts with Nvidia's device plugin"
                )
    return ""


def _others(shape: PodShape) -> list[tuple[ContainerPlace, ContainerShape]]:
    """Return all containers, init containers first, except the one that shares GPUs."""
    sharer = shape.sharing_place()
    containers = [(ContainerPlace(i, initial=True), c) for i, c in enumerate(shape.init_containers)]
    containers += [(ContainerPlace(i), c) for i, c in enumerate(shape.containers)]
    return [(place, container) for place, container in containers if place != sharer]


_EPHEMERAL: Final = "ephemeralcontainers"


def mutate_pod(request: AdmissionRequest, settings: AdmissionSettings, draw: Draw) -> AdmissionResponse:
    """Return the pod with kai's changes.

    Holds: idempotent: its own result is not changed again.
    Raises: BadValue if the pod cannot be read.
    Source: order and effects of the peer's mutating plugins.
    """
    pod = request.object
    if request.operation == "DELETE" or pod is None or not _is_ours(pod, settings):
        return ALLOWED
    shape = read_pod(pod)
    if shape.namespace and request.namespace and shape.namespace != request.namespace:
        return refused(f"{_named(shape)}: metadata.namespace: found {shape.namespace}, expected {request.namespace}")
    if request.sub_resource == _EPHEMERAL:
        return _mutate_added(request, pod, shape, settings)
    reason = _missing_container(shape)
    if reason:
        return refused(reason)
    draft = PodDraft.of(pod)
    draft.namespace = shape.namespace or request.namespace
    inject_references(shape, draft, draw)
    if settings.hami_core_enabled:
        inject_memory_limit(shape, draft)
    if settings.block_nvidia_visible_devices:
        void_visible_devices(shape, draft)
    if settings.gpu_fraction_runtime_class_name and shape.shares_gpu and not shape.runtime_class:
        draft.runtime_class = settings.gpu_fraction_runtime_class_name
    result = draft.finish()
    return AdmissionResponse(object=result, patch=json_patch(pod, result))


def _mutate_added(
    request: AdmissionRequest, pod: Mapping[str, Any], shape: PodShape, settings: AdmissionSettings
) -> AdmissionResponse:
    """Return the pod as kai wants the ephemeral containers that are being added; all else of it is as it was."""
    draft = PodDraft.of(pod)
    if settings.block_nvidia_visible_devices:
        void_in_added(shape, draft, _known(request))
    result = draft.finish()
    return AdmissionResponse(object=result, patch=json_patch(pod, result))


def _known(request: AdmissionRequest) -> frozenset[str]:
    """Return the names of the ephemeral containers that existed before."""
    old = request.old_object
    return frozenset() if old is None else frozenset(each.name for each in read_pod(old).ephemeral_containers)


def validate_pod(request: AdmissionRequest, settings: AdmissionSettings) -> AdmissionResponse:
    """Return whether a pod may be created or changed as requested.

    An existing pod must stay changeable: controllers remove finalizers from an ended pod, and a Job counts it only
    then. So a change is not refused for a fault that the pod had before, for instance since sharing was switched off.

    Raises: BadValue if the pod cannot be read.
    Source: order and messages of the peer's validating plugins. As there, the named container must exist only where
    visible devices are blocked. The peer refuses changes of pods with an old fault.
    """
    pod = request.object
    if request.operation == "DELETE" or pod is None or not _is_ours(pod, settings):
        return ALLOWED
    shape = read_pod(pod)
    if request.sub_resource == _EPHEMERAL:
        reason = refuse_in_added(shape, _known(request)) if settings.block_nvidia_visible_devices else ""
        return refused(reason) if reason else ALLOWED
    found = ""
    if request.operation == "CREATE":
        found = excess(pod.get("spec")) or excess_of(pod.get("metadata"))
    if found:
        return refused(f"{_named(shape)}: {found}")
    reason = _refuse(shape, settings)
    if reason and request.operation == "UPDATE" and request.old_object is not None:
        reason = "" if reason == _refuse(read_pod(request.old_object), settings) else reason
    return refused(reason) if reason else ALLOWED


def _refuse(shape: PodShape, settings: AdmissionSettings) -> str:
    """Return why a pod's GPU request is refused; empty if it is not."""
    if shape.shares_gpu and not settings.gpu_sharing_enabled:
        return (
            f"attempting to create a pod {shape.namespace}/{shape.name} with gpu sharing request,"
            " while GPU sharing is disabled"
        )
    reason = refuse_gpu_requests(shape)
    if not reason and settings.block_nvidia_visible_devices:
        reason = _missing_container(shape) or refuse_visible_devices(shape)
    return reason


def _is_ours(pod: Mapping[str, Any], settings: AdmissionSettings) -> bool:
    return piece_of(pod, "Pod")["spec"]["schedulerName"].text() == settings.scheduler_name


def _missing_container(shape: PodShape) -> str:
    """Return the message that the named container does not exist; empty if it does."""
    try:
        shape.sharing_place()
    except BadValue:
        name = shape.annotations.get(names.GPU_FRACTION_CONTAINER, "")
        return f"failed to get fraction container ref: container with name {name} not found for fraction request"
    return ""


def _named(shape: PodShape) -> str:
    return f"pod {shape.namespace}/{shape.name}"
