"""State of groups that is not in the API server yet: deferred accounts, unwritten evictions, starts of single pods.

`DeferredAccounts` keeps accounts that are published later. A figure that changes again and again is held back until
the quiet period is over. An account whose write was refused or skipped is retried after a pause, because no later
cycle may produce it again: cycles do not repeat "waits for its turn", so such a group would show nothing until its
turn comes. An account is kept until all of it is written, or the group gets another account or needs none.

`Losses` keeps the times at which groups lost pods to evictions until the annotation is written. A cycle reports such a
time once, and all later cycles read the annotation: without it a group would evict others before its preemption delay
is over. A cycle that began before the write does not know the time, so an account never removes it or replaces it with
an earlier one.

`recalled_starts` derives the start of groups of a single pod. The API server records on a pod when it was bound, and a
group that never gets another pod started then. So kai does not write the annotation: it overlays the start in its own
store, and derives it again from the pods after a restart.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

import attrs

from kai.api import names
from kai.api.kinds import Key, key_of
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Patch, Refusal
from kai.api.scheduling.pod_group import PodGroup, name_after
from kai.api.values import BadValue, instant, instant_text
from kai.basics.deadlines import Deadlines
from kai.roles.scheduler.effects import Overlay, Reader
from kai.roles.scheduler.publishing.explanations import GroupAccount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MOST: Final = 50_000


@attrs.define
class DeferredAccounts:
    """Accounts that are published later, by group; beyond a limit the oldest is dropped.

    Units: seconds of a monotonic clock.
    """

    pause: float
    """How long to wait after a refusal before the account is published again."""
    _later: dict[Key, GroupAccount] = attrs.field(factory=dict)
    _dues: Deadlines[Key] = attrs.field(factory=Deadlines)
    """When each account is due."""
    _sent: dict[str, Key] = attrs.field(factory=dict)
    """The group of each write without an answer, by topic."""
    _under_way: dict[Key, tuple[GroupAccount, set[str]]] = attrs.field(factory=dict)
    """Groups with writes without an answer: the account and the topics of the writes."""

    def replace(self, account: GroupAccount) -> None:
        """Replace the account of a group; if a write in flight is refused, the new account is retried."""
        self._drop(account.key)
        if account.key in self._under_way:
            self._under_way[account.key] = account, self._under_way[account.key][1]

    def send(self, account: GroupAccount, topic: str) -> None:
        """Remember that a write of this account is in flight."""
        key = account.key
        self._sent[topic] = key
        _, topics = self._under_way.get(key, (account, set()))
        topics.add(topic)
        self._under_way[key] = account, topics

    def answered(self, topic: str, now: float, *, is_refused: bool, at_least: float = 0.0) -> None:
        """Record the end of a write; retry a refused account after the pause, and not before ``at_least`` seconds."""
        key = self._sent.pop(topic, None)
        if key is None:
            return
        account, topics = self._under_way[key]
        topics.discard(topic)
        if not topics:
            del self._under_way[key]
        if is_refused:
            self.hold(account, now + max(self.pause, at_least))

    def owe(self, account: GroupAccount, now: float) -> None:
        """Publish an account again after the pause."""
        self.hold(account, now + self.pause)

    def hold(self, account: GroupAccount, due: float) -> None:
        """Publish an account at ``due``, or earlier if an earlier time is set for its group."""
        key = account.key
        self._later[key] = account
        # Only ever earlier: a refusal with a long pause must not put off what is due sooner.
        self._dues.hasten(key, due)
        if len(self._later) > _MOST:
            self._drop(next(iter(self._later)))

    def settle(self, keys: Iterable[Key]) -> None:
        """Forget groups that need no account any more."""
        for key in keys:
            self._drop(key)
            _, topics = self._under_way.pop(key, (None, ()))
            for topic in topics:
                del self._sent[topic]

    @property
    def keys(self) -> frozenset[Key]:
        """Return the groups with a deferred account or a write in flight."""
        return frozenset((*self._later, *self._under_way))

    def take(self, now: float, most: int) -> tuple[GroupAccount, ...]:
        """Remove and return at most ``most`` accounts that are due."""
        return tuple(self._later.pop(key) for key in islice(self._dues.take(now), most))

    def next_due(self) -> float | None:
        """Return when the next account is due; None if none is deferred."""
        return self._dues.first()

    def end_term(self, unheard: Iterable[GroupAccount], now: float) -> None:
        """Drop writes in flight, as no answers will come; keep accounts of groups that wait for their turn, due now."""
        accounts = [account for account, _ in self._under_way.values()]
        accounts += self._later.values()
        accounts += unheard
        for memory in (self._sent, self._under_way, self._later, self._dues):
            memory.clear()
        for account in accounts:
            # Only these: all other accounts are made again by the first cycle of the next term.
            if account.waits_for_turn:
                self.hold(account, now)

    def _drop(self, key: Key) -> None:
        self._later.pop(key, None)
        self._dues.pop(key, None)


@attrs.frozen
class EvictionTime:
    """When the group with this UID lost pods to evictions."""

    uid: str
    time: str


@attrs.define
class Losses:
    """Times of evictions that may not be written yet, by group; beyond a limit the oldest is dropped.

    Units: seconds of a monotonic clock.
    """

    pause: float
    """How long to wait after a refusal before the time is written again."""
    _unwritten: dict[Key, EvictionTime] = attrs.field(factory=dict)
    _dues: Deadlines[Key] = attrs.field(factory=Deadlines)
    """When to retry the times that have no write in flight."""

    def stamps_with(self, group: PodGroup, stamps: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return the timestamps of an account, with the latest eviction if the annotation lacks it."""
        written = group.metadata.annotations.get(names.LAST_EVICTION)
        known = self._unwritten.get(key_of(group))
        kept = known.time if known is not None and known.uid == group.metadata.uid else None
        losses = [time for time in (stamps.get(names.LAST_EVICTION), kept) if time is not None]
        # By instant and not by text: other clients may write another time zone, or fractions of a second.
        found = max(losses, key=_instant_of, default=None)
        if found is None or (written is not None and _instant_of(found) <= _instant_of(written)):
            return {key: text for key, text in stamps.items() if key != names.LAST_EVICTION}
        return {**stamps, names.LAST_EVICTION: found}

    def sent(self, group: PodGroup, time: str) -> None:
        """Remember a time whose write is in flight."""
        key = key_of(group)
        self._drop(key)
        self._unwritten[key] = EvictionTime(group.metadata.uid, time)
        if len(self._unwritten) > _MOST:
            self._drop(next(iter(self._unwritten)))

    def held(self, group: PodGroup, time: str, now: float) -> None:
        """Remember a time whose write was held back, and retry it after the pause."""
        if self._unwritten.get(key_of(group)) != EvictionTime(group.metadata.uid, time):
            self.sent(group, time)
            self._dues[key_of(group)] = now + self.pause

    def answered(self, request: Patch, reply: object, now: float) -> None:
        """Record the end of a write of timestamps: retry it after a passing refusal, else forget the time."""
        key = (request.ref.namespace, request.ref.name)
        known = self._unwritten.get(key)
        # An answer to an older time: the newer one has a write of its own.
        if known is None or request.patch["metadata"]["annotations"].get(names.LAST_EVICTION) != known.time:
            return
        if isinstance(reply, Refusal) and reply.is_passing:
            self._dues[key] = now + max(self.pause, reply.retry_after or 0.0)
        else:
            self._drop(key)

    def take(self, now: float, most: int) -> tuple[tuple[Key, EvictionTime], ...]:
        """Remove and return at most ``most`` times that are due."""
        return tuple((key, self._unwritten.pop(key)) for key in islice(self._dues.take(now), most))

    def next_due(self) -> float | None:
        """Return when the next retry is due; None if there is none."""
        return self._dues.first()

    def end_term(self, now: float) -> None:
        """Make everything due now, because answers to writes in flight will not come."""
        for key in self._unwritten:
            self._dues[key] = now

    def _drop(self, key: Key) -> None:
        self._unwritten.pop(key, None)
        self._dues.pop(key, None)


