"""Manifests to api objects and back.

`structure` reads a manifest into the class of its kind. Unknown fields are ignored, null counts as absent, and every
bad value ends in an InputError that names the object, the path, the value found and the form expected.
`unstructure` writes an object back, without fields that have their default value. The rules per type are in
`kai.api.codec.converter`, the table of kinds in `kai.api.kinds`.

`Printed` is a manifest that is JSON already: it is written as it is, and decoded only when it is read as a mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar, cast

import attrs
import msgspec

from kai.api.codec.converter import make_converter
from kai.api.codec.json_decoding import UPGRADES
from kai.api.kinds import BY_CLASS, BY_NAME, ApiObject, Kind, title_of
from kai.api.memory import paused
from kai.api.values import BadValue
from kai.basics.errors import InputError
from kai.basics.parsing import part_of, text_of


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
