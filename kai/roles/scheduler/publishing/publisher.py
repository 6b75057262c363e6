"""The publisher: writes events, conditions, timestamps and fair shares, where they changed. No I/O, like the committer.

It compares accounts with the objects in the store, so it needs no memory to stay silent, except for events, which it
does not read back. An object whose condition already says the same was announced by an earlier process or in an
earlier term. All other events are sent again, because writes that were unsent when a term ended are lost.

Holds: without changes there are no writes, and no write is repeated before its answer. A change of figures alone waits
for the quiet period; a change of reasons does not. Nothing is written outside of a term. The state behind these rules
is in `kai.roles.scheduler.publishing.outgoing`.

`FairShares` writes fair shares to the status of queues, each at most once per quiet period, and `BudgetStatuses` what
was used of their budgets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, TypeAlias
from zlib import crc32

import attrs

from kai.api import names
from kai.api.codec.structuring import unstructure
from kai.api.conventions.amounts import same
from kai.api.kinds import Key, key_of
from kai.api.plans import Patch, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import BudgetStatus, Queue
from kai.cluster.port import Index
from kai.roles.scheduler.effects import NotExplained, Overlay, Reader, Send, WakeAt
from kai.roles.scheduler.publishing.conditions import STAMPS, GroupWrites, condition_topic, conditions
from kai.roles.scheduler.publishing.explanations import UNSCHEDULABLE, GroupAccount, Overall
from kai.roles.scheduler.publishing.outgoing import Outgoing
from kai.roles.scheduler.settings import SchedulerSettings


@attrs.define
class FairShares:
    """Writes fair shares to the status of queues, and holds shares in their quiet period.

    Units: seconds of a monotonic clock.
    """

    reader: Reader
    outgoing: Outgoing
    _due: float = 0.0
    _held: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Fair shares in their quiet period, by queue."""

    def publish(self, shares: Mapping[str, Mapping[str, str]], now: float) -> Iterable[Send]:
        """Yield the writes of fair shares that differ from the status; hold those in their quiet period."""
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
            # A merge patch keeps the keys that it does not mention, and deletes keys with null.
            gone = dict.fromkeys(key for key in queue.status.fair_share if key not in share)
            body = {"metadata": {"uid": uid}, "status": {"fairShare": {**gone, **share}}}
            patch = Patch(ref=Ref(Queue, name), patch=body, subresource="status")
            yield from self.outgoing.write(f"{uid}/share", queue, patch, dict(share), now)
        self._due = due

    def publish_held(self, now: float) -> Iterable[Send]:
        """Yield the writes of held fair shares that are due."""
        return self.publish(dict(self._held), now) if self._held and self._due <= now else ()

    def next_due(self) -> float | None:
        """Return when the next held fair share is due; None if none is held."""
        return self._due if self._held else None

    def clear(self) -> None:
        """Forget the held fair shares."""
        self._held.clear()


_OLD: Final = 300.0
"""After how many seconds a status is written again although little was used since."""


@attrs.define
class BudgetStatuses:
    """Writes what was used of budgets to the status of queues, where it changed by a hundredth or is minutes old."""

    reader: Reader
    outgoing: Outgoing

    def publish(self, budgets: Mapping[str, tuple[BudgetStatus, ...]], now: float) -> Iterable[Send]:
        """Yield the writes that are due; the next cycle repeats what is in its quiet period."""
        for name, wanted in budgets.items():
            queue = self.reader.get(Queue, name)
            if queue is None or not _is_news(queue.status.budgets, wanted):
                continue
            uid = queue.metadata.uid
            topic = f"{uid}/budgets"
            if self.outgoing.quiet.get(topic, now) > now:
                continue
            self.outgoing.quiet[topic] = now + self.outgoing.quiet_seconds
            body = {"metadata": {"uid": uid}, "status": {"budgets": [unstructure(each) for each in wanted]}}
            patch = Patch(ref=Ref(Queue, name), patch=body, subresource="status")
            yield from self.outgoing.write(topic, queue, patch, wanted, now)


def _is_news(written: Sequence[BudgetStatus], wanted: Sequence[BudgetStatus]) -> bool:
    if len(written) != len(wanted):
        return True
    for old, new in zip(written, wanted, strict=True):
        if (old.name, old.since, old.until, old.carried) != (new.name, new.since, new.until, new.carried):
            return True
        change = max(abs(old.spent - new.spent), abs(old.committed - new.committed))
        if change > max(0.1, new.spent / 100) or (change > 0 and new.at - old.at > _OLD):
            return True
    return False


_AT_ONCE: Final = 64
"""Accounts per step; a step clears conditions of four times as many groups. Bounds how long the event loop waits."""
_PARTS: Final = tuple(map(str, range(64)))


def _has_conditions(group: PodGroup) -> Iterable[str]:
    # Not `hash`, which differs from process to process: a simulation has to repeat.
    return (_PARTS[crc32(group.metadata.name.encode()) % len(_PARTS)],) if group.status.scheduling_conditions else ()


