"""An API server in memory that speaks HTTP as values: lists in pages, watches, patches, preconditions, and faults.

It is a `kai.cluster.transport.calls.Transport`. `Faults` says what goes wrong; by default nothing does. What a fault
leaves behind is what a real one does: a write whose answer is lost has been done.
"""

from __future__ import annotations

import copy
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import attrs

from kai.cluster.transport.calls import METADATA_LIST, Answer, Call, NoAnswer, Stream
from tests.doubles.merge_patch import merged

Manifest = dict[str, Any]
Place = tuple[str, str, str]
"""Plural, namespace, name."""

KINDS = {
    "rackpowercaps": ("power.example.com/v1", "RackPowerCap"),
    "pods": ("v1", "Pod"),
    "nodes": ("v1", "Node"),
    "namespaces": ("v1", "Namespace"),
    "configmaps": ("v1", "ConfigMap"),
    "queues": ("scheduling.run.ai/v2", "Queue"),
    "bindrequests": ("scheduling.run.ai/v1alpha2", "BindRequest"),
    "csinodes": ("storage.k8s.io/v1", "CSINode"),
    "events": ("v1", "Event"),
    "leases": ("coordination.k8s.io/v1", "Lease"),
}


@attrs.define
class Faults:
    """What goes wrong. Each is asked for each call, or for each piece of a stream."""

    before: Callable[[Call], Answer | NoAnswer | None] = lambda _: None
    """An answer instead of doing anything."""
    loses: Callable[[Call], bool] = lambda _: False
    """Whether the answer is lost after it was done."""
    delay: Callable[[Call], float] = lambda _: 0.0
    """Seconds before anything happens."""
    lateness: Callable[[Call], float] = lambda _: 0.0
    """Seconds from when it was done until the answer arrives."""
    piece: Callable[[bytes], tuple[bytes, ...] | None] = lambda data: (data,)
    """What becomes of a piece of a stream; None cuts it off."""
    is_silent: Callable[[], bool] = lambda: False
    """Whether streams bring nothing, not even bookmarks."""


