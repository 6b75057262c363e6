"""A healthy cluster as doctor sees it, for tests to spoil."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import attrs

from kai.api.values import instant_text
from kai.doctor.checks import POLICIES
from kai.doctor.seen import Right, Seen

NOW = 1_800_000_000.0
GPUS = {"nvidia.com/gpu": "8"}
READY = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
AUTHORITY = Path(__file__).with_name("authority.pem")
"""A self-signed authority that is valid from 2026 to 2126."""


def ago(seconds: float) -> str:
    return instant_text(NOW - seconds)


def obj(name: str, namespace: str = "", *, labels: Any = None, annotations: Any = None, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "creationTimestamp": ago(3600)}
    metadata |= {"namespace": namespace} if namespace else {}
    metadata |= {"labels": labels} if labels else {}
    metadata |= {"annotations": annotations} if annotations else {}
    return {"metadata": metadata, **more}


def kai_pod(name: str = "kai-7c9-x", *words: str, owner: str = "kai-7c9", account: str = "kai") -> dict[str, Any]:
    found = obj(name, "kai-scheduler", labels={"app.kubernetes.io/part-of": "kai"}, status=dict(READY))
    found["metadata"]["ownerReferences"] = [{"kind": "ReplicaSet", "name": owner}]
    container = {"name": "kai", "image": "kai:0.1.0", "args": ["run", *words]}
    return {**found, "spec": {"serviceAccountName": account, "nodeName": "n", "containers": [container]}}


def pod(name: str, *, age: float = 3600, annotations: Any = None, **spec: Any) -> dict[str, Any]:
    found = obj(name, "ml", annotations=annotations, spec={"schedulerName": "kai-scheduler", **spec}, status={})
    found["metadata"]["creationTimestamp"] = ago(age)
    return found


def queue(name: str, parent: str = "", **gpu: float) -> dict[str, Any]:
    spec: dict[str, Any] = {"parentQueue": parent} if parent else {}
    free = {"quota": -1, "limit": -1}
    return obj(name, spec={**spec, "resources": {"gpu": gpu, "cpu": free, "memory": free}})


def group(name: str, queue: str, **spec: Any) -> dict[str, Any]:
    return obj(name, "ml", spec={"queue": queue, **spec})


def lease(name: str, *, age: float = 1.0, holder: str = "kai-7c9-x", lasting: int = 15) -> dict[str, Any]:
    spec = {"holderIdentity": holder, "renewTime": ago(age), "leaseDurationSeconds": lasting}
    return obj(name, "kai-scheduler", spec=spec)


def noted(lease: dict[str, Any], *, age: float = 1.0) -> dict[str, Any]:
    """Return a lease of which the API server noted when it was written; a user labelled it just now."""
    renewal = {"time": ago(age), "fieldsV1": {"f:spec": {"f:renewTime": {}}}}
    label = {"time": ago(0.0), "fieldsV1": {"f:metadata": {}}}
    return {**lease, "metadata": {**lease["metadata"], "managedFields": [renewal, label]}}


def definition(name: str, version: str, schema: Any = None) -> dict[str, Any]:
    return obj(
        name, spec={"versions": [{"name": version, "served": True, "schema": {"openAPIV3Schema": schema or {}}}]}
    )


def webhook(name: str, service: str = "kai-admission", *, policy: str = "Fail", bundle: str | None = None) -> Any:
    authority = base64.b64encode(AUTHORITY.read_bytes()).decode()
    reference = {"namespace": "kai-scheduler", "name": service}
    config = {"service": reference, "caBundle": authority if bundle is None else bundle}
    return obj(name, webhooks=[{"name": f"{name}.kai", "failurePolicy": policy, "clientConfig": config}])


def slice_of(service: str, *, ready: bool = True) -> dict[str, Any]:
    endpoints = [{"conditions": {"ready": ready}}]
    return obj(f"{service}-1", "kai-scheduler", labels={"kubernetes.io/service-name": service}, endpoints=endpoints)


def deployment(name: str, image: str, *, replicas: int = 1, args: tuple[str, ...] = ()) -> dict[str, Any]:
    container = {"image": image, "args": list(args)}
    return obj(name, "kai-scheduler", spec={"replicas": replicas, "template": {"spec": {"containers": [container]}}})


def right(verb: str = "patch", resource: str = "pods/status") -> Right:
    return Right(role="binder", verb=verb, group="", resource=resource)


def binding(policy: str, action: str = "Deny") -> dict[str, Any]:
    return obj(policy, spec={"policyName": policy, "validationActions": [action]})


def quota(name: str, namespace: str, *, used: str = "0", **hard: str) -> dict[str, Any]:
    amounts = {key.replace("_", "."): value for key, value in hard.items()}
    return obj(name, namespace, spec={"hard": amounts}, status={"used": dict.fromkeys(amounts, used)})


def troubled(*, count: int, ended: str = "", code: int = 1, waits: str = "", ready: bool = False) -> dict[str, Any]:
    """Return a pod of kai whose container was restarted."""
    found = kai_pod()
    last = {"terminated": {"reason": ended, "exitCode": code}} if ended else {}
    state = {"waiting": {"reason": waits}} if waits else {"running": {}}
    status = {"name": "kai", "restartCount": count, "state": state, "lastState": last}
    return {**found, "status": {**(READY if ready else {"phase": "Running"}), "containerStatuses": [status]}}


def holding(name: str, gpus: int, *, node: str = "gpu-1", scheduler: str = "default-scheduler") -> dict[str, Any]:
    """Return a pod that holds GPUs of a node."""
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return obj(name, "them", spec={"schedulerName": scheduler, "nodeName": node, "containers": [container]})


def refused(name: str, message: str) -> dict[str, Any]:
    """Return a pod whose bind is refused, as its condition says."""
    found = pod(name, annotations={"pod-group-name": name})
    told = {"type": "PodScheduled", "status": "False", "reason": "BindRefused", "message": message}
    return {**found, "status": {"conditions": [told]}}


HEALTHY = Seen(
    now=NOW,
    version={"gitVersion": "v1.34.1", "major": "1", "minor": "34+"},
    lists={
        "nodes": (
            obj("gpu-1", labels={"nvidia.com/gpu.memory": "81920"}, status={"allocatable": GPUS, "capacity": GPUS}),
            obj("cpu-1", status={"allocatable": {"cpu": "8"}}),
        ),
        "pods": (kai_pod(), pod("train-0", annotations={"pod-group-name": "train"})),
        "namespaces": (obj("kai-resource-reservation"), obj("ml")),
        "resourcequotas": (quota("all", "ml", pods="0"), quota("some", "kai-resource-reservation", pods="8", used="7")),
        "runtimeclasses": (obj("nvidia"),),
        "queues": (
            queue("top", quota=8, limit=-1),
            queue("a", "top", quota=4, limit=8),
            queue("b", "top", quota=4, limit=-1),
        ),
        "podgroups": (group("train", "a", priorityClassName="train"),),
        "bindrequests": (obj("train-0", "ml", status={"phase": "Succeeded"}),),
        "configs": (),
        "crds": (
            definition("queues.scheduling.run.ai", "v2"),
            definition("podgroups.scheduling.run.ai", "v2alpha2"),
            definition("bindrequests.scheduling.run.ai", "v1alpha2"),
            definition("topologies.kai.scheduler", "v1alpha1"),
        ),
        "deployments": (),
        "leases": (lease("kai-scheduler"),),
        "endpointslices": (slice_of("kai-admission"),),
        "validating": (webhook("kai-pod-validation"),),
        "mutating": (webhook("kai-pod-mutation"),),
        "policies": tuple(map(obj, POLICIES)),
        "policybindings": tuple(binding(name) for name in POLICIES),
        "priorityclasses": tuple(map(obj, ("train", "build-preemptible", "build", "inference"))),
    },
    asked={"": 8, "kai-scheduler/kai": 60},
)


def with_lists(**lists: Any) -> Seen:
    """Return the healthy cluster with some lists in place of its own."""
    return attrs.evolve(HEALTHY, lists={**HEALTHY.lists, **{name: tuple(each) for name, each in lists.items()}})
