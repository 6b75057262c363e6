"""The publisher: writes of what users should read only what changed. A machine without I/O, like the committer.

It compares accounts with the objects as the store shows them, so it needs no memory of its own to stay silent, except
for events, which it does not read back: what an object's condition says already was announced in an earlier life, or
in an earlier term. What else was said then is said again, for what was not sent before a term ended never will be.

Holds: with nothing new there are no writes, and none is sent again before it was answered. An explanation that only
changed its figures waits until the last one has stood for a while; a change in kind does not wait. Nothing is written
outside of a term. What is remembered for that is in `kai.scheduler.publishing.outgoing`.

Fair shares in the status of queues: a figure that was just written stands for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias
from zlib import crc32

import attrs

from kai.api import names
from kai.api.conventions.amounts import same
from kai.api.kinds import Key, key_of
from kai.api.plans import Patch, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.port import Index
from kai.scheduler.effects import Overlay, Reader, Send, WakeAt
from kai.scheduler.publishing.conditions import STAMPS, GroupWrites, condition_topic, conditions
from kai.scheduler.publishing.explanations import UNSCHEDULABLE, GroupAccount, Overall
from kai.scheduler.publishing.outgoing import Outgoing
from kai.scheduler.reporting.signals import NotExplained
from kai.scheduler.settings import SchedulerSettings


@attrs.define
class FairShares:
    """The fair shares that wait to be written.

    Units: seconds of a clock that does not go back.
    """

    reader: Reader
    outgoing: Outgoing
    _due: float = 0.0
    _held: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Fair shares that had to wait, by queue."""

    def publish(self, shares: Mapping[str, Mapping[str, str]], now: float) -> Iterable[Send]:
        """Yield the writes of fair shares that the status of their queues does not say; some of them wait."""
        due = now + self.outgoing.quiet_seconds
        for name, share in shares.items():
            queue = self.reader.get(Queue, name)
            self._held.pop(name, None)
            if queue is None or same(queue.status.fair_share, share):
                continue
            uid = queue.metadata.uid
            until = self.outgoing.quiet.get(uid, now)
            if until > now:
                self._held[name] = share
                due = min(due, until)
                continue
            self.outgoing.quiet[uid] = now + self.outgoing.quiet_seconds
            gone = dict.fromkeys(key for key in queue.status.fair_share if key not in share)
            body = {"metadata": {"uid": uid}, "status": {"fairShare": {**gone, **share}}}
            patch = Patch(ref=Ref(Queue, name), patch=body, subresource="status")
            yield from self.outgoing.write(f"{uid}/share", queue, patch, dict(share), now)
        self._due = due

    def publish_held(self, now: float) -> Iterable[Send]:
        """Yield the writes of what waited, once it is due."""
        return self.publish(dict(self._held), now) if self._held and self._due <= now else ()

    def next_due(self) -> float | None:
        """Return when to write what waits; None if nothing does."""
        return self._due if self._held else None

    def clear(self) -> None:
        """Forget what waits."""
        self._held.clear()


_AT_ONCE: Final = 64
"""So many accounts are told in one step, and four times as many objects looked at: the event loop waits for a step."""
_PARTS: Final = tuple(map(str, range(64)))


def _has_conditions(group: PodGroup) -> Iterable[str]:
    return (_PARTS[crc32(group.metadata.name.encode()) % len(_PARTS)],) if group.status.scheduling_conditions else ()


CONDITIONS: Final = Index(PodGroup, "scheduler: conditions", _has_conditions)
"""Pod groups that have scheduling conditions, in parts that are looked through one at a time."""


@attrs.frozen
class CycleOver:
    """A cycle is over, and this is how things are."""

    overall: Overall


@attrs.frozen
class TimePassed:
    """Time has passed."""


@attrs.frozen
class Silenced:
    """We lead no more."""


@attrs.frozen
class Written:
    """How a write about a topic ended."""

    topic: str
    request: object
    reply: object


Event: TypeAlias = CycleOver | TimePassed | Silenced | Written
Effect: TypeAlias = Send | Overlay | NotExplained | WakeAt


