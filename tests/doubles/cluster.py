"""A cluster in memory for services: the API server of `tests.doubles.api_server`, a real store fed by it, virtual time.

Nothing here waits for real: `MemoryCluster.pass_time` lets tasks run until all of them wait, then moves the clock to
whoever wakes up next. Faults: `server.fault` refuses a request before it is done, `server.lost` loses the answer after,
`latency` makes requests overlap, `lagging` keeps what others change from the store until `catch_up`.
"""

from __future__ import annotations

import copy
import heapq
from typing import TYPE_CHECKING, Any, cast

import anyio
import anyio.lowlevel
import attrs

from kai.api.kinds import BY_CLASS, BY_NAME, KINDS
from kai.api.plans import Await, Bind, Create, Delete, Get, Now, Patch, Reason, Refusal
from kai.api.plans import List as ListRequest
from kai.cluster.caching.store import Watched, WatchedStore
from kai.cluster.port import Cluster
from kai.cluster.requests import Apply, Evict, Fetch, FetchAll, NoSuchKind
from tests.doubles.api_server import ApiServer, Manifest, _key, _missing, _stale
from tests.doubles.merge_patch import merged
from tests.doubles.outage import Outage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_SPINS = 40
CLASSES = {kind.kind: kind.cls for kind in KINDS}


class VirtualClock:
    """Time that moves when everybody waits."""

    def __init__(self, progress: Callable[[], object] = lambda: None) -> None:
        self.time = 1000.0
        self._progress = progress
        self._sleepers: list[tuple[float, int, anyio.Event]] = []
        self._count = 0

    def monotonic(self) -> float:
        return self.time

    def now(self) -> float:
        return 1_700_000_000.0 + self.time

    async def sleep(self, seconds: float) -> None:
        event = anyio.Event()
        self._count += 1
        entry = (self.time + seconds, self._count, event)
        heapq.heappush(self._sleepers, entry)
        try:
            await event.wait()
        finally:
            if entry in self._sleepers:
                self._sleepers.remove(entry)
                heapq.heapify(self._sleepers)

    async def pass_time(self, seconds: float) -> None:
        """Let tasks run, and the time between their waking up pass."""
        end = self.time + seconds
        while True:
            await self._settle()
            if not self._sleepers or self._sleepers[0][0] > end:
                break
            self.time, _, event = heapq.heappop(self._sleepers)
            event.set()
        self.time = end

    async def _settle(self) -> None:
        before: object = None
        while before != (self._count, self._progress()):
            before = (self._count, self._progress())
            for _ in range(_SPINS):
                await anyio.lowlevel.checkpoint()


class ServiceServer(ApiServer):
    """The API server with what services ask for beyond plans, and with somebody who watches it."""

    def __init__(self, manifests: Iterable[Manifest] = (), *, kinds: Iterable[str] = ()) -> None:
        self.on_change: Callable[[Manifest, bool], None] = lambda _, __: None
        self.kinds = {kind.kind for kind in KINDS} | set(kinds)
        self.applied: dict[tuple[Any, str], set[str]] = {}
        super().__init__(manifests)
        self.kinds |= {kind for kind, _, _ in self.objects}

    def remove(self, kind: str, name: str, namespace: str = "") -> None:
        manifest = self.objects[kind, namespace, name]
        super().remove(kind, name, namespace)
        self.version += 1
        self.on_change(manifest, True)

    def add(self, manifest: Manifest) -> None:
        """Let somebody else create an object."""
        self._put(copy.deepcopy(manifest))

    def _put(self, manifest: Manifest) -> None:
        super()._put(manifest)
        metadata = manifest.get("metadata", {})
        key = (manifest["kind"], metadata.get("namespace", ""), metadata.get("name", ""))
        self.on_change(self.objects[key], False)

    def _collect(self, key: Any) -> None:
        manifest = self.objects[key]
        super()._collect(key)
        if key not in self.objects:
            self.on_change(manifest, True)

    def _answer(self, request: Any) -> object:
        match request:
            case Fetch():
                if request.kind not in self.kinds:
                    return NoSuchKind(message=f"{request.kind} is not served")
                found = self.get(request.kind, request.name, request.namespace) or self.get(request.kind, request.name)
                return copy.deepcopy(found) or Refusal(reason=Reason.NOT_FOUND, message=f"{request.kind} not found")
            case FetchAll():
                if request.kind not in self.kinds:
                    return NoSuchKind(message=f"{request.kind} is not served")
                return tuple(
                    copy.deepcopy(manifest)
                    for (kind, namespace, _), manifest in sorted(self.objects.items())
                    if kind == request.kind
                    and request.namespace in {"", namespace}
                    and request.labels.items() <= (manifest["metadata"].get("labels") or {}).items()
                )
            case Apply():
                return self._apply(request)
            case Evict():
                return self._delete(Delete(ref=request.ref, uid=request.uid))
        return super()._answer(request)

    def _apply(self, request: Apply) -> object:
        key = _key(request.ref)
        manifest = copy.deepcopy(dict(request.manifest))
        metadata = manifest["metadata"]
        existing = self.objects.get(key)
        if existing is None:
            if metadata.get("resourceVersion") or metadata.get("uid"):
                return _missing(request.ref)
            self.writes.append(request)
            self._put(manifest)
        else:
            refusal = _stale(existing, metadata.get("uid", ""), metadata.get("resourceVersion", ""))
            if refusal is not None:
                return refusal
            self.writes.append(request)
            gone = self.applied.get((key, request.manager), set()) - set(manifest.get("spec") or {})
            metadata.pop("resourceVersion", None)
            spec = {**dict.fromkeys(gone), **(manifest.get("spec") or {})}
            changed = merged(existing, {**manifest, "spec": spec})
            if changed != existing:
                self._put(changed)
        self.applied[key, request.manager] = set(manifest.get("spec") or {})
        return self._read(request.ref)


