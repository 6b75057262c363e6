"""Turns requests into HTTP calls: method, path and body; and knows which API version of each kind is served."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import attrs
import msgspec

from kai.api.codec.structuring import Printed
from kai.api.kinds import BY_CLASS, ApiObject
from kai.api.plans import Bind, Create, Delete, Emit, Get, List, Patch, Ref
from kai.cluster.requests import Apply, Evict, JsonPatch
from kai.cluster.transport.calls import APPLY_PATCH, JSON_PATCH, LARGEST_PAGE, MERGE_PATCH, STRATEGIC_PATCH, Call, Query

_MOST_PATHS: Final = 1 << 12


def collection(api_version: str, plural: str, namespace: str = "") -> str:
    """Return the path of the objects of a kind, in one namespace or all."""
    root = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
    place = f"/namespaces/{quote(namespace, safe='')}" if namespace else ""
    return f"{root}{place}/{plural}"


@attrs.define
class ServedVersions:
    """The API version of each kind that the server serves, as far as it is known; else the one that kai writes."""

    _versions: dict[type[ApiObject], str] = attrs.field(factory=dict)
    _collections: dict[tuple[type[ApiObject], str], str] = attrs.field(factory=dict)
    """Memoized paths by kind and namespace."""

    def version(self, cls: type[Any]) -> str:
        """Return the version of a kind."""
        return self._versions.get(cls) or BY_CLASS[cls].api_version

    def settle(self, cls: type[ApiObject], api_version: str) -> None:
        """Record that a version is served."""
        if self._versions.get(cls) != api_version:
            self._versions[cls] = api_version
            self._collections.clear()

    def collection(self, cls: type[Any], namespace: str = "") -> str:
        """Return the path of the objects of a kind, in one namespace or all."""
        path = self._collections.get((cls, namespace))
        if path is None:
            kind = BY_CLASS[cls]
            path = collection(self.version(cls), kind.plural, namespace if kind.namespaced else "")
            if len(self._collections) < _MOST_PATHS:
                self._collections[cls, namespace] = path
        return path

    def path(self, ref: Ref[Any], subresource: str = "") -> str:
        """Return the path of an object."""
        whole = f"{self.collection(ref.cls, ref.namespace)}/{quote(ref.name, safe='')}"
        return f"{whole}/{subresource}" if subresource else whole


_LONGEST_EVENT: Final = 1024


@attrs.frozen(kw_only=True)
class Reporter:
    """The component that records events."""

    component: str
    instance: str = ""


def to_json(value: object) -> bytes:
    """Return a value as JSON; mappings of any class become objects."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"found a value of type {type(value).__name__}, expected JSON")


def encode_read(request: Get | List, served: ServedVersions, *, limit: int = 0, token: str = "") -> Call:
    """Return the call for a read from the API server; for a list, the page of the continue token."""
    if isinstance(request, Get):
        return Call(method="GET", path=served.path(request.ref))
    query: list[tuple[str, str]] = []
    if request.labels:
        query.append(("labelSelector", label_selector(request.labels)))
    if request.node:
        query.append(("fieldSelector", f"spec.nodeName={request.node}"))
    query += page_query(limit, token)
    path = served.collection(request.cls, request.namespace)
    return Call(method="GET", path=path, query=tuple(query), largest=LARGEST_PAGE)


def page_query(limit: int, token: str) -> Query:
    """Return the query parameters for one page of a list."""
    # No resourceVersion: "0" would allow an answer from the server's cache, which may be older than what was seen here.
    query = [("limit", str(limit))] if limit else []
    if token:
        query.append(("continue", token))
    return tuple(query)


def label_selector(labels: Mapping[str, str]) -> str:
    """Return the selector of objects with all of these labels."""
    return ",".join(f"{key}={value}" for key, value in labels.items())


def encode_write(request: Create | Patch | Delete | Bind | Apply | JsonPatch | Evict, served: ServedVersions) -> Call:
    """Return the call for a write."""
    match request:
        case Create():
            path = served.collection(request.ref.cls, request.ref.namespace)
            return Call(method="POST", path=path, body=_created(request, served))
        case Delete():
            return Call(method="DELETE", path=served.path(request.ref), body=to_json(_delete_options(request)))
        case Bind():
            return Call(method="POST", path=served.path(request.ref, "binding"), body=to_json(_binding(request)))
        case Evict():
            return Call(method="POST", path=served.path(request.ref, "eviction"), body=to_json(_eviction(request)))
    path = served.path(request.ref, request.subresource)
    match request:
        case Patch():
            form = STRATEGIC_PATCH if request.form == "strategic" else MERGE_PATCH
            return Call(method="PATCH", path=path, body=to_json(request.patch), content_type=form)
        case JsonPatch():
            body = to_json(list(request.operations))
            return Call(method="PATCH", path=path, body=body, content_type=JSON_PATCH)
        case Apply():
            body = to_json(_complete(request.manifest, request, served))
            # Without force, a field that another manager owns is answered with 409.
            query = (("fieldManager", request.manager), ("force", "true"))
            return Call(method="PATCH", path=path, query=query, body=body, content_type=APPLY_PATCH)


