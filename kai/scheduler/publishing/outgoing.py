"""What the publisher remembers of what it wrote: what is on its way, what is told later, what was said, and when.

A part of the publisher that has something to write asks here whether it may, and how. Five memories answer:

    memory             remembers                            until
    writes_in_flight   a patch without an answer            it is answered; refused: the object has another version
    deferred_accounts  an account that is to be told again  all of it is written, or the group has another account
    losses             when a group lost pods               it is written, or refused for what it is
    event_history      the last message of each event       the object is gone, or the term ends
    quiet              that something was said of a topic   some seconds have passed

The committer has a memory of its own (`kai.scheduler.committing.messages`), because what it says happens once:
there a message is kept, and sent again as it was. Here an account is kept, and compared again: what is said then is
what is true by then.

What the publisher wrote and has no answer to yet: a write of the same is not sent again before there is one.

Each write has a topic, such as the condition of one group. An answer ends it; a refusal keeps the topic quiet until
the store shows another version of the object, which is what a conflict waits for and what an object that is gone
never gets, or until some time has passed.

What events have said: the publisher does not read events back, and says nothing twice.

Of objects that are gone it is forgotten, a part of them at a time, for as long as the event loop can wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from kai.api.plans import Emit, Patch, Reason, Ref, Refusal
from kai.basics.deadlines import Deadlines
from kai.scheduler.committing import orders
from kai.scheduler.effects import Reader, Send
from kai.scheduler.publishing.deferred import DeferredAccounts, Losses
from kai.scheduler.publishing.explanations import NOT_READY, STALE, UNSCHEDULABLE, GroupAccount

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kai.api.kubernetes.pod import Pod
    from kai.api.scheduling.pod_group import PodGroup
    from kai.api.scheduling.queue import Queue

_ECHO: Final = 60.0
"""So long at most the store may take to show what the API server refused a write for."""
_OUTDATED: Final = frozenset({Reason.CONFLICT, Reason.NOT_FOUND})


@attrs.frozen
class _Letter:
    """A write without an answer."""

    request: Patch
    content: object
    version: str


@attrs.define
class WritesInFlight:
    """The writes without an answer, by topic, and those that were refused, by topic and version."""

    pause: float
    """How long to wait after a refusal that says nothing about the object.

    Units: seconds.
    """
    _open: dict[str, _Letter] = attrs.field(factory=dict)
    _returned: Deadlines[tuple[str, str]] = attrs.field(factory=Deadlines)

    def is_sent(self, topic: str, content: object, version: str, now: float) -> bool:
        """Return whether a write of this need not, or should not, be sent now."""
        letter = self._open.get(topic)
        return self.is_refused(topic, version, now) or (letter is not None and letter.content == content)

    def is_refused(self, topic: str, version: str, now: float) -> bool:
        """Return whether a write about this version was refused, and is not to be tried again yet."""
        return self._returned.get((topic, version), now) > now

    def send(self, topic: str, request: Patch, content: object, version: str) -> Send:
        """Remember a write, and return how to send it."""
        self._open[topic] = _Letter(request, content, version)
        return Send(request, topic=topic)

    def answered(self, topic: str, request: object, reply: object, now: float) -> None:
        """Take the answer to a write; one that another has replaced tells nothing."""
        letter = self._open.get(topic)
        if letter is None or letter.request is not request:
            return
        del self._open[topic]
        if isinstance(reply, Refusal):
            pause = _ECHO if reply.reason in _OUTDATED else self.pause
            self._returned[topic, letter.version] = now + max(pause, reply.retry_after or 0.0)

    def forget(self, now: float) -> None:
        """Forget refusals that are long past."""
        self._returned.forget(now)

    def clear(self) -> None:
        """Forget everything: what was not sent never will be."""
        self._open.clear()
        self._returned.clear()


_MOST: Final = 200_000
_SWEPT: Final = 600.0
"""So often what was said of objects that are gone is forgotten."""
_AT_ONCE: Final = 256


@attrs.define
class EventHistory:
    """The last message of each event, by UID and reason; "" after one that was dropped or refused.

    Units: seconds of a clock that does not go back.
    """

    reader: Reader
    _messages: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _refs: dict[str, Ref[Any]] = attrs.field(factory=dict)
    """Which object each UID is of which something was said."""
    _unswept: list[str] = attrs.field(factory=list)
    """The UIDs of which it is still to be seen whether their objects are there."""
    _swept: float = 0.0
    """When the last such look began."""

    def __len__(self) -> int:
        """Return how many messages are remembered."""
        return len(self._messages)

    def of(self, uid: str, reason: str) -> str | None:
        """Return the last message; None if nothing is known to have been said."""
        return self._messages.get((uid, reason))

    def note(self, uid: str, reason: str, message: str, ref: Ref[Any]) -> None:
        """Remember a message about an object."""
        self._messages[uid, reason] = message
        self._refs[uid] = ref

    def forget(self, uid: str, reason: str) -> None:
        """Have the next message said, whatever was said before."""
        self._messages.pop((uid, reason), None)

    def unsay(self, event: Emit, refusal: Refusal) -> None:
        """Remember that an event was not written, unless another followed: it is said again after a while."""
        key = (event.uid, event.reason)
        # Names of events are unique: one that exists was written by an attempt whose answer was lost.
        if self._messages.get(key) == event.message and refusal.reason is not Reason.ALREADY_EXISTS:
            self._messages[key] = ""

    def sweep(self, now: float) -> None:
        """Forget what was said of some objects, if they are gone, and the oldest of more than may be remembered."""
        if now - self._swept >= _SWEPT and not self._unswept:
            self._swept, self._unswept = now, list(self._refs)
        some = self._unswept[-_AT_ONCE:]
        del self._unswept[-len(some) :]
        for uid in some:
            if not self._is_there(uid):
                self._refs.pop(uid, None)
                for reason in (NOT_READY, STALE, UNSCHEDULABLE):
                    self._messages.pop((uid, reason), None)
        while len(self._messages) > _MOST:
            del self._messages[next(iter(self._messages))]
        while len(self._refs) > _MOST:
            del self._refs[next(iter(self._refs))]

    @property
    def is_sweeping(self) -> bool:
        """Whether objects are left to look at."""
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
    """What is on its way, and what was said.

    Units: seconds of a clock that does not go back.
    """

    reader: Reader
    quiet_seconds: float
    writes: WritesInFlight = attrs.field(init=False)
    deferred: DeferredAccounts = attrs.field(init=False)
    losses: Losses = attrs.field(init=False)
    history: EventHistory = attrs.field(init=False)
    quiet: Deadlines[str] = attrs.field(factory=Deadlines)
    """Until when figures alone are no news of a topic, since something was just said of it."""

    def __attrs_post_init__(self) -> None:
        """Begin with nothing written."""
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
        """Write something about a topic, unless the same is on its way, or this version was not to be written."""
        version = obj.metadata.resource_version
        if not self.is_sent(topic, content, version, now, account):
            yield self.writes.send(topic, patch, content, version)

    def is_sent(self, topic: str, content: object, version: str, now: float, account: GroupAccount | None) -> bool:
        """Return whether a write need not, or should not, be sent; an account of which it is a part is told again."""
        if account is not None and self.writes.is_refused(topic, version, now):
            self.deferred.owe(account, now)
        return self.writes.is_sent(topic, content, version, now)

    def may_say(self, topic: str, account: GroupAccount, now: float, *, is_news: bool) -> bool:
        """Return whether to speak of a topic now; if not, the account is told when the topic is quiet no longer."""
        until = now if is_news else self.quiet.get(topic, now)
        if until > now:
            self.deferred.hold(account, until)
            return False
        self.quiet[topic] = now + self.quiet_seconds
        return True

    def say(self, event: Emit) -> Send:
        """Remember an event as said, and return how to send it; of those about one thing only the last is sent."""
        self.history.note(event.uid, event.reason, event.message, event.ref)
        return Send(event, topic=f"{event.uid}/event/{event.reason}")

    def announce(self, account: GroupAccount, ref: Ref[Any], reason: str, message: str, now: float) -> Iterable[Send]:
        """Emit an event on a group unless it was said; an empty message lets it be said anew."""
        said = self.history.of(account.uid, reason)
        if not message:
            self.history.forget(account.uid, reason)
        elif said != message and self.may_say(f"{account.uid}/{reason}", account, now, is_news=said is None):
            yield self.say(orders.emit(ref, reason, message, uid=account.uid))

    # --- Answers -------------------------------------------------------------------------------------------------

    def answered(self, topic: str, request: object, reply: object, now: float) -> None:
        """Take how a write ended."""
        self.writes.answered(topic, request, reply, now)
        refusal = reply if isinstance(reply, Refusal) and reply.reason is not Reason.ALREADY_EXISTS else None
        wait = 0.0 if refusal is None else refusal.retry_after or 0.0
        self.deferred.answered(topic, now, is_refused=refusal is not None, at_least=wait)
        if isinstance(reply, Refusal) and isinstance(request, Emit):
            self.history.unsay(request, reply)

    def forget(self, now: float) -> None:
        """Forget what is long past."""
        self.quiet.forget(now)
        self.writes.forget(now)
        self.history.sweep(now)

    def end_term(self, unheard: Iterable[GroupAccount], now: float) -> None:
        """Take it that nothing is answered any more; who waits for a turn in the next term hears of it then."""
        self.deferred.end_term(unheard, now)
        self.losses.end_term(now)
        self.writes.clear()
        self.history.clear()
