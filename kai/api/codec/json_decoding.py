"""Decoding of JSON from an API server: declared keys only, older versions upgraded, within the caps.

Half of an object from an API server is not read here: managed fields, container states, mounts. A decoder has the
outline of a class, that is its declared keys, and skips any other key byte by byte, which costs a fifth of making its
value. An outline restricts keys, not values: the codec validates values, so JSON with an array in place of an object
is decoded whole and passed on.

Older versions of resource.k8s.io are converted to the shape of v1, as JSON, before they are read. v1beta2 has the
shape of v1. v1beta1 wrote an exact request without the key ``exactly``, and a device's properties under ``basic``.
v1alpha3 once let rules select devices by their class and by expressions.

Caps are applied by kind. Nodes, slices of devices and other kinds that only administrators and drivers write are kept
whole.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, get_args, get_origin

import attrs
import msgspec

from kai.api.conventions import caps
from kai.api.fields import name_on_the_wire, without_none
from kai.api.kubernetes.dra import DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kai.api.kubernetes.meta import ConfigMap, PodDisruptionBudget
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import PersistentVolumeClaim
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue, Topology
from kai.basics.errors import InputError

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
    """Return a rule without selectors that v1 lacks; a rule that had one selects no device, rather than too many."""
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
    """Return a copy with the value at a path changed; a value of another type stays, and the reader rejects it."""
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


# The fields of an outline are known only at run time, so type checkers cannot follow.
_make_outline: Final[Any] = typing.TypedDict
_list_of: Final[Any] = list
_OUTLINES: Final[dict[type[Any], Any]] = {}
_DECODERS: Final[dict[type[Any], Callable[[Any], Any]]] = {}


def decode_as(cls: type[Any], raw: Any) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Decode JSON of an object of `cls` into Python values; keys that the class does not read may be missing.

    Raises: msgspec.DecodeError for invalid JSON.
    """
    decode = _DECODERS.get(cls)
    if decode is None:
        decode = _DECODERS[cls] = _decoder(cls)
    return decode(raw)


def _decoder(cls: type[Any]) -> Callable[[Any], Any]:
    whole = msgspec.json.Decoder()
    if cls in UPGRADES:
        return whole.decode  # older shapes of its JSON have keys that the class does not declare
    outlined = msgspec.json.Decoder(outline_of(cls))

    def decode(raw: Any) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
        try:
            return outlined.decode(raw)
        except msgspec.ValidationError:
            return whole.decode(raw)

    return decode


def outline_of(cls: type[Any]) -> Any:  # noqa: ANN401 - a type that is made here
    """Return the keys of a class, and of the classes of its fields, as a TypedDict."""
    if cls in _OUTLINES:
        return _OUTLINES[cls]
    hints = typing.get_type_hints(cls, include_extras=True)
    keys: dict[str, Any] = {"apiVersion": Any, "kind": Any}
    keys |= {name_on_the_wire(field): _of_hint(hints[field.name]) for field in attrs.fields(cls)}
    _OUTLINES[cls] = _make_outline(cls.__name__, keys, total=False)
    return _OUTLINES[cls]


def _of_hint(hint: Any) -> Any:  # noqa: ANN401 - type hints are of many unrelated classes
    """Return the outline of an object or of a list of objects; Any for everything else, null included."""
    hint = without_none(hint)
    if get_origin(hint) is tuple:
        element = _of_hint(get_args(hint)[0])
        return Any if element is Any else _list_of[element] | None
    if get_origin(hint) is Annotated:
        return _of_hint(get_args(hint)[0])
    return outline_of(hint) | None if attrs.has(hint) else Any


_BOUNDED: Final[frozenset[type[Any]]] = frozenset(
    (
        *(PodGroup, BindRequest, Queue, Topology),
        *(ConfigMap, PersistentVolumeClaim, PodDisruptionBudget, ResourceClaim, ResourceClaimTemplate),
    )
)


_SELECTING: Final[frozenset[type[Any]]] = frozenset((PersistentVolumeClaim, PodDisruptionBudget))


def keep(cls: type[Any], manifest: Any) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Return the manifest of an object of a class within the caps: the same object if it exceeds none.

    Raises: InputError for a claim or a budget whose selector exceeds a cap; the object is rejected.
    """
    if cls is Pod:
        return caps.kept(manifest)
    if cls in _SELECTING and isinstance(manifest, dict):
        found = caps.excess_of_selector(manifest.get("spec"))
        if found:
            metadata = manifest.get("metadata")
            name = (
                "/".join(str(metadata.get(key)) for key in ("namespace", "name")) if isinstance(metadata, dict) else ""
            )
            raise InputError(f"{cls.__name__.lower()} {name}: {found}")
    return caps.bounded(manifest) if cls in _BOUNDED else manifest
