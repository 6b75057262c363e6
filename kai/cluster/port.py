"""The port: all operations of a service on a cluster, as protocols and values, without their implementation.

A service reads from a `Store` (typed objects, kept current by watches), writes through an `Api` (one request, one
reply; the requests are in `kai.cluster.requests`), leads by a `Leadership` and takes its time from a `Clock`. The
modules beside this one implement these for a real API server; a simulation has its own.

Holds: a reply is a value. What the API server refuses is a `Refusal`. A lost answer is a `Refusal` with
``Reason.UNKNOWN``, which is neither success nor failure: the write may have taken effect, or may still do so.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple

import attrs

from kai.api.kinds import ApiObject, Key
from kai.basics.kubernetes_version import KubernetesVersion, newest
from kai.cluster.threads import Threads

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kai.api.cluster_objects import ClusterObjects
    from kai.cluster.requests import Request

T = TypeVar("T", bound=ApiObject)
A = TypeVarTuple("A")
R = TypeVar("R")


# --- Time ----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time in seconds."""

    def monotonic(self) -> float:
        """Return the time of a monotonic clock, for deadlines and durations; callable from other threads."""
        ...

    def now(self) -> float:
        """Return the wall clock in seconds since the epoch: for timestamps, never for deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        ...


Draw: TypeAlias = Callable[[], float]
"""Returns a random number from 0 up to, not including, 1, for jitter."""


class Cpu(Protocol):
    """Runs computations that would block the event loop for too long."""

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return the result of a function; the function runs to its end even if the caller is cancelled."""
        ...

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        """Schedule a call on the event loop without waiting; called from a function that `run` runs."""
        ...


# --- Leading -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Term:
    """One uninterrupted time in which a process leads; epochs only grow."""

    epoch: int
    identity: str
    lease: str = attrs.field(default="", eq=False)
    """Name of the lease; "" without leader election."""


class Leadership(Protocol):
    """Whether this process leads."""

    @property
    def identity(self) -> str:
        """The identity in the lease: a different one after each restart of the process."""
        ...

    @property
    def has_rivals(self) -> bool:
        """Whether other processes may have led before this one, or may lead after it."""
        ...

    def holds(self, term: Term) -> bool:
        """Return whether a term still lasts. Callable from other threads."""
        ...

    def outgrow(self, epoch: int) -> None:
        """Lead only in epochs after ``epoch`` from now on; a present term of an earlier or equal epoch ends."""
        ...

    async def begun(self) -> Term:
        """Wait until this process leads, and return the term."""
        ...

    async def ended(self, term: Term) -> None:
        """Wait until the term is over."""
        ...


# --- Reading -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Change(Generic[T]):
    """The change of one object; a side is None where the object did not exist.

    ``before`` and ``after`` never have different UIDs: a recreated object is two changes. Changes that a reader has not
    taken are merged, so it does not see the states between the two sides.
    """

    before: T | None
    after: T | None

    @property
    def present(self) -> T:
        """The object in its present form, or in its last one."""
        found = self.after if self.after is not None else self.before
        if found is None:
            raise ValueError("a change of nothing: found neither side, expected at least one")
        return found


@attrs.frozen(kw_only=True)
class Rejected:
    """An object that cannot be parsed: it is missing in the store, or stays in its last form that could be parsed."""

    cls: type[ApiObject]
    key: Key
    message: str


@attrs.frozen
class Index(Generic[T]):
    """An index: each of ``keys(object)`` leads to the object. Compared by name; create it at module level."""

    cls: type[T] = attrs.field(eq=False)
    name: str
    keys: Callable[[T], Iterable[str]] = attrs.field(eq=False)


class Changes(Protocol[T]):
    """The changes of some kinds, in batches; ends with the subscription."""

    def __aiter__(self) -> AsyncIterator[tuple[Change[T], ...]]:
        """Return itself."""
        ...

    async def __anext__(self) -> tuple[Change[T], ...]:
        """Wait for changes, and return all of them."""
        ...


class Arrivals(Protocol):
    """Objects that came or changed and that the reader has not taken; only the newest form of each."""

    def take(self, most: int) -> list[ApiObject]:
        """Remove and return at most ``most`` objects, in no order."""
        ...

    async def wait(self) -> None:
        """Wait until there are objects to take."""
        ...


