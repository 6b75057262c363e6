"""Devices, classes and claims as short manifests."""

from typing import Any

from tests.unit.plugins.stage import Manifest, node, pod

API = "resource.k8s.io/v1"
GPU_CLASS = "gpu.example.com"
NIC_CLASS = "nic.example.com"


def device_class(name: str = GPU_CLASS, *selectors: str, extended: str = "") -> Manifest:
    """Return a class whose devices satisfy all ``selectors``."""
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": each}} for each in selectors]}
    if extended:
        spec["extendedResourceName"] = extended
    return {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}


def device(name: str, **parts: Any) -> Manifest:
    """Return a device; ``attributes`` and ``capacity`` are plain values by name, the rest goes in as it is."""
    kinds = {str: "string", bool: "bool", int: "int"}
    attributes = {key: {kinds[type(value)]: value} for key, value in parts.pop("attributes", {}).items()}
    capacity = {key: {"value": value} for key, value in parts.pop("capacity", {}).items()}
    return {"name": name, "attributes": attributes, "capacity": capacity, **parts}


def offer(on: str, *devices: Manifest | str, driver: str = GPU_CLASS, **spec: Any) -> Manifest:
    """Return the slice of a node (``on``), or of the nodes that ``spec`` says."""
    pool = spec.pop("pool", on or "net")
    where = {"nodeName": on} if on else {}
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": spec.pop("name", f"{pool}-{driver}")},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [device(each) if isinstance(each, str) else each for each in devices],
            **where,
            **spec,
        },
    }


def exactly(name: str = "r", count: int = 1, of: str = GPU_CLASS, **parts: Any) -> Manifest:
    """Return a request; ``selectors`` are expressions."""
    return {"name": name, "exactly": _kind(of, count, parts)}


def first_of(name: str, *alternatives: Manifest) -> Manifest:
    """Return a prioritized list of what ``exactly`` returns."""
    return {"name": name, "firstAvailable": [{"name": each["name"], **each["exactly"]} for each in alternatives]}


def _kind(of: str, count: int, parts: dict[str, Any]) -> Manifest:
    selectors = [{"cel": {"expression": each}} for each in parts.pop("selectors", ())]
    mode = "All" if parts.pop("every", False) else "ExactCount"
    out = {"deviceClassName": of, "selectors": selectors, "allocationMode": mode, **parts}
    return out | ({} if mode == "All" else {"count": count})


def claim(name: str, *requests: Manifest, **parts: Any) -> Manifest:
    """Return a claim; ``held`` names devices as (pool, device), ``users`` pods that it is reserved for."""
    held, users = parts.pop("held", ()), parts.pop("users", ())
    driver = parts.pop("driver", GPU_CLASS)
    status: dict[str, Any] = {"reservedFor": [{"resource": "pods", "name": each, "uid": each} for each in users]}
    if held:
        results = [{"request": "r", "driver": driver, "pool": pool, "device": each} for pool, each in held]
        status["allocation"] = {"devices": {"results": results}}
        if "terms" in parts:
            status["allocation"]["nodeSelector"] = {"nodeSelectorTerms": parts.pop("terms")}
    labels = {"kai.scheduler/queue": parts.pop("queue", "team")}
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels} | parts.pop("metadata", {})
    devices = {"requests": list(requests) or [exactly()], "constraints": parts.pop("constraints", [])}
    assert not parts
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": devices},
        "status": status,
    }


def claiming(name: str, *claims: str, on: str = "", **parts: Any) -> Manifest:
    """Return a pod that refers to claims by name; its uid is ``default-`` and its name."""
    references = [{"name": each, "resourceClaimName": each} for each in claims]
    return pod(name, on=on, resourceClaims=references, **parts)


def matching(attribute: str, *requests: str) -> Manifest:
    """Return the constraint that devices agree in ``attribute``."""
    return {"matchAttribute": attribute, "requests": list(requests)}


def differing(attribute: str, *requests: str) -> Manifest:
    """Return the constraint that devices differ in ``attribute``."""
    return {"distinctAttribute": attribute, "requests": list(requests)}


NODE = node("n1")
CLASS = device_class()
