"""The publisher: writes of what users should read only what changed. A machine without I/O, like the committer.

It compares accounts with the objects as the store shows them, so it needs no memory of its own to stay silent, except
for events, which it does not read back: what an object's condition says already was announced in an earlier life, or
in an earlier term. What else was said then is said again, for what was not sent before a term ended never will be.

Holds: with nothing new there are no writes, and none is sent again before it was answered (`kai.scheduler.letters`). An
explanation that only changed its figures waits until the last one has stood for a while; a change in kind does not
wait. Nothing is written outside of a term.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import takewhile
from typing import Any, Final, TypeAlias, TypeVar
from zlib import crc32

import attrs

from kai.api import names
from kai.api.amounts import same
from kai.api.bindrequest import BindRequest
from kai.api.plans import Emit, Patch, Reason, Ref, Refusal
from kai.api.pod import Pod
from kai.api.podgroup import PodGroup, SchedulingCondition
from kai.api.queue import Queue
from kai.cluster.port import Index, Key
from kai.scheduler import orders
from kai.scheduler.conditions import conditions, explanation, next_id, same_condition, same_in_kind
from kai.scheduler.effects import Overlay, Send, WakeAt
from kai.scheduler.explanations import (
    NOT_READY,
    STALE,
    UNSCHEDULABLE,
    GroupAccount,
    Overall,
    PodAccount,
)
from kai.scheduler.letters import Letters
from kai.scheduler.owed import Owed, key_of
from kai.scheduler.said import Said
from kai.scheduler.settings import SchedulerSettings
from kai.scheduler.signals import NotExplained
from kai.scheduler.single_pod_groups import is_of_one_pod
from kai.scheduler.verifying import Reader

V = TypeVar("V")
_STAMPS: Final = "/stamps"
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
    """What was said, and what is still to be said."""

    settings: SchedulerSettings
    reader: Reader
    now: Callable[[], float]
    """Returns the wall clock, for what people read."""
    _letters: Letters = attrs.field(init=False)
    _owed: Owed = attrs.field(init=False)
    _said: Said = attrs.field(init=False)
    _quiet_until: dict[str, float] = attrs.field(factory=dict)
    """Until when figures about an object are not renewed, by UID; those first that end first."""
    _waiting: dict[Key, GroupAccount] = attrs.field(factory=dict)
    """Accounts of the last cycles that are still to be looked at."""
    _settled: frozenset[Key] = frozenset()
    _uncleared: list[str] = attrs.field(factory=list)
    """Parts of the index in which the conditions of groups that are settled are still to be cleared."""
    _shares_due: float = 0.0
    _held_shares: dict[str, Mapping[str, str]] = attrs.field(factory=dict)
    """Fair shares that had to wait, by queue."""

    def __attrs_post_init__(self) -> None:
        """Begin with nothing written."""
        self._letters = Letters(self.settings.quiet_seconds)
        self._owed = Owed(self.settings.quiet_seconds)
        self._said = Said(self.reader)
        self.reader.find(CONDITIONS, _PARTS[0])  # made now, the index grows with the store: later it takes long

    def step(self, event: Event, now: float) -> tuple[Effect, ...]:
        """Take an event at a time, and return what to write.

        Units: `now` in seconds of a clock that does not go back.
        """
        effects: list[Effect] = []
        match event:
            case Silenced():
                self._owed.end_term(self._waiting.values(), now)
                self._held_shares.clear()
                self._letters.clear()
                self._said.clear()
                self._waiting.clear()
                self._uncleared.clear()
                return ()
            case Written(topic, request, reply):
                self._letters.answered(topic, request, reply, now)
                refusal = reply if isinstance(reply, Refusal) and reply.reason is not Reason.ALREADY_EXISTS else None
                wait = 0.0 if refusal is None else refusal.retry_after or 0.0
                self._owed.answered(topic, now, is_refused=refusal is not None, at_least=wait)
                if isinstance(reply, Refusal) and isinstance(request, Emit):
                    self._said.unsay(request, reply)
                if isinstance(reply, Refusal) and isinstance(request, Patch) and topic.endswith(_STAMPS):
                    # The next cycle tells it anew.
                    effects.append(Overlay(PodGroup, (request.ref.namespace, request.ref.name), {}))
            case CycleOver(overall):
                self._take(overall)
                effects += self._go_on(now)
                if self.settings.publish_fair_shares:
                    effects += self._queues(overall.fair_shares, now)
                self._forget(now)
            case TimePassed():
                effects += self._go_on(now)
                if self._held_shares and self._shares_due <= now:
                    effects += self._queues(dict(self._held_shares), now)
                self._said.sweep(now)
        if (due := self._next_due(now)) is not None:
            effects.append(WakeAt(due))
        return tuple(effects)

    def _next_due(self, now: float) -> float | None:
        if self._waiting or self._uncleared or self._said.is_sweeping:
            return now
        due = [] if (owed := self._owed.next_due()) is None else [owed]
        if self._held_shares:
            due.append(self._shares_due)
        return min(due, default=None)

    # --- Groups --------------------------------------------------------------------------------------------------

    def _take(self, overall: Overall) -> None:
        """Take what a cycle tells; what an earlier one said of the same groups, or of settled ones, is over."""
        for key in overall.settled.intersection(self._waiting):
            account = self._waiting[key]
            self._waiting[key] = attrs.evolve(account, pods=(), condition=None, not_ready="", unschedulable="")
        for account in overall.groups:
            self._waiting[key_of(account)] = _with_times(account, self._waiting.get(key_of(account)))
        self._owed.settle(overall.settled.intersection(self._owed.keys))
        self._settled, self._uncleared = overall.settled, list(_PARTS)

    def _go_on(self, now: float) -> Iterable[Effect]:
        """Tell some of the accounts that wait, and of those that were told before and are due again."""
        fresh = [key for key, _ in zip(self._waiting, range(_AT_ONCE), strict=False)]
        for key in fresh:
            account = self._waiting.pop(key)
            self._owed.tell(account)
            yield from self._account(account, now)
        for account in self._owed.take(now, _AT_ONCE - len(fresh)):
            if key_of(account) not in self._waiting:
                yield from self._account(account, now)
        if not self._waiting:
            yield from self._clear(now)

    def _account(self, account: GroupAccount, now: float) -> Iterable[Effect]:
        try:
            effects = tuple(self._group(account, now))
        except Exception as error:  # noqa: BLE001 - the boundary of an account: what is said of other groups is said
            group = f"{account.namespace}/{account.name}"
            return (NotExplained(group=group, kind=type(error).__name__, why=str(error)),)
        for effect in effects:
            if isinstance(effect, Send) and not effect.topic.endswith(_STAMPS):  # those the next cycle tells anew
                self._owed.send(account, effect.topic)
        return effects

    def _group(self, account: GroupAccount, now: float) -> Iterable[Effect]:
        group = self.reader.get(PodGroup, account.name, account.namespace)
        if group is None or not _is_about(account, group):
            return
        ref = Ref(PodGroup, account.name, account.namespace)
        yield from self._stamps(group, account, now)
        if group.metadata.uid != account.uid:
            return  # the cycle saw it before it was written; the next one says what there is to say
        yield from self._announce(account, ref, STALE, account.stale, now)
        for pod in account.pods:
            yield from self._pod(pod, account, now)
        yield from self._announce(account, ref, NOT_READY, account.not_ready, now)
        yield from self._condition(group, account, now)
        if account.condition is None and not account.waits_for_turn:
            yield from self._announce(account, ref, UNSCHEDULABLE, account.unschedulable, now)

    def _stamps(self, group: PodGroup, account: GroupAccount, now: float) -> Iterable[Effect]:
        """Write timestamps on a group, and show at once when it started.

        The next cycle goes by the start, and may begin before the patch is answered.
        """
        ref, key = Ref(PodGroup, account.name, account.namespace), (account.namespace, account.name)
        needs_no_writing = self.settings.direct_binds and is_of_one_pod(group)
        written = group.metadata.annotations
        if not needs_no_writing and self.reader.is_overlaid(PodGroup, key):
            written = _without(written, names.LAST_START)
        stamps = _changed(written, account.stamps)
        start = stamps.get(names.LAST_START)
        shown = (Overlay(PodGroup, key, {names.LAST_START: start}),) if start else ()
        if start and needs_no_writing:
            stamps = _without(stamps, names.LAST_START)
            yield from shown
            shown = ()
        if stamps and group.metadata.uid:
            patch = Patch(ref=ref, patch={"metadata": {"uid": group.metadata.uid, "annotations": stamps}})
            sent = tuple(self._write(f"{account.uid}{_STAMPS}", group, patch, stamps, now))
            yield from (*shown, *sent) if sent else ()

    def _announce(
        self, account: GroupAccount, ref: Ref[Any], reason: str, message: str, now: float
    ) -> Iterable[Effect]:
        """Emit an event on the group unless it was said; an empty message lets it be said anew."""
        said = self._said.of(account.uid, reason)
        if not message:
            self._said.forget(account.uid, reason)
        elif said != message and self._may_speak(f"{account.uid}/{reason}", said is None, account, now):
            yield self._say(orders.emit(ref, reason, message, uid=account.uid))

    def _say(self, event: Emit) -> Send:
        """Remember an event as said, and return how to send it; of those about one thing only the last is sent."""
        self._said.note(event.uid, event.reason, event.message, event.ref)
        return Send(event, topic=f"{event.uid}/event/{event.reason}")

    def _condition(self, group: PodGroup, account: GroupAccount, now: float) -> Iterable[Effect]:
        known = group.status.scheduling_conditions
        if account.condition is None:
            return
        ref = Ref(PodGroup, account.name, account.namespace)
        last = known[-1] if known else None
        if account.waits_for_turn and last is not None:
            if last.node_pool == self.settings.pool and self._said.of(account.uid, UNSCHEDULABLE) == "":
                yield from self._announce(account, ref, UNSCHEDULABLE, last.message, now)
            return
        wanted = SchedulingCondition(
            type=names.UNSCHEDULABLE_ON_NODE_POOL_CONDITION,
            node_pool=self.settings.pool,
            reason=names.UNSCHEDULABLE_REASON,
            message=account.condition.message,
            reasons=account.condition.reasons,
            status="True",
        )
        if last is not None and same_condition(last, wanted):
            if self._said.of(account.uid, UNSCHEDULABLE) is None:
                self._said.note(account.uid, UNSCHEDULABLE, account.unschedulable, ref)
            if not self._said.of(account.uid, UNSCHEDULABLE):
                yield from self._announce(account, ref, UNSCHEDULABLE, account.unschedulable, now)
            return
        if self._is_sent(_condition_of(group), wanted, group.metadata.resource_version, now, account):
            return
        is_news = last is None or not same_in_kind(last, wanted)
        if not (account.waits_for_turn or self._may_speak(f"{account.uid}/{UNSCHEDULABLE}", is_news, account, now)):
            return
        fresh = attrs.evolve(wanted, transition_id=next_id(known), last_transition_time=float(int(self.now())))
        others = (each for each in known if each.node_pool != self.settings.pool)
        yield from self._write(_condition_of(group), group, conditions(group, (*others, fresh)), wanted, now, account)
        if self._said.of(account.uid, UNSCHEDULABLE) != account.unschedulable:
            yield self._say(orders.emit(ref, UNSCHEDULABLE, account.unschedulable, uid=account.uid))

    def _clear(self, now: float) -> Iterable[Effect]:
        """Remove the conditions of some groups of which nothing waits or is being bound."""
        looked_at = 0
        while self._uncleared and looked_at < 4 * _AT_ONCE:
            groups = self.reader.find(CONDITIONS, self._uncleared.pop())
            looked_at += len(groups)
            for group in groups:
                if (group.metadata.namespace, group.metadata.name) in self._settled:
                    self._said.forget(group.metadata.uid, UNSCHEDULABLE)
                    yield from self._write(_condition_of(group), group, conditions(group, ()), None, now)

    def _write(
        self,
        topic: str,
        obj: PodGroup | Pod | Queue,
        patch: Patch,
        content: object,
        now: float,
        account: GroupAccount | None = None,
    ) -> Iterable[Effect]:
        """Write something about a topic, unless the same is on its way, or this version was not to be written."""
        version = obj.metadata.resource_version
        if not self._is_sent(topic, content, version, now, account):
            yield self._letters.send(topic, patch, content, version)

    def _is_sent(self, topic: str, content: object, version: str, now: float, account: GroupAccount | None) -> bool:
        """Return whether a write need not, or should not, be sent; an account of which it is a part is told again."""
        if account is not None and self._letters.is_refused(topic, version, now):
            self._owed.owe(account, now)
        return self._letters.is_sent(topic, content, version, now)

    # --- Pods ----------------------------------------------------------------------------------------------------

    def _pod(self, account: PodAccount, group: GroupAccount, now: float) -> Iterable[Effect]:
        pod = self.reader.get(Pod, account.name, account.namespace)
        if pod is None or pod.metadata.uid != account.uid or pod.metadata.deletion_timestamp is not None:
            return
        if pod.spec.node_name:
            return
        written = explanation(pod)
        if group.waits_for_turn:
            if self._has_heard(account, written) or self._is_being_bound(pod):
                return
            # Its event alone was lost; what was written before says more than that it waits for its turn.
            account = account if written is None else attrs.evolve(account, message=written)
        said = self._said.of(account.uid, UNSCHEDULABLE)
        if written is not None and said is None:
            said = written
            self._said.note(account.uid, UNSCHEDULABLE, written, orders.pod_ref(pod))
        stands = written == account.message if account.on_pod else said == account.message
        if stands and said == account.message:
            return
        is_news = written is None and said is None
        # What is said for want of something better is not to keep what is better waiting.
        if not ((group.waits_for_turn and is_news) or self._may_speak(account.uid, is_news, group, now)):
            return
        if account.on_pod and written != account.message:
            patch = orders.pod_condition(
                pod,
                kind=names.POD_SCHEDULED_CONDITION,
                status="False",
                reason=names.UNSCHEDULABLE_REASON,
                message=account.message,
                now=self.now(),
            )
            yield from self._write(f"{account.uid}/condition", pod, patch, account.message, now, group)
        if account.event and said != account.message:
            yield self._say(
                Emit(
                    ref=orders.pod_ref(pod),
                    type="Warning",
                    reason=UNSCHEDULABLE,
                    message=account.message,
                    uid=account.uid,
                )
            )

    def _has_heard(self, account: PodAccount, written: str | None) -> bool:
        """Return whether a pod knows more than that it waits for its turn, or just that."""
        said = self._said.of(account.uid, UNSCHEDULABLE)
        if written is not None:
            return said != ""
        return bool(said) and (said != account.message or not account.on_pod)

    def _is_being_bound(self, pod: Pod) -> bool:
        return self.reader.get(BindRequest, pod.metadata.name, pod.metadata.namespace) is not None

    # --- Queues --------------------------------------------------------------------------------------------------

    def _queues(self, shares: Mapping[str, Mapping[str, str]], now: float) -> Iterable[Effect]:
        due = now + self.settings.quiet_seconds
        for name, share in shares.items():
            queue = self.reader.get(Queue, name)
            self._held_shares.pop(name, None)
            if queue is None or same(queue.status.fair_share, share):
                continue
            uid = queue.metadata.uid
            if self._quiet_until.get(uid, 0.0) > now:
                self._held_shares[name] = share
                due = min(due, self._quiet_until[uid])
                continue
            self._quieten(uid, now)
            gone = dict.fromkeys(key for key in queue.status.fair_share if key not in share)
            body = {"metadata": {"uid": uid}, "status": {"fairShare": {**gone, **share}}}
            patch = Patch(ref=Ref(Queue, name), patch=body, subresource="status")
            yield from self._write(f"{uid}/share", queue, patch, dict(share), now)
        self._shares_due = due

    # --- Silence -------------------------------------------------------------------------------------------------

    def _may_speak(self, topic: str, is_news: bool, account: GroupAccount, now: float) -> bool:  # noqa: FBT001 - read as "may speak of the topic, as it is news"
        if not is_news and self._quiet_until.get(topic, 0.0) > now:
            self._owed.hold(account, self._quiet_until[topic])
            return False
        self._quieten(topic, now)
        return True

    def _quieten(self, topic: str, now: float) -> None:
        self._quiet_until.pop(topic, None)
        self._quiet_until[topic] = now + self.settings.quiet_seconds

    def _forget(self, now: float) -> None:
        for topic in [*takewhile(lambda topic: self._quiet_until[topic] <= now, self._quiet_until)]:
            del self._quiet_until[topic]
        self._letters.forget(now)
        self._said.sweep(now)


def _condition_of(group: PodGroup) -> str:
    return f"{group.metadata.uid}/condition"


def _is_about(account: GroupAccount, group: PodGroup) -> bool:
    """Return whether an account is of this very group; one that was not written yet is told by its name.

    Only groups of one pod are shown before they are written, and their names hold the pod's UID.
    """
    return account.uid == group.metadata.uid or (account.uid == group.metadata.name and is_of_one_pod(group))


def _with_times(account: GroupAccount, earlier: GroupAccount | None) -> GroupAccount:
    """Return an account with what an earlier one, not told yet, says of starts and evictions: cycles say it once."""
    if earlier is None or earlier.uid != account.uid:
        return account
    lacking = (name for name in (names.LAST_START, names.LAST_EVICTION) if account.stamps.get(name) is None)
    times = {name: earlier.stamps[name] for name in lacking if earlier.stamps.get(name) is not None}
    return attrs.evolve(account, stamps={**account.stamps, **times}) if times else account


def _changed(found: Mapping[str, str], wanted: Mapping[str, str | None]) -> dict[str, str | None]:
    return {key: value for key, value in wanted.items() if found.get(key) != value}


def _without(annotations: Mapping[str, V], name: str) -> dict[str, V]:
    return {key: value for key, value in annotations.items() if key != name}
