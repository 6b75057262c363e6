"""The model of the API server: every request is answered at once, in one step, and by the newest state.

What makes a real one hard to live with is not here but in the way to it: answers that are late or lost, watches that
lag, fall silent or end. What the model must get right is stated by `tests.doubles.facts`, which are tried against a
real API server as well.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
import msgspec

from kai.cluster.transport.calls import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Answer, Call
from tests.doubles.rest_server import patching, pods
from tests.doubles.rest_server.kinds import BY_KIND, BY_PATH, SERVED, Served
from tests.doubles.rest_server.patching import Path
from tests.doubles.rest_server.pods import POD
from tests.doubles.rest_server.replies import (
    NO_SUCH_PATH,
    RefusedError,
    conflict,
    done,
    given,
    invalid,
    missing,
    taken,
)
from tests.doubles.rest_server.selecting import selector
from tests.doubles.rest_server.storage import Manifest, Storage

_NAMESPACE: Final = BY_KIND["v1", "Namespace"]
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_KEPT: Final = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds")


@attrs.frozen
class _Target:
    """What a path leads to."""

    served: Served
    namespace: str
    name: str = ""
    subresource: str = ""


@attrs.define(eq=False)
class Server:
    """Answers calls."""

    storage: Storage = attrs.field(factory=Storage)
    now: Callable[[], float] = lambda: 1_700_000_000.0
    admit: Callable[[str, str, Served, Manifest], None] = lambda *_: None
    """Is asked about every write (who, verb, kind, object), and may raise `RefusedError`."""
    _numbers: Any = attrs.field(factory=lambda: itertools.count(1))
    _owners: dict[tuple[Served, str, str], dict[str, set[Path]]] = attrs.field(factory=dict)
    """Which fields each manager applied, by kind, UID and subresource."""

    def __attrs_post_init__(self) -> None:
        self.storage.now = self.now

    # --- Calls -----------------------------------------------------------------------------------------------------

    def answer(self, call: Call, by: str = "") -> Answer:
        """Do what is asked, and return the response."""
        self.storage.by = by
        if call.path == "/livez":
            return Answer(status=200, body=b"ok")
        target = target_of(call.path)
        if target is None:
            return self._discovery(call.path)
        try:
            return self._do(call, target, by)
        except RefusedError as refusal:
            return refusal.answer()

    def _do(self, call: Call, target: _Target, by: str) -> Answer:
        if call.method == "GET":
            return self._shown(call, self._found(target)) if target.name else self._list(call, target)
        if target.subresource in {"binding", "eviction"}:
            return self._bind(call, target) if target.subresource == "binding" else self._evict(call, target)
        match call.method:
            case "POST":
                return self._create(call, target, by)
            case "PUT":
                return self._replace(call, target, by)
            case "PATCH" if call.content_type == APPLY_PATCH:
                return self._apply(call, target, by)
            case "PATCH":
                return self._patch(call, target, by)
            case "DELETE":
                return self._delete(call, target, by)
        raise RefusedError(405, "the server does not allow this method on the requested resource")

    def _discovery(self, path: str) -> Answer:
        version = path.removeprefix("/apis/").removeprefix("/api/")
        found = [each for each in SERVED if each.api_version == version]
        if not found:
            return NO_SUCH_PATH
        resources = [{"name": each.plural, "kind": each.kind, "namespaced": each.namespaced} for each in found]
        return given({"kind": "APIResourceList", "groupVersion": version, "resources": resources})

    # --- Reading ---------------------------------------------------------------------------------------------------

    def _found(self, target: _Target) -> Manifest:
        found = self.storage.get(target.served, (target.namespace, target.name))
        if found is None:
            raise missing(target.served, target.name)
        return found

    def _shown(self, call: Call, manifest: Manifest, status: int = 200) -> Answer:
        return given(outline(manifest) if "PartialObject" in call.accept else manifest, status)

    def _list(self, call: Call, target: _Target) -> Answer:
        query = dict(call.query)
        version = query.get("resourceVersion", "")
        if version.isdigit() and int(version) > self.storage.version:
            causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
            details = {"causes": causes, "retryAfterSeconds": 1}
            raise RefusedError(504, "Timeout: Too large resource version", details=details)
        selects = selector(query.get("labelSelector", ""), query.get("fieldSelector", ""))
        found = [each for each in self.storage.all(target.served, target.namespace) if selects(each)]
        start, limit = int(query.get("continue") or 0), int(query.get("limit") or 0)
        metadata: dict[str, Any] = {"resourceVersion": str(self.storage.version)}
        page = found[start : start + limit] if limit else found[start:]
        if limit and start + limit < len(found):
            metadata |= {"continue": str(start + limit), "remainingItemCount": len(found) - start - limit}
        partial = "PartialObject" in call.accept
        items = [outline(each) if partial else _bare(each) for each in page]
        kind = "PartialObjectMetadataList" if partial else f"{target.served.kind}List"
        api_version = "meta.k8s.io/v1" if partial else target.served.api_version
        return given({"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items})

    # --- Writing ---------------------------------------------------------------------------------------------------

    def _create(self, call: Call, target: _Target, by: str) -> Answer:
        manifest = self._body(call, target)
        metadata = dict(manifest.get("metadata") or {})
        name = metadata.get("name") or self._drawn_name(str(metadata.get("generateName") or ""))
        if not name:
            raise invalid(target.served, "", "metadata.name", "Required value: name or generateName is required")
        if metadata.get("resourceVersion"):
            raise RefusedError(500, "resourceVersion should not be set on objects to be created")
        if metadata.get("namespace", target.namespace) != target.namespace:
            raise RefusedError(400, "the namespace of the provided object does not match the namespace sent")
        self._check_namespace(target)
        self.admit(by, "create", target.served, manifest)
        if self.storage.get(target.served, (target.namespace, name)) is not None:
            raise taken(target.served, name)
        stored = self.storage.put(target.served, self._fresh(target, manifest, metadata, name))
        self._own(target, stored, by, set(patching.leaves(stored)))
        return self._shown(call, stored, 201)

    def _fresh(self, target: _Target, manifest: Manifest, metadata: dict[str, Any], name: str) -> Manifest:
        for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion", "selfLink"):
            metadata.pop(key, None)
        metadata |= {"name": name, "uid": f"uid-{next(self._numbers)}", "creationTimestamp": self._time()}
        if target.namespace:
            metadata["namespace"] = target.namespace
        if target.served.is_custom or target.served.kind in {"Pod", "Job", "Deployment", "ReplicaSet"}:
            metadata["generation"] = 1
        made = {**manifest, "metadata": metadata}
        if target.served.drops_status:
            made.pop("status", None)
        if target.served is POD:
            made = pods.created(made)
        elif target.served is _NAMESPACE:
            labels = {**(metadata.get("labels") or {}), "kubernetes.io/metadata.name": name}
            made = {**made, "metadata": {**metadata, "labels": labels}, "status": {"phase": "Active"}}
        return made

    def _replace(self, call: Call, target: _Target, by: str) -> Answer:
        manifest = self._body(call, target)
        before = self.storage.get(target.served, (target.namespace, target.name))
        if before is None:
            raise missing(target.served, target.name)
        self._check_preconditions(target, before, manifest.get("metadata") or {}, is_whole=True)
        return self._shown(call, self._store(target, before, manifest, by))

    def _patch(self, call: Call, target: _Target, by: str) -> Answer:
        before, patch = self._found(target), msgspec.json.decode(call.body or b"{}")
        if call.content_type == JSON_PATCH:
            try:
                after = patching.operated(before, patch)
            except (ValueError, KeyError, IndexError) as error:
                raise RefusedError(422, f"the server rejected our request due to an error: {error}") from None
        elif call.content_type == MERGE_PATCH:
            after = patching.merged(before, patch)
        elif call.content_type == STRATEGIC_PATCH:
            if target.served.is_custom:
                raise RefusedError(415, "the body of the request was in an unknown format")
            after = patching.strategic(before, patch)
        else:
            raise RefusedError(415, "the body of the request was in an unknown format")
        self._check_preconditions(target, before, after["metadata"], is_whole=False)
        return self._shown(call, self._store(target, before, after, by))

    def _apply(self, call: Call, target: _Target, by: str) -> Answer:
        manifest, query = self._body(call, target), dict(call.query)
        manager = query.get("fieldManager", "")
        metadata = manifest.get("metadata") or {}
        before = self.storage.get(target.served, (target.namespace, target.name))
        if before is None:
            return self._apply_anew(call, target, manifest, manager)
        wanted = set(patching.leaves(manifest))
        after = patching.merged(before, manifest)
        known = self._owners.get((target.served, before["metadata"]["uid"], target.subresource), {})
        others = set().union(*(paths for name, paths in known.items() if name != manager))
        for path in sorted(known.get(manager, set()) - wanted - others):
            after = patching.without(after, path)
        self._check_preconditions(target, before, {**after["metadata"], **metadata}, is_whole=False)
        stored = self._store(target, before, after, manager)
        self._own(target, stored, manager, wanted)
        return self._shown(call, stored)

    def _apply_anew(self, call: Call, target: _Target, manifest: Manifest, manager: str) -> Answer:
        if target.subresource:
            raise missing(target.served, target.name)
        metadata = manifest.get("metadata") or {}
        if metadata.get("uid"):
            why = f"uid mismatch: the provided object specified uid {metadata['uid']}, and no existing object was found"
            raise conflict(target.served, target.name, why)
        if metadata.get("resourceVersion"):
            raise missing(target.served, target.name)
        answer = self._create(attrs.evolve(call, path=call.path.rpartition("/")[0]), target, manager)
        stored = self._found(target)
        self._owners[target.served, stored["metadata"]["uid"], ""] = {manager: set(patching.leaves(manifest))}
        return answer

    def _store(self, target: _Target, before: Manifest, after: Manifest, by: str) -> Manifest:
        """Store an update, as far as it may change anything, and return the object as it is then."""
        after = _complete(target, before, after)
        if target.served is POD and not target.subresource and pods.frozen_field(before, after):
            why = "Forbidden: pod updates may not change fields other than a few"
            raise invalid(target.served, target.name, "spec", why)
        if after == before:
            return before
        self.admit(by, "update", target.served, after)
        for paths in self._owners.get((target.served, before["metadata"]["uid"], target.subresource), {}).values():
            paths.difference_update(
                [each for each in paths if patching.at_path(before, each) != patching.at_path(after, each)]
            )
        if after.get("spec") != before.get("spec") and "generation" in before["metadata"]:
            generation = before["metadata"]["generation"] + 1
            after = {**after, "metadata": {**after["metadata"], "generation": generation}}
        metadata = after["metadata"]
        stays = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and not stays:
            return self.storage.remove(target.served, (target.namespace, target.name), after)
        return self.storage.put(target.served, after)

    def _delete(self, call: Call, target: _Target, by: str) -> Answer:
        before = self._found(target)
        options = msgspec.json.decode(call.body) if call.body else {}
        preconditions = options.get("preconditions") or {}
        metadata, name = before["metadata"], target.name
        if preconditions.get("uid", metadata["uid"]) != metadata["uid"]:
            raise conflict(target.served, name, "Precondition failed: UID in precondition differs")
        if preconditions.get("resourceVersion", metadata["resourceVersion"]) != metadata["resourceVersion"]:
            raise conflict(target.served, name, "Precondition failed: ResourceVersion in precondition differs")
        self.admit(by, "delete", target.served, before)
        return self._end(target, before, options.get("gracePeriodSeconds"))

    def _end(self, target: _Target, before: Manifest, asked: int | None) -> Answer:
        metadata, place = before["metadata"], (target.namespace, target.name)
        grace = pods.grace_of(before, asked) if target.served is POD else 0
        known = metadata.get("deletionGracePeriodSeconds")
        if metadata.get("deletionTimestamp") and known is not None:
            grace = min(grace, known)
        marks = {
            "deletionTimestamp": metadata.get("deletionTimestamp") or self._time(grace),
            "deletionGracePeriodSeconds": grace,
        }
        after = {**before, "metadata": {**metadata, **marks}}
        if target.served is _NAMESPACE:
            after = {**after, "status": {"phase": "Terminating"}}
            return given(before if after == before else self.storage.put(target.served, after))
        if grace or metadata.get("finalizers"):
            return given(before if after == before else self.storage.put(target.served, after))
        ended = self.storage.remove(target.served, place)
        if target.served is POD:
            return given({**ended, "metadata": {**ended["metadata"], **marks}})
        return done(target.served, target.name, metadata["uid"])

    # --- Pods ------------------------------------------------------------------------------------------------------

    def _bind(self, call: Call, target: _Target) -> Answer:
        binding = msgspec.json.decode(call.body or b"{}")
        pod = self._found(target)
        self.admit(self.storage.by, "bind", target.served, binding)
        self.storage.put(POD, pods.bound(pod, binding, self._time()))
        return given({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    def _evict(self, call: Call, target: _Target) -> Answer:
        eviction, pod = msgspec.json.decode(call.body or b"{}"), self._found(target)
        options = eviction.get("deleteOptions") or {}
        pods.check(pod, (options.get("preconditions") or {}).get("uid"), None)
        self.admit(self.storage.by, "evict", target.served, eviction)
        pods.spend_budget(self.storage, pod, self._time())
        self._end(attrs.evolve(target, subresource=""), pod, options.get("gracePeriodSeconds"))
        return given({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}, 201)

    # --- Checks ----------------------------------------------------------------------------------------------------

    def _body(self, call: Call, target: _Target) -> Manifest:
        try:
            manifest = msgspec.json.decode(call.body or b"")
        except msgspec.DecodeError:
            raise RefusedError(400, "the body is no JSON") from None
        if not isinstance(manifest, dict):
            raise RefusedError(400, "the body is no object")
        if manifest.get("kind", target.served.kind) != target.served.kind:
            raise RefusedError(400, f"the body is no {target.served.kind}")
        return {"apiVersion": target.served.api_version, "kind": target.served.kind, **manifest}

    def _check_preconditions(
        self, target: _Target, before: Manifest, metadata: Mapping[str, Any], *, is_whole: bool
    ) -> None:
        known, name = before["metadata"], target.name
        uid, version = metadata.get("uid"), metadata.get("resourceVersion")
        if uid and uid != known["uid"]:
            if is_whole:
                raise conflict(target.served, name, "Precondition failed: UID in precondition differs")
            raise invalid(target.served, name, "metadata.uid", "Invalid value: field is immutable")
        if version and version != known["resourceVersion"]:
            raise conflict(target.served, name, "the object has been modified; please apply your changes to the latest")
        if is_whole and not version and target.served.is_custom:
            raise invalid(target.served, name, "metadata.resourceVersion", "must be specified for an update")

    def _check_namespace(self, target: _Target) -> None:
        if not target.served.namespaced:
            return
        found = self.storage.get(_NAMESPACE, ("", target.namespace))
        if found is None:
            raise missing(_NAMESPACE, target.namespace)
        if found["metadata"].get("deletionTimestamp"):
            causes = [
                {"reason": "NamespaceTerminating", "message": "it is being terminated", "field": "metadata.namespace"}
            ]
            message = f"unable to create new content in namespace {target.namespace} because it is being terminated"
            raise RefusedError(403, message, details={"causes": causes})

    def _own(self, target: _Target, stored: Manifest, manager: str, paths: set[Path]) -> None:
        key = (target.served, stored["metadata"]["uid"], target.subresource)
        self._owners.setdefault(key, {})[manager] = paths

    def _drawn_name(self, prefix: str) -> str:
        number, drawn = next(self._numbers), ""
        for _ in range(5):
            number, digit = divmod(number * 7919 + 13, len(_LETTERS))
            drawn += _LETTERS[digit]
        return prefix and f"{prefix}{drawn}"

    def _time(self, later: float = 0.0) -> str:
        return time_text(self.now() + later)


def _complete(target: _Target, before: Manifest, after: Manifest) -> Manifest:
    """Return an update with what clients cannot change put back as it was."""
    served, old = target.served, before["metadata"]
    if target.subresource == "status":
        metadata = old if served.is_custom else {**after["metadata"], "ownerReferences": old.get("ownerReferences")}
        after = {**before, "status": after.get("status"), "metadata": metadata}
    elif served.drops_status:
        after = {**after, "status": before.get("status")}
    metadata = dict(after["metadata"])
    for key in (*_KEPT, "generation", "resourceVersion"):
        metadata[key] = old.get(key)
    metadata = {key: value for key, value in metadata.items() if value not in (None, {}, [])}
    after = {**after, "metadata": metadata, "apiVersion": before["apiVersion"], "kind": before["kind"]}
    return {key: value for key, value in after.items() if value is not None}


def target_of(path: str) -> _Target | None:
    """Return what a path leads to; None if there is no such kind."""
    parts = path.strip("/").split("/")
    version, parts = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
    namespace = ""
    if len(parts) > 2 and parts[0] == "namespaces" and (version, parts[2]) in BY_PATH:
        namespace, parts = parts[1], parts[2:]
    served = BY_PATH.get((version, parts[0])) if parts else None
    return None if served is None or len(parts) > 3 else _Target(served, namespace, *parts[1:])


def outline(manifest: Manifest) -> Manifest:
    """Return what a client gets that asked for metadata only."""
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": manifest["metadata"]}


def _bare(manifest: Manifest) -> Manifest:
    """Return an item of a list, which does not say what it is."""
    return {key: value for key, value in manifest.items() if key not in {"apiVersion", "kind"}}


def time_text(seconds: float) -> str:
    """Return a time as objects say it."""
    return dt.datetime.fromtimestamp(seconds, tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
