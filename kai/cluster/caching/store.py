"""The store: the caches of all kinds, the subscribers to changes, and the whole cluster as one value.

Everything here runs on the event loop and returns at once; only the waiting is asynchronous. A watch takes the events
of each read from the network as one batch (`taking`), so subscribers wake up once per read, not once per object.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import anyio
import attrs

from kai.api.cluster_objects import FIELD_OF, ClusterObjects
from kai.api.kinds import BY_CLASS, ApiObject, Key, key_of
from kai.api.kubernetes.meta import Foreign
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.caching.assume_cache import AssumeCache
from kai.cluster.caching.shown import Arrivals, Present, Subscription

if TYPE_CHECKING:
    from kai.cluster.port import Change, Clock, Index, Rejected

T = TypeVar("T", bound=ApiObject)

_FADING: Final = 600.0
"""Minimum life of a tombstone: lists and answers that still show the deleted object are younger than that.

Units: seconds.
"""


@attrs.frozen(kw_only=True)
class Watched:
    """A watched kind, and the selection of its objects.

    Units: the field selector in the syntax of the API server.
    """

    cls: type[ApiObject]
    namespace: str = ""
    field_selector: str = ""
    metadata_only: bool = False
    """Whether metadata are enough; the rest of the objects is neither requested nor kept."""

    @property
    def is_whole(self) -> bool:
        """Whether all objects of the kind are watched, so that one missing in the store does not exist."""
        return not (self.namespace or self.field_selector)


@attrs.define
class _Sync:
    """The progress of the watch of a kind."""

    watched: Watched
    completed: int = 0
    """Number of the last complete list."""
    due: int = 0
    """Number of the list after which the kind is current again, following the last outage."""
    heard: float = 0.0
    """When the watch last delivered something, on the monotonic clock."""
    faded: float = 0.0
    """When old tombstones were last forgotten."""
    refresh: Callable[[], int] | None = None
    """Requests another list from the watch; returns its number."""


class WatchedStore:
    """A store that watches keep current; see `kai.cluster.port.Store` for what it shows."""

    def __init__(self, watched: Iterable[Watched], clock: Clock) -> None:
        self._clock = clock
        self._caches: dict[type[ApiObject], AssumeCache[Any]] = {}
        self._syncs: dict[type[ApiObject], _Sync] = {}
        for each in watched:
            self._caches[each.cls] = _cache_of(each, self._changed)
            self._syncs[each.cls] = _Sync(each)
        self._subscriptions: dict[type[ApiObject], list[Subscription | Arrivals]] = {cls: [] for cls in self._caches}
        self._waiting: list[anyio.Event] = []
        self._waiting_for: dict[tuple[type[ApiObject], Key], list[anyio.Event]] = {}
        self._begun: dict[type[ApiObject], Present] = {}
        """First batches of subscriptions; shared while nothing changes."""
        self._revision = self._substance = 0
        self._passed_over: Callable[[Change[Any]], bool] = _only_tells
        self._whole: tuple[int, ClusterObjects] | None = None
        self._foreign: tuple[list[Any], tuple[Foreign, ...]] = ([], ())

    # --- Looking ---------------------------------------------------------------------------------------------------

    @property
    def revision(self) -> int:
        """A number that grows with every change of the shown objects."""
        return self._revision

    @property
    def substance(self) -> int:
        """A number that grows like the revision, but not with changes that are passed over."""
        return self._substance

    def pass_over(self, changes: Callable[[Change[Any]], bool]) -> None:
        """Exclude these changes from the substance, as well as changes that only inform users."""
        self._passed_over = lambda change: _only_tells(change) or changes(change)

    @property
    def is_synced(self) -> bool:
        """Whether every kind was listed."""
        return all(sync.completed for sync in self._syncs.values())

    @property
    def unsynced(self) -> tuple[str, ...]:
        """The kinds that were not listed yet."""
        return tuple(BY_CLASS[cls].plural for cls, sync in self._syncs.items() if not sync.completed)

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The objects that cannot be parsed."""
        return tuple(each for cache in self._caches.values() for each in cache.rejected)

    def watches(self, cls: type[Any]) -> bool:
        """Return whether a kind is in the store, and was listed."""
        sync = self._syncs.get(cls)
        return sync is not None and sync.completed > 0

    def is_whole(self, cls: type[Any]) -> bool:
        """Return whether all objects of a kind are in the store."""
        return self.watches(cls) and self._syncs[cls].watched.is_whole

    def has_metadata_only(self, cls: type[Any]) -> bool:
        """Return whether the store has only the metadata of a kind."""
        return self.watches(cls) and self._syncs[cls].watched.metadata_only

    def get(self, cls: type[T], name: str, namespace: str = "") -> T | None:
        """Return an object; None if it is unknown."""
        wanted: type[Any] = cls
        cache: AssumeCache[T] | None = self._caches.get(wanted)
        return (self.cache(cls) if cache is None else cache).get((namespace, name))

    def all(self, cls: type[T]) -> tuple[T, ...]:
        """Return all objects of a kind."""
        return self.cache(cls).all()

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects under a key of an index."""
        return self.cache(index.cls).find(index, key)

    def cluster_objects(self) -> ClusterObjects:
        """Return the objects for a snapshot."""
        # One value for each revision, since snapshots compare listings by identity.
        if self._whole is None or self._whole[0] != self._revision:
            fields: dict[str, Any] = {
                FIELD_OF[cls]: cache.listing() for cls, cache in self._caches.items() if cls in FIELD_OF
            }
            self._whole = (self._revision, ClusterObjects(**fields, foreign=self._foreign_objects()))
        return self._whole[1]

    def _foreign_objects(self) -> tuple[Foreign, ...]:
        """Return the objects that only plugins read; the same tuple while none of them changed."""
        listings = [cache.listing() for cls, cache in self._caches.items() if issubclass(cls, Foreign)]
        if [*map(id, listings)] != [*map(id, self._foreign[0])]:
            self._foreign = listings, tuple(each for listing in listings for each in listing)
        return self._foreign[1]

    def age(self) -> float:
        """Return the silence of the most silent kind in seconds."""
        return max((self.silence_of(cls) for cls in self._syncs), default=0.0)

    def silence_of(self, cls: type[ApiObject]) -> float:
        """Return for how many seconds a kind has been silent."""
        return self._clock.monotonic() - self._syncs[cls].heard

    def cache(self, cls: type[T]) -> AssumeCache[T]:
        """Return the cache of a kind.

        Raises: LookupError for a kind that is not watched, a mistake in the setup of the service.
        """
        wanted: type[Any] = cls
        found: AssumeCache[T] | None = self._caches.get(wanted)
        if found is None:
            plural = BY_CLASS[wanted].plural
            raise LookupError(f"store: found no watch of {plural}, expected the service to watch what it reads")
        return found

    # --- Waiting ---------------------------------------------------------------------------------------------------

    @contextmanager
    def changes(self, *classes: type[Any]) -> Iterator[Subscription]:
        """Subscribe to changes; the first batch holds the existing objects."""
        subscription = Subscription()
        for cls in classes:
            subscription.begin(self._all_that_is(cls))
            self._subscriptions[cls].append(subscription)
        try:
            yield subscription
        finally:
            for cls in classes:
                self._subscriptions[cls].remove(subscription)

    def _all_that_is(self, cls: type[ApiObject]) -> Present:
        """Return the first batch of a subscription; shared, because all roles subscribe when a term begins."""
        known = self._begun.get(cls)
        if known is None:
            known = self._begun[cls] = Present(cls, self.cache(cls).all())
        return known

    @contextmanager
    def arrivals(self, *classes: type[Any]) -> Iterator[Arrivals]:
        """Collect objects that come or change from now on."""
        arrivals = Arrivals()
        for cls in classes:
            self._subscriptions[cls].append(arrivals)
        try:
            yield arrivals
        finally:
            for cls in classes:
                self._subscriptions[cls].remove(arrivals)

    async def newer(self, revision: int) -> int:
        """Wait until the revision exceeds ``revision``."""
        while self._revision <= revision:
            await self._any_news()
        return self._revision

    async def more_substantial(self, substance: int) -> None:
        """Wait until the substance exceeds ``substance``."""
        while self._substance <= substance:
            await self._any_news()

    async def synced(self) -> None:
        """Wait until every kind was listed."""
        while not self.is_synced:
            await self._any_news()

    async def refresh(self, *classes: type[ApiObject]) -> None:
        """Wait for lists that begin after this call; kinds that are not watched are skipped."""
        wanted: dict[type[ApiObject], int] = {}
        # Keep the order of the caller: a set of classes iterates differently in each process, and runs would differ.
        for cls in (each for each in dict.fromkeys(classes) if each in self._syncs):
            ask = self._syncs[cls].refresh
            # No watch has begun, so its first list will be requested after this call.
            wanted[cls] = 1 if ask is None else ask()
        while any(self._syncs[cls].completed < number for cls, number in wanted.items()):
            await self._any_news()

    async def caught_up(self, *classes: type[ApiObject]) -> None:
        """Wait for the lists that kinds need after the last outage."""
        syncs = [self._syncs[cls] for cls in classes if cls in self._syncs]
        while any(sync.completed < sync.due for sync in syncs):
            await self._any_news()

    async def changed(self, cls: type[Any], key: Key) -> None:
        """Wait for the next change of the shown object at a key."""
        event = anyio.Event()
        waiting = self._waiting_for.setdefault((cls, key), [])
        waiting.append(event)
        try:
            await event.wait()
        finally:
            waiting.remove(event)
            if not waiting:
                self._waiting_for.pop((cls, key), None)

    async def _any_news(self) -> None:
        event = anyio.Event()
        self._waiting.append(event)
        await event.wait()

    # --- Assuming --------------------------------------------------------------------------------------------------

    def assume(self, obj: T, until: Callable[[T | None], bool]) -> None:
        """Show an object until a predicate is true of the real one."""
        key = key_of(obj)
        with self.taking():
            self.cache(type(obj)).assume(key, obj, until)

    def keep(self, obj: ApiObject) -> None:
        """Show an object that only this process has, until the API server has one of its name."""
        key = key_of(obj)
        with self.taking():
            self.cache(type(obj)).keep(key, obj)

    def is_kept(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether only this process has an object; False for a kind that is not watched."""
        cache = self._caches.get(cls)
        return cache is not None and cache.is_kept(key)

    def confirm(self, cls: type[ApiObject], key: Key) -> None:
        """Mark an assumption as confirmed by the server; only a list that is requested later may refute it."""
        self.cache(cls).confirm(key)

    def forget(self, cls: type[ApiObject], key: Key) -> None:
        """Show the real object again."""
        with self.taking():
            self.cache(cls).forget(key)

    def forget_all(self) -> None:
        """Drop all overlays and unconfirmed assumptions that are not kept."""
        with self.taking():
            for cache in self._caches.values():
                cache.forget_all()

    def overlay(self, cls: type[ApiObject], key: Key, annotations: Mapping[str, str], *, is_kept: bool = False) -> None:
        """Show annotations on an object until it has them, or is gone."""
        with self.taking():
            self.cache(cls).overlay(key, annotations, is_kept=is_kept)

    def is_overlaid(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether an object is shown with annotations that it does not have."""
        return self.cache(cls).is_overlaid(key)

    def is_assumed(self, cls: type[ApiObject], key: Key) -> bool:
        """Return whether a key has an assumption."""
        return self.cache(cls).is_assumed(key)

    # --- Taking news -----------------------------------------------------------------------------------------------

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Apply the changes inside as one batch: waiting tasks wake up after it."""
        before = self._revision
        yield
        if self._revision != before:
            self._wake()

    def take_answer(self, cls: type[Any], manifest: Mapping[str, Any]) -> None:
        """Take an object from the server's answer to a read or a write."""
        cache = self._caches.get(cls)
        # An answer is as new as an event of the watch, and comes sooner.
        if cache is not None and self._selects(cls, manifest):
            with self.taking():
                cache.see(manifest)

    def take_end(self, cls: type[Any], key: Key, uid: str) -> None:
        """Take the deletion of an object, from the server's answer to a write."""
        cache = self._caches.get(cls)
        if cache is not None:
            with self.taking():
                cache.remove_key(key, uid)

    def heard(self, cls: type[ApiObject]) -> None:
        """Record that the watch of a kind delivered something."""
        sync = self._syncs[cls]
        sync.heard = self._clock.monotonic()
        if sync.heard - sync.faded >= _FADING:
            sync.faded = sync.heard
            self._caches[cls].fade()

    def listed(self, cls: type[ApiObject], number: int) -> None:
        """Record the complete list with this number."""
        self._syncs[cls].completed = number
        self.heard(cls)
        self._wake()

    def outlived(self, cls: type[ApiObject], number: int) -> None:
        """Record that a kind is only current again after the list with this number, because the server was away."""
        self._syncs[cls].due = number

    def on_refresh(self, cls: type[ApiObject], ask: Callable[[], int]) -> None:
        """Set the function that requests another list from the watch of a kind."""
        self._syncs[cls].refresh = ask

    def _selects(self, cls: type[Any], manifest: Mapping[str, Any]) -> bool:
        """Return whether an object belongs to the store; False under a field selector, which only the server knows."""
        watched = self._syncs[cls].watched
        if watched.field_selector:
            return False
        return not watched.namespace or manifest.get("metadata", {}).get("namespace") == watched.namespace

    def _changed(self, cls: type[ApiObject], key: Key, change: Change[Any]) -> None:
        self._revision += 1
        # A first batch holds the objects as they were, so the next subscription needs another.
        self._begun.clear()
        self._substance += not self._passed_over(change)
        for subscription in self._subscriptions[cls]:
            subscription.add(cls, key, change)
        for event in self._waiting_for.get((cls, key), ()):
            event.set()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            event.set()


def _only_tells(change: Change[Any]) -> bool:
    """Return whether only the status of a group or a queue changed, or it was only written to the API server."""
    before, after = change.before, change.after
    if before is None or after is None or not isinstance(after, PodGroup | Queue):
        return False
    if isinstance(after, PodGroup) and before.status.scheduling_conditions != after.status.scheduling_conditions:
        return False  # a group may have given up on the pool, which its conditions record
    was, now = before.metadata, after.metadata
    return (
        # An assumed object has no UID before the API server has created it.
        was.uid in {"", now.uid}
        and before.spec == after.spec
        and was.annotations == now.annotations
        and was.labels == now.labels
        and was.deletion_timestamp == now.deletion_timestamp
    )


def _cache_of(watched: Watched, on_change: Callable[[type[ApiObject], Key, Change[Any]], None]) -> AssumeCache[Any]:
    cls: type[Any] = watched.cls

    def note_change(key: Key, change: Change[Any]) -> None:
        on_change(cls, key, change)

    return AssumeCache(cls, note_change)
