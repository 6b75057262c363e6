"""Answers the cases of kind `admission`: one request to one webhook, through the functions that the webhooks call."""

from typing import Any

from kai.api import names
from kai.roles.admission.queues import QueueShape, read_queue
from kai.roles.admission.review import AdmissionRequest, AdmissionSettings
from kai.roles.admission.webhooks import mutate, validate


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the webhook says, and for a mutating one the object after it."""
    config = case.get("config") or {}
    settings = AdmissionSettings(
        scheduler_name=config.get("schedulerName", names.SCHEDULER_NAME),
        gpu_sharing_enabled=config.get("gpuSharingEnabled", False),
        hami_core_enabled=config.get("hamiCoreEnabled", False),
        block_nvidia_visible_devices=config.get("blockNvidiaVisibleDevices", False),
        gpu_fraction_runtime_class_name=config.get("gpuFractionRuntimeClassName", "nvidia"),
        queue_quota_validation=config.get("queueQuotaValidation", False),
    )
    manifest = case.get("object") or case.get("oldObject") or {}
    request = AdmissionRequest(
        operation=case["operation"],
        kind=manifest.get("kind", ""),
        object=case.get("object"),
        old_object=case.get("oldObject"),
        namespace=(manifest.get("metadata") or {}).get("namespace") or "",
    )
    if case["webhook"] == "mutating":
        response = mutate(request, settings, _draw)
        if response.allowed:
            # A webhook that changes nothing answers without an object; what goes through is the one it was given.
            after = response.object or case.get("object")
            return {"allowed": True, "warnings": list(response.warnings), "object": after}
    else:
        response = validate(request, settings, _queues(case.get("objects") or ()).get)
    return {"allowed": response.allowed, "warnings": list(response.warnings), "message": response.message}


def _draw(length: int) -> str:
    return "x" * length


def _queues(objects: Any) -> dict[str, QueueShape]:
    queues = (read_queue(manifest) for manifest in objects if manifest.get("kind") == "Queue")
    return {queue.name: queue for queue in queues}
