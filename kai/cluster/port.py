"""The port: all that a service may want of a cluster, as protocols and values, without saying how it is done.

A service reads from a `Store` (typed objects, kept current by watches), writes through an `Api` (one request, one
reply; `kai.cluster.requests` has them), leads by a `Leadership` and takes its time from a `Clock`. The
modules beside this one carry that out against a real API server; a simulation brings its own.

Holds: a reply is a value. What the API server refuses is a `Refusal`; an answer that was lost is a `Refusal` with
``Reason.UNKNOWN``, which is neither success nor failure: the write may have been done, or be done yet.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, TypeVarTuple

import attrs

from kai.api.kinds import ApiObject, ClusterObjects, Key
from kai.basics.kubernetes_version import KubernetesVersion, newest
from kai.cluster.threads import Threads

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from kai.cluster.requests import Request

T = TypeVar("T", bound=ApiObject)
A = TypeVarTuple("A")
R = TypeVar("R")


# --- Time ----------------------------------------------------------------------------------------------------------


class Clock(Protocol):
    """Time, in seconds."""

    def monotonic(self) -> float:
        """Return a time that never goes back, for deadlines and durations; also from other threads."""
        ...

    def now(self) -> float:
        """Return the wall clock, in seconds since the epoch: for what people read, never for deadlines."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


Draw: TypeAlias = Callable[[], float]
"""Returns a random number from 0 up to, not including, 1: where jitter comes from."""


class Cpu(Protocol):
    """Where computations run that take longer than the event loop may stand still."""

    async def run(self, function: Callable[[*A], R], *args: *A) -> R:
        """Return what a function returns; it is not abandoned when the caller is cancelled."""
        ...

    def post(self, function: Callable[[*A], object], *args: *A) -> None:
        """Have the event loop call a function soon, and go on; called by what `run` runs."""
        ...


# --- Leading -------------------------------------------------------------------------------------------------------


@attrs.frozen
class Term:
    """One uninterrupted time of one process life as leader; epochs only grow."""

    epoch: int
    identity: str
    lease: str = attrs.field(default="", eq=False)
    """The name of the lease that is held; empty without leader election."""


class Leadership(Protocol):
    """Whether this process leads."""

    @property
    def identity(self) -> str:
        """Return who we are in the lease: a different name in each life of a process."""
        ...

    @property
    def has_rivals(self) -> bool:
        """Return whether other processes may have led before this one, or may lead after it."""
        ...

    def holds(self, term: Term) -> bool:
        """Return whether this term still lasts. Callable from other threads."""
        ...

    def outgrow(self, epoch: int) -> None:
        """Lead only in later epochs than this from now on; a present term of another one ends."""
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
    """How one object changed; a side is None where it did not exist.

    `before` and `after` are never of different UIDs: an object that was made anew is two changes. Changes that a
    reader did not take in time are joined, so what lies between the two sides is not seen.
    """

    before: T | None
    after: T | None

    @property
    def present(self) -> T:
        """Return the object as it is, or as it was last."""
        found = self.after if self.after is not None else self.before
        if found is None:
            raise ValueError("a change of nothing: found neither side, expected at least one")
        return found


@attrs.frozen(kw_only=True)
class Rejected:
    """An object of the cluster that cannot be read and was kept out, or kept as it was when it could be read last."""

    cls: type[ApiObject]
    key: Key
    message: str


@attrs.frozen
class Index(Generic[T]):
    """A way to find objects: each of `keys(object)` leads to it. Compared by identity: make one, at module level."""

    cls: type[T] = attrs.field(eq=False)
    name: str
    keys: Callable[[T], Iterable[str]] = attrs.field(eq=False)


class Changes(Protocol[T]):
    """The changes of some kinds, in batches; ends when the subscription is left."""

    def __aiter__(self) -> AsyncIterator[tuple[Change[T], ...]]:
        """Return itself."""
        ...

    async def __anext__(self) -> tuple[Change[T], ...]:
        """Wait for changes, and return all there are."""
        ...


class Arrivals(Protocol):
    """Objects that came or changed and that the reader has not taken yet; of each only the newest form."""

    def take(self, most: int) -> list[ApiObject]:
        """Return some of them, in no order and at most so many; they are not returned again."""
        ...

    async def wait(self) -> None:
        """Wait until there are some."""
        ...