@attrs.define(eq=False)
class HttpServer:
    """The server: its objects, its memory of changes, and what it was asked."""

    faults: Faults = attrs.field(factory=Faults)
    bookmark_seconds: float = 60.0
    objects: dict[Place, Manifest] = attrs.field(factory=dict)
    version: int = 100
    compacted: int = 0
    """Versions below this are forgotten."""
    calls: list[Call] = attrs.field(factory=list)
    unserved: set[str] = attrs.field(factory=set)
    """API versions that the server does not know."""
    in_flight: int = 0
    most_in_flight: int = 0
    _history: list[tuple[int, str, str, Manifest]] = attrs.field(factory=list)
    _lists: dict[tuple[str, str, int], list[Manifest]] = attrs.field(factory=dict)
    _changed: anyio.Event = attrs.field(factory=anyio.Event)
    _made: int = 0

    # --- For tests -------------------------------------------------------------------------------------------------

    def put(self, plural: str, name: str, namespace: str = "", **fields: Any) -> Manifest:
        """Create an object or merge fields into it."""
        known = self.objects.get((plural, namespace, name))
        if known is None:
            api_version, kind = KINDS[plural]
            self._made += 1
            metadata = {"name": name, "uid": f"uid-{self._made}", **({"namespace": namespace} if namespace else {})}
            return self._store(
                plural, merged({"apiVersion": api_version, "kind": kind, "metadata": metadata}, fields), "ADDED"
            )
        return self._store(plural, merged(known, fields), "MODIFIED")

    def remove(self, plural: str, name: str, namespace: str = "") -> None:
        """Delete an object."""
        manifest = copy.deepcopy(self.objects.pop((plural, namespace, name)))
        self.version += 1
        manifest["metadata"]["resourceVersion"] = str(self.version)
        self._tell("DELETED", plural, manifest)

    def compact(self) -> None:
        """Forget all changes so far, except for streams that are open."""
        self.compacted = self.version

    def restore(self, objects: dict[Place, Manifest], version: int) -> None:
        """Put the memory back to an earlier state, as a backup would."""
        self.objects, self.version = copy.deepcopy(objects), version
        self._history = [each for each in self._history if each[0] <= version]
        self._wake()

    def versions(self, plural: str) -> dict[tuple[str, str], tuple[str, str]]:
        """Return UID and version of each object of a kind."""
        return {
            (namespace, name): (manifest["metadata"]["uid"], manifest["metadata"]["resourceVersion"])
            for (known, namespace, name), manifest in self.objects.items()
            if known == plural
        }

    def count(self, method: str, part: str) -> int:
        """Return how many calls of a method had this in their path."""
        return sum(call.method == method and part in call.path for call in self.calls)

    # --- As a transport --------------------------------------------------------------------------------------------

    async def request(self, call: Call) -> Answer | NoAnswer:
        """Answer a call."""
        if call.path == "/version":
            return Answer(status=200, body=b'{"gitVersion":"v1.37.2"}')
        self.calls.append(call)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            delay = self.faults.delay(call)
            await anyio.sleep(min(delay, call.timeout))
            if delay >= call.timeout:
                return NoAnswer(was_sent=True, message="no answer in time")
            fault = self.faults.before(call)
            if fault is not None:
                return fault
            answer = Answer(status=200, body=b"ok") if call.path == "/livez" else self._answer(call)
            await anyio.sleep(self.faults.lateness(call))
            return NoAnswer(was_sent=True, message="the answer was lost") if self.faults.loses(call) else answer
        finally:
            self.in_flight -= 1

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[Stream | Answer | NoAnswer]:
        """Answer a watch."""
        self.calls.append(call)
        fault = self.faults.before(call)
        _, plural, _, _ = self._where(call.path)
        query = dict(call.query)
        since = int(query["resourceVersion"])
        if fault is not None:
            yield fault
        elif not plural:
            yield Answer(status=404, body=b"404 page not found\n")
        elif since < self.compacted:
            yield _Once(_line("ERROR", _status(410, "Expired", "too old resource version")))
        else:
            yield _Watch(self, plural, since, anyio.current_time() + float(query["timeoutSeconds"]))

    def _answer(self, call: Call) -> Answer:
        api_version, plural, namespace, rest = self._where(call.path)
        if not plural or api_version in self.unserved:
            return Answer(status=404, body=b"404 page not found\n")
        name, _, subresource = rest.partition("/")
        body = json.loads(call.body) if call.body else {}
        if not name:
            if call.method == "POST":
                return self._create(plural, namespace, body)
            return self._list(plural, namespace, call)
        manifest = self.objects.get((plural, namespace, name))
        if manifest is None:
            return _answer(404, _status(404, "NotFound", f'{plural} "{name}" not found', name=name))
        if call.method == "GET":
            return _answer(200, manifest)
        if call.method == "DELETE":
            return self._delete(plural, manifest, body)
        if call.method == "POST":
            return self._bind(manifest, body) if subresource == "binding" else self._evict(manifest, body)
        return self._change(plural, call, manifest, body)

    def _change(self, plural: str, call: Call, manifest: Manifest, body: Manifest) -> Answer:
        stale = _stale(manifest, body.get("metadata", {}))
        if stale is not None:
            return stale
        changed, kept = merged(manifest, body), manifest["metadata"]
        if call.method == "PUT":
            changed, kept = body, {key: value for key, value in kept.items() if key not in {"labels", "annotations"}}
        changed["metadata"] = {**kept, **changed.get("metadata", {})}
        if changed == manifest:
            return _answer(200, manifest)
        return _answer(200, self._store(plural, changed, "MODIFIED"))

    def _where(self, path: str) -> tuple[str, str, str, str]:
        parts = path.strip("/").split("/")
        api_version, rest = (parts[1], parts[2:]) if parts[0] == "api" else ("/".join(parts[1:3]), parts[3:])
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        plural = rest[0] if rest[0] in KINDS and api_version not in self.unserved else ""
        return api_version, plural, namespace, "/".join(rest[1:])

    def _list(self, plural: str, namespace: str, call: Call) -> Answer:
        query = dict(call.query)
        limit, token = int(query.get("limit", 0)), query.get("continue", "")
        version, start = (int(part) for part in token.split(".")) if token else (self.version, 0)
        if token and version < self.compacted:
            return _answer(410, _status(410, "Expired", "the continue token is too old"))
        if not token:
            there = sorted(self.objects.items())
            found = [copy.deepcopy(each) for at, each in there if at[0] == plural and namespace in {"", at[1]}]
            self._lists[plural, namespace, version] = found
        items = self._lists[plural, namespace, version]  # all pages show the same moment
        end = start + limit if limit else len(items)
        metadata: Manifest = {"resourceVersion": str(version)}
        if end < len(items):
            metadata["continue"] = f"{version}.{end}"
        shown = items[start:end]
        if call.accept == METADATA_LIST:
            shown = [{"metadata": each["metadata"]} for each in shown]
        return _answer(200, {"kind": "List", "metadata": metadata, "items": shown})

    def _create(self, plural: str, namespace: str, body: Manifest) -> Answer:
        name = body["metadata"]["name"]
        if (plural, namespace, name) in self.objects:
            return _answer(409, _status(409, "AlreadyExists", f'{plural} "{name}" already exists'))
        return _answer(201, self.put(plural, name, namespace, **body))

    def _delete(self, plural: str, manifest: Manifest, body: Manifest) -> Answer:
        metadata = manifest["metadata"]
        stale = _stale(manifest, body.get("preconditions", {}))
        if stale is not None:
            return stale
        self.remove(plural, metadata["name"], metadata.get("namespace", ""))
        return _answer(200, {"kind": "Status", "status": "Success", "details": {"uid": metadata["uid"]}})

    def _bind(self, pod: Manifest, body: Manifest) -> Answer:
        stale = _stale(pod, body["metadata"])
        if stale is not None:
            return stale
        if pod.get("spec", {}).get("nodeName"):
            return _answer(409, _status(409, "Conflict", "pod is already assigned to a node"))
        patch = {"spec": {"nodeName": body["target"]["name"]}}
        self._store("pods", merged(pod, patch), "MODIFIED")
        return _answer(201, {"kind": "Status", "status": "Success"})

    def _evict(self, pod: Manifest, body: Manifest) -> Answer:
        stale = _stale(pod, body["deleteOptions"].get("preconditions", {}))
        if stale is not None:
            return stale
        self._store("pods", merged(pod, {"metadata": {"deletionTimestamp": "2023-11-14T22:13:20Z"}}), "MODIFIED")
        return _answer(201, {"kind": "Status", "status": "Success"})

    def _store(self, plural: str, manifest: Manifest, change: str) -> Manifest:
        self.version += 1
        metadata = {**manifest["metadata"], "resourceVersion": str(self.version)}
        stored = {**manifest, "metadata": metadata}
        self.objects[plural, metadata.get("namespace", ""), metadata["name"]] = stored
        self._tell(change, plural, stored)
        return stored

    def _tell(self, change: str, plural: str, manifest: Manifest) -> None:
        self._history.append((self.version, change, plural, copy.deepcopy(manifest)))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    def after(self, plural: str, version: int) -> list[tuple[int, str, Manifest]]:
        """Return the changes of a kind after a version."""
        return [(at, change, each) for at, change, known, each in self._history if known == plural and at > version]

    async def news(self) -> None:
        """Wait for a change of anything."""
        await self._changed.wait()


