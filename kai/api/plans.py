"""Plans: what a service wants of the API server, one request at a time, without talking to it.

A plan is a generator. It yields a request, a frozen value, is sent the reply to it, and returns its result. The
shell that carries it out performs the requests: over the network in production, against a model of an API server in a
simulation, from a table in a test.

Why generators and not ``step(state, event)`` for these: a protocol with a dozen round trips and its clean-up reads as
the straight line that it is, and its only state lies in the API server. To crash is to drop the generator, so a test
can stop a plan behind every single request. What has state of its own between events, such as a queue of retries, is a
``step`` machine.

A reply to a read is the object or the tuple of objects, to a write the object as it is afterwards, to the rest None;
any request may instead be answered by a `Refusal`, which the verbs below raise as `RefusedError` inside of the plan.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, Generic, Literal, TypeAlias, TypeVar, cast

import attrs

from kai.api.fields import EMPTY
from kai.api.kinds import BY_CLASS, ApiObject, title_of
from kai.errors import ApiError, KaiError

T = TypeVar("T", bound=ApiObject)
R = TypeVar("R")


class Reason(enum.Enum):
    """Why the API server, or the way to it, did not do what was asked."""

    NOT_FOUND = "not found"
    ALREADY_EXISTS = "already exists"
    CONFLICT = "conflict"
    """A precondition on UID or version failed, or the object is in no state for this."""
    REJECTED = "rejected"
    """Malformed, forbidden, refused by a webhook or a quota: the same request will be refused again."""
    TIMED_OUT = "timed out"
    """What was waited for did not happen."""
    UNAVAILABLE = "unavailable"
    """Throttled, or the server cannot be reached; nothing was done."""
    UNKNOWN = "unknown outcome"
    """The answer was lost; it may or may not have been done, or be done later."""


@attrs.frozen(kw_only=True)
class Refusal:
    """A reply that is not what was asked for."""

    reason: Reason
    message: str = ""
    retry_after: float | None = None
    """Seconds that the server asked to be left alone for."""

    @property
    def why(self) -> str:
        """What the server said, or else the reason in a word."""
        return self.message or self.reason.value

    @property
    def interrupts(self) -> bool:
        """Whether nothing was decided: the server was not there, or its answer was lost."""
        return self.reason in {Reason.UNAVAILABLE, Reason.UNKNOWN}

    @property
    def is_passing(self) -> bool:
        """Whether it says nothing about the object, which the same request may find as it was."""
        return self.interrupts or self.reason is Reason.TIMED_OUT


class RefusedError(ApiError):
    """A refusal, inside of a plan."""

    def __init__(self, refusal: Refusal, request: Request) -> None:
        super().__init__(f"{describe(request)}: {refusal.why}", retryable=True)
        self.refusal = refusal
        self.namespace: str = getattr(getattr(request, "ref", None), "namespace", "")
        """That of the object that was asked for; empty if it has none, or if it was no single object."""

    @property
    def reason(self) -> Reason:
        """Why."""
        return self.refusal.reason

    @property
    def interrupts(self) -> bool:
        """Whether nothing was decided, so that the same plan should simply be started again."""
        return self.refusal.interrupts

    @property
    def is_unknown(self) -> bool:
        """Whether what was asked for may have been done, or be done yet."""
        return self.reason is Reason.UNKNOWN


@attrs.frozen
class Ref(Generic[T]):
    """Which object: its class, namespace and name."""

    cls: type[T]
    name: str
    namespace: str = ""

    @classmethod
    def to(cls, obj: T) -> Ref[T]:
        """Return which object this is."""
        return Ref(type(obj), obj.metadata.name, obj.metadata.namespace)

    def __str__(self) -> str:
        """Return the object as messages call it."""
        return title_of(BY_CLASS[cast("Any", self.cls)].kind, self.namespace, self.name)


# --- Requests ------------------------------------------------------------------------------------------------------


Fits: TypeAlias = Callable[[Any, tuple[Any, ...] | None], bool]
"""A pure predicate, asked of a node and of the pods on it, as a local store shows them (None: it does not), in the
moment of sending, which may be long after the request was made; where it is false the reply is a ``CONFLICT``."""


def every_node(_: object, __: object) -> bool:
    """Return True: whatever node it is."""
    return True


@attrs.frozen(kw_only=True)
class Get:
    """Read one object.

    `fresh` reads from the API server by quorum; otherwise a local store will do, as long as it shows every write that
    was answered to this process.
    """

    ref: Ref[Any]
    fresh: bool = False


@attrs.frozen(kw_only=True)
class List:
    """Read all objects of a class, in one namespace or all, with these labels, on this node, in the order of keys."""

    cls: type[Any]
    namespace: str = ""
    labels: Mapping[str, str] = EMPTY
    node: str = ""
    among: str = ""
    """Which of them suffice, by a name for them; where that is unknown all are read."""
    fresh: bool = False


@attrs.frozen(kw_only=True)
class Create:
    """Create an object from its manifest; if it is a pod that takes room on a `node`, only while it `fits` there."""

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
    """Put a pod on a node that it `fits`, if it still has this UID and version; it gets the annotations."""

    ref: Ref[Any]
    node: str
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = EMPTY
    fits: Fits = attrs.field(default=every_node, eq=False, repr=False)


@attrs.frozen(kw_only=True)
class Await:
    """Wait until an object is as it should be.

    `until` is a pure predicate. The reply is the object that satisfies it, or a refusal: ``NOT_FOUND`` as soon as the
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
    """Whether it happens again and again: one event about the object then counts how often, with the last message."""


