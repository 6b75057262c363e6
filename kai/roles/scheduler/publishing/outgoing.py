"""What the publisher remembers: writes in flight, deferred accounts, events that were sent, and quiet periods.

A part of the publisher that has something to write asks `Outgoing` whether it may, and how. Five memories answer:

    memory             remembers                          until
    writes_in_flight   a patch without an answer          the answer; after a refusal, a new version of the object
    deferred_accounts  an account to be published again   all of it is written, or the group has another account
    losses             when a group lost pods             the annotation is written, or refused for its content
    event_history      the last message of each event     the object is gone, or the term ends
    quiet              that a topic was just written      a fixed time has passed

The committer has a memory of its own (`kai.roles.scheduler.committing.messages`). It keeps messages and sends them
again unchanged, because they describe things that happen once. Here an account is kept and compared again with the
store, so that the retry writes what is true by then.

`WritesInFlight` prevents duplicates. Each write has a topic, such as the condition of one group, and the same content
is not sent again before the answer. A refusal keeps the topic quiet until the store shows another version of the
object, or until a time has passed. After a conflict the new version arrives with the watch; an object that is gone
never gets one.

`EventHistory` prevents duplicate events, as the publisher does not read events back. It forgets objects that are gone,
in batches small enough for the event loop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.plans import Emit, Patch, Reason, Ref, Refusal
from kai.basics.deadlines import Deadlines
from kai.roles.scheduler.committing import orders
from kai.roles.scheduler.effects import Reader, Send
from kai.roles.scheduler.publishing.deferred import DeferredAccounts, Losses
from kai.roles.scheduler.publishing.explanations import CLOSING, NOT_READY, STALE, UNSCHEDULABLE, GroupAccount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.api.kubernetes.pod import Pod
    from kai.api.scheduling.pod_group import PodGroup
    from kai.api.scheduling.queue import Queue

_ECHO: Final = 60.0
"""How long at most the store may take to show the change that made the API server refuse a write.

Units: seconds.
"""
_OUTDATED: Final = frozenset({Reason.CONFLICT, Reason.NOT_FOUND})


@attrs.frozen
class _Letter:
    """A write without an answer, and the version of the object that it was made for."""

    request: Patch
    content: object
    version: str


@attrs.define
class WritesInFlight:
    """Writes without an answer, by topic, and refusals, by topic and version."""

    pause: float
    """How long to wait after a refusal that does not depend on the version of the object.

    Units: seconds.
    """
    _open: dict[str, _Letter] = attrs.field(factory=dict)
    _returned: Deadlines[tuple[str, str]] = attrs.field(factory=Deadlines)

    def is_sent(self, topic: str, content: object, version: str, now: float) -> bool:
        """Return whether a write of this content is in flight, or is not to be tried yet."""
        letter = self._open.get(topic)
        return self.is_refused(topic, version, now) or (letter is not None and letter.content == content)

    def is_refused(self, topic: str, version: str, now: float) -> bool:
        """Return whether a write for this version was refused and must not be tried again yet."""
        return self._returned.get((topic, version), now) > now

    def send(self, topic: str, request: Patch, content: object, version: str) -> Send:
        """Remember a write, and return the effect that sends it."""
        self._open[topic] = _Letter(request, content, version)
        return Send(request, topic=topic)

    def answered(self, topic: str, request: object, reply: object, now: float) -> None:
        """Record the answer to a write; ignore it if a newer write replaced this one."""
        letter = self._open.get(topic)
        # By identity: a newer write with the same content has an answer of its own.
        if letter is None or letter.request is not request:
            return
        del self._open[topic]
        if isinstance(reply, Refusal):
            # These depend on the version: with the next one from the watch the write is tried at once.
            pause = _ECHO if reply.reason in _OUTDATED else self.pause
            self._returned[topic, letter.version] = now + max(pause, reply.retry_after or 0.0)

    def forget(self, now: float) -> None:
        """Forget refusals that have expired."""
        self._returned.forget(now)

    def clear(self) -> None:
        """Forget everything; unsent writes are dropped."""
        self._open.clear()
        self._returned.clear()


_MOST: Final = 200_000
_SWEPT: Final = 600.0
"""How often the history of deleted objects is forgotten.

