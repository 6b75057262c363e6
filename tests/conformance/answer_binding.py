"""Answers the cases of kind `binding`: one operation of the binder against the objects of the case."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from kai.api import names
from kai.api.codec.structuring import structure_as
from kai.api.conventions.gpu_sharing import gpu_groups
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Await, Plan, Ref, create, get
from kai.api.scheduling.bind_request import BindRequest
from kai.basics.errors import InputError, KaiError
from kai.roles.binder.bind import Binder, Reserve, bind, reserve_group, undo
from kai.roles.binder.reservation import leave_groups, reservation_pod, reserve_device
from kai.roles.binder.sharers import BinderSettings, PodResources, ReservationSettings
from kai.roles.binder.steps import GpuSharing, upsert_config_map
from kai.roles.binder.sweep import sweep_everything, sweep_group, sweep_node
from tests.doubles.api_server import ApiServer, Key, Manifest
from tests.doubles.plans import carry_out

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kai.roles.binder.outcome import BindContext

UNKNOWN_DEVICE = "-1"


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """Return what the operation created, updated and deleted, and whether it failed."""
    devices = case.get("gpuIndexes") or {}
    objects = case.get("objects") or ()
    if case["operation"] == "sync":
        objects = _completed(objects)
    server = ApiServer(objects, assigns_uids=False, sets_node=False, settle=_device_plugin(devices))
    before = copy.deepcopy(server.objects)
    result: dict[str, Any] = {}
    try:
        result = carry_out(_OPERATIONS[case["operation"]](case), server.perform)
    except KaiError as error:
        result = {"failed": True, "message": str(error)}
        if case["operation"] == "reserve":
            result["gpuIndex"] = UNKNOWN_DEVICE
    return {**result, "changes": _changes(before, server)}


def _completed(objects: Iterable[Manifest]) -> list[Manifest]:
    """Return objects with what the tests of the peer leave out, because it looks at labels alone.

    A pod that shares a GPU is of our scheduler; one that has the label but no node yet is about to be bound, as some
    bind request says.
    """
    found: list[Manifest] = []
    for manifest in objects:
        metadata, spec = manifest["metadata"], manifest.get("spec") or {}
        groups = gpu_groups(metadata.get("labels") or {})
        if manifest["kind"] != "Pod" or not groups or metadata["namespace"] == names.RESERVATION_NAMESPACE:
            found.append(manifest)
            continue
        found.append({**manifest, "spec": {"schedulerName": names.SCHEDULER_NAME, **spec}})
        if not spec.get("nodeName"):
            found.append(
                {
                    "apiVersion": "scheduling.run.ai/v1alpha2",
                    "kind": "BindRequest",
                    "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
                    "spec": {"podName": metadata["name"], "selectedGPUGroups": list(groups)},
                }
            )
    return found


def _bind(case: dict[str, Any]) -> Plan[dict[str, Any]]:
    """Bind with the devices that the case gives: its tests stand in for the reservation of GPUs."""
    devices = case.get("gpuIndexes") or {}

    def reserve(_: Binder, context: BindContext, group: str) -> Plan[tuple[Pod, str]]:
        yield from ()
        return context.pod, devices[group]

    pod = yield from get(_pod_ref(case))
    node = yield from get(Ref(Node, case["node"]))
    yield from bind(_binder(case, reserve), _request(case), pod, node)
    return {}


def _rollback(case: dict[str, Any]) -> Plan[dict[str, Any]]:
    pod = yield from get(_pod_ref(case))
    try:
        request = _request(case)
    except InputError:
        # A request of an unknown kind of resource cannot be read; the binder sets it aside and so never did anything.
        return {}
    yield from undo(_binder(case), request, pod, None)
    return {}


def _upsert(case: dict[str, Any]) -> Plan[dict[str, Any]]:
    yield from upsert_config_map(structure_as(Pod, case["pod"]), case["name"], case["data"])
    return {}


def _reservation_pod(case: dict[str, Any]) -> Plan[dict[str, Any]]:
    source = structure_as(Pod, case.get("sourcePod") or {})
    manifest = reservation_pod(
        _settings(case),
        node=case["node"],
        group=case["gpuGroup"],
        tolerations=source.spec.tolerations,
    )
    metadata = manifest["metadata"]
    yield from create(Ref(Pod, metadata["name"], metadata["namespace"]), manifest)
    return {}


def _reserve(case: dict[str, Any]) -> Plan[dict[str, Any]]:
    pod = structure_as(Pod, case["pod"])
    _, device = yield from reserve_device(pod, case["node"], case["gpuGroup"], _settings(case))
    return {"gpuIndex": device}


def _sync(case: dict[str, Any]) -> Plan[dict[str, Any]]:
    settings = BinderSettings(reservation=_settings(case))
    if case.get("gpuGroup"):
        yield from sweep_group(case["gpuGroup"], settings)
    elif case.get("node"):
        yield from sweep_node(case["node"], settings)
    else:
        yield from sweep_everything(settings)
    return {}


def _leave(case: dict[str, Any]) -> Plan[dict[str, Any]]:
    yield from leave_groups(structure_as(Pod, case["pod"]))
    return {}


_OPERATIONS: dict[str, Callable[[dict[str, Any]], Plan[dict[str, Any]]]] = {
    "bind": _bind,
    "rollback": _rollback,
    "upsertConfigMap": _upsert,
    "reservationPod": _reservation_pod,
    "reserve": _reserve,
    "sync": _sync,
    "removeGpuGroups": _leave,
}


def _settings(case: dict[str, Any]) -> ReservationSettings:
    config = case.get("config") or {}
    resources = config.get("podResources") or {}
    return ReservationSettings(
        namespace=config.get("namespace", names.RESERVATION_NAMESPACE),
        service_account=config.get("serviceAccountName", names.RESERVATION_APP),
        app_label=config.get("appLabelValue", names.RESERVATION_APP),
        image=config.get("reservationPodImage", ""),
        runtime_class=config.get("runtimeClassName") or "",
        fake_gpu_nodes=config.get("fakeGPuNodes", False),
        resources=PodResources(requests=resources.get("requests") or {}, limits=resources.get("limits") or {}),
        pod_security_context=config.get("podSecurityContext") or {},
        container_security_context=config.get("containerSecurityContext") or {},
    )


def _binder(case: dict[str, Any], reserve: Reserve | None = None) -> Binder:
    uses_cdi = (case.get("config") or {}).get("gpuDevicePluginUsesCdi", False)
    settings = BinderSettings(reservation=_settings(case))
    steps = (GpuSharing(uses_cdi=uses_cdi),)
    return Binder(settings=settings, steps=steps, reserve=reserve or reserve_group)


def _request(case: dict[str, Any]) -> BindRequest:
    return structure_as(BindRequest, case["bindRequest"])


def _pod_ref(case: dict[str, Any]) -> Ref[Pod]:
    pod = case["pod"]
    metadata = pod.get("metadata") or pod
    return Ref(Pod, metadata["name"], metadata["namespace"])


def _device_plugin(devices: dict[str, str]) -> Callable[[ApiServer, Await], None]:
    """Return what gives a waiting reservation pod the device that the case names for its group."""

    def settle(server: ApiServer, request: Await) -> None:
        ref = request.ref
        pod = server.get("Pod", ref.name, ref.namespace) or {}
        group = (pod["metadata"].get("labels") or {}).get(names.GPU_GROUP)
        if group in devices:
            annotations = {names.RESERVED_GPU: devices[group]}
            server.change("Pod", ref.name, ref.namespace, {"metadata": {"annotations": annotations}})

    return settle


def _changes(before: dict[Key, Manifest], server: ApiServer) -> dict[str, Any]:
    after = server.objects
    both = [key for key in sorted(after) if key in before]
    return {
        "created": [after[key] for key in sorted(after) if key not in before],
        "updated": [_without_grant(after[key]) for key in both if after[key] != before[key]],
        "deleted": ["/".join(key) for key in sorted(before) if key not in after],
    }


def _without_grant(manifest: Manifest) -> Manifest:
    """Return an object without the annotation that the peer does not write."""
    kept = copy.deepcopy(manifest)
    kept["metadata"].get("annotations", {}).pop(names.GRANTED, None)
    return kept
