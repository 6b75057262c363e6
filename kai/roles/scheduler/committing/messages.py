"""Messages for users from the committer: retries of events and conditions, events after a bind, and nominations.

`MessageRetries` keeps messages that are not written yet: why a pod waits, and that one was evicted, and for whom. No
other part repeats these. The publisher compares its accounts with the cluster in each cycle, but an eviction happens
once. A message is sent again if the outbox dropped it, if the API server could not take it, or if a term ended before
it was sent: after a doubling pause, or when the next term of this process begins.

Holds: a message is kept until it is written, until it is refused for its content, or for ten minutes; beyond a limit
the oldest is dropped. A message about a pod is not repeated once the pod has a node, or is gone.

`BindEvents` holds the event of a bind until the store shows the pod on its node. The binder may be another process,
and its outcome shows in the store only. A written bind request is not a bind yet: the binder may refuse it, and an
event cannot be taken back. After a restart this memory is empty, so binds of an earlier term get the binder's own
event only.

`GangEvents` gathers the binds of a gang for a second, and then makes one event about all of them. A gang of 64 then
costs one event instead of 64, which is a third of what its start costs the API server.

`Promises` remembers the node that each pod was last nominated for, so that repeated nominations send one event.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

import attrs

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Refusal
from kai.basics.deadlines import Deadlines, doubling_pause
from kai.cluster.requests import Forbidden
from kai.roles.scheduler.committing.operations import BindEvent, Gang
from kai.roles.scheduler.committing.orders import gang_event
from kai.roles.scheduler.effects import Reader, Send

if TYPE_CHECKING:
    from collections.abc import Iterator

Message: TypeAlias = Emit | Patch

_MOST: Final = 10_000
_LIFE: Final = 600.0
"""Seconds after which a message is outdated: an event shows when it was written, not when the pod was evicted."""
_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0


@attrs.define
class _Letter:
    """A message that is not written yet."""

    message: Message
    since: float
    attempts: int = 0


@attrs.define
class MessageRetries:
    """Messages that are not written yet, by ticket, oldest first.

    Units: seconds of a monotonic clock.
    """

    reader: Reader
    _letters: dict[int, _Letter] = attrs.field(factory=dict)
    _about: dict[tuple[str, str], int] = attrs.field(factory=dict)
    """The last message of each event about a pod, by UID and reason: a newer one replaces it."""
    _dues: Deadlines[int] = attrs.field(factory=Deadlines)
    """When to send each message again that is not in flight."""

    def __len__(self) -> int:
        """Return the count of messages that are not written yet."""
        return len(self._letters)

    def send(self, message: Message, ticket: int, now: float) -> Send:
        """Remember a message, and return the effect that sends it."""
        about = _about(message)
        if about is not None:
            if about in self._about:
                # Of two events with one reason on one pod only the newer is true, and the older must not be sent after
                # it.
                self._end(self._about[about])
            self._about[about] = ticket
        self._letters[ticket] = _Letter(message, now)
        if len(self._letters) > _MOST:
            self._end(next(iter(self._letters)))
        return Send(message, ticket)

    def answered(self, ticket: int, reply: object, now: float) -> bool:
        """Record the answer to a message; return whether ``ticket`` belongs to one."""
        letter = self._letters.get(ticket)
        if letter is None:
            return False
        if not isinstance(reply, Refusal) or not (reply.is_passing or isinstance(reply, Forbidden)):
            self._end(ticket)
        # One that is due was recalled meanwhile, and this is the answer to the write before.
        elif ticket not in self._dues:
            letter.attempts += 1
            pause = doubling_pause(letter.attempts, _FIRST_PAUSE, _LONGEST_PAUSE)
            self._dues[ticket] = now + max(pause, reply.retry_after or 0.0)
        return True

    def due(self, now: float) -> Iterator[Send]:
        """Yield retries that are due."""
        for ticket in self._dues.take(now):
            letter = self._letters[ticket]
            if now - letter.since > _LIFE or self._is_over(letter.message):
                self._end(ticket)
            else:
                yield Send(letter.message, ticket)

    def next_due(self) -> float | None:
        """Return when the next retry is due; None if all messages are in flight."""
        return self._dues.first()

    def recall(self, now: float) -> None:
        """Make all messages due now, because answers to those in flight will not come."""
        for ticket in self._letters:
            self._dues[ticket] = now

    def hurry(self, now: float) -> None:
        """End all pauses with the next event, because the API server answers again."""
        for ticket in tuple(self._dues):
            self._dues.hasten(ticket, now)

    def _end(self, ticket: int) -> None:
        self._dues.pop(ticket, None)
        about = _about(self._letters.pop(ticket).message)
        if about is not None and self._about.get(about) == ticket:
            del self._about[about]

    def _is_over(self, message: Message) -> bool:
        """Return whether a message is about a pod that is gone or no longer waits."""
        if message.ref.cls is not Pod:
            return False
        pod = self.reader.get(Pod, message.ref.name, message.ref.namespace)
        uid = message.uid if isinstance(message, Emit) else message.patch.get("metadata", {}).get("uid")
        return pod is None or pod.metadata.uid != uid or (isinstance(message, Emit) and bool(pod.spec.node_name))


def _about(message: Message) -> tuple[str, str] | None:
    is_of_pod = isinstance(message, Emit) and message.ref.cls is Pod
    return (message.uid, message.reason) if is_of_pod and isinstance(message, Emit) else None


_KEPT: Final = 600
"""Count of cycles after which a nomination that was not repeated is forgotten."""


@attrs.define
class Promises:
    """The node that each pod was last nominated for, by UID, and the cycle of that nomination."""

    _cycle: int = -1
    _nominated: dict[str, tuple[str, int]] = attrs.field(factory=dict)

    def begin_cycle(self, cycle: int) -> None:
        """Begin a cycle, and forget nominations that no recent cycle repeated."""
        self._cycle = cycle
        self._nominated = {uid: last for uid, last in self._nominated.items() if last[1] > cycle - _KEPT}

    def note(self, uid: str, node: str) -> bool:
        """Remember a nomination; return whether the node differs from the last one."""
        last = self._nominated.get(uid)
        self._nominated[uid] = (node, self._cycle)
        return last is None or last[0] != node

    def forget(self, uid: str) -> None:
        """Forget the nomination of a pod that is being bound."""
        self._nominated.pop(uid, None)


@attrs.define
class BindEvents:
    """Events that wait for a bind, by the UID of the pod."""

    _waiting: dict[str, BindEvent] = attrs.field(factory=dict)

    def await_bind(self, bound: BindEvent) -> None:
        """Keep an event until its pod is bound to its node; it replaces an earlier event that waits for the pod."""
        self._waiting[bound.event.uid] = bound

    def take(self, reader: Reader) -> Iterator[BindEvent]:
        """Yield the events of pods that are bound as ordered; forget these, and those of pods gone or bound elsewhere.

        Cost: one look-up in the store for each bind that has not ended.
        """
        for uid, bound in tuple(self._waiting.items()):
            ref = bound.event.ref
            pod = reader.get(Pod, ref.name, ref.namespace)
            if pod is None or pod.metadata.uid != uid:
                del self._waiting[uid]
            elif pod.spec.node_name:
                del self._waiting[uid]
                if pod.spec.node_name == bound.node:
                    yield bound

    def forget(self) -> None:
        """Forget all events."""
        self._waiting.clear()


_GATHERING: Final = 1.0
"""Seconds for which the binds of a gang are gathered: its pods are bound within that time unless a bind fails."""


@attrs.define
class GangEvents:
    """Binds of gangs that no event reports yet: a count of pods for each node, by UID of the group.

    Units: seconds of a monotonic clock.
    """

    pool: str
    """The name of the node pool, for the text."""
    _gangs: dict[str, tuple[Gang, Counter[str]]] = attrs.field(factory=dict)
    _dues: Deadlines[str] = attrs.field(factory=Deadlines)

    def add(self, gang: Gang, node: str, now: float) -> None:
        """Count a pod of ``gang`` that was bound to ``node``."""
        if gang.uid not in self._gangs:
            self._gangs[gang.uid] = (gang, Counter())
            # From the first bind on, and not anew with each, or a gang that grows for an hour would have no event.
            self._dues[gang.uid] = now + _GATHERING
        self._gangs[gang.uid][1][node] += 1

    def take(self, now: float) -> Iterator[Emit]:
        """Yield the events that are due, and forget their binds."""
        for uid in self._dues.take(now):
            gang, nodes = self._gangs.pop(uid)
            yield gang_event(gang, nodes, self.pool)

    def next_due(self) -> float | None:
        """Return when the next event is due; None if there is none."""
        return self._dues.first()

    def forget(self) -> None:
        """Forget all binds."""
        self._gangs.clear()
        self._dues.clear()