Units: seconds.
"""
_AT_ONCE: Final = 256


@attrs.define
class EventHistory:
    """The last message of each event, by UID and reason; "" if that event was dropped or refused.

    Units: seconds of a monotonic clock.
    """

    reader: Reader
    _messages: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _refs: dict[str, Ref[Any]] = attrs.field(factory=dict)
    """The object of each UID that has an event."""
    _unswept: list[str] = attrs.field(factory=list)
    """UIDs that the present sweep has not looked up yet."""
    _swept: float = 0.0
    """When the last sweep began."""

    def __len__(self) -> int:
        """Return the count of remembered messages."""
        return len(self._messages)

    def of(self, uid: str, reason: str) -> str | None:
        """Return the last message; None if none is known."""
        return self._messages.get((uid, reason))

    def note(self, uid: str, reason: str, message: str, ref: Ref[Any]) -> None:
        """Remember a message on an object."""
        self._messages[uid, reason] = message
        self._refs[uid] = ref

    def forget(self, uid: str, reason: str) -> None:
        """Forget a message, so that the next one is sent whatever it says."""
        self._messages.pop((uid, reason), None)

    def unsay(self, event: Emit, refusal: Refusal) -> None:
        """Mark an event as not written, unless a newer one replaced it; it is sent again later."""
        key = (event.uid, event.reason)
        # Event names are unique: if this one exists, an earlier attempt wrote it and its answer was lost.
        if self._messages.get(key) == event.message and refusal.reason is not Reason.ALREADY_EXISTS:
            self._messages[key] = ""

    def sweep(self, now: float) -> None:
        """Look up a batch of objects and forget the deleted ones; drop the oldest entries beyond the limit."""
        if now - self._swept >= _SWEPT and not self._unswept:
            self._swept, self._unswept = now, list(self._refs)
        # From the end, where a list gives up items without moving the others.
        some = self._unswept[-_AT_ONCE:]
        del self._unswept[-len(some) :]
        for uid in some:
            if not self._is_there(uid):
                self._refs.pop(uid, None)
                for reason in (NOT_READY, STALE, CLOSING, UNSCHEDULABLE):
                    self._messages.pop((uid, reason), None)
        # Dictionaries keep the order of insertion, so the first entry is the oldest.
        while len(self._messages) > _MOST:
            del self._messages[next(iter(self._messages))]
        while len(self._refs) > _MOST:
            del self._refs[next(iter(self._refs))]

    @property
    def is_sweeping(self) -> bool:
        """Whether the present sweep has objects left to look up."""
        return bool(self._unswept)

    def clear(self) -> None:
        """Forget everything."""
        self._messages.clear()
        self._refs.clear()
        self._unswept.clear()

    def _is_there(self, uid: str) -> bool:
        ref = self._refs.get(uid)
        found = None if ref is None else self.reader.get(ref.cls, ref.name, ref.namespace)
        return found is not None and found.metadata.uid == uid


@attrs.define
class Outgoing:
    """All memories of the publisher: writes in flight, deferred accounts, losses, events and quiet periods.

    Units: seconds of a monotonic clock.
    """

    reader: Reader
    quiet_seconds: float
    writes: WritesInFlight = attrs.field(init=False)
    deferred: DeferredAccounts = attrs.field(init=False)
    losses: Losses = attrs.field(init=False)
    history: EventHistory = attrs.field(init=False)
    quiet: Deadlines[str] = attrs.field(factory=Deadlines)
    """End of the quiet period of each topic that was just written; until then a change of figures alone waits."""

    def __attrs_post_init__(self) -> None:
        """Begin with empty memories."""
        self.writes = WritesInFlight(self.quiet_seconds)
        self.deferred = DeferredAccounts(self.quiet_seconds)
        self.losses = Losses(self.quiet_seconds)
        self.history = EventHistory(self.reader)

    # --- Writing -------------------------------------------------------------------------------------------------

    def write(
        self,
        topic: str,
        obj: PodGroup | Pod | Queue,
        patch: Patch,
        content: object,
        now: float,
        account: GroupAccount | None = None,
    ) -> Iterable[Send]:
        """Yield a write, unless the same is in flight or a write for this version was refused."""
        version = obj.metadata.resource_version
        if not self.is_sent(topic, content, version, now, account):
            yield self.writes.send(topic, patch, content, version)

    def is_sent(self, topic: str, content: object, version: str, now: float, account: GroupAccount | None) -> bool:
        """Return whether a write is in flight or must wait; if it was refused, defer the ``account`` it belongs to."""
        if account is not None and self.writes.is_refused(topic, version, now):
            self.deferred.owe(account, now)
        return self.writes.is_sent(topic, content, version, now)

    def may_say(self, topic: str, account: GroupAccount, now: float, *, is_news: bool) -> bool:
        """Return whether a topic may be written now; if not, defer the account until its quiet period ends."""
        until = now if is_news else self.quiet.get(topic, now)
        if until > now:
            self.deferred.hold(account, until)
            return False
        self.quiet[topic] = now + self.quiet_seconds
        return True

    def say(self, event: Emit) -> Send:
        """Remember an event, and return the effect that sends it; it replaces an unsent event of the same topic."""
        self.history.note(event.uid, event.reason, event.message, event.ref)
        return Send(event, topic=f"{event.uid}/event/{event.reason}")

    def announce(self, account: GroupAccount, ref: Ref[Any], reason: str, message: str, now: float) -> Iterable[Send]:
        """Send an event on a group unless it was sent before; an empty message clears the history for the next one."""
        said = self.history.of(account.uid, reason)
        if not message:
            self.history.forget(account.uid, reason)
        elif said != message and self.may_say(f"{account.uid}/{reason}", account, now, is_news=said is None):
            yield self.say(orders.emit(ref, reason, message, uid=account.uid))

    # --- Answers -------------------------------------------------------------------------------------------------

    def answered(self, topic: str, request: object, reply: object, now: float) -> None:
        """Record how a write ended in all memories."""
        self.writes.answered(topic, request, reply, now)
        refusal = reply if isinstance(reply, Refusal) and reply.reason is not Reason.ALREADY_EXISTS else None
        wait = 0.0 if refusal is None else refusal.retry_after or 0.0
        self.deferred.answered(topic, now, is_refused=refusal is not None, at_least=wait)
        if isinstance(reply, Refusal) and isinstance(request, Emit):
            self.history.unsay(request, reply)

    def forget(self, now: float) -> None:
        """Forget expired entries."""
        self.quiet.forget(now)
        self.writes.forget(now)
        self.history.sweep(now)

    def end_term(self, unheard: Iterable[GroupAccount], now: float) -> None:
        """Drop what is in flight, whose answers will not come; keep accounts of groups that wait for their turn."""
        self.deferred.end_term(unheard, now)
        self.losses.end_term(now)
        self.writes.clear()
        self.history.clear()