class Store(Protocol):
    """The known objects of the cluster, by kind, namespace and name.

    It shows the newest form from watches and from answers to writes of this process, and assumed objects instead of the
    real ones. Objects are frozen and shared: an unchanged object stays the same Python object.
    """

    @property
    def revision(self) -> int:
        """A number that grows with every change of the shown objects."""
        ...

    def watches(self, cls: type[ApiObject]) -> bool:
        """Return whether a kind is in the store, and was listed."""
        ...

    @property
    def substance(self) -> int:
        """A number that grows like the revision, but not with changes that only inform users, such as conditions.

        Nor does it grow with changes that `pass_over` excludes.
        """
        ...

    def pass_over(self, changes: Callable[[Change[Any]], bool]) -> None:
        """Exclude changes for which ``changes`` returns true from the substance."""
        ...

    @property
    def is_synced(self) -> bool:
        """Whether every kind was listed completely since the start."""
        ...

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The objects that cannot be parsed, by kind and key."""
        ...

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """Return an object; None if it is unknown."""
        ...

    def all(self, cls: type[T]) -> tuple[T, ...]:
        """Return all objects of a kind, in no meaningful order; the same tuple as before if none changed."""
        ...

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects under a key of an index, by namespace and name."""
        ...

    def cluster_objects(self) -> ClusterObjects:
        """Return the objects for a snapshot; unchanged kinds keep their tuple. Cheap."""
        ...

    def age(self) -> float:
        """Return for how many seconds the most silent watch has delivered nothing."""
        ...

    # --- Waiting ---------------------------------------------------------------------------------------------------

    def changes(self, *classes: type[Any]) -> AbstractContextManager[Changes[Any]]:
        """Subscribe to changes of kinds. The first batch holds all existing objects, as if they had just appeared.

        Changes that the reader has not taken are merged by object, so a slow reader accumulates no backlog.
        """
        ...

    def arrivals(self, *classes: type[Any]) -> AbstractContextManager[Arrivals]:
        """Collect objects that come or change from now on, for a reader that prepares for them; no deleted ones."""
        ...

    async def newer(self, revision: int) -> int:
        """Wait until the revision exceeds ``revision``, and return it."""
        ...

    async def more_substantial(self, substance: int) -> None:
        """Wait until the substance exceeds ``substance``."""
        ...

    async def synced(self) -> None:
        """Wait until every kind was listed completely."""
        ...

    async def refresh(self, *classes: type[ApiObject]) -> None:
        """Wait until the store shows a quorum list that began after this call: the barrier of a new leader."""
        ...

    async def caught_up(self, *classes: type[ApiObject]) -> None:
        """Wait until kinds were listed since the last outage of the API server, which may have lost writes."""
        ...

    # --- Assuming --------------------------------------------------------------------------------------------------

    def assume(self, obj: T, until: Callable[[T | None], bool]) -> None:
        """Show an object as if its write had taken effect already.

        It hides the real object until the pure predicate ``until`` is true of that one (None: it does not exist), now
        or after any later change, or until `forget`. A second assumption replaces the first.
        """
        ...

    def keep(self, obj: ApiObject) -> None:
        """Show an object that only this process has, until the API server has one of its name, or until `forget`.

        Unlike an assumption it stays at `forget_all`: no other leader can have written anything about it.
        """
        ...

    def is_kept(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether only this process has an object."""
        ...

    def forget(self, cls: type[ApiObject], key: Key) -> None:
        """Drop the assumption of an object, or the object that only this process has."""
        ...

    def overlay(self, cls: type[ApiObject], key: Key, annotations: Mapping[str, str], *, is_kept: bool = False) -> None:
        """Show annotations on an object before their write arrives, or without one.

        They are shown until the object has them or is gone. `forget_all` ends them too, unless they are kept
        (``is_kept``). Other changes of the object are shown as they arrive.
        """
        ...

    def is_overlaid(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown with annotations that it does not have."""
        ...

    def forget_all(self) -> None:
        """Drop all assumptions that the server has not confirmed: a new leader does this after its barrier.

        Confirmed ones stay: the binder of this process, whose term began earlier, may have bound a pod after the list
        of the barrier was made, and the watch may lag behind.
        """
        ...

    def is_assumed(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is assumed: its write is in flight, or its outcome is unknown."""
        ...


# --- Writing -------------------------------------------------------------------------------------------------------


class Api(Protocol):
    """Carries out requests."""

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - the type of the reply depends on the request
        """Return the reply to a request, or a `Refusal`; no error of a server or a network makes it raise.

        Requests for one object are carried out in order, others concurrently. A write shows in the store before its
        reply is returned. `Lock` and `Unlock` are handled by the code that runs a plan (`kai.cluster.work`), and are no
        requests here.
        """
        ...

    def fenced(self, term: Term) -> Api:
        """Return an `Api` that refuses writes with `NotLeading` after the term; it checks as late as possible."""
        ...


# --- The connection to the server ------------------------------------------------------------------------------------

Listener: TypeAlias = Callable[[bool], None]
"""Called when requests may continue; True means that the server had been away."""


class Connectivity(Protocol):
    """Whether the API server can be reached; it logs an outage once for all users of the port."""

    @property
    def may_be_away(self) -> bool:
        """Whether the server may be away: then a call without an answer needs no warning of its own."""
        ...

    async def opened(self) -> None:
        """Wait until the server can be reached."""
        ...

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` whenever requests may continue."""
        ...

    def unlisten(self, listener: Listener) -> None:
        """Stop calling ``listener``."""
        ...


class AlwaysOpen:
    """The connection to a server in the same process, which is never away."""

    may_be_away = False

    async def opened(self) -> None:
        """Return at once."""

    def listen(self, listener: Listener) -> None:
        """Do nothing: there are no outages."""

    def unlisten(self, listener: Listener) -> None:
        """Do nothing: there are no outages."""


@attrs.frozen(kw_only=True)
class Cluster:
    """The port as one value, to pass to a service."""

    store: Store
    api: Api
    clock: Clock
    draw: Draw
    connectivity: Connectivity = attrs.field(factory=AlwaysOpen)
    cpu: Cpu = attrs.field(factory=Threads)
    kubernetes: Callable[[], KubernetesVersion] = newest
    """Returns the version of the API server, as far as it is known."""