class Store(Protocol):
    """What is known of the cluster, by kind, namespace and name.

    It shows the newest of what the watches told and of what writes of this process were answered with, and over that
    what was assumed. Objects are frozen and shared: one that did not change is the same object as before.
    """

    @property
    def revision(self) -> int:
        """Return a number that grows whenever something that is shown changes."""
        ...

    def watches(self, cls: type[ApiObject]) -> bool:
        """Return whether a kind is in the store, and was listed."""
        ...

    @property
    def substance(self) -> int:
        """Return a number that grows as the revision does, but not when a group or queue only tells people more.

        Nor does it grow with what `pass_over` names.
        """
        ...

    def pass_over(self, changes: Callable[[Change[Any]], bool]) -> None:
        """Let changes of which this is true add no substance."""
        ...

    @property
    def is_synced(self) -> bool:
        """Return whether every kind was listed completely since the start."""
        ...

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Return the objects that were kept out, by kind and key."""
        ...

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """Return an object."""
        ...

    def all(self, cls: type[T]) -> tuple[T, ...]:
        """Return all objects of a kind, in no meaningful order; the same tuple as before if none changed."""
        ...

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects to which this key of an index leads, by namespace and name."""
        ...

    def cluster_objects(self) -> ClusterObjects:
        """Return everything that a snapshot is made of; kinds that did not change keep their tuple. Cheap."""
        ...

    def age(self) -> float:
        """Return for how many seconds the kind that was heard of least recently has been silent."""
        ...

    # --- Waiting ---------------------------------------------------------------------------------------------------

    def changes(self, *classes: type[Any]) -> AbstractContextManager[Changes[Any]]:
        """Subscribe to changes of kinds. The first batch brings what exists, as if it had just appeared.

        Changes that the reader has not taken are joined object by object, so nothing piles up behind a slow reader.
        """
        ...

    def arrivals(self, *classes: type[Any]) -> AbstractContextManager[Arrivals]:
        """Collect objects that come or change from now on, for a reader that prepares for them; not those that go."""
        ...

    async def newer(self, revision: int) -> int:
        """Wait until the revision is greater, and return it."""
        ...

    async def more_substantial(self, substance: int) -> None:
        """Wait until the substance is greater."""
        ...

    async def synced(self) -> None:
        """Wait until every kind was listed completely."""
        ...

    async def refresh(self, *classes: type[ApiObject]) -> None:
        """Wait until the store shows a list by quorum that began after this call: the barrier of a new leader."""
        ...

    async def caught_up(self, *classes: type[ApiObject]) -> None:
        """Wait until kinds were listed since the API server was last away: it may have forgotten what it said."""
        ...

    # --- Assuming --------------------------------------------------------------------------------------------------

    def assume(self, obj: T, until: Callable[[T | None], bool]) -> None:
        """Show an object as if a write of it were done already.

        It is shown over what is really there until `until`, a pure predicate, is true of that (None: there is none),
        now or after any later change of it, or until `forget`. Assuming again replaces what was assumed.
        """
        ...

    def forget(self, cls: type[ApiObject], key: Key) -> None:
        """Stop assuming something about an object."""
        ...

    def overlay(self, cls: type[ApiObject], key: Key, annotations: Mapping[str, str]) -> None:
        """Show annotations on an object that another write will bring, or that need not be written.

        They are shown until the object has them or is gone, or until `forget_all`; other changes of it are shown as
        they come.
        """
        ...

    def is_overlaid(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether annotations are shown on an object that it does not have."""
        ...

    def forget_all(self) -> None:
        """Stop assuming what the server has not confirmed: what a new leader does after its barrier.

        What it confirmed stays: the binder of this process, which began its term earlier, may have bound a pod since
        the list of the barrier, and the watch may be behind.
        """
        ...

    def is_assumed(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown as assumed: its write is on the way, or its outcome unknown."""
        ...


# --- Writing -------------------------------------------------------------------------------------------------------


class Api(Protocol):
    """Carries out requests."""

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - what each request is answered with, it says
        """Return the reply to a request, or a `Refusal`; raises nothing that a server or a network can cause.

        Requests for one object are carried out in the order in which they were made; others side by side. What was
        written shows in the store before the reply is returned. `Lock` and `Unlock` belong to the code that runs a
        plan (`kai.cluster.work`) and are no requests here.
        """
        ...

    def fenced(self, term: Term) -> Api:
        """Return this, refusing writes with `NotLeading` once the term is over, checked as late as possible."""
        ...


# --- The connection to the server ------------------------------------------------------------------------------------

Listener: TypeAlias = Callable[[bool], None]
"""Is told that others can go on again; True says that the server had been away."""


class Connectivity(Protocol):
    """Whether the API server can be reached; the log says so once for all who use the port."""

    @property
    def may_be_away(self) -> bool:
        """Whether the server is away, or may be: a call without an answer is then no news to the log."""
        ...

    async def opened(self) -> None:
        """Wait until the server can be reached."""
        ...

    def listen(self, listener: Listener) -> None:
        """Tell a listener when others can go on again."""
        ...

    def unlisten(self, listener: Listener) -> None:
        """Tell a listener nothing any more."""
        ...


class AlwaysOpen:
    """The connection to a server in the same process."""

    may_be_away = False

    async def opened(self) -> None:
        """Return at once."""

    def listen(self, listener: Listener) -> None:
        """Have nothing to tell."""

    def unlisten(self, listener: Listener) -> None:
        """Have nothing to tell."""


@attrs.frozen(kw_only=True)
class Cluster:
    """The port as one value, for a service to be given."""

    store: Store
    api: Api
    clock: Clock
    draw: Draw
    connectivity: Connectivity = attrs.field(factory=AlwaysOpen)
    cpu: Cpu = attrs.field(factory=Threads)
    kubernetes: Callable[[], KubernetesVersion] = newest
    """Returns the version of the API server, as far as it said one."""
