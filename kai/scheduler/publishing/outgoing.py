"""What the publisher remembers of what it wrote: what is on its way, what is told later, what was said, and when.

A part of the publisher that has something to write asks here whether it may, and how. Five memories answer:

    memory             remembers                            until
    writes_in_flight   a patch without an answer            it is answered; refused: the object has another version
    deferred_accounts  an account that is to be told again  all of it is written, or the group has another account
    losses             when a group lost pods               it is written, or refused for what it is
    event_history      the last message of each event       the object is gone, or the term ends
    quiet              that something was said of a topic   some seconds have passed

The committer has a memory of its own (`kai.scheduler.committing.message_retries`), because what it says happens once:
there a message is kept, and sent again as it was. Here an account is kept, and compared again: what is said then is
what is true by then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Reason, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.deadlines import Deadlines
from kai.scheduler import orders
from kai.scheduler.effects import Send
from kai.scheduler.explanations import GroupAccount
from kai.scheduler.publishing.deferred_accounts import DeferredAccounts
from kai.scheduler.publishing.event_history import EventHistory
from kai.scheduler.publishing.losses import Losses
from kai.scheduler.publishing.writes_in_flight import WritesInFlight
from kai.scheduler.reader import Reader


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
