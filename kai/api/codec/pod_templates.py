"""Sharing equal parts of pods: specs from one template, drafts of frozen classes, and caches of equal JSON.

Pods of a template differ only in their node and in the name of a volume. The API server adds that volume to each pod,
named ``kube-api-access-`` and five random characters; from it containers take the token of their service account. Only
which containers mount it matters. All such volumes therefore have one name here, and specs that differ only in it are
equal.

The constructor of a frozen class cannot store fields the plain way, which makes it three times as slow as that of a
mutable class. Where hundreds of thousands of objects are read from JSON, that is a good part of all the time. So
objects are made as drafts, of a mutable class with the same fields, and get their frozen class once they are complete,
before other code sees them.

Equal pieces of JSON become one object, while they are in the cache. Pods of a workload agree in nearly all requests.
Reading them once is faster, holding them once is smaller, and code that compares shapes finds them identical.
"""

from __future__ import annotations

import marshal
import operator
import re
import sys
from typing import TYPE_CHECKING, Any, Final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from kai.api.codec.json_values import Reader


def draft_of(cls: type[Any], *, complete: bool = False) -> type[Any] | None:
    """Return a mutable class with the fields of `cls`, whose objects can be assigned the class `cls`; None for none.

    The constructor of the draft class is that of `cls`, or, with `complete`, one that takes all fields in order. A
    class has no draft if it supports weak references, inherits fields, or its constructor does more than store them.
    """
    fields = attrs.fields(cls)
    if hasattr(cls, "__attrs_post_init__") or any(field.converter or field.validator for field in fields):
        return None
    by_name = not complete and any(field.default is attrs.NOTHING for field in fields)
    same = {
        field.name: attrs.field(default=attrs.NOTHING if complete else field.default, kw_only=by_name)
        for field in fields
    }
    draft = attrs.make_class(f"{cls.__name__}Draft", same, slots=True, weakref_slot=False, eq=False, repr=False)
    try:
        trial: Any = object.__new__(draft)
        trial.__class__ = cls
    except TypeError:
        return None
    return draft


_MOST: Final = 1 << 9
_MOST_BYTES: Final = 1 << 16
_LONGEST: Final = 1 << 14
# Version 2 of the format has no back references, so the bytes depend on the value alone.
_FORMAT: Final = 2


def shared(read: Reader) -> Reader:
    """Wrap a reader so that equal values become one object, while they are in the cache.

    Values of different types are different, and so are objects whose keys come in another order. A value that contains
    anything but JSON is read anew.
    """
    recent = Recent(_MOST)
    get, put = recent.get, recent.put

    def read_shared(value: Any, hint: object = None) -> object:  # noqa: ANN401 - marshal alone says what it takes
        try:
            key = marshal.dumps(value, _FORMAT)
        except ValueError:
            return read(value, hint)
        result = get(key)
        if result is None:
            result = read(value, hint)
            if result is not None:
                put(key, result)
        return result

    return read_shared


class Recent:
    """A bounded cache of recently used values.

    Holds: it is bounded in number and in the length of keys, whatever the input: when the younger half is full, the
    older half is dropped. A value whose key is too long is not kept at all.
    """

    __slots__ = ("_most", "_old", "_size", "_young")

    def __init__(self, most: int) -> None:
        self._most = most
        self._young: dict[Any, object] = {}
        self._old: dict[Any, object] = {}
        self._size = 0

    def get(self, key: Any) -> object | None:  # noqa: ANN401 - whatever has a hash and a length
        """Return the value of a key."""
        result = self._young.get(key)
        if result is None:
            result = self._old.get(key)
            if result is not None:
                self.put(key, result)
        return result

    def put(self, key: Any, value: object) -> None:  # noqa: ANN401 - as above
        """Cache a value, which must not be None, under a key."""
        length = len(key)
        if length > _LONGEST:
            return
        if self._size + length > _MOST_BYTES or len(self._young) >= self._most:
            self._young, self._old, self._size = {}, self._young, 0
        self._young[key] = value
        self._size += length