@attrs.frozen(kw_only=True)
class Lock:
    """Wait until no other plan of this process holds the key, and hold it until `Unlock`, or until the plan ends."""

    key: str


@attrs.frozen(kw_only=True)
class Unlock:
    """Let go of a key."""

    key: str


@attrs.frozen(kw_only=True)
class Now:
    """Read the wall clock; the reply is in seconds since the epoch."""


Request: TypeAlias = Get | List | Create | Patch | Delete | Bind | Await | Emit | Lock | Unlock | Now
Plan: TypeAlias = Generator[Request, Any, R]

WRITES: Final = (Create, Patch, Delete, Bind)


def describe(request: Request) -> str:
    """Return a request as messages call it."""
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
    """Return an object, or None if the API server says that it does not exist: a local store may only lag.

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

    Of all that match, those ``among`` what has this name suffice: the others may be missing, and may be there.

    Raises: RefusedError.
    """
    request = List(cls=cls, namespace=namespace, labels=labels, node=node, among=among, fresh=fresh)
    return cast("tuple[T, ...]", (yield from _answered(request)))


def create(ref: Ref[T], manifest: Mapping[str, Any], *, node: str = "", fits: Fits = every_node) -> Plan[T | None]:
    """Create an object and return it; None if one of that name exists already.

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
    """Delete an object, if it still has this UID; return False if it, or the one with this UID, is gone already.

    Raises: RefusedError for any other reason.
    """
    reply = yield Delete(ref=ref, uid=uid, grace_seconds=grace_seconds)
    if isinstance(reply, Refusal):
        if reply.reason is Reason.NOT_FOUND or (uid and reply.reason is Reason.CONFLICT):
            return False
        raise RefusedError(reply, Delete(ref=ref, uid=uid))
    return True


def wait_until(ref: Ref[T], until: Callable[[T], bool], *, seconds: float) -> Plan[T | None]:
    """Return an object once it is as it should be; None if it is gone or that took too long.

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
    """Carry out a plan with a key locked.

    The key is unlocked when the plan fails as well, before anything is cleaned up that may need other keys. It is not
    when the plan is dropped: its caller lets go of all its keys.
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
    """Return the reply, or None where it is a refusal for this reason."""
    reply = yield request
    if isinstance(reply, Refusal):
        if reply.reason is reason:
            return None
        raise RefusedError(reply, request)
    return cast("object", reply)
