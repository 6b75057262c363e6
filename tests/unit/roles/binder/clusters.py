"""Small clusters for the tests of the binder, as manifests."""

from kai.api.plans import Await, Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder import Binder, BinderSettings, ReservationSettings, resolve_steps
from kai.roles.binder.attempt import attempt
from tests.doubles.api_server import ApiServer
from tests.doubles.plans import carry_out

SETTINGS = BinderSettings(reservation=ReservationSettings(image="reserve:1"))
BINDER = Binder(settings=SETTINGS, steps=resolve_steps())
RESERVED = "kai-resource-reservation"


def node(name="n1", gpus=2, labels=None, cpu="8", pods="110", **spec):
    allocatable = {"cpu": cpu, "memory": "64Gi", "pods": pods}
    if gpus:
        allocatable["nvidia.com/gpu"] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": allocatable},
    }


def pod(name="p", namespace="ns", annotations=None, labels=None, requests=None, phase="Pending", uid=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid or f"uid-{namespace}-{name}",
            "annotations": annotations or {},
            "labels": labels or {},
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"requests": requests or {"cpu": "1"}}}],
            **spec,
        },
        "status": {"phase": phase},
    }


def sharing_pod(name="p", fraction="0.5", devices=1, **fields):
    annotations = {
        "gpu-fraction": fraction,
        "runai/shared-gpu-configmap": f"{name}-abc1234-shared-gpu",
        **fields.pop("annotations", {}),
    }
    if devices > 1:
        annotations["gpu-fraction-num-devices"] = str(devices)
    return pod(name, annotations=annotations, **fields)


def bind_request(name="p", node_name="n1", namespace="ns", limit=None, status=None, labels=None, *, owner=True, **spec):
    metadata = {"name": name, "namespace": namespace, "labels": labels or {}, "uid": f"uid-br-{name}"}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{namespace}-{name}"},
        ]
    body = {"podName": name, "selectedNode": node_name, "receivedResourceType": "Regular", **spec}
    if limit is not None:
        body["backoffLimit"] = limit
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": metadata,
        "spec": body,
        "status": status or {},
    }


def sharing_request(name="p", groups=("g1",), portion="0.50", **fields):
    return bind_request(
        name,
        receivedResourceType="Fraction",
        receivedGPU={"count": len(groups), "portion": portion},
        selectedGPUGroups=list(groups),
        **fields,
    )


def reservation(group="g1", node_name="n1", device="GPU-1", phase="Running", name=None, namespace=RESERVED):
    manifest = pod(
        name or f"gpu-reservation-{group}",
        namespace,
        labels={"app": namespace, "runai-gpu-group": group},
        annotations={"run.ai/reserve_for_gpu_index": device} if device else {},
        requests={"nvidia.com/gpu": "1"},
        phase=phase,
        nodeName=node_name,
    )
    manifest["spec"]["schedulerName"] = "default-scheduler"
    return manifest


def device_plugin(server: ApiServer, request: Await) -> None:
    """Give a waiting reservation pod a GPU that is called after its group."""
    manifest = server.get("Pod", request.ref.name, request.ref.namespace)
    if manifest is not None and request.ref.namespace == RESERVED:
        group = manifest["metadata"]["labels"]["runai-gpu-group"]
        patch = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": f"GPU-{group}"}}}
        server.change("Pod", request.ref.name, RESERVED, {**patch, "status": {"phase": "Running"}})


def cluster(*manifests, settle=device_plugin):
    return ApiServer(manifests, settle=settle)


def try_once(server, name="p", binder=BINDER, *, patient=True):
    """Carry out one attempt at a bind request and say how it went, and let go of what it held, as services must."""
    try:
        outcome = carry_out(attempt(binder, Ref(BindRequest, name, "ns"), patient=patient), server.perform)
        if outcome.event is not None:
            server.perform(outcome.event)
        return outcome
    finally:
        server.held.clear()