def encode_event(request: Emit, reporter: Reporter, served: ServedVersions, *, name: str, now: float) -> Call:
    """Return the call that creates an event.

    Source: events of cluster-scoped objects are in the namespace "default", where kubectl expects them.
    """
    ref = request.ref
    kind = BY_CLASS[ref.cls]
    namespace, moment = ref.namespace or "default", _moment(now)
    involved = {
        "apiVersion": served.version(ref.cls),
        "kind": kind.kind,
        "name": ref.name,
        "namespace": ref.namespace,
        "uid": request.uid,
    }
    source = {"component": reporter.component}
    annotations = {"annotations": dict(request.annotations)} if request.annotations else {}
    manifest = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace, **annotations},
        "involvedObject": {key: value for key, value in involved.items() if value},
        "type": request.type,
        "reason": request.reason,
        "message": _short(request.message),
        "source": source,
        "reportingComponent": reporter.component,
        "reportingInstance": reporter.instance,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }
    return Call(method="POST", path=f"/api/v1/namespaces/{namespace}/events", body=to_json(manifest))


def encode_event_again(request: Emit, *, name: str, count: int, now: float) -> Call:
    """Return the call that sets the count of a repeated event to ``count``.

    Source: the fields with which client-go's recorder counts, and that kubectl shows.
    """
    namespace = request.ref.namespace or "default"
    body = to_json({"count": count, "lastTimestamp": _moment(now), "message": _short(request.message)})
    path = f"/api/v1/namespaces/{namespace}/events/{name}"
    return Call(method="PATCH", path=path, body=body, content_type=MERGE_PATCH)


def event_name(request: Emit, unique: str) -> str:
    """Return the name of an event, with ``unique`` as its suffix."""
    return f"{request.ref.name[:200].rstrip('.-')}.{unique}"


def _moment(now: float) -> str:
    return dt.datetime.fromtimestamp(now, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _short(message: str) -> str:
    return message if len(message) <= _LONGEST_EVENT else f"{message[: _LONGEST_EVENT - 1]}…"


def _created(request: Create, served: ServedVersions) -> bytes:
    manifest = request.manifest
    if isinstance(manifest, Printed) and manifest.api_version == served.version(request.ref.cls):
        return manifest.text
    return to_json(_complete(manifest, request, served))


def _complete(manifest: Mapping[str, Any], request: Create | Apply, served: ServedVersions) -> dict[str, Any]:
    """Return a manifest with apiVersion, kind, name and namespace, to match the path."""
    ref = request.ref
    metadata: dict[str, Any] = {"name": ref.name, **manifest.get("metadata", {})}
    if BY_CLASS[ref.cls].namespaced:
        metadata.setdefault("namespace", ref.namespace)
    return {**manifest, "apiVersion": served.version(ref.cls), "kind": BY_CLASS[ref.cls].kind, "metadata": metadata}


def _delete_options(request: Delete | Evict) -> dict[str, Any]:
    options: dict[str, Any] = {}
    # With a UID the API server answers 409 if a new object has taken the name.
    if request.uid:
        options["preconditions"] = {"uid": request.uid}
    if request.grace_seconds is not None:
        options["gracePeriodSeconds"] = request.grace_seconds
    if isinstance(request, Delete):
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background", **options}
    return options


def _binding(request: Bind) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": request.ref.name, "namespace": request.ref.namespace}
    if request.uid:
        metadata["uid"] = request.uid
    # A binding with a resourceVersion is refused with 409 after any other write to the pod.
    if request.resource_version:
        metadata["resourceVersion"] = request.resource_version
    if request.annotations:
        metadata["annotations"] = dict(request.annotations)
    target = {"apiVersion": "v1", "kind": "Node", "name": request.node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}


def _eviction(request: Evict) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": request.ref.name, "namespace": request.ref.namespace}
    if request.annotations:
        metadata["annotations"] = dict(request.annotations)
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": metadata,
        "deleteOptions": _delete_options(request),
    }
