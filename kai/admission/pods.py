"""Pods at the door: what kai changes about them, and what it does not let in.

Only pods of our scheduler are looked at; all others pass untouched, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kai.admission.deviceaccess import (
    refuse_in_added,
    refuse_visible_devices,
    void_in_added,
    void_visible_devices,
)
from kai.admission.gpurequests import refuse_gpu_requests
from kai.admission.gpusharing import Draw, inject_memory_limit, inject_references
from kai.admission.patching import json_patch
from kai.admission.podshape import PodDraft, PodShape, read_pod
from kai.admission.reading import piece_of
from kai.admission.review import ALLOWED, AdmissionRequest, AdmissionResponse, refused
from kai.admission.settings import AdmissionSettings
from kai.api import names
from kai.api.conventions.caps import excess, excess_of
from kai.api.values.bad_value import BadValue

_EPHEMERAL: Final = "ephemeralcontainers"


def mutate_pod(request: AdmissionRequest, settings: AdmissionSettings, draw: Draw) -> AdmissionResponse:
    """Return the pod as kai wants it.

    Holds: the answer to its own result is that nothing changes.
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
    """Return the names of the ephemeral containers that were there before."""
    old = request.old_object
    return frozenset() if old is None else frozenset(each.name for each in read_pod(old).ephemeral_containers)


def validate_pod(request: AdmissionRequest, settings: AdmissionSettings) -> AdmissionResponse:
    """Return whether a pod may be created or changed as asked.

    What is there must stay changeable: of a pod that ends, others remove finalizers, and a Job counts it only then. So
    a change is not refused for what was as wrong before, as where sharing was switched off since.

    Raises: BadValue if the pod cannot be read.
    Source: order and messages of the peer's validating plugins; that the named container exists is asked only where
    visible devices are blocked, as there. The peer refuses such changes.
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
    """Return why what a pod asks of GPUs is refused; empty if it is not."""
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
    """Return that the container which should get the shared GPUs does not exist; empty if it does."""
    try:
        shape.sharing_place()
    except BadValue:
        name = shape.annotations.get(names.GPU_FRACTION_CONTAINER, "")
        return f"failed to get fraction container ref: container with name {name} not found for fraction request"
    return ""


def _named(shape: PodShape) -> str:
    return f"pod {shape.namespace}/{shape.name}"
