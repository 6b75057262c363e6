"""Older shapes of resource.k8s.io brought into that of v1, on the JSON, before it is read.

v1beta2 has the shape of v1. v1beta1 wrote an exact request without the word ``exactly``, and a device's properties
under ``basic``. v1alpha3 once let rules select devices by their class and by expressions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kai.api.kubernetes.dra import DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice

Manifest = Mapping[str, Any]


def current_claim(manifest: object) -> object:
    """Return a claim whose requests are in the shape of v1."""
    return _changed(manifest, ("spec", "devices", "requests"), _each(_current_request))


def current_template(manifest: object) -> object:
    """Return a template whose requests are in the shape of v1."""
    return _changed(manifest, ("spec", "spec", "devices", "requests"), _each(_current_request))


def current_slice(manifest: object) -> object:
    """Return a slice whose devices are in the shape of v1."""
    return _changed(manifest, ("spec", "devices"), _each(_current_device))


def current_rule(manifest: object) -> object:
    """Return a rule that selects by nothing that v1 lacks: one that did selects no device, rather than too many."""
    return _changed(manifest, ("spec", "deviceSelector"), _current_selector)


def _current_selector(selector: object) -> object:
    older = isinstance(selector, Mapping) and (selector.get("deviceClassName") or selector.get("selectors"))
    return None if older else selector


def _current_request(request: Manifest) -> Manifest:
    if "deviceClassName" not in request:
        return request
    exactly = {key: value for key, value in request.items() if key not in {"name", "firstAvailable", "exactly"}}
    return {"name": request.get("name"), "exactly": exactly}


def _current_device(device: Manifest) -> Manifest:
    basic = device.get("basic")
    if not isinstance(basic, Mapping):
        return device
    return {**basic, "name": device.get("name")}


def _each(change: Callable[[Manifest], Manifest]) -> Callable[[object], object]:
    def changed(items: object) -> object:
        if not isinstance(items, list | tuple):
            return items
        return [change(item) if isinstance(item, Mapping) else item for item in items]

    return changed


def _changed(manifest: object, path: tuple[str, ...], change: Callable[[object], object]) -> object:
    """Return a copy with the value at a path changed; what has an unexpected type is left for the reader to refuse."""
    if not path:
        return change(manifest)
    if not isinstance(manifest, Mapping) or path[0] not in manifest:
        return manifest
    return {**manifest, path[0]: _changed(manifest[path[0]], path[1:], change)}


UPGRADES: Final[dict[type[Any], Callable[[object], object]]] = {
    ResourceClaim: current_claim,
    ResourceClaimTemplate: current_template,
    ResourceSlice: current_slice,
    DeviceTaintRule: current_rule,
}
