"""Fields that do not exist, by the schemas of our own kinds and a table of Kubernetes, and values of a wrong type.

The table, ``core_fields.json``, has the names and types of the fields of every kind that is read here; a test
compares it with the client library of Kubernetes, which is older than ``NEWER``. Objects from an API server are not
checked again. Values of our own kinds are checked when objects are made from them.
"""

import difflib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Any, Final

import attrs

from kai.api.crds.definitions import PRESENTATIONS, definition
from kai.api.kinds import BY_CLASS
from kai.api.values import BadValue
from kai.manifests.faults import SCALARS, scalar_fault
from kai.manifests.findings import Document, Finding, Path
from kai.manifests.workloads.table import pod_templates

_FREE: Final = "?"
_LIST, _OBJECT, _TEXTS = "a list", "an object", "an object of strings"
_NEAR: Final = 0.75
NEWER: Final[Mapping[str, Mapping[str, str]]] = {
    "V1JobSpec": {"scheduling": "?"},
    "V1PodSpec": {"evictionResponders": "?"},
}
"""Fields of Kubernetes 1.37 that its client library does not have yet."""


@attrs.frozen
class Unknown:
    """A field that does not exist: its path, and the fields that do."""

    path: Path
    known: tuple[str, ...]


def check_fields(document: Document) -> list[Finding]:
    """Return a finding for each field that the kind does not have, and for each value of a wrong type.

    For an object from an API server there are none.
    """
    manifest = document.manifest
    metadata = manifest.get("metadata")
    if isinstance(metadata, Mapping) and metadata.get("resourceVersion"):
        return []
    return [
        document.bad_value(mistake) if isinstance(mistake, BadValue) else _finding(document, mistake)
        for mistake in _mistakes(manifest)
    ]


def unknown_of_pod_spec(spec: object) -> tuple[str, ...]:
    """Return the paths of fields in a pod's spec that do not exist."""
    found = _of_type(spec, "V1PodSpec", ())
    return tuple(_shown(mistake.path) for mistake in found if isinstance(mistake, Unknown))


def _mistakes(manifest: Mapping[str, Any]) -> Iterator[Unknown | BadValue]:
    version, kind = manifest.get("apiVersion"), manifest.get("kind")
    core = _core()
    if f"{version}/{kind}" in core["kinds"]:
        yield from _of_type(manifest, core["kinds"][f"{version}/{kind}"], ())
        return
    own = _own_schema(str(version), str(kind))
    if own is not None:
        yield from _of_schema(manifest, own, ())
        return
    for path, template in pod_templates(manifest):
        yield from _of_type(template, "V1PodTemplateSpec", path)


def _of_type(value: object, name: str, path: Path) -> Iterator[Unknown | BadValue]:
    """Yield the faults in a value of a Kubernetes type: a name, ``[T]`` a list, ``{T}`` a map, ``?`` anything."""
    if name == _FREE or value is None:
        return
    wrong = _mismatch(value, name)
    if wrong is not None:
        yield _at(path, wrong)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_type(item, name[1:-1], (*path, index))
    elif isinstance(value, Mapping):
        fields = None if name.startswith("{") else _core()["types"][name]
        for key, item in value.items():
            if fields is not None and key not in fields:
                yield Unknown((*path, str(key)), tuple(fields))
            else:
                yield from _of_type(item, name[1:-1] if fields is None else fields[key], (*path, str(key)))


def _mismatch(value: object, name: str) -> BadValue | None:
    """Return the error for a value of a wrong type, else None."""
    if name in SCALARS:
        return scalar_fault(value, name)
    if name.startswith("["):
        return None if isinstance(value, list) else BadValue(value, _LIST)
    wanted = _TEXTS if name == "{str}" else _OBJECT
    return None if isinstance(value, Mapping) else BadValue(value, wanted)


def _at(path: Path, wrong: BadValue) -> BadValue:
    for step in reversed(path):
        wrong.under(step)
    return wrong


def _of_schema(value: object, schema: Mapping[str, Any], path: Path) -> Iterator[Unknown | BadValue]:
    """Yield the unknown fields of a value of one of our kinds; its status is left to controllers."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _of_schema(item, schema.get("items", {}), (*path, index))
        return
    if not isinstance(value, Mapping):
        return
    fields = schema.get("properties")
    is_open = schema.get("x-kubernetes-preserve-unknown-fields", False)
    for key, item in value.items():
        here = (*path, str(key))
        if here == ("metadata",):
            yield from _of_type(item, "V1ObjectMeta", here)
        elif here == ("status",):
            continue
        elif fields is not None and key in fields:
            yield from _of_schema(item, fields[key], here)
        elif fields is not None and not is_open:
            yield Unknown(here, tuple(fields))


def _finding(document: Document, unknown: Unknown) -> Finding:
    name = str(unknown.path[-1])
    where = f"{document.manifest.get('kind')} has no field {name}"
    if len(unknown.path) > 1:
        where += f" in {_shown(unknown.path[:-1])}"
    # The comparison minds case, and API servers do as well; so a wrong case is looked for by itself.
    near = difflib.get_close_matches(name, unknown.known, n=1, cutoff=_NEAR)
    lower = {known.lower(): known for known in unknown.known}
    match = lower.get(name.lower()) or (near[0] if near else "")
    if not match:
        return document.finding("F003", where, unknown.path, at_key=True, found=name, hint="it has no effect")
    return document.finding(
        "F002", where, unknown.path, at_key=True, found=name, expected=match, hint=f"is it {match}?", help=f"{match}:"
    )


def _shown(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


@cache
def _core() -> Mapping[str, Any]:
    text = resources.files("kai.manifests").joinpath("core_fields.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    for name, fields in NEWER.items():
        found["types"][name] |= fields
    return found


@cache
def _own_schema(version: str, kind: str) -> Mapping[str, Any] | None:
    for cls in PRESENTATIONS:
        known = BY_CLASS[cls]
        if known.kind == kind and version in known.api_versions:
            schema: Mapping[str, Any] = definition(cls)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
            return schema
    return None