def _instant_of(text: str) -> float:
    """Return a timestamp as seconds since the epoch; minus infinity if it cannot be parsed."""
    try:
        return instant(text)
    except BadValue:
        return float("-inf")


def is_of_one_pod(group: PodGroup) -> bool:
    """Return whether a group was made for one pod without another owner: its name derives from that pod."""
    owners = group.metadata.owner_references
    if len(owners) != 1 or owners[0].kind != "Pod":
        return False
    return group.metadata.name == name_after(owners[0].name, owners[0].uid)


def recalled_starts(reader: Reader, groups: Iterable[PodGroup]) -> Iterator[Overlay]:
    """Yield start times for the ``groups`` that have a single pod and no annotation of their start."""
    for group in groups:
        metadata = group.metadata
        if names.LAST_START in metadata.annotations or not is_of_one_pod(group):
            continue
        pod = reader.get(Pod, metadata.owner_references[0].name, metadata.namespace)
        bound = None if pod is None else _bound_at(pod)
        if bound is not None:
            key: Key = (metadata.namespace, metadata.name)
            yield Overlay(PodGroup, key, {names.LAST_START: instant_text(float(int(bound)))})


def _bound_at(pod: Pod) -> float | None:
    """Return when a pod was bound to its node; None if it has no node."""
    if not pod.spec.node_name:
        return None
    for condition in pod.status.conditions:
        if condition.type == names.POD_SCHEDULED_CONDITION and condition.status == "True":
            # PodScheduled turns true in the bind, and never back.
            return condition.last_transition_time
    return pod.metadata.creation_timestamp
