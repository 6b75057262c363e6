"""Plans: sequences of requests to the API server, one at a time, without doing the I/O.

A plan is a generator. It yields a request, a frozen value, is sent the reply to it, and returns its result. The
shell that drives it performs the requests: over the network in production, against a model of an API server in a
simulation, from a table in a test.

Why generators and not ``step(state, event)`` for these: a protocol with a dozen round trips and its clean-up reads as
the straight line that it is, and its only state lies in the API server. To crash is to drop the generator, so a test
can stop a plan after every single request. A component with state of its own between events, such as a retry queue, is
a ``step`` machine.

The reply to a read is the object or the tuple of objects, to a write the object as written, to other requests None.
Any request may instead be answered by a `Refusal`, which the functions below raise as `RefusedError` inside the plan.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import attrs

from kai.api.fields import EMPTY
from kai.api.kinds import BY_CLASS, ApiObject, title_of
from kai.basics.errors import ApiError, KaiError

T = TypeVar("T", bound=ApiObject)
R = TypeVar("R")


class Reason(enum.Enum):
    """Why a request failed at the API server or on the way to it."""

    NOT_FOUND = "not found"
    ALREADY_EXISTS = "already exists"
    CONFLICT = "conflict"
    """A precondition on UID or version failed, or the object is in no state for this request."""
    REJECTED = "rejected"
    """Malformed, forbidden, refused by a webhook or a quota: the same request will be refused again."""
    TIMED_OUT = "timed out"
    """The awaited state did not occur in time."""
    UNAVAILABLE = "unavailable"
    """Throttled, or the server cannot be reached; the request had no effect."""
    UNKNOWN = "unknown outcome"
    """The answer was lost; the request may have taken effect, or may take effect later."""


@attrs.frozen(kw_only=True)
class Refusal:
    """The reply to a request that failed."""

    reason: Reason
    message: str = ""
    retry_after: float | None = None
    """The seconds that the server asked to wait before a retry."""

    @property
    def why(self) -> str:
        """The server's message, else the reason in a word."""
        return self.message or self.reason.value

    @property
    def interrupts(self) -> bool:
        """Whether the server made no decision, or its answer was lost."""
        return self.reason in {Reason.UNAVAILABLE, Reason.UNKNOWN}

    @property
    def is_passing(self) -> bool:
        """Whether the failure is transient, so that the same request may succeed on the unchanged object."""
        return self.interrupts or self.reason is Reason.TIMED_OUT


class RefusedError(ApiError):
    """A refusal, raised inside a plan."""

    def __init__(self, refusal: Refusal, request: Request) -> None:
        super().__init__(f"{describe(request)}: {refusal.why}", retryable=True)
        self.refusal = refusal
        self.namespace: str = getattr(getattr(request, "ref", None), "namespace", "")
        """The namespace of the requested object; empty for cluster-scoped objects and for lists."""

    @property
    def reason(self) -> Reason:
        """The reason of the refusal."""
        return self.refusal.reason

    @property
    def interrupts(self) -> bool:
        """Whether the server made no decision, so that the same plan should simply be started again."""
        return self.refusal.interrupts

    @property
    def is_unknown(self) -> bool:
        """Whether the request may have taken effect, or may take effect later."""
        return self.reason is Reason.UNKNOWN


@attrs.frozen
class Ref(Generic[T]):
    """A reference to an object: its class, name and namespace."""

    cls: type[T]
    name: str
    namespace: str = ""

    @classmethod
    def to(cls, obj: T) -> Ref[T]:
        """Return the reference to an object."""
        return Ref(type(obj), obj.metadata.name, obj.metadata.namespace)

    def __str__(self) -> str:
        """Return the object's title in messages."""
        return title_of(BY_CLASS[cast("Any", self.cls)].kind, self.namespace, self.name)


# --- Requests ------------------------------------------------------------------------------------------------------


Fits: TypeAlias = Callable[[Any, tuple[Any, ...] | None], bool]
"""A pure predicate over a node and the pods on it. It is evaluated against a local store when the request is sent,
which may be long after the request was made; the pods are None where the store cannot list them. Where it is false the
reply is a ``CONFLICT``."""


