"""What the API server does with pods beyond storing them: binding, eviction, grace, and what it fills in.

Source: registry/core/pod of Kubernetes; the facts are held against a real API server by `tests.doubles.facts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.doubles.rest_server.kinds import BY_KIND
from tests.doubles.rest_server.replies import RefusedError, conflict

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.doubles.rest_server.storage import Manifest, Storage

POD: Final = BY_KIND["v1", "Pod"]
BUDGET: Final = BY_KIND["policy/v1", "PodDisruptionBudget"]
_OVER: Final = {"Succeeded", "Failed"}
_CHANGEABLE: Final = {"tolerations", "activeDeadlineSeconds", "schedulingGates", "containers", "initContainers"}


def created(manifest: Manifest) -> Manifest:
    """Return a pod as it is after its creation."""
    spec = {"terminationGracePeriodSeconds": 30, "restartPolicy": "Always", "schedulerName": "default-scheduler"}
    spec |= manifest.get("spec") or {}
    for key in ("initContainers", "containers"):
        if spec.get(key):
            spec[key] = [_with_requests(each) for each in spec[key]]
    status: dict[str, Any] = {"phase": "Pending", "qosClass": "Burstable"}
    if spec.get("schedulingGates"):
        gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
        status["conditions"] = [{**gated, "lastProbeTime": None, "lastTransitionTime": None}]
    return {**manifest, "spec": spec, "status": status}


def _with_requests(container: Manifest) -> Manifest:
    """Return a container with its limits as requests where it has none."""
    resources = container.get("resources") or {}
    if not resources.get("limits"):
        return container
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def frozen_field(before: Manifest, after: Manifest) -> str:
    """Return the field of the spec that an update may not change but does; "" for none."""
    old, new = before.get("spec") or {}, after.get("spec") or {}
    for key in old.keys() | new.keys():
        if old.get(key) != new.get(key) and key not in _CHANGEABLE:
            return "spec"
    return ""


def bound(pod: Manifest, binding: Mapping[str, Any], now: str) -> Manifest:
    """Return a pod as a binding makes it.

    Raises: RefusedError.
    """
    name, metadata = pod["metadata"]["name"], binding.get("metadata") or {}
    check(pod, metadata.get("uid"), metadata.get("resourceVersion"))
    if pod["metadata"].get("deletionTimestamp"):
        raise conflict(POD, name, f"pod {name} is being deleted, cannot be assigned to a host")
    spec = pod["spec"]
    if spec.get("nodeName"):
        raise conflict(POD, name, f'pod {name} is already assigned to node "{spec["nodeName"]}"')
    if spec.get("schedulingGates"):
        raise conflict(POD, name, f"pod {name} has non-empty .spec.schedulingGates")
    annotations = {**(pod["metadata"].get("annotations") or {}), **(metadata.get("annotations") or {})}
    status = pod.get("status") or {}
    scheduled = {"type": "PodScheduled", "status": "True", "lastProbeTime": None, "lastTransitionTime": now}
    others = [each for each in status.get("conditions") or () if each["type"] != "PodScheduled"]
    return {
        **pod,
        "metadata": {**pod["metadata"], **({"annotations": annotations} if annotations else {})},
        "spec": {**spec, "nodeName": binding["target"]["name"]},
        "status": {**status, "conditions": [*others, scheduled]},
    }


def check(pod: Manifest, uid: str | None, version: str | None) -> None:
    """Hold preconditions against a pod.

    Raises: RefusedError.
    """
    metadata = pod["metadata"]
    if uid and uid != metadata["uid"]:
        raise conflict(POD, metadata["name"], f"Precondition failed: UID in precondition: {uid}, found another")
    if version and version != metadata["resourceVersion"]:
        raise conflict(POD, metadata["name"], f"Precondition failed: ResourceVersion in precondition: {version}")


def grace_of(pod: Manifest, asked: int | None) -> int:
    """Return for how many seconds a pod may go on that is deleted now: one that runs nowhere ends at once."""
    spec, status = pod["spec"], pod.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in _OVER:
        return 0
    return int(spec.get("terminationGracePeriodSeconds", 30)) if asked is None else asked


def spend_budget(storage: Storage, pod: Manifest, now: str) -> None:
    """Count an eviction against the budget that protects a pod.

    Raises: RefusedError where the budget does not allow it.
    """
    metadata = pod["metadata"]
    if (pod.get("status") or {}).get("phase") != "Running" or metadata.get("deletionTimestamp"):
        return
    budgets = [each for each in storage.all(BUDGET, metadata["namespace"]) if _covers(each, metadata)]
    if len(budgets) > 1:
        raise RefusedError(500, "This pod has more than one PodDisruptionBudget, which the eviction API does not allow")
    for budget in budgets:
        status = budget.get("status") or {}
        if not status.get("disruptionsAllowed"):
            message = "Cannot evict pod as it would violate the pod's disruption budget."
            causes = [{"reason": "DisruptionBudget", "message": "the budget needs more healthy pods"}]
            raise RefusedError(429, message, details={"causes": causes})
        disrupted = {**(status.get("disruptedPods") or {}), metadata["name"]: now}
        left = {**status, "disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
        storage.put(BUDGET, {**budget, "status": left})


def _covers(budget: Manifest, metadata: Mapping[str, Any]) -> bool:
    wanted = ((budget.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
    return bool(wanted) and wanted.items() <= (metadata.get("labels") or {}).items()