_NODE: Final = "nodeName"
_TOKEN: Final = "kube-api-access-"  # noqa: S105 - a volume's name, no secret
# The alphabet of Kubernetes' generated names: no vowels, and no characters that resemble them.
_GENERATED: Final = re.compile(_TOKEN + "[bcdfghjklmnpqrstvwxz2456789]{5}")
_ANY: Final = _TOKEN + "00000"
_MOST_PLACED: Final = 1 << 12
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def templated(cls: type[Any], read: Reader) -> Reader:
    """Wrap the reader of `cls`, the pod spec, so that specs of one template share everything but the node name."""
    read_template = shared(read)
    at_node = _at_node(cls)
    placed = _Placed()

    def read_spec(value: Any, hint: object = None) -> object:  # noqa: ANN401 - JSON from outside
        if type(value) is not dict:
            return read(value, hint)
        spec = dict(value)
        node = spec.pop(_NODE, None)
        if type(node) is not str and node is not None:
            return read(value, hint)
        name = _token_volume(spec.get("volumes"))
        if name is not None:
            spec = _renamed(spec, name)
        template = read_template(spec, hint)
        if not node:
            return template
        found = placed.get(template, node)
        return found or placed.put(at_node(template, sys.intern(node)))

    return read_spec


class _Placed:
    """Specs of the last template by node: a list has pods of one template on one node close together.

    Holds: at most `_MOST_PLACED` specs, all of one template, whatever the input.
    """

    __slots__ = ("_specs", "_template")

    def __init__(self) -> None:
        self._template: object = None
        self._specs: dict[str, object] = {}

    def get(self, template: object, node: str) -> object | None:
        """Return the spec of a template for a node, None if it is not cached."""
        if template is not self._template:
            self._template, self._specs = template, {}
        return self._specs.get(node)

    def put(self, spec: Any) -> object:  # noqa: ANN401 - a class that only the caller knows
        """Cache a spec of the template of the last `get`, and return it."""
        if len(self._specs) >= _MOST_PLACED:
            self._specs = {}
        self._specs[spec.node_name] = spec
        return spec


def _at_node(cls: type[Any]) -> Callable[[Any, str], Any]:
    """Return a function that copies a spec with another node name."""
    draft: Any = draft_of(cls, complete=True)
    parts = operator.attrgetter(*(field.name for field in attrs.fields(cls)))

    def copy(spec: Any, node: str) -> Any:  # noqa: ANN401 - a class that only the caller knows
        made = draft(*parts(spec))
        made.node_name = node
        made.__class__ = cls
        return made

    return copy


def _token_volume(volumes: object) -> str | None:
    """Return the name of the volume that the API server added; None if there is none, or several candidates."""
    if type(volumes) is not list:
        return None
    found: str | None = None
    for volume in volumes:
        name = volume.get("name") if type(volume) is dict else None
        if type(name) is str and name.startswith(_TOKEN):
            if found is not None or not _GENERATED.fullmatch(name):
                return None
            found = name
    return found


def _renamed(spec: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a spec in which a volume, and its mounts, have the common name."""
    changed = {**spec, "volumes": _items_renamed(spec["volumes"], name)}
    for key in _CONTAINERS:
        containers = spec.get(key)
        if type(containers) is list:
            changed[key] = [_container_renamed(container, name) for container in containers]
    return changed


def _container_renamed(container: Any, name: str) -> Any:  # noqa: ANN401 - JSON from outside
    mounts = container.get("volumeMounts") if type(container) is dict else None
    return {**container, "volumeMounts": _items_renamed(mounts, name)} if type(mounts) is list else container


def _items_renamed(items: list[Any], name: str) -> list[Any]:
    return [{**item, "name": _ANY} if type(item) is dict and item.get("name") == name else item for item in items]
