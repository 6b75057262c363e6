"""The assume cache of one kind: its objects by key, and the objects that are assumed instead of the real ones.

A cache accepts manifests from pages of lists, watch events and answers to writes, in any order and any number of times:
the resourceVersion of each object decides which is newer. It parses only new versions.

Holds: an object whose new form cannot be parsed keeps its last form while its UID stays the same; one that could never
be parsed is absent. A running pod must not vanish, and free its node, because one of its annotations is malformed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast

import attrs
import structlog

from kai.api.codec.structuring import keep, structure_as
from kai.api.kinds import BY_CLASS, ApiObject, Key
from kai.basics.errors import InputError
from kai.cluster.caching.shown import Overlays, Shown, annotated
from kai.cluster.caching.tombstones import UNKNOWN_VERSION, Peek, Tombstones, peek, version_of
from kai.cluster.port import Change, Index, Rejected

if TYPE_CHECKING:
    from kai.api.cluster_objects import Listing

T = TypeVar("T", bound=ApiObject)

_NOTHING: Final = ("", UNKNOWN_VERSION)
"""UID and version of an absent object."""


@attrs.define(eq=False)
class _Assumption(Generic[T]):
    """An object that is shown instead of the real one."""

    until: Callable[[T | None], bool]
    beneath: T | None
    shown: T
    is_answered: bool = False
    """The server has confirmed the write: a list that is requested later shows it, unless the server lost the write."""
    is_kept: bool = False
    """The object exists only here, and no write of it is under way."""
    before: _Assumption[T] | None = None
    """An earlier, confirmed assumption: it is shown again if this one is forgotten."""


def _is_there(found: object) -> bool:
    return found is not None


@attrs.frozen
class Asked:
    """The state of the cache when a list was requested."""

    newest: int = UNKNOWN_VERSION
    """The highest resourceVersion seen so far."""
    answered: Mapping[Key, object] = attrs.field(factory=dict)
    """Assumptions whose writes were confirmed by then."""
    ended: int = 0
    """Count of deletions noted by then."""


class AssumeCache(Generic[T]):
    """The objects of one kind.

    Every method that changes the shown objects calls ``on_change`` with each change.
    """

    def __init__(
        self,
        cls: type[T],
        on_change: Callable[[Key, Change[T]], None],
    ) -> None:
        self.cls = cls
        self._shown = Shown(on_change)
        self._unread: dict[Key, tuple[str, int]] = {}
        """UID and version of real objects that could not be parsed; parsed objects hold their own."""
        self._assumed: dict[Key, _Assumption[T]] = {}
        self._overlays = Overlays()
        self._rejected: dict[Key, Rejected] = {}
        self._tombstones = Tombstones()
        self._listing: set[Key] | None = None
        self._listed_at = UNKNOWN_VERSION
        self._starts_over = False
        self._asked = Asked()
        self._passed_over: list[tuple[Peek, object]] = []
        """Objects of the present list for which a tombstone exists."""
        self.newest = 0
        """The highest resourceVersion seen so far."""

    # --- Looking ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the count of shown objects."""
        return len(self._shown.objects)

    def get(self, key: Key) -> T | None:
        """Return the shown object of a key."""
        return self._shown.objects.get(key)

    def actual(self, key: Key) -> T | None:
        """Return the real object, as far as it is known."""
        assumption = self._assumed.get(key)
        return self._shown.objects.get(key) if assumption is None else assumption.beneath

    def version(self, key: Key) -> tuple[str, int] | None:
        """Return UID and version of the real object, parsed or not; None if there is none."""
        found = self._unread.get(key)
        if found is None:
            obj = self.actual(key)
            if obj is not None:
                metadata = obj.metadata
                return metadata.uid, version_of(metadata.resource_version)
        return found

    def knows(self, seen: Peek) -> bool:
        """Return whether the real object has exactly this version; False for an object without a comparable version."""
        is_there = seen.version >= 0 and self.version(seen.key) == (seen.uid, seen.version)
        return is_there and not self._tombstones.covers(seen.uid, seen.version)

    def versions(self) -> dict[Key, tuple[str, int]]:
        """Return UID and version of all real objects."""
        found = {key: self.version(key) for key in self._besides(set())}
        return {key: version for key, version in found.items() if version is not None}

    def all(self) -> tuple[T, ...]:
        """Return all shown objects; the same tuple until one changes."""
        return self._shown.all()

    def listing(self) -> Listing[T]:
        """Return all shown objects, unordered, with the difference to the last listing; the same until one changes."""
        return self._shown.listing()

    def find(self, index: Index[T], key: str) -> tuple[T, ...]:
        """Return the objects under a key of an index, by namespace and name."""
        return self._shown.find(index, key)

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """The objects that cannot be parsed, by key; callable in any thread."""
        # Copied in one step: metrics are collected in another thread, while the loop may add a key.
        found = self._rejected.copy()
        return tuple(found[key] for key in sorted(found))

    def is_assumed(self, key: Key) -> bool:
        """Return whether a key has an assumption."""
        return key in self._assumed

    # --- Taking what there is --------------------------------------------------------------------------------------

    def see(self, manifest: object) -> Peek | None:
        """Take an object at its version; return its identity, None if it has no name."""
        return self._see(peek(manifest), manifest)

    def see_listed(self, manifest: object) -> Peek | None:
        """Take an object of the present list, like `see`.

        A list shows each object as of the list's version, which is not older than the request. Suppose it shows an
        object in an older form than was known by then, or an object that had been deleted by then. Then the server was
        restored from a backup, and its versions were raised so that watchers notice. Its content is true all the same,
        so the cache starts over as for a list whose version went back.
        """
        seen = peek(manifest)
        if seen is not None and not self._starts_over:
            known = (self.version(seen.key) or _NOTHING)[1]
            has_ended = self._tombstones.covers(seen.uid, seen.version)
            is_refuted = has_ended and self._tombstones.is_refuted(seen.uid, self._listed_at, self._asked.ended)
            if is_refuted or 0 <= seen.version < known <= self._listed_at:
                self._start_over()
            elif has_ended:
                self._passed_over.append((seen, manifest))
        return self._see(seen, manifest)

    def see_known(self, seen: Peek) -> None:
        """Take an object of the present list that `knows` has confirmed."""
        if self._listing is not None:
            self._listing.add(seen.key)
        self.newest = max(self.newest, seen.version)

    def _see(self, seen: Peek | None, manifest: object) -> Peek | None:
        if seen is None:
            self._reject(("", ""), "metadata.name: found nothing, expected a name")
            return None
        if self._listing is not None:
            self._listing.add(seen.key)
        if self._is_news(seen):
            self._put(seen, manifest)
        return seen

    def remove(self, manifest: object) -> None:
        """Take the deletion of an object, with its last form."""
        seen = peek(manifest)
        if seen is not None:
            self.remove_key(seen.key, seen.uid, seen.version)

    def remove_key(self, key: Key, uid: str, version: int = UNKNOWN_VERSION) -> None:
        """Take the deletion of the object with this UID; a newer object of the same name stays."""
        self._tombstones.leave(uid, version)
        self.newest = max(self.newest, version)
        known_uid, known_version = self.version(key) or _NOTHING
        # Names are reused, UIDs are not. An object of another UID goes only if the deletion is later than its version:
        # a name has one object at a time, so the known one had ended before.
        if uid and known_uid and uid != known_uid and not 0 <= known_version < version:
            return
        self._rejected.pop(key, None)
        self._unread.pop(key, None)
        self._set(key, None)

    def _is_news(self, seen: Peek) -> bool:
        known = self.version(seen.key)
        if self._starts_over:
            # The restored server counts from an older version: whatever differs from the known object is true.
            return known != (seen.uid, seen.version) or seen.version < 0
        self.newest = max(self.newest, seen.version)
        if self._tombstones.covers(seen.uid, seen.version):
            return False
        # A write shows twice, in its answer and in the watch, and in either order.
        return known is None or seen.version < 0 or known[1] < 0 or seen.version > known[1]

    def _put(self, seen: Peek, manifest: Any) -> None:  # noqa: ANN401 - JSON from outside; the codec says what it is
        known_uid = (self.version(seen.key) or _NOTHING)[0]
        # A new UID under a known name: the old object has ended, though its DELETED event may still come.
        if known_uid and known_uid != seen.uid:
            self._tombstones.leave(known_uid, seen.version)
        try:
            obj = structure_as(self.cls, keep(self.cls, manifest))
        except InputError as error:
            self._unread[seen.key] = (seen.uid, seen.version)
            self._reject(seen.key, str(error))
            # The last readable form belongs to another object, which has ended.
            if known_uid != seen.uid:
                self._set(seen.key, None)
            return
        self._unread.pop(seen.key, None)
        self._rejected.pop(seen.key, None)
        self._set(seen.key, obj)

    def fade(self) -> None:
        """Forget tombstones from before the last call, unless a list in progress may still contain their objects."""
        if self._listing is None:
            self._tombstones.fade()

    def _reject(self, key: Key, message: str) -> None:
        """Note that an object cannot be parsed, and log the place once, without the content of the object."""
        cls, known = cast("type[ApiObject]", self.cls), self._rejected.get(key)
        if known is None or known.message != message:
            at = message.partition(": found ")[0]
            structlog.get_logger().warning("object not read", resource=BY_CLASS[cls].plural, at=at)
        self._rejected[key] = Rejected(cls=cls, key=key, message=message)

    # --- Lists -----------------------------------------------------------------------------------------------------

    def ask(self) -> Asked:
        """Return the present state for `begin_list`; call it just before a list is requested."""
        done = {key: each if each.is_answered else each.before for key, each in self._assumed.items()}
        answered = {key: each for key, each in done.items() if each is not None}
        return Asked(self.newest, answered, self._tombstones.noted)

    def begin_list(self, version: int, asked: Asked | None = None) -> None:
        """Expect the pages of a list of this version; ``asked`` is the state when it was requested.

        A version below the highest one known at the request means that the server was restored from a backup. Then only
        the list is true, however old its objects are. Events that arrived during the request may be newer than the
        list.
        """
        self._asked = self.ask() if asked is None else asked
        self._listing, self._listed_at = set(), version
        self._starts_over = False
        self._passed_over.clear()
        if 0 <= version < self._asked.newest:
            self._start_over()

    def _start_over(self) -> None:
        self._starts_over = True
        self._tombstones.clear()
        for seen, manifest in self._passed_over:
            if self._is_news(seen):
                self._put(seen, manifest)

    def end_list(self, version: int) -> None:
        """Remove the objects that the pages did not contain, unless they are newer than the list.

        A write that was confirmed before the request and is missing in the list is lost: the server was restored from a
        backup. Its assumption is dropped here, because no event would ever end it.
        """
        listed, starts_over = self._listing, self._starts_over
        self._listing, self._starts_over = None, False
        self._passed_over.clear()
        # It goes back only here: events of the restored server are news although their versions are lower.
        self.newest = version if starts_over else max(self.newest, version)
        for key in () if listed is None else self._besides(listed):
            uid, known = self.version(key) or _NOTHING
            # A newer object came by an answer or the stream after the server had read the list.
            if starts_over or known <= version:
                self.remove_key(key, uid, version)
        for key, assumption in self._asked.answered.items():
            present = self._assumed.get(key)
            if present is not None and assumption in (present, present.before):
                present.before = None
            if present is assumption:
                self.forget(key)
        self._asked = Asked()

    def _besides(self, listed: set[Key]) -> list[Key]:
        """Return the keys of real objects that are missing in a list."""
        shown, more = self._shown.objects, self._assumed.keys() | self._unread.keys()
        keys = [key for key in shown if key not in listed]
        keys += sorted(key for key in more if key not in shown and key not in listed)
        return [key for key in keys if self.version(key) is not None]

    def clear(self) -> None:
        """Remove all objects, because the kind is no longer served."""
        self.begin_list(0)
        self._starts_over = True
        self.end_list(0)

    # --- Assuming --------------------------------------------------------------------------------------------------

    def assume(self, key: Key, obj: T, until: Callable[[T | None], bool]) -> None:
        """Show an object until a predicate is true of the real one."""
        actual = self.actual(key)
        # The watch was faster than the answer to the write.
        if until(actual):
            self.forget(key)
            return
        before = self._assumed.get(key)
        # If this write fails, the last confirmed one is shown again: the watch may not have delivered it yet.
        done = before if before is None or before.is_answered else before.before
        self._assumed[key] = _Assumption(until, actual, obj, before=done)
        self._shown.put(key, obj)

    def keep(self, key: Key, obj: T) -> None:
        """Show an object that only this process has, until the API server has one of its name."""
        self.assume(key, obj, _is_there)
        if key in self._assumed:
            self._assumed[key].is_kept = True

    def is_kept(self, key: Key) -> bool:
        """Return whether only this process has the object of a key."""
        return key in self._assumed and self._assumed[key].is_kept

    def confirm(self, key: Key) -> None:
        """Mark the assumption of a key as confirmed by the server."""
        assumption = self._assumed.get(key)
        if assumption is not None:
            assumption.is_answered = True

    def forget(self, key: Key) -> None:
        """Show the real object again, or an earlier confirmed assumption."""
        assumption = self._assumed.pop(key, None)
        if assumption is not None:
            before, there = assumption.before, assumption.beneath
            if before is not None and not before.until(there):
                before.beneath = there
                self._assumed[key] = before
                self._shown.put(key, before.shown)
                return
            # The object was only assumed, so its overlay has nothing left to lie on.
            if there is None:
                self._overlays.take_away(key)
            self._shown.put(key, there)

    def forget_all(self) -> None:
        """Drop all overlays and unconfirmed assumptions; one that is confirmed or kept is no guess, and stays."""
        for key, assumption in list(self._assumed.items()):
            if not assumption.is_answered and not assumption.is_kept:
                self.forget(key)
        for key in self._overlays.passing():
            there = self.actual(key)
            beneath = None if there is None else self._overlays.beneath(key, there)
            self._overlays.take_away(key)
            if beneath is not None:
                self._set(key, beneath)

    # --- Overlaying --------------------------------------------------------------------------------------------------

    def overlay(self, key: Key, annotations: Mapping[str, str], *, is_kept: bool = False) -> None:
        """Show annotations on an object until it has them or is gone; other changes of the object are shown as usual.

        They replace an earlier overlay; empty annotations remove it. One that is kept stays at `forget_all`.
        """
        obj, overlays = self.actual(key), self._overlays
        is_kept = is_kept or self.is_kept(key)
        if overlays.shows(key, annotations, is_kept=is_kept):
            return
        if obj is not None:
            obj = overlays.beneath(key, obj)
            overlays.lay(key, obj.metadata.uid, annotations, is_kept=is_kept)
            self._set(key, obj)
        elif key in self._assumed:
            overlays.lay(key, "", annotations, is_kept=is_kept)
            shown = self._shown.objects[key]
            self._shown.put(key, annotated(shown, {**annotations, **shown.metadata.annotations}))

    def is_overlaid(self, key: Key) -> bool:
        """Return whether an object is shown with annotations that it does not have."""
        return key in self._overlays.known

    # --- Showing ---------------------------------------------------------------------------------------------------

    def _set(self, key: Key, obj: T | None) -> None:
        if key in self._overlays.known:
            obj = self._overlays.over(key, obj)
        assumption = self._assumed.get(key)
        if assumption is None:
            self._shown.put(key, obj)
        elif assumption.until(obj):
            del self._assumed[key]
            self._shown.put(key, obj)
        else:
            assumption.beneath = obj