class _Once:
    """A stream of one piece."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def read(self) -> bytes | NoAnswer:
        data, self._data = self._data, b""
        return data


class _Watch:
    """A stream of changes."""

    def __init__(self, server: HttpServer, plural: str, version: int, until: float) -> None:
        self._server = server
        self._plural = plural
        self._version = version
        self._until = until
        self._ready: list[bytes] = []
        self._is_cut = False

    async def read(self) -> bytes | NoAnswer:
        while not self._ready:
            if self._is_cut:
                return NoAnswer(was_sent=True, message="the connection was cut")
            if self._server.faults.is_silent():
                await anyio.sleep_forever()
            changes = self._server.after(self._plural, self._version)
            now = anyio.current_time()
            if changes:
                self._version = changes[-1][0]
                self._send(b"".join(_line(change, manifest) for _, change, manifest in changes))
            elif now >= self._until:
                return b""
            else:
                with anyio.move_on_after(min(self._server.bookmark_seconds, self._until - now)) as scope:
                    await self._server.news()
                is_idle = not self._server.after(self._plural, self._version)
                if scope.cancelled_caught and is_idle and self._server.version >= self._version:
                    self._version = self._server.version
                    metadata = {"resourceVersion": str(self._version)}
                    self._send(_line("BOOKMARK", {"metadata": metadata}))
        return self._ready.pop(0)

    def _send(self, data: bytes) -> None:
        pieces = self._server.faults.piece(data)
        if pieces is None:
            self._is_cut = True
            self._ready.append(data[: len(data) // 2])
        else:
            self._ready += [piece for piece in pieces if piece]


def _line(change: str, manifest: Manifest) -> bytes:
    return json.dumps({"type": change, "object": manifest}).encode() + b"\n"


def _status(code: int, reason: str, message: str, **details: Any) -> Manifest:
    return {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message} | (
        {"details": details} if details else {}
    )


def _answer(status: int, body: Manifest) -> Answer:
    return Answer(status=status, body=json.dumps(body).encode())


def _stale(manifest: Manifest, wanted: Manifest) -> Answer | None:
    for name in ("uid", "resourceVersion"):
        if wanted.get(name) and wanted[name] != manifest["metadata"][name]:
            return _answer(409, _status(409, "Conflict", f"the {name} in the precondition differs"))
    return None
