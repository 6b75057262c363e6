"""Carries out requests: reads from the store if it has the answer, all else through the window to the server.

The answer to a write enters the cache before the reply is returned, so callers read their own writes. Where the answer
does not contain the object (binding, eviction), the store assumes the result until the watch confirms it. After an
unknown outcome the object is read, again and again until the server answers, and enters the cache as well; whether to
repeat the write is up to the caller.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import anyio
import attrs

from kai.api import names
from kai.api.codec.structuring import structure_as
from kai.api.kinds import BY_CLASS, key_of
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
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
    Unlock,
    describe,
)
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.basics.errors import InputError
from kai.basics.parsing import mapping_of, part_of
from kai.cluster.caching.store import WatchedStore
from kai.cluster.port import Clock, Leadership, Term
from kai.cluster.requesting.foreign import ForeignReader
from kai.cluster.requesting.refused_writes import EndingNamespaces
from kai.cluster.requesting.sending import Label, Sender, Withheld
from kai.cluster.requests import Apply, Evict, Fetch, FetchAll, JsonPatch, NamespaceEnding, NotLeading, Request
from kai.cluster.transport.calls import Answer, NoAnswer, always, decoded, refusal_of
from kai.cluster.transport.encoding import (
    Reporter,
    ServedVersions,
    encode_event,
    encode_event_again,
    encode_read,
    encode_write,
    event_name,
)

_PAGE: Final = 500
_POLL: Final = 1.0
_MOST_COUNTED: Final = 1 << 12
_SETTLE_PAUSES: Final = (0.5, 2.0, 5.0, 15.0, 30.0)

Write = Create | Patch | Delete | Bind | Apply | JsonPatch | Evict
_VERBS: Final[Mapping[type[Any], str]] = {
    Create: "create",
    Patch: "patch",
    Delete: "delete",
    Bind: "create",
    Apply: "apply",
    JsonPatch: "patch",
    Evict: "create",
    Emit: "create",
    Get: "get",
    List: "list",
}
_SUBRESOURCES: Final[Mapping[type[Any], str]] = {Bind: "binding", Evict: "eviction"}


@attrs.define
class CountedEvents:
    """Names and counts of the latest counted events; a new process begins at 1."""

    _known: OrderedDict[tuple[str, str, str], tuple[str, int]] = attrs.field(factory=OrderedDict)

    def again(self, event: Emit) -> tuple[str, int] | None:
        """Return name and new count of an event that repeats; None for the first time."""
        key = _of_event(event)
        known = self._known.get(key)
        if known is None:
            return None
        name, count = known
        self._known[key] = (name, count + 1)
        self._known.move_to_end(key)
        return name, count + 1

    def begin(self, event: Emit, name: str) -> None:
        """Begin to count an event."""
        self._known[_of_event(event)] = (name, 1)
        while len(self._known) > _MOST_COUNTED:
            self._known.popitem(last=False)


def _of_event(event: Emit) -> tuple[str, str, str]:
    return event.uid, f"{event.ref}", event.reason


@attrs.define(eq=False)
class Requests:
    """Carries out the requests of one process; see `kai.cluster.port.Api`."""

    store: WatchedStore
    sender: Sender
    served: ServedVersions
    clock: Clock
    reporter: Reporter
    leadership: Leadership | None = None
    _ending: EndingNamespaces = attrs.field(init=False)
    _foreign: ForeignReader | None = None
    _unsettled: dict[Ref[Any], None] = attrs.field(factory=dict)
    _news: anyio.Event | None = None
    _events: int = 0
    _counted: CountedEvents = attrs.field(factory=CountedEvents)

    def __attrs_post_init__(self) -> None:
        """Create the parts that depend on others."""
        self._ending = EndingNamespaces(self.store, self.clock)

    def fenced(self, term: Term) -> FencedRequests:
        """Return an `Api` that writes only within a term."""
        return FencedRequests(self, term)

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - the type of the reply depends on the request
        """Return the reply to a request."""
        return await self.perform_while(request, always)

    async def perform_while(self, request: Request, may_send: Callable[[], bool]) -> Any:  # noqa: ANN401 - as above
        """Return the reply to a request; a write is sent only while ``may_send`` is true."""
        match request:
            case Get():
                return await self._get(request)
            case List():
                return await self._list(request)
            case Await():
                return await self._await(request)
            case Now():
                return self.clock.now()
            case Fetch() | FetchAll():
                if self._foreign is None:
                    self._foreign = ForeignReader(self.sender, self.clock)
                return await self._foreign.read(request)
            case Lock() | Unlock():
                raise TypeError(f"{describe(request)}: found a plan's own request, expected one for the API server")
        reply = self._ending.refusal(request)
        if reply is None:
            if isinstance(request, Emit):
                reply = await self._emit(request, may_send)
            else:
                reply = await self._write(request, may_send)
            if isinstance(reply, NamespaceEnding):
                self._ending.note(request)
        return reply

    # --- Reads -----------------------------------------------------------------------------------------------------

    async def _get(self, request: Get) -> Any:  # noqa: ANN401 - an object or a refusal
        ref = request.ref
        if not request.fresh and self.store.watches(ref.cls):
            found = self.store.get(ref.cls, ref.name, ref.namespace)
            if found is not None:
                return found
            # The watch covers the whole kind: what the store lacks does not exist, and needs no call.
            if self.store.is_whole(ref.cls):
                return Refusal(reason=Reason.NOT_FOUND, message=f"{ref} not found")
        answer = await self.sender.send(encode_read(request, self.served), _label(request), _alone())
        return self._typed(ref.cls, answer, is_write=False)

    async def _list(self, request: List) -> Any:  # noqa: ANN401 - a tuple of objects or a refusal
        if not request.fresh and self.store.watches(request.cls):
            return tuple(obj for obj in _in_order(self.store.all(request.cls)) if _matches(request, obj))
        found: list[Any] = []
        token = ""
        while True:
            call = encode_read(request, self.served, limit=_PAGE, token=token)
            answer = await self.sender.send(call, _label(request), _alone())
            page = decoded(answer.body) if isinstance(answer, Answer) and answer.is_good else None
            if not isinstance(page, Mapping):
                return self._refusal(answer, is_write=False)
            try:
                found += [self._take(request.cls, item) for item in page.get("items") or ()]
            except InputError as error:
                return Refusal(reason=Reason.REJECTED, message=str(error))
            token = (page.get("metadata") or {}).get("continue") or ""
            if not token:
                return _in_order(found)

    async def _await(self, request: Await) -> Any:  # noqa: ANN401 - an object or a refusal
        ref = request.ref
        key = (ref.namespace, ref.name)
        with anyio.move_on_after(request.seconds):
            while True:
                reply = await self._get(Get(ref=ref))
                is_refused = isinstance(reply, Refusal)
                if (is_refused and reply.reason is not Reason.UNAVAILABLE) or (not is_refused and request.until(reply)):
                    return reply
                if self.store.watches(ref.cls) and self.store.get(ref.cls, ref.name, ref.namespace) is not None:
                    await self.store.changed(ref.cls, key)
                else:
                    await self.clock.sleep(_POLL)
        return Refusal(reason=Reason.TIMED_OUT, message=f"{ref}: nothing happened for {request.seconds:g} s")

    # --- Writes ----------------------------------------------------------------------------------------------------

    async def _write(self, request: Write, may_send: Callable[[], bool]) -> Any:  # noqa: ANN401 - as each request says
        ref = request.ref
        call = encode_write(request, self.served)
        is_due, urgent = self._while_fitting(request, may_send), not _can_wait(request)
        answer = await self.sender.send(call, _label(request), ref, may_send=is_due, urgent=urgent)
        if isinstance(answer, Withheld) and may_send():
            # The term lasts, so the call was held back because its pod, node or namespace changed.
            changed = f"{ref}: it or its node changed before its turn came"
            return self._ending.refusal(request) or Refusal(reason=Reason.CONFLICT, message=changed)
        if not isinstance(answer, Answer) or not answer.is_good:
            refusal = self._refusal(answer, is_write=True)
            if refusal.reason is Reason.UNKNOWN:
                self._settle_later(ref)
            return refusal
        match request:
            case Bind():
                self._show_bound(request)
                return None
            case Evict():
                self._show_deleting(request)
                return None
            case Delete():
                self._show_deleted(request, answer)
                return None
        return self._typed(ref.cls, answer, is_write=True)

    async def _emit(self, request: Emit, may_send: Callable[[], bool]) -> Any:  # noqa: ANN401 - None or a refusal
        now, is_due = self.clock.now(), self._while_fitting(request, may_send)
        again = self._counted.again(request) if request.is_counted else None
        answer: Answer | NoAnswer | Withheld
        if again is not None:
            call = encode_event_again(request, name=again[0], count=again[1], now=now)
            answer = await self.sender.send(call, Label("patch", "events"), _alone(), may_send=is_due, urgent=False)
            # The event may have expired, after about an hour; or the role of an earlier release lacks patch on events.
            again = None if isinstance(answer, Answer) and not answer.is_good else again
        if again is None:
            self._events += 1
            name = event_name(request, f"{int(now * 1e6):x}{self._events & 0xFFFF:04x}")
            call = encode_event(request, self.reporter, self.served, name=name, now=now)
            answer = await self.sender.send(call, Label("create", "events"), _alone(), may_send=is_due, urgent=False)
            if isinstance(answer, Answer) and answer.is_good and request.is_counted:
                self._counted.begin(request, name)
        if isinstance(answer, Withheld) and may_send():
            return self._ending.refusal(request)
        return None if isinstance(answer, Answer) and answer.is_good else self._refusal(answer, is_write=True)

    def _show_bound(self, request: Bind) -> None:
        pod = self._written_pod(request)
        if pod is None:
            return
        if not pod.spec.node_name:
            # The answer to a binding is a Status, not the pod: show the node until the watch does.
            annotations = {**pod.metadata.annotations, **request.annotations}
            shown = attrs.evolve(
                pod,
                metadata=attrs.evolve(pod.metadata, annotations=annotations),
                spec=attrs.evolve(pod.spec, node_name=request.node),
            )
            uid = pod.metadata.uid
            self.store.assume(shown, lambda now: now is None or now.metadata.uid != uid or bool(now.spec.node_name))
        self.store.confirm(Pod, (request.ref.namespace, request.ref.name))

    def _show_deleting(self, request: Evict) -> None:
        pod = self._written_pod(request)
        if pod is None:
            return
        uid = pod.metadata.uid

        def is_confirmed(now: Pod | None) -> bool:
            return now is None or now.metadata.uid != uid or now.metadata.deletion_timestamp is not None

        if pod.metadata.deletion_timestamp is None:
            # An evicted pod holds its node until its containers have stopped. Times on the wire are in whole seconds.
            moment = math.floor(self.clock.now())
            shown = attrs.evolve(pod, metadata=attrs.evolve(pod.metadata, deletion_timestamp=float(moment)))
            self.store.assume(shown, is_confirmed)
        self.store.confirm(Pod, (request.ref.namespace, request.ref.name))

    def _show_deleted(self, request: Delete, answer: Answer) -> None:
        """Remove the object, or show it as terminating if finalizers or a grace period keep it."""
        ref = request.ref
        body = decoded(answer.body)
        if not isinstance(body, Mapping):
            return
        metadata = mapping_of(body, "metadata")
        # Some deletions are answered with the object, others with a Status that has its UID.
        if body.get("kind") == BY_CLASS[ref.cls].kind:
            stays = metadata.get("finalizers") or metadata.get("deletionGracePeriodSeconds")
            if metadata.get("deletionTimestamp") and stays:
                self.store.take_answer(ref.cls, body)
                return
            uid = metadata.get("uid")
        else:
            uid = part_of(body, "details", "uid")
        uid = uid or request.uid
        if isinstance(uid, str) and uid:
            self.store.take_end(ref.cls, (ref.namespace, ref.name), uid)

    def _while_fitting(self, request: Write | Emit, may_send: Callable[[], bool]) -> Callable[[], bool]:
        """Return the check of a write while it waits: its namespace, pod or node may change in that time."""
        if not isinstance(request, Bind | Create | Evict | Emit):
            return may_send
        if isinstance(request, Bind | Create) and request.node:
            return lambda: may_send() and self._ending.refusal(request) is None and not self._is_outdated(request)
        return lambda: may_send() and self._ending.refusal(request) is None

    def _is_outdated(self, request: Bind | Create) -> bool:
        """Return whether the pod of a binding is terminating, or the node no longer fits."""
        if isinstance(request, Bind):
            pod = self._known_pod(request.ref)
            if pod is None:
                return self.store.is_whole(Pod)
            if pod.metadata.deletion_timestamp is not None or request.uid not in {"", pod.metadata.uid}:
                return True
        return self.store.is_whole(Node) and not request.fits(self.store.get(Node, request.node), None)

    def _written_pod(self, request: Bind | Evict) -> Pod | None:
        """Return the pod that was written; None if it is gone, even if a new pod has its name.

        An answer may be late. Applied to a new pod of that name, it would be shown for as long as that pod lives.
        """
        pod = self._known_pod(request.ref)
        return pod if pod is not None and request.uid in {"", pod.metadata.uid} else None

    def _known_pod(self, ref: Ref[Pod]) -> Pod | None:
        return self.store.get(Pod, ref.name, ref.namespace) if self.store.watches(Pod) else None

    # --- Answers ---------------------------------------------------------------------------------------------------

    def _typed(self, cls: type[Any], answer: Answer | NoAnswer | Withheld, *, is_write: bool) -> Any:  # noqa: ANN401 - see above
        """Return the object in the server's answer, or the refusal."""
        manifest = decoded(answer.body) if isinstance(answer, Answer) and answer.is_good else None
        if not isinstance(manifest, Mapping):
            return self._refusal(answer, is_write=is_write)
        try:
            return self._take(cls, manifest)
        except InputError as error:
            return Refusal(reason=Reason.REJECTED, message=str(error))

    def _take(self, cls: type[Any], manifest: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an object of the class
        """Put an object into its cache and return it; the cached object itself if the version is known."""
        self.store.take_answer(cls, manifest)
        metadata = manifest.get("metadata")
        if self.store.watches(cls) and not self.store.has_metadata_only(cls) and isinstance(metadata, Mapping):
            known = self.store.cache(cls).actual((metadata.get("namespace") or "", metadata.get("name") or ""))
            if known is not None and known.metadata.resource_version == metadata.get("resourceVersion"):
                return known
        return structure_as(cls, manifest)

    def _refusal(self, answer: Answer | NoAnswer | Withheld, *, is_write: bool) -> Refusal:
        if isinstance(answer, Withheld):
            return NotLeading(message="the term in which this was decided is over")
        if isinstance(answer, Answer) and answer.is_good:
            reason = Reason.UNKNOWN if is_write else Reason.UNAVAILABLE
            return Refusal(reason=reason, message="the answer is no object")
        return refusal_of(answer, is_write=is_write, now=self.clock.now())

    # --- Unknown outcomes ------------------------------------------------------------------------------------------

    def _settle_later(self, ref: Ref[Any]) -> None:
        self._unsettled[ref] = None
        if self._news is not None:
            self._news.set()

    async def run(self) -> None:
        """Read the objects of writes with unknown outcomes, until cancelled."""
        while True:
            self._news = anyio.Event()
            if not self._unsettled:
                await self._news.wait()
            for ref in list(self._unsettled):
                del self._unsettled[ref]
                await self._settle(ref)

    async def _settle(self, ref: Ref[Any]) -> None:
        for pause in _SETTLE_PAUSES:
            await self.clock.sleep(pause)
            # Past the store: its watch may not have delivered the write yet, if there was one.
            reply = await self._get(Get(ref=ref, fresh=True))
            if not isinstance(reply, Refusal) or reply.reason is not Reason.UNAVAILABLE:
                return


@attrs.frozen
class FencedRequests:
    """The requests of one term: no write is sent after it."""

    inner: Requests
    term: Term

    def fenced(self, term: Term) -> FencedRequests:
        """Return the same for another term."""
        return FencedRequests(self.inner, term)

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - the type of the reply depends on the request
        """Return the reply to a request."""
        if self.term.lease:
            request = self._stamped(request)
        return await self.inner.perform_while(request, self._lasts)

    def _stamped(self, request: Request) -> Request:
        """Return a request, annotated with its term if it takes room on a node."""
        if isinstance(request, Bind):
            return attrs.evolve(request, annotations={**request.annotations, **self._stamp()})
        # A pod that is created with a node takes room without a binding, as reservation pods do.
        if isinstance(request, Create) and request.ref.cls is Pod and request.manifest["spec"].get("nodeName"):
            metadata = request.manifest["metadata"]
            stamped = {**metadata, "annotations": {**metadata.get("annotations", {}), **self._stamp()}}
            return attrs.evolve(request, manifest={**request.manifest, "metadata": stamped})
        return request

    def _stamp(self) -> dict[str, str]:
        """Return the annotations that show admission the term of a binding; in bind requests, deciders write them."""
        return {names.EPOCH: str(self.term.epoch), names.LEASE: self.term.lease}

    def _lasts(self) -> bool:
        leadership = self.inner.leadership
        return leadership is not None and leadership.holds(self.term)


def _can_wait(request: Write) -> bool:
    """Return whether a write only informs users, so that binds may overtake it."""
    match request:
        case Patch(subresource="status"):
            return request.ref.cls is PodGroup or request.ref.cls is Queue
        case Apply():
            return request.can_wait
    return False


def _alone() -> object:
    """Return a key that no other request has."""
    return object()


def _label(request: Write | Get | List) -> Label:
    cls = request.cls if isinstance(request, List) else request.ref.cls
    plural = BY_CLASS[cls].plural
    subresource = _SUBRESOURCES.get(type(request), "") or getattr(request, "subresource", "")
    return Label(_VERBS[type(request)], f"{plural}/{subresource}" if subresource else plural)


def _in_order(objects: Any) -> tuple[Any, ...]:  # noqa: ANN401 - objects of one kind
    return tuple(sorted(objects, key=key_of))


def _matches(request: List, obj: Any) -> bool:  # noqa: ANN401 - an object of the kind that is listed
    labels = obj.metadata.labels
    return (
        request.namespace in {"", obj.metadata.namespace}
        and all(labels.get(key) == value for key, value in request.labels.items())
        and (not request.node or getattr(obj.spec, "node_name", "") == request.node)
    )