@attrs.define(eq=False)
class MemoryApi:
    """Carries requests to the server, and shows in the store what they were answered with."""

    server: ServiceServer
    store: WatchedStore
    clock: VirtualClock
    latency: float = 0.0

    async def perform(self, request: Any) -> Any:
        await anyio.lowlevel.checkpoint()
        if isinstance(request, Now):
            return self.clock.now()
        if isinstance(request, Await):
            return await self._wait(request)
        local = self._local(request)
        if local is not None:
            return local
        if self.latency:
            await self.clock.sleep(self.latency)
        reply = self.server.perform(request)
        if isinstance(request, Create | Patch | Apply | Bind) and not isinstance(reply, Refusal):
            manifest = self.server.objects.get(_key(request.ref))
            if manifest is not None:
                self.store.take_answer(request.ref.cls, manifest)
        return reply

    def _local(self, request: Any) -> object:
        """Answer a read that need not be fresh, as long as the store can."""
        if isinstance(request, Get) and not request.fresh and request.ref.cls in self.store._caches:
            found = self.store.get(request.ref.cls, request.ref.name, request.ref.namespace)
            return _missing(request.ref) if found is None else found
        if isinstance(request, ListRequest) and not request.fresh and request.cls in self.store._caches:
            return tuple(
                sorted(
                    (
                        each
                        for each in cast("Iterable[Any]", self.store.all(request.cls))
                        if request.namespace in {"", each.metadata.namespace}
                        and request.labels.items() <= dict(each.metadata.labels).items()
                        and (not request.node or each.spec.node_name == request.node)
                    ),
                    key=lambda each: (each.metadata.namespace, each.metadata.name),
                )
            )
        return None

    async def _wait(self, request: Await) -> object:
        end = self.clock.monotonic() + request.seconds
        while True:
            found = self.server._read(request.ref)
            if isinstance(found, Refusal) or request.until(found):
                return found
            left = end - self.clock.monotonic()
            if left <= 0:
                return Refusal(reason=Reason.TIMED_OUT, message=f"nothing happened for {request.seconds:g} s")
            await _wait_at_most(self._changed(request), left, self.clock)

    def _changed(self, request: Await) -> anyio.Event:
        event = anyio.Event()
        key = (request.ref.namespace, request.ref.name)
        self.store._waiting_for.setdefault((request.ref.cls, key), []).append(event)
        return event

    def fenced(self, _: object) -> MemoryApi:
        return self


async def _wait_at_most(event: anyio.Event, seconds: float, clock: VirtualClock) -> None:
    """Wait for an event, and no longer than so many seconds of a clock."""
    async with anyio.create_task_group() as tasks:

        async def expire() -> None:
            await clock.sleep(seconds)
            tasks.cancel_scope.cancel()

        tasks.start_soon(expire)
        await event.wait()
        tasks.cancel_scope.cancel()


class MemoryCluster:
    """Everything a service is given, and what tests do with it."""

    def __init__(
        self,
        *manifests: Manifest,
        kinds: Iterable[str] = (),
        classes: Iterable[type[Any]] = tuple(BY_CLASS),
    ) -> None:
        self.server = ServiceServer(manifests, kinds=kinds)
        self.clock = VirtualClock(lambda: (len(self.server.requests), self.store.revision))
        self._behind: list[tuple[Manifest, bool]] = []
        self.lagging = False
        self._classes = tuple(classes)
        self.connectivity = Outage()
        self.server.on_change = self._changed
        self.api: MemoryApi
        self.store: WatchedStore
        self.restart()

    def restart(self) -> None:
        """Forget all that a process knows: the next one lists anew."""
        self._behind.clear()
        self.store = WatchedStore([Watched(cls=cls) for cls in self._classes], self.clock)
        for manifest in self.server.objects.values():
            self._show(manifest, is_gone=False)
        for cls in self._classes:
            self.store.listed(cls, 1)
        self.api = MemoryApi(self.server, self.store, self.clock)

    @property
    def port(self) -> Cluster:
        return Cluster(
            store=self.store, api=self.api, clock=self.clock, draw=lambda: 0.0, connectivity=self.connectivity
        )

    async def pass_time(self, seconds: float = 0.0) -> None:
        await self.clock.pass_time(seconds)

    def catch_up(self) -> None:
        """Let the store see what it has not."""
        behind, self._behind = self._behind, []
        for manifest, is_gone in behind:
            self._show(manifest, is_gone=is_gone)

    def writes(self, *kinds: type[Any]) -> list[Any]:
        """Return the writes so far, of these kinds of request."""
        return [write for write in self.server.writes if not kinds or isinstance(write, kinds)]

    def _changed(self, manifest: Manifest, is_gone: bool) -> None:  # noqa: FBT001 - a callback
        if self.lagging:
            self._behind.append((copy.deepcopy(manifest), is_gone))
        else:
            self._show(manifest, is_gone=is_gone)

    def _show(self, manifest: Mapping[str, Any], *, is_gone: bool) -> None:
        kind = BY_NAME.get((manifest["apiVersion"], manifest["kind"]))
        if kind is None or kind.cls not in self._classes:
            return
        if is_gone:
            with self.store.taking():
                self.store.cache(kind.cls).remove(manifest)
        else:
            self.store.take_answer(kind.cls, copy.deepcopy(manifest))


__all__ = ["CLASSES", "MemoryApi", "MemoryCluster", "ServiceServer", "VirtualClock"]
