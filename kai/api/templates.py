"""Specs of pods: what comes from one template is read once.

Pods of a template differ in nothing but the node that they stand on and the name of a volume: the API server puts one
into each pod, called ``kube-api-access-`` and five random characters, from which containers take the token of their
account. Nobody needs to know these characters, only which containers mount the volume; so all such volumes have one
name here, and specs that differ in them alone are equal.
"""

from __future__ import annotations

import operator
import re
import sys
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from kai.api.drafts import draft_of
from kai.api.known import Recent, shared
from kai.api.reading import Reader

_NODE: Final = "nodeName"
_TOKEN: Final = "kube-api-access-"  # noqa: S105 - a volume's name, no secret
# The characters that Kubernetes makes random names of, which has no vowels and nothing that looks like one.
_GENERATED: Final = re.compile(_TOKEN + "[bcdfghjklmnpqrstvwxz2456789]{5}")
_ANY: Final = _TOKEN + "00000"
_MOST_FORMS: Final = 1 << 10
_MOST_SEEN: Final = 1 << 13
_UNLIKE: Final = object()
"""Stands for a form whose texts do not all mean the same."""
_NODE_KEY: Final = b'"nodeName":"'
_PLAIN: Final = re.compile(rb"[-.0-9A-Za-z]+")
_TOKEN_START: Final = f'"{_TOKEN}'.encode()
_TOKEN_NAME: Final = re.compile(f'"{_GENERATED.pattern}"'.encode())
_ANY_NAME: Final = f'"{_ANY}"'.encode()
_TOKEN_LENGTH: Final = len(_ANY_NAME)
_Form: TypeAlias = tuple[bytes, int, str]
_CONTAINERS: Final = ("containers", "initContainers", "ephemeralContainers")


def templated(cls: type[Any], read: Reader) -> Reader:
    """Make the reader of `cls`, the spec of a pod, return specs that share all but the name of their node."""
    read_template = shared(read)
    at_node = _at_node(cls)

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
        return at_node(template, node) if node else template

    return read_spec


def templated_bytes(cls: type[Any], read: Callable[[bytes], Any]) -> Callable[[Any], Any]:
    """Make a reader of specs in JSON, which share all but the name of their node, decode what comes again only once.

    A text is known again when it differs from an earlier one in nothing but the name of the node and that of the volume
    with the token. What these names mean where they stand is not guessed at: before texts of a form are taken to be
    alike, two of them are read and compared.
    """
    recent = Recent(_MOST_FORMS)
    once: set[int] = set()
    at_node = _at_node(cls)

    def read_spec(raw: Any) -> Any:  # noqa: ANN401 - bytes, or what has a buffer of them
        text = bytes(raw)
        form = _form_of(text)
        template = None if form is None else recent.get(form[0])
        if form is None or template is _UNLIKE:
            return read(text)
        key, _, node = form
        if template is not None:
            return at_node(template, node) if node else template
        spec, mark = read(text), hash(key)
        if mark in once and spec is not None:
            recent.put(key, _template_of(spec, form) or _UNLIKE)
        # Where something else is different in each pod, no form comes twice, and there is nothing to compare.
        if len(once) >= _MOST_SEEN:
            once.clear()
        once.add(mark)
        return spec

    def _template_of(spec: Any, form: _Form) -> Any:  # noqa: ANN401 - as above
        """Return a spec without its node if all texts of its form mean the same; else None."""
        key, place, node = form
        other = f"0{node}" if node else ""
        twin = read(key[1:place] + other.encode() + key[place:])
        if twin is None or (spec.node_name, twin.node_name) != (node, other):
            return None
        template = at_node(spec, "")
        return template if template == at_node(twin, "") else None

    return read_spec


def _form_of(text: bytes) -> _Form | None:
    """Return what texts have in common that differ in the two names alone, where the node stands in it, and its name.

    Returns None where something about the names is unusual.
    """
    flag, place, node = 0, 0, b""
    start = text.find(_NODE_KEY)
    if start >= 0:
        place = start + len(_NODE_KEY)
        end = text.find(b'"', place)
        node = text[place:end]
        if not _PLAIN.fullmatch(node):
            return None
        flag, text = 1, text[:place] + text[end:]
    start = text.find(_TOKEN_START)
    if start >= 0:
        if _ANY.encode() in text:
            return None
        name = text[start : start + _TOKEN_LENGTH]
        if _TOKEN_NAME.fullmatch(name):
            flag, text = flag + 2, text.replace(name, _ANY_NAME)
    return b"%d" % flag + text, place + 1, sys.intern(node.decode())


def _at_node(cls: type[Any]) -> Callable[[Any, str], Any]:
    """Return a function that copies a spec for a node."""
    draft: Any = draft_of(cls, complete=True)
    parts = operator.attrgetter(*(field.name for field in attrs.fields(cls)))

    def copy(spec: Any, node: str) -> Any:  # noqa: ANN401 - a class that only the caller knows
        made = draft(*parts(spec))
        made.node_name = node
        made.__class__ = cls
        return made

    return copy


def _token_volume(volumes: object) -> str | None:
    """Return the name of the one volume that the API server named; None if there is none, or anything unusual."""
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
    """Return a spec in which a volume, and its mounts, have the name that they have in all pods."""
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
