"""Kubernetes objects of any kind, read field by field.

The pod grouper handles kinds without a class, so an object stays a plain manifest. Readers return a value of the
requested type, None if the field is absent, or raise an ``InputError`` with the object, the field, the value found and
the form expected. The rest of this package reads manifests through this module only.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Self, TypeAlias

import attrs

from kai.basics.errors import InputError
from kai.basics.parsing import is_whole, signed

Manifest: TypeAlias = Mapping[str, object]
"""An object as decoded JSON."""

# Numbers of pods are int32 in the definitions of Kubernetes and kai. The API server refuses an object with a larger
# one.
INT32_MAX = 2**31 - 1


@attrs.frozen
class Kind:
    """The group, version and kind of an object."""

    group: str
    version: str
    kind: str

    @classmethod
    def of(cls, api_version: str, kind: str) -> Self:
        """Return the kind written as ``apiVersion`` (``group/version``, or ``version`` alone) and ``kind``."""
        group, slash, version = api_version.partition("/")
        return cls(group, version, kind) if slash else cls("", api_version, kind)

    @property
    def api_version(self) -> str:
        """Return group and version as manifests write them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def __str__(self) -> str:
        """Return ``group/version/Kind``, as the configuration writes it."""
        return f"{self.api_version}/{self.kind}"


@attrs.frozen
class OwnerReference:
    """One entry of ``metadata.ownerReferences``, with the fields that grouping reads."""

    kind: Kind
    name: str
    uid: str

    def manifest(self) -> dict[str, object]:
        """Return the reference in manifest form."""
        return {"apiVersion": self.kind.api_version, "kind": self.kind.kind, "name": self.name, "uid": self.uid}

    def __str__(self) -> str:
        """Return kind and name."""
        return f'{self.kind.kind} "{self.name}"'


@attrs.frozen
class Fields:
    """A map inside an object, with its path.

    Every reader takes a path of keys. A missing key, or a null above the last key, means absent; a value of another
    type is an ``InputError``. An explicit null at the last key is of the wrong type too, as in the peer.
    """

    value: Manifest
    subject: str
    path: str = ""

    def integer(self, *path: str) -> int | None:
        """Return the integer at ``path``."""
        found, value = self._at(path)
        if not found:
            return None
        if not is_whole(value):
            raise self.error(path, value, "an integer")
        return value

    def text(self, *path: str) -> str | None:
        """Return the string at ``path``."""
        found, value = self._at(path)
        if not found:
            return None
        if not isinstance(value, str):
            raise self.error(path, value, "a string")
        return value

    def flag(self, *path: str) -> bool | None:
        """Return the boolean at ``path``."""
        found, value = self._at(path)
        if not found:
            return None
        if not isinstance(value, bool):
            raise self.error(path, value, "true or false")
        return value

    def child(self, *path: str) -> Self | None:
        """Return the map at ``path``."""
        found, value = self._at(path)
        if not found:
            return None
        return self._inside(path, value)

    def children(self, *path: str) -> tuple[Self, ...] | None:
        """Return the maps of the list at ``path``."""
        found, value = self._at(path)
        if not found:
            return None
        if not isinstance(value, list | tuple):
            raise self.error(path, value, "a list")
        *above, last = path
        return tuple(self._inside((*above, f"{last}[{index}]"), item) for index, item in enumerate(value))

    def texts(self, *path: str) -> tuple[str, ...] | None:
        """Return the strings of the list at ``path``."""
        found, value = self._at(path)
        if not found:
            return None
        if not isinstance(value, list | tuple):
            raise self.error(path, value, "a list of strings")
        for item in value:
            if not isinstance(item, str):
                raise self.error(path, item, "strings only")
        return tuple(value)

    def error(self, path: Sequence[str], found: object, wanted: str) -> InputError:
        """Return the error for a bad value at ``path``."""
        return InputError.about(self.subject, self._name(path), found=found, wanted=wanted)

    def _at(self, path: Sequence[str]) -> tuple[bool, object]:
        value: object = self.value
        for depth, key in enumerate(path):
            if value is None:
                return False, None
            # The class first: nearly all maps are dicts, and asking an abstract class takes ten times as long.
            if type(value) is not dict and not isinstance(value, Mapping):
                raise self.error(path[:depth], value, "a map")
            if key not in value:
                return False, None
            value = value[key]
        return True, value

    def _inside(self, path: Sequence[str], value: object) -> Self:
        if type(value) is not dict and not isinstance(value, Mapping):
            raise self.error(path, value, "a map")
        return type(self)(value, self.subject, self._name(path))

    def _name(self, path: Sequence[str]) -> str:
        name = self.path
        for key in map(str, path):  # YAML allows keys that are not strings
            step = _step(key)
            name += step if step.startswith("[") or not name else f".{step}"
        return name


