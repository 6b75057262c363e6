"""Binds that were ordered by a bind request, of which the pod is told once it has its node.

The binder may be another process, and its outcome shows in the store only. A request that the API server took is no
bind yet: the binder may refuse it, and an event cannot be taken back. A process that starts knows of none, so what was
ordered in an earlier term is told by the binder's own event alone.

What the committer told users and is not written yet: why a pod waits, and that one was evicted, and for whom.

Nothing else says these things later. The publisher compares what it says with the cluster in each cycle; that a pod was
evicted happens once. So what was left out where too much was to be written, what the API server could not take, and
what a term ended before it was sent are sent again, after a pause that doubles, or when the next term of this process
begins.

Holds: a message is kept until it is written, until it is refused for what it is, or for ten minutes; of more than may
wait the oldest goes. What is said of a pod is not repeated once the pod has a node, or is gone.

Nodes that pods were told they are promised: each cycle may promise the same one again, and says so once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Refusal
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.cluster.requests import Forbidden
from kai.scheduler.effects import Reader, Send

if TYPE_CHECKING:
    from collections.abc import Iterator

Message: TypeAlias = Emit | Patch

_MOST: Final = 10_000
_LIFE: Final = 600.0
"""Seconds after which a message is no news: an event shows when it was written, not when the pod was evicted."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


@attrs.define
class _Letter:
    """A message without a good answer."""

    message: Message
    since: float
    attempts: int = 0


@attrs.define
class MessageRetries:
    """The messages without a good answer, by ticket, oldest first.

    Units: seconds of a clock that does not go back.
    """

    reader: Reader
    _letters: dict[int, _Letter] = attrs.field(factory=dict)
    _about: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """The last message of each event about a pod, by UID and reason: what it says now takes the place of the last."""
    _dues: Deadlines[int] = attrs.field(factory=Deadlines)
    """When to send each of them again that is not on its way."""

    def __len__(self) -> int:
        """Return how many messages have no good answer."""
        return len(self._letters)

    def send(self, message: Message, ticket: int, now: float) -> Send:
        """Remember a message, and return how to send it."""
        about = _about(message)
        if about is not None:
            if about in self._about:
                self._end(self._about[about])
            self._about[about] = ticket
        self._letters[ticket] = _Letter(message, now)
        if len(self._letters) > _MOST:
            self._end(next(iter(self._letters)))
        return Send(message, ticket)

    def answered(self, ticket: int, reply: object, now: float) -> bool:
        """Take the answer to a message; return whether it was one."""
        letter = self._letters.get(ticket)
        if letter is None:
            return False
        if not isinstance(reply, Refusal) or not (reply.is_passing or isinstance(reply, Forbidden)):
            self._end(ticket)
        elif ticket not in self._dues:
            letter.attempts += 1
            pause = doubling_pause(letter.attempts, _FIRST_PAUSE, _LONGEST_PAUSE)
            self._dues[ticket] = now + max(pause, reply.retry_after or 0.0)
        return True

    def due(self, now: float) -> Iterator[Send]:
        """Yield what is to be sent again by now."""
        for ticket in self._dues.take(now):
            letter = self._letters[ticket]
            if now - letter.since > _LIFE or self._is_over(letter.message):
                self._end(ticket)
            else:
                yield Send(letter.message, ticket)

    def next_due(self) -> float | None:
        """Return when to ask for what is due; None if all that is remembered is on its way."""
        return self._dues.first()

    def recall(self, now: float) -> None:
        """Take it that nothing is on its way any more, and that whatever waits may be sent at once."""
        for ticket in self._letters:
            self._dues[ticket] = now

    def hurry(self, now: float) -> None:
        """Let what pauses go with the next event: the API server answers again."""
        for ticket in tuple(self._dues):
            self._dues.hasten(ticket, now)

    def _end(self, ticket: int) -> None:
        self._dues.pop(ticket, None)
        about = _about(self._letters.pop(ticket).message)
        if about is not None and self._about.get(about) == ticket:
            del self._about[about]

    def _is_over(self, message: Message) -> bool:
        """Return whether a message is about a pod that is gone, or waits no longer."""
        if message.ref.cls is not Pod:
            return False
        pod = self.reader.get(Pod, message.ref.name, message.ref.namespace)
        uid = message.uid if isinstance(message, Emit) else message.patch.get("metadata", {}).get("uid")
        return pod is None or pod.metadata.uid != uid or (isinstance(message, Emit) and bool(pod.spec.node_name))


def _about(message: Message) -> tuple[str, str] | None:
    is_of_pod = isinstance(message, Emit) and message.ref.cls is Pod
    return (message.uid, message.reason) if is_of_pod and isinstance(message, Emit) else None


_KEPT: Final = 600
"""So many cycles after the last one that promised it a promise is forgotten."""


@attrs.define
class Promises:
    """Which node each pod was promised, by UID, and in which cycle last."""

    _cycle: int = -1
    _told: dict[str, tuple[str, int]] = attrs.field(factory=dict)

    def begin_cycle(self, cycle: int) -> None:
        """Take what follows as decided in a cycle, and forget what no cycle promised for long."""
        self._cycle = cycle
        self._told = {uid: told for uid, told in self._told.items() if told[1] > cycle - _KEPT}

    def note(self, uid: str, node: str) -> bool:
        """Remember a promise; return whether it is another than the last."""
        told = self._told.get(uid)
        self._told[uid] = (node, self._cycle)
        return told is None or told[0] != node

    def forget(self, uid: str) -> None:
        """Forget the promise of a pod that is being bound."""
        self._told.pop(uid, None)


@attrs.define
class BindEvents:
    """Events that wait for a bind, by the UID of the pod."""

    _waiting: dict[str, tuple[str, Emit]] = attrs.field(factory=dict)
    """The node that was ordered, and the event."""

    def await_bind(self, node: str, event: Emit) -> None:
        """Tell a pod of this node once it is bound to it; what was ordered for the pod before counts no more."""
        self._waiting[event.uid] = (node, event)

    def take(self, reader: Reader) -> Iterator[Emit]:
        """Return the events that have become true, and forget them and those of pods that went another way.

        Cost: one look at the store for each bind that was ordered and has not ended.
        """
        for uid, (node, event) in tuple(self._waiting.items()):
            pod = reader.get(Pod, event.ref.name, event.ref.namespace)
            if pod is None or pod.metadata.uid != uid:
                del self._waiting[uid]
            elif pod.spec.node_name:
                del self._waiting[uid]
                if pod.spec.node_name == node:
                    yield event

    def forget(self) -> None:
        """Forget all of them."""
        self._waiting.clear()
