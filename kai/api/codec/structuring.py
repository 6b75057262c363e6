"""Manifests to api objects and back, and JSON of an API server to manifests with the declared keys only.

Half of an object from an API server is not read here: managed fields, container states, mounts. A decoder has the
outline of a class, that is its declared keys, and skips any other key byte by byte, which costs a fifth of making its
value. An outline restricts keys, not values: the codec validates values, so JSON with an array in place of an object
is decoded whole and passed on.

Older versions of resource.k8s.io are converted to the shape of v1, as JSON, before they are read. v1beta2 has the
shape of v1. v1beta1 wrote an exact request without the key ``exactly``, and a device's properties under ``basic``.
v1alpha3 once let rules select devices by their class and by expressions.

Caps are applied by kind. Nodes, slices of devices and other kinds that only administrators and drivers write are kept
whole.

`structure` reads a manifest into the class of its kind. Unknown fields are ignored, null counts as absent, and every
bad value ends in an InputError that names the object, the path, the value found and the form expected.
`unstructure` writes an object back, without fields that have their default value. The rules per type are in
`kai.api.codec.converter`, the table of kinds in `kai.api.kinds`.

`Printed` is a manifest that is JSON already: it is written as it is, and decoded only when it is read as a mapping.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar, cast, get_args, get_origin

import attrs
import msgspec

from kai.api.codec.converter import make_converter
from kai.api.conventions import caps
from kai.api.fields import name_on_the_wire, without_none
from kai.api.kinds import BY_CLASS, BY_NAME, ApiObject, Kind, title_of
from kai.api.kubernetes.dra import DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from kai.api.kubernetes.meta import ConfigMap, PodDisruptionBudget
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import PersistentVolumeClaim
from kai.api.memory import paused
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue, Topology
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.parsing import part_of, text_of

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


class Printed(Mapping[str, Any]):
    """A whole manifest as JSON text, with version, kind, name and namespace."""

    __slots__ = ("_read", "api_version", "text")

    def __init__(self, text: bytes, api_version: str) -> None:
        """Take the text unparsed; ``api_version`` is the apiVersion in it."""
        self.text = text
        self.api_version = api_version
        self._read: dict[str, Any] | None = None

    def _manifest(self) -> dict[str, Any]:
        if self._read is None:
            self._read = msgspec.json.decode(self.text, type=dict[str, Any])
        return self._read

    def __getitem__(self, key: str) -> Any:  # noqa: ANN401 - any JSON
        """Return a part of the manifest."""
        return self._manifest()[key]

    def __iter__(self) -> Iterator[str]:
        """Return the top-level keys."""
        return iter(self._manifest())

    def __len__(self) -> int:
        """Return the number of top-level keys."""
        return len(self._manifest())

    def __repr__(self) -> str:
        """Return the decoded manifest in Python syntax."""
        return f"Printed({self._manifest()!r})"


T = TypeVar("T")

_CONVERTER: Final = make_converter()
_READERS: Final[dict[type[Any], Callable[[object], Any]]] = {}


@attrs.frozen(kw_only=True)
class Skipped:
    """An object of a kind that kai does not know."""

    api_version: str
    kind: str
    name: str


@attrs.frozen(kw_only=True)
class Structured:
    """The objects that were read, in their order, and those of unknown kinds that were skipped."""

    objects: tuple[ApiObject, ...]
    skipped: tuple[Skipped, ...]


def structure(manifest: Mapping[str, Any]) -> ApiObject:
    """Return the api object of a manifest, by its apiVersion and kind.

    Raises: InputError for an unknown kind or a bad value.
    """
    kind = kind_of(manifest)
    if kind is None:
        found = " ".join(str(manifest[key]) for key in ("apiVersion", "kind") if _has(manifest, key))
        wanted = "the apiVersion and kind of an object that kai knows"
        raise BadValue(found or None, wanted, subject=subject_of(manifest))
    return structure_as(kind.cls, manifest)


def structure_as(cls: type[T], manifest: Mapping[str, Any]) -> T:
    """Return the api object of a manifest of the class `cls`; the manifest need not name its kind.

    Parts of objects can be read too: `cls` may be any class of `kai.api`.

    Raises: InputError for a bad value.
    """
    reader = _READERS.get(cls)
    if reader is None:
        reader = _READERS[cls] = _reader_of(cls)
    try:
        return cast("T", reader(manifest))
    except BadValue as bad:
        kind = BY_CLASS.get(cast("type[ApiObject]", cls))
        raise bad.of(subject_of(manifest, kind.kind if kind else cls.__name__)) from None


def structure_all(manifests: Iterable[Mapping[str, Any]], *, namespace: str = "default") -> Structured:
    """Return the api objects of many manifests, and the manifests skipped because their kind is unknown.

    Objects of a namespaced kind that name no namespace are put into `namespace`, as kubectl does.

    Raises: InputError with one message for each object that cannot be read.
    """
    objects: list[ApiObject] = []
    skipped: list[Skipped] = []
    errors: list[InputError] = []
    with paused():
        for manifest in manifests:
            kind = kind_of(manifest)
            try:
                if kind is not None:
                    objects.append(_in_namespace(structure_as(kind.cls, manifest), kind, namespace))
                else:
                    skipped.append(_skipped(manifest))
            except InputError as error:
                errors.append(error)
    if errors:
        raise InputError.joined(errors)
    return Structured(objects=tuple(objects), skipped=tuple(skipped))


def unstructure(obj: object) -> dict[str, Any]:
    """Return the JSON object of an api object, or of a part of one, without nulls and default values.

    An object of a kind begins with its apiVersion and kind.
    """
    kind = BY_CLASS.get(cast("type[ApiObject]", type(obj)))
    head = {} if kind is None else {"apiVersion": kind.api_version, "kind": kind.kind}
    return {**head, **_CONVERTER.unstructure(obj)}


def kind_of(manifest: object) -> Kind | None:
    """Return the kind of a manifest; None if kai does not know it."""
    if not isinstance(manifest, Mapping):
        return None
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    return BY_NAME.get((version, kind)) if isinstance(version, str) and isinstance(kind, str) else None


def subject_of(manifest: object, kind: str | None = None) -> str:
    """Return the title in messages of a manifest, which may be invalid in any way."""
    namespace, name = (text_of(manifest, "metadata", key) for key in ("namespace", "name"))
    return title_of(kind or text_of(manifest, "kind") or "object", namespace, name)


def _has(manifest: object, key: str) -> bool:
    return isinstance(manifest, Mapping) and isinstance(manifest.get(key), str)


def _skipped(manifest: object) -> Skipped:
    if not isinstance(manifest, Mapping) or not _has(manifest, "kind"):
        raise BadValue(manifest, "an object with apiVersion and kind", subject=subject_of(manifest))
    name = part_of(manifest, "metadata", "name")
    return Skipped(api_version=str(manifest.get("apiVersion") or ""), kind=manifest["kind"], name=str(name or ""))


def _in_namespace(obj: ApiObject, kind: Kind, namespace: str) -> ApiObject:
    if not kind.namespaced or obj.metadata.namespace:
        return obj
    return attrs.evolve(obj, metadata=attrs.evolve(obj.metadata, namespace=namespace))


def _reader_of(cls: type[Any]) -> Callable[[object], Any]:
    """Make the reader of a class; it converts JSON of older versions first."""
    read = _CONVERTER.get_structure_hook(cls)
    upgrade = UPGRADES.get(cls)
    if upgrade is None:
        return lambda manifest: read(manifest, cls)
    return lambda manifest: read(upgrade(manifest), cls)