@attrs.frozen
class Resource:
    """An object of any kind: the metadata that grouping reads, and its fields.

    ``labels`` and ``annotations`` may differ from the manifest's where a grouper passes them down from a wrapper
    to the workload inside; the manifest is never changed.
    """

    kind: Kind
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    owner_references: tuple[OwnerReference, ...]
    is_terminating: bool
    manifest: Manifest = attrs.field(repr=False, eq=False)

    @classmethod
    def of(cls, manifest: Manifest, kind: Kind | None = None) -> Self:
        """Read the metadata of ``manifest``; ``kind`` is the default where a list left out ``apiVersion`` and ``kind``.

        Raises: InputError when the manifest is not an object of the API.
        """
        top = Fields(manifest, _subject(manifest, kind))
        found = Kind.of(top.text("apiVersion") or "", top.text("kind") or "")
        if not found.version or not found.kind:
            if kind is None:
                raise top.error(("kind",), manifest.get("kind"), "apiVersion and kind of the object")
            found = kind
        stated = top.child("metadata") or Fields({}, top.subject, "metadata")
        # Metadata is typed for every kind of object, and in typed fields null means absent.
        metadata = attrs.evolve(stated, value={key: value for key, value in stated.value.items() if value is not None})
        return cls(
            kind=found,
            namespace=metadata.text("namespace") or "",
            name=metadata.text("name") or "",
            uid=metadata.text("uid") or "",
            labels=_text_map(metadata, "labels"),
            annotations=_text_map(metadata, "annotations"),
            owner_references=tuple(_reference(entry) for entry in metadata.children("ownerReferences") or ()),
            is_terminating="deletionTimestamp" in metadata.value,
            manifest=manifest,
        )

    @property
    def fields(self) -> Fields:
        """Return a reader of the whole object."""
        return Fields(self.manifest, str(self))

    @property
    def reference(self) -> OwnerReference:
        """Return the owner reference that points to this object."""
        return OwnerReference(self.kind, self.name, self.uid)

    def error(self, field: str, found: object, wanted: str) -> InputError:
        """Return the error for a bad value in this object."""
        return InputError.about(str(self), field, found=found, wanted=wanted)

    def __str__(self) -> str:
        """Return kind, namespace and name, as in messages."""
        return (
            f'{self.kind.kind} "{self.namespace}/{self.name}"' if self.namespace else f'{self.kind.kind} "{self.name}"'
        )


def spec_text(pod: Resource, key: str) -> str:
    """Return a string of a pod's spec, empty if it is absent.

    Raises: InputError for a value of another type.
    """
    spec = pod.fields.child("spec")
    return "" if spec is None or spec.value.get(key) is None else spec.text(key) or ""


def annotated_integer(owner: Resource, key: str, *, at_least: int) -> int | None:
    """Return the integer of annotation ``key``, None if the object does not have it.

    Raises: InputError when it is not an integer in ``at_least``...2³¹-1.
    """
    text = owner.annotations.get(key)
    if text is None:
        return None
    return checked_integer(text, owner, f'metadata.annotations["{key}"]', at_least=at_least)


def checked_integer(text: str, owner: Resource, field: str, *, at_least: int) -> int:
    """Return ``text`` as an integer of at least ``at_least``.

    Raises: InputError that names ``field`` of ``owner``.
    """
    number = signed(text)
    if number is None or not at_least <= number <= INT32_MAX:
        raise owner.error(field, text, f"an integer of at least {at_least}")
    return number


@lru_cache(maxsize=4096)
def _step(key: str) -> str:
    """Return how a path names ``key``."""
    return key if re.fullmatch(r"[\w-]+(\[\d+\])?", key) else f'["{key}"]'


def _subject(manifest: Manifest, kind: Kind | None) -> str:
    metadata = manifest.get("metadata")
    names = (
        [str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)]
        if isinstance(metadata, Mapping)
        else []
    )
    return f'{manifest.get("kind") or (kind.kind if kind else "object")} "{"/".join(names)}"'


def _text_map(metadata: Fields, key: str) -> Mapping[str, str]:
    fields = metadata.child(key)
    if fields is None:
        return {}
    return {name: "" if value is None else fields.text(name) or "" for name, value in fields.value.items()}


def _reference(entry: Fields) -> OwnerReference:
    kind = Kind.of(entry.text("apiVersion") or "", entry.text("kind") or "")
    return OwnerReference(kind, entry.text("name") or "", entry.text("uid") or "")