CONDITIONS: Final = Index(PodGroup, "scheduler: conditions", _has_conditions)
"""Pod groups that have scheduling conditions, in partitions that are scanned one at a time."""


@attrs.frozen
class CycleOver:
    """A cycle is over, with these accounts."""

    overall: Overall


@attrs.frozen
class TimePassed:
    """Time has passed: deferred work may be due."""


@attrs.frozen
class Silenced:
    """This process lost the leader election."""


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
    """Accounts that are not published yet, and the writers that compare them with the store."""

    settings: SchedulerSettings
    reader: Reader
    now: Callable[[], float]
    """Returns the wall clock time for timestamps that users read."""
    outgoing: Outgoing = attrs.field(init=False)
    _groups: GroupWrites = attrs.field(init=False)
    _shares: FairShares = attrs.field(init=False)
    _budgets: BudgetStatuses = attrs.field(init=False)
    _waiting: dict[Key, GroupAccount] = attrs.field(factory=dict)
    """Accounts of recent cycles that are not compared with the store yet."""
    _settled: frozenset[Key] = frozenset()
    _uncleared: list[str] = attrs.field(factory=list)
    """Partitions of the index in which conditions of settled groups are not cleared yet."""
    _is_silenced: bool = False
    """Whether a term ended and no cycle was over since: deferred accounts wait for the next term."""

    def __attrs_post_init__(self) -> None:
        """Begin with empty memories."""
        self.outgoing = Outgoing(self.reader, self.settings.quiet_seconds)
        self._groups = GroupWrites(self.settings, self.reader, self.now, self.outgoing)
        self._shares = FairShares(self.reader, self.outgoing)
        self._budgets = BudgetStatuses(self.reader, self.outgoing)
        self.reader.find(CONDITIONS, _PARTS[0])  # builds the index while the store is empty; later that would take long

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Handle an event at the time ``now``, and return the writes that follow.

        Units: ``now`` in seconds of a monotonic clock.
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
                        # Remove the overlay: the annotation was not written, and the next cycle repeats it.
                        effects.append(Overlay(PodGroup, (request.ref.namespace, request.ref.name), {}))
            case CycleOver(overall):
                self._is_silenced = False
                self._take(overall)
                effects += self._go_on(now)
                effects += self._shares.publish(overall.fair_shares, now)
                effects += self._budgets.publish(overall.budgets, now)
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
        """Take the accounts of a cycle; they replace earlier ones of the same groups and of settled groups."""
        for key in overall.settled.intersection(self._waiting):
            # Its timestamps must still be written; its reasons no longer hold.
            account = self._waiting[key]
            self._waiting[key] = attrs.evolve(account, pods=(), condition=None, not_ready="", unschedulable="")
        for account in overall.groups:
            self._waiting[account.key] = _with_times(account, self._waiting.get(account.key))
        self.outgoing.deferred.settle(overall.settled.intersection(self.outgoing.deferred.keys))
        self._settled, self._uncleared = overall.settled, list(_PARTS)

    def _go_on(self, now: float) -> Iterable[Effect]:
        """Publish a batch of new accounts and of deferred ones that are due."""
        fresh = [key for key, _ in zip(self._waiting, range(_AT_ONCE), strict=False)]
        for key in fresh:
            account = self._waiting.pop(key)
            self.outgoing.deferred.replace(account)
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
        except Exception as error:  # noqa: BLE001 - one account that fails must not keep the others from users
            group = f"{account.namespace}/{account.name}"
            return (NotExplained(group=group, kind=type(error).__name__, why=str(error)),)
        for effect in effects:
            if isinstance(effect, Send) and not effect.topic.endswith(STAMPS):  # the next cycle repeats timestamps
                self.outgoing.deferred.send(account, effect.topic)
        return effects

    def _clear(self, now: float) -> Iterable[Effect]:
        """Remove the conditions of a batch of settled groups."""
        looked_at = 0
        while self._uncleared and looked_at < 4 * _AT_ONCE:
            groups = self.reader.find(CONDITIONS, self._uncleared.pop())
            looked_at += len(groups)
            for group in groups:
                if key_of(group) in self._settled:
                    self.outgoing.history.forget(group.metadata.uid, UNSCHEDULABLE)
                    yield from self.outgoing.write(condition_topic(group), group, conditions(group, ()), None, now)


def _with_times(account: GroupAccount, earlier: GroupAccount | None) -> GroupAccount:
    """Return an account with the start and eviction times of an unpublished ``earlier`` one: cycles say these once."""
    if earlier is None or earlier.uid != account.uid:
        return account
    lacking = (name for name in (names.LAST_START, names.LAST_EVICTION) if account.stamps.get(name) is None)
    times = {name: earlier.stamps[name] for name in lacking if earlier.stamps.get(name) is not None}
    return attrs.evolve(account, stamps={**account.stamps, **times}) if times else account