def every_node(_: object, __: object) -> bool:
    """Return True for every node."""
    return True


@attrs.frozen(kw_only=True)
class Get:
    """Read one object.

    With `fresh`, read from the API server by quorum; otherwise from a local store, if it shows every write whose reply
    this process has received.
    """

    ref: Ref[Any]
    fresh: bool = False


@attrs.frozen(kw_only=True)
class List:
    """Read all objects of a class by namespace (or in all), labels and node, in the order of their keys."""

    cls: type[Any]
    namespace: str = ""
    labels: Mapping[str, str] = EMPTY
    node: str = ""
    among: str = ""
    """The name of a subset that suffices; where the name is unknown all objects are read."""
    fresh: bool = False


@attrs.frozen(kw_only=True)
class Create:
    """Create an object from its manifest; a pod that takes room on a `node` only while it `fits` there."""

    ref: Ref[Any]
    manifest: Mapping[str, Any]
    node: str = ""
    fits: Fits = attrs.field(default=every_node, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Patch:
    """Merge a patch into an object; ``metadata.uid`` and ``metadata.resourceVersion`` in it are preconditions.

    A strategic patch merges lists that have a key, such as the conditions of a pod, by that key.
    """

    ref: Ref[Any]
    patch: Mapping[str, Any]
    form: Literal["merge", "strategic"] = "merge"
    subresource: str = ""


@attrs.frozen(kw_only=True)
class Delete:
    """Delete an object, if it still has this UID."""

    ref: Ref[Any]
    uid: str = ""
    grace_seconds: int | None = None


@attrs.frozen(kw_only=True)
class Bind:
    """Bind a pod to a node that it `fits`, if it still has this UID and version, and add the annotations."""

    ref: Ref[Any]
    node: str
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = EMPTY
    fits: Fits = attrs.field(default=every_node, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Await:
    """Wait until an object satisfies a predicate.

    `until` is pure. The reply is the object that satisfies it, or a refusal: ``NOT_FOUND`` as soon as the
    object is gone, ``TIMED_OUT`` after `seconds`.
    """

    ref: Ref[Any]
    until: Callable[[Any], bool]
    seconds: float


@attrs.frozen(kw_only=True)
class Emit:
    """Record an event on an object."""

    ref: Ref[Any]
    type: Literal["Normal", "Warning"]
    reason: str
    message: str
    uid: str = ""
    annotations: Mapping[str, str] = EMPTY
    is_counted: bool = False
    """Whether it repeats: then one event on the object counts the occurrences and has the last message."""


@attrs.frozen(kw_only=True)
class Lock:
    """Wait until no other plan of this process holds the key, then hold it until `Unlock` or the end of the plan."""

    key: str


@attrs.frozen(kw_only=True)
class Unlock:
    """Release a key."""

    key: str


@attrs.frozen(kw_only=True)
class Now:
    """Read the wall clock; the reply is in seconds since the epoch."""


Request: TypeAlias = Get | List | Create | Patch | Delete | Bind | Await | Emit | Lock | Unlock | Now
Plan: TypeAlias = Generator[Request, Any, R]

WRITES: Final = (Create, Patch, Delete, Bind)


def describe(request: Request) -> str:
    """Return a request's description in messages."""
    match request:
        case List():
            return f"list {BY_CLASS[request.cls].plural}"
        case Lock() | Unlock():
            return f"{type(request).__name__.lower()} {request.key}"
        case Now():
            return "read the clock"
        case _:
            return f"{type(request).__name__.lower()} {request.ref}"


# --- Verbs ---------------------------------------------------------------------------------------------------------


def get(ref: Ref[T], *, fresh: bool = False) -> Plan[T]:
    """Return an object.

    Raises: RefusedError.
    """
    return cast("T", (yield from _answered(Get(ref=ref, fresh=fresh))))


def find(ref: Ref[T], *, fresh: bool = False) -> Plan[T | None]:
    """Return an object, or None if it does not exist.

    Raises: RefusedError for any other reason.
    """
    return cast("T | None", (yield from _unless(Reason.NOT_FOUND, Get(ref=ref, fresh=fresh))))


def find_for_sure(ref: Ref[T]) -> Plan[T | None]:
    """Return an object, or None if the API server says that it does not exist: a local store may merely lag.

    Raises: RefusedError for any other reason.
    """
    found = yield from find(ref)
    return found if found is not None else (yield from find(ref, fresh=True))


def every(
    cls: type[T],
    *,
    namespace: str = "",
    labels: Mapping[str, str] = EMPTY,
    node: str = "",
    among: str = "",
    fresh: bool = False,
) -> Plan[tuple[T, ...]]:
    """Return all objects of a class that match, in the order of their namespaces and names.

    The subset named ``among`` suffices: matching objects outside it may be missing.

    Raises: RefusedError.
    """
    request = List(cls=cls, namespace=namespace, labels=labels, node=node, among=among, fresh=fresh)
    return cast("tuple[T, ...]", (yield from _answered(request)))


def create(ref: Ref[T], manifest: Mapping[str, Any], *, node: str = "", fits: Fits = every_node) -> Plan[T | None]:
    """Create an object and return it; None if one of that name already exists.

    Raises: RefusedError for any other reason.
    """
    request = Create(ref=ref, manifest=manifest, node=node, fits=fits)
    return cast("T | None", (yield from _unless(Reason.ALREADY_EXISTS, request)))


def patch(
    ref: Ref[T],
    body: Mapping[str, Any],
    *,
    uid: str = "",
    resource_version: str = "",
    form: Literal["merge", "strategic"] = "merge",
    subresource: str = "",
) -> Plan[T]:
    """Merge a patch into an object, if it still has this UID and version, and return it.

    Raises: RefusedError.
    """
    expected = {"uid": uid, "resourceVersion": resource_version}
    metadata = {**{key: value for key, value in expected.items() if value}, **body.get("metadata", {})}
    whole = {**body, "metadata": metadata} if metadata else body
    return cast("T", (yield from _answered(Patch(ref=ref, patch=whole, form=form, subresource=subresource))))


def delete(ref: Ref[Any], *, uid: str = "", grace_seconds: int | None = None) -> Plan[bool]:
    """Delete an object, if it still has this UID; return False if it, or the one with this UID, is already gone.

    Raises: RefusedError for any other reason.
    """
    reply = yield Delete(ref=ref, uid=uid, grace_seconds=grace_seconds)
    if isinstance(reply, Refusal):
        if reply.reason is Reason.NOT_FOUND or (uid and reply.reason is Reason.CONFLICT):
            return False
        raise RefusedError(reply, Delete(ref=ref, uid=uid))
    return True


def wait_until(ref: Ref[T], until: Callable[[T], bool], *, seconds: float) -> Plan[T | None]:
    """Return an object once it satisfies ``until``; None if it is gone, or on timeout.

    Raises: RefusedError for any other reason.
    """
    request = Await(ref=ref, until=until, seconds=seconds)
    reply = yield request
    if isinstance(reply, Refusal):
        if reply.reason in {Reason.TIMED_OUT, Reason.NOT_FOUND}:
            return None
        raise RefusedError(reply, request)
    return cast("T", reply)


def locked(key: str, plan: Plan[R]) -> Plan[R]:
    """Run a plan while it holds a key.

    The key is also unlocked when the plan fails, before any clean-up that may need other keys. It is not unlocked when
    the plan is dropped: the shell then releases all keys of the plan.
    """
    yield Lock(key=key)
    try:
        result = yield from plan
    except KaiError:
        yield Unlock(key=key)
        raise
    yield Unlock(key=key)
    return result


def _answered(request: Request) -> Plan[object]:
    reply = yield request
    if isinstance(reply, Refusal):
        raise RefusedError(reply, request)
    return cast("object", reply)


def _unless(reason: Reason, request: Request) -> Plan[object]:
    """Return the reply, or None if it is a refusal for this reason."""
    reply = yield request
    if isinstance(reply, Refusal):
        if reply.reason is reason:
            return None
        raise RefusedError(reply, request)
    return cast("object", reply)