@attrs.define
class Publisher:
    """What is still to be told, and what compares it with the cluster."""

    settings: SchedulerSettings
    reader: Reader
    now: Callable[[], float]
    """Returns the wall clock, for what people read."""
    outgoing: Outgoing = attrs.field(init=False)
    _groups: GroupWrites = attrs.field(init=False)
    _shares: FairShares = attrs.field(init=False)
    _waiting: dict[Key, GroupAccount] = attrs.field(factory=dict)
    """Accounts of the last cycles that are still to be looked at."""
    _settled: frozenset[Key] = frozenset()
    _uncleared: list[str] = attrs.field(factory=list)
    """Parts of the index in which the conditions of groups that are settled are still to be cleared."""
    _is_silenced: bool = False
    """Whether a term ended and no cycle was over since: what is told later is told in the next term."""

    def __attrs_post_init__(self) -> None:
        """Begin with nothing written."""
        self.outgoing = Outgoing(self.reader, self.settings.quiet_seconds)
        self._groups = GroupWrites(self.settings, self.reader, self.now, self.outgoing)
        self._shares = FairShares(self.reader, self.outgoing)
        self.reader.find(CONDITIONS, _PARTS[0])  # made now, the index grows with the store: later it takes long

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Take an event at a time, and return what to write.

        Units: `now` in seconds of a clock that does not go back.
        """
        effects: list[Effect] = []
        match event:
            case Silenced():
                self._is_silenced = True
                self.outgoing.end_term(self._waiting.values(), now)
                self._shares.clear()
                self._waiting.clear()
                self._uncleared.clear()
                return ()
            case Written(topic, request, reply):
                self.outgoing.answered(topic, request, reply, now)
                if isinstance(request, Patch) and topic.endswith(STAMPS):
                    self.outgoing.losses.answered(request, reply, now)
                    if isinstance(reply, Refusal):
                        # The next cycle tells it anew.
                        effects.append(Overlay(PodGroup, (request.ref.namespace, request.ref.name), {}))
            case CycleOver(overall):
                self._is_silenced = False
                self._take(overall)
                effects += self._go_on(now)
                effects += self._shares.publish(overall.fair_shares, now)
                self.outgoing.forget(now)
            case TimePassed() if not self._is_silenced:
                effects += self._go_on(now)
                effects += self._shares.publish_held(now)
                self.outgoing.history.sweep(now)
        if not self._is_silenced and (due := self._next_due(now)) is not None:
            effects.append(WakeAt(due))
        return tuple(effects)

    def _next_due(self, now: float) -> float | None:
        if self._waiting or self._uncleared or self.outgoing.history.is_sweeping:
            return now
        outgoing = self.outgoing
        dues = (outgoing.deferred.next_due(), outgoing.losses.next_due(), self._shares.next_due())
        return min((due for due in dues if due is not None), default=None)

    def _take(self, overall: Overall) -> None:
        """Take what a cycle tells; what an earlier one said of the same groups, or of settled ones, is over."""
        for key in overall.settled.intersection(self._waiting):
            account = self._waiting[key]
            self._waiting[key] = attrs.evolve(account, pods=(), condition=None, not_ready="", unschedulable="")
        for account in overall.groups:
            self._waiting[account.key] = _with_times(account, self._waiting.get(account.key))
        self.outgoing.deferred.settle(overall.settled.intersection(self.outgoing.deferred.keys))
        self._settled, self._uncleared = overall.settled, list(_PARTS)

    def _go_on(self, now: float) -> Iterable[Effect]:
        """Tell some of the accounts that wait, and of those that were told before and are due again."""
        fresh = [key for key, _ in zip(self._waiting, range(_AT_ONCE), strict=False)]
        for key in fresh:
            account = self._waiting.pop(key)
            self.outgoing.deferred.tell(account)
            yield from self._account(account, now)
        for account in self.outgoing.deferred.take(now, _AT_ONCE - len(fresh)):
            if account.key not in self._waiting:
                yield from self._account(account, now)
        yield from self._groups.again(now, _AT_ONCE)
        if not self._waiting:
            yield from self._clear(now)

    def _account(self, account: GroupAccount, now: float) -> Iterable[Effect]:
        try:
            effects = tuple(self._groups.of(account, now))
        except Exception as error:  # noqa: BLE001 - the boundary of an account: what is said of other groups is said
            group = f"{account.namespace}/{account.name}"
            return (NotExplained(group=group, kind=type(error).__name__, why=str(error)),)
        for effect in effects:
            if isinstance(effect, Send) and not effect.topic.endswith(STAMPS):  # those the next cycle tells anew
                self.outgoing.deferred.send(account, effect.topic)
        return effects

    def _clear(self, now: float) -> Iterable[Effect]:
        """Remove the conditions of some groups of which nothing waits or is being bound."""
        looked_at = 0
        while self._uncleared and looked_at < 4 * _AT_ONCE:
            groups = self.reader.find(CONDITIONS, self._uncleared.pop())
            looked_at += len(groups)
            for group in groups:
                if key_of(group) in self._settled:
                    self.outgoing.history.forget(group.metadata.uid, UNSCHEDULABLE)
                    yield from self.outgoing.write(condition_topic(group), group, conditions(group, ()), None, now)


def _with_times(account: GroupAccount, earlier: GroupAccount | None) -> GroupAccount:
    """Return an account with what an earlier one, not told yet, says of starts and evictions: cycles say it once."""
    if earlier is None or earlier.uid != account.uid:
        return account
    lacking = (name for name in (names.LAST_START, names.LAST_EVICTION) if account.stamps.get(name) is None)
    times = {name: earlier.stamps[name] for name in lacking if earlier.stamps.get(name) is not None}
    return attrs.evolve(account, stamps={**account.stamps, **times}) if times else account
