"""An API server in memory, as far as plans can tell: objects, versions, preconditions, bindings, and faults on demand.

It keeps whole manifests, so what a plan does not know survives as it would on a server.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from kai.api.codec.structuring import structure_as
from kai.api.kinds import BY_CLASS
from kai.api.kubernetes.node import Node
from kai.api.plans import (
    Await,
    Bind,
    Create,
    Delete,
    Emit,
    Get,
    List,
    Lock,
    Now,
    Patch,
    Reason,
    Ref,
    Refusal,
    Request,
    Unlock,
)
from tests.doubles.merge_patch import merged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kai.cluster.requests import Apply

Key = tuple[str, str, str]
Manifest = dict[str, Any]

_OUTDATED = Refusal(reason=Reason.CONFLICT, message="the node changed before the binding was sent")


class ApiServer:
    """Performs the requests of plans.

    `settle` is what the rest of the cluster does while a plan waits: it may change objects through `change`. With
    `assigns_uids` off, objects keep the lack of a UID that they were given with; with `sets_node` off, a binding leaves
    only its annotations. `fault` may refuse a request before it is done, `lost` after it was done.
    """

    def __init__(
        self,
        manifests: Iterable[Manifest] = (),
        *,
        assigns_uids: bool = True,
        sets_node: bool = True,
        settle: Callable[[ApiServer, Await], None] = lambda _, __: None,
        now: float = 1_700_000_000.0,
    ) -> None:
        self.objects: dict[Key, Manifest] = {}
        self.assigns_uids = assigns_uids
        self.sets_node = sets_node
        self.settle = settle
        self.now = now
        self.version = 0
        self.writes: list[Request | Apply] = []
        self.requests: list[Request] = []
        self.events: list[Emit] = []
        self.held: list[str] = []
        self.fault: Callable[[Request], Refusal | None] = lambda _: None
        self.lost: Callable[[Request], bool] = lambda _: False
        for manifest in manifests:
            self._put(copy.deepcopy(manifest))

    # --- For tests -----------------------------------------------------------------------------------------------

    def get(self, kind: str, name: str, namespace: str = "") -> Manifest | None:
        return self.objects.get((kind, namespace, name))

    def names(self, kind: str) -> list[str]:
        return [name for found, _, name in sorted(self.objects) if found == kind]

    def change(self, kind: str, name: str, namespace: str, patch: Manifest) -> None:
        """Let somebody else change an object."""
        self._put(merged(self.objects[kind, namespace, name], patch))

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        """Let somebody else delete an object."""
        del self.objects[kind, namespace, name]

    def state(self) -> dict[Key, Manifest]:
        """Return all objects without what differs from run to run: UIDs, versions, times."""
        return {key: _timeless(manifest) for key, manifest in sorted(self.objects.items())}

    # --- For plans -----------------------------------------------------------------------------------------------

    def perform(self, request: Request) -> object:
        """Answer one request."""
        self.requests.append(request)
        is_local = isinstance(request, Lock | Unlock | Now)
        refusal = None if is_local else self.fault(request)
        if refusal is not None:
            return refusal
        reply = self._answer(request)
        if self.lost(request):
            return Refusal(reason=Reason.UNKNOWN, message="the answer was lost")
        return reply

    def _answer(self, request: Request) -> object:  # noqa: PLR0911 -- one line for each kind of request
        match request:
            case Get():
                return self._read(request.ref)
            case List():
                return self._list(request)
            case Create():
                return self._create(request) if not request.node or self._fits(request) else _OUTDATED
            case Patch():
                return self._patch(request)
            case Delete():
                return self._delete(request)
            case Bind():
                return self._bind(request) if self._fits(request) else _OUTDATED
            case Await():
                return self._await(request)
            case Emit():
                self.events.append(request)
                return None
            case Lock():
                assert request.key not in self.held, "a plan would wait for itself"
                self.held.append(request.key)
                return None
            case Unlock():
                self.held.remove(request.key)
                return None
            case Now():
                return self.now
        raise AssertionError(request)

    def _read(self, ref: Ref[Any]) -> object:
        manifest = self.objects.get(_key(ref))
        return _missing(ref) if manifest is None else structure_as(ref.cls, manifest)

    def _list(self, request: List) -> object:
        kind = BY_CLASS[request.cls].kind
        found = []
        for (known, namespace, _), manifest in sorted(self.objects.items()):
            labels = (manifest["metadata"].get("labels")) or {}
            if (
                known == kind
                and request.namespace in {"", namespace}
                and all(labels.get(key) == value for key, value in request.labels.items())
                and (not request.node or manifest.get("spec", {}).get("nodeName") == request.node)
            ):
                found.append(structure_as(request.cls, manifest))
        return tuple(found)

    def _create(self, request: Create) -> object:
        if _key(request.ref) in self.objects:
            return Refusal(reason=Reason.ALREADY_EXISTS, message=f"{request.ref} already exists")
        self.writes.append(request)
        self._put(copy.deepcopy(dict(request.manifest)))
        return self._read(request.ref)

    def _patch(self, request: Patch) -> object:
        key = _key(request.ref)
        manifest = self.objects.get(key)
        if manifest is None:
            return _missing(request.ref)
        metadata = request.patch.get("metadata", {})
        refusal = _stale(manifest, metadata.get("uid", ""), metadata.get("resourceVersion", ""))
        if refusal is not None:
            return refusal
        self.writes.append(request)
        patch = copy.deepcopy(dict(request.patch))
        if request.form == "strategic":
            patch = _with_merged_conditions(manifest, patch)
        if request.subresource == "status":
            patch = {"status": patch.get("status", {})}
        elif key[0] in {"Pod", "BindRequest", "ResourceClaim"}:
            patch.pop("status", None)
        changed = merged(manifest, patch)
        if changed != manifest:
            self._put(changed)
        self._collect(key)
        return self._read(request.ref) if key in self.objects else structure_as(request.ref.cls, changed)

    def _delete(self, request: Delete) -> object:
        key = _key(request.ref)
        manifest = self.objects.get(key)
        if manifest is None:
            return _missing(request.ref)
        refusal = _stale(manifest, request.uid, "")
        if refusal is not None:
            return refusal
        self.writes.append(request)
        self._put(merged(manifest, {"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}}))
        self._collect(key)
        return None

    def _fits(self, request: Bind | Create) -> bool:
        """Ask what a client asks before it sends what takes room on a node."""
        node = self._read(Ref(Node, request.node))
        return request.fits(None if isinstance(node, Refusal) else node, None)

    def _bind(self, request: Bind) -> object:
        key = _key(request.ref)
        pod = self.objects.get(key)
        if pod is None:
            return _missing(request.ref)
        refusal = _stale(pod, request.uid, request.resource_version)
        if refusal is not None:
            return refusal
        spec = pod.get("spec") or {}
        if spec.get("nodeName") or spec.get("schedulingGates") or pod["metadata"].get("deletionTimestamp"):
            return Refusal(reason=Reason.CONFLICT, message="pod is already assigned, gated or being deleted")
        self.writes.append(request)
        patch: Manifest = {"metadata": {"annotations": dict(request.annotations)}}
        if self.sets_node:
            patch["spec"] = {"nodeName": request.node}
        self._put(merged(pod, patch))
        return None

    def _await(self, request: Await) -> object:
        for _ in range(2):
            found = self._read(request.ref)
            if isinstance(found, Refusal) or request.until(found):
                return found
            self.settle(self, request)
        found = self._read(request.ref)
        if not isinstance(found, Refusal) and not request.until(found):
            return Refusal(reason=Reason.TIMED_OUT, message=f"nothing happened for {request.seconds:g} s")
        return found

    def _put(self, manifest: Manifest) -> None:
        self.version += 1
        metadata = {**manifest.get("metadata", {}), "resourceVersion": str(self.version)}
        if self.assigns_uids:
            metadata.setdefault("uid", f"uid-{self.version}")
        key = (manifest["kind"], metadata.get("namespace", ""), metadata.get("name", ""))
        self.objects[key] = {**manifest, "metadata": metadata}

    def _collect(self, key: Key) -> None:
        metadata = self.objects[key]["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[key]


def _key(ref: Ref[Any]) -> Key:
    return BY_CLASS[ref.cls].kind, ref.namespace, ref.name


def _missing(ref: Ref[Any]) -> Refusal:
    return Refusal(reason=Reason.NOT_FOUND, message=f"{ref} not found")


def _stale(manifest: Manifest, uid: str, version: str) -> Refusal | None:
    metadata = manifest["metadata"]
    if uid and metadata.get("uid", "") != uid:
        return Refusal(reason=Reason.CONFLICT, message="the UID in the precondition differs")
    if version and metadata["resourceVersion"] != version:
        return Refusal(reason=Reason.CONFLICT, message="the object has been modified")
    return None


def _with_merged_conditions(manifest: Manifest, patch: Manifest) -> Manifest:
    given = patch.get("status", {}).get("conditions", [])
    known = (manifest.get("status") or {}).get("conditions") or []
    by_type = {condition["type"]: condition for condition in known}
    for condition in given:
        by_type[condition["type"]] = {**by_type.get(condition["type"], {}), **condition}
    return merged(patch, {"status": {"conditions": list(by_type.values())}})


_TIMES = {"resourceVersion", "uid", "deletionTimestamp", "lastTransitionTime", "lastProbeTime"}


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in _TIMES}
    if isinstance(value, list):
        return [_timeless(inner) for inner in value]
    return value
