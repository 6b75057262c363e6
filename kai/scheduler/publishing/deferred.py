"""What is known of groups and not written yet, or never: accounts that wait, losses of pods, starts of single pods.

Accounts of groups that are told later: some of it has to wait, or was not written.

A figure that changes again and again waits until the last one has stood for a while. What was refused, or left out, is
told again after a pause: no later cycle may give the account anew. A group that waits for its turn is told so once, the
cycles that follow have nothing to say about it, and it would hear nothing until its turn comes. So an account is kept
until all of it was written, or the group has another account or needs none.

When groups lost pods, until their annotations say so.

A cycle says it once. What is refused, or replaced before it was sent, no later cycle says again, and all of them go by
the annotation: without it a group would evict others before its preemption delay is over. A cycle that began before it
was written knows nothing of it, so an account never takes such a time away, nor puts an earlier one in its place.

Groups of a single pod: when they started is known without being written down.

The API server notes on a pod when it was bound. A group that will never have another pod started then, so the timestamp
that the engine goes by is only shown in the store of this process, and made anew from the pods after a start.
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
from kai.scheduler.effects import Overlay, Reader
from kai.scheduler.publishing.explanations import GroupAccount

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MOST: Final = 50_000


@attrs.define
class DeferredAccounts:
    """The accounts that are told later, by group; of more than may wait the one that waits longest goes.

    Units: seconds of a clock that does not go back.
    """

    pause: float
    """How long after a refusal an account is told again."""
    _later: dict[Key, GroupAccount] = attrs.field(factory=dict)
    _dues: Deadlines[Key] = attrs.field(factory=Deadlines)
    """When each of them is due."""
    _sent: dict[str, Key] = attrs.field(factory=dict)
    """By topic, of which group a write is that has no answer."""
    _under_way: dict[Key, tuple[GroupAccount, set[str]]] = attrs.field(factory=dict)
    """The accounts of these groups, and the topics of their writes."""

    def tell(self, account: GroupAccount) -> None:
        """Take a new account of a group: what is on its way, and is refused, is told again as this one has it."""
        self._drop(account.key)
        if account.key in self._under_way:
            self._under_way[account.key] = account, self._under_way[account.key][1]

    def send(self, account: GroupAccount, topic: str) -> None:
        """Remember of which account something is being written."""
        key = account.key
        self._sent[topic] = key
        _, topics = self._under_way.get(key, (account, set()))
        topics.add(topic)
        self._under_way[key] = account, topics

    def answered(self, topic: str, now: float, *, is_refused: bool, at_least: float = 0.0) -> None:
        """Take it how a write ended; after a refusal the account is not told for so many seconds ``at_least``."""
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
        """Tell an account again after a pause."""
        self.hold(account, now + self.pause)

    def hold(self, account: GroupAccount, due: float) -> None:
        """Tell an account then, or when something else of it is due before."""
        key = account.key
        self._later[key] = account
        self._dues.hasten(key, due)
        if len(self._later) > _MOST:
            self._drop(next(iter(self._later)))

    def settle(self, keys: Iterable[Key]) -> None:
        """Forget groups of which there is nothing to say."""
        for key in keys:
            self._drop(key)
            _, topics = self._under_way.pop(key, (None, ()))
            for topic in topics:
                del self._sent[topic]

    @property
    def keys(self) -> frozenset[Key]:
        """Return the groups of which something is told later or is on its way."""
        return frozenset((*self._later, *self._under_way))

    def take(self, now: float, most: int) -> tuple[GroupAccount, ...]:
        """Return accounts that are due, at most so many, and forget them."""
        return tuple(self._later.pop(key) for key in islice(self._dues.take(now), most))

    def next_due(self) -> float | None:
        """Return when to ask for what is due; None if nothing is told later."""
        return self._dues.first()

    def end_term(self, unheard: Iterable[GroupAccount], now: float) -> None:
        """Take it that nothing is answered any more; who waits for a turn in the next term hears of it then."""
        accounts = [account for account, _ in self._under_way.values()]
        accounts += self._later.values()
        accounts += unheard
        for memory in (self._sent, self._under_way, self._later, self._dues):
            memory.clear()
        for account in accounts:
            if account.waits_for_turn:
                self.hold(account, now)

    def _drop(self, key: Key) -> None:
        self._later.pop(key, None)
        self._dues.pop(key, None)


@attrs.frozen
class Loss:
    """When a group lost pods, by its UID."""

    uid: str
    time: str


@attrs.define
class Losses:
    """The losses that are not known to be written, by group; of more than may wait the oldest goes.

    Units: seconds of a clock that does not go back.
    """

    pause: float
    """How long after a refusal a loss is written again."""
    _unwritten: dict[Key, Loss] = attrs.field(factory=dict)
    _dues: Deadlines[Key] = attrs.field(factory=Deadlines)
    """When those are written again that are not on their way."""

    def stamps_with(self, group: PodGroup, told: Mapping[str, str | None]) -> Mapping[str, str | None]:
        """Return the timestamps that an account tells of a group, with the last loss that is known by now."""
        written = group.metadata.annotations.get(names.LAST_EVICTION)
        known = self._unwritten.get(key_of(group))
        kept = known.time if known is not None and known.uid == group.metadata.uid else None
        losses = [time for time in (told.get(names.LAST_EVICTION), kept) if time is not None]
        found = max(losses, key=_instant_of, default=None)
        if found is None or (written is not None and _instant_of(found) <= _instant_of(written)):
            return {key: text for key, text in told.items() if key != names.LAST_EVICTION}
        return {**told, names.LAST_EVICTION: found}

    def sent(self, group: PodGroup, time: str) -> None:
        """Remember a loss that is being written."""
        key = key_of(group)
        self._drop(key)
        self._unwritten[key] = Loss(group.metadata.uid, time)
        if len(self._unwritten) > _MOST:
            self._drop(next(iter(self._unwritten)))

    def held(self, group: PodGroup, time: str, now: float) -> None:
        """Remember a loss that is on its way already, or not to be written yet."""
        if self._unwritten.get(key_of(group)) != Loss(group.metadata.uid, time):
            self.sent(group, time)
            self._dues[key_of(group)] = now + self.pause

    def answered(self, request: Patch, reply: object, now: float) -> None:
        """Take how a write of timestamps ended."""
        key = (request.ref.namespace, request.ref.name)
        known = self._unwritten.get(key)
        if known is None or request.patch["metadata"]["annotations"].get(names.LAST_EVICTION) != known.time:
            return
        if isinstance(reply, Refusal) and reply.is_passing:
            self._dues[key] = now + max(self.pause, reply.retry_after or 0.0)
        else:
            self._drop(key)

    def take(self, now: float, most: int) -> tuple[tuple[Key, Loss], ...]:
        """Return losses that are due, at most so many, and forget them."""
        return tuple((key, self._unwritten.pop(key)) for key in islice(self._dues.take(now), most))

    def next_due(self) -> float | None:
        """Return when to ask for what is due; None if all that is remembered is on its way."""
        return self._dues.first()

    def end_term(self, now: float) -> None:
        """Take it that nothing is answered any more: the next term writes all of it."""
        for key in self._unwritten:
            self._dues[key] = now

    def _drop(self, key: Key) -> None:
        self._unwritten.pop(key, None)
        self._dues.pop(key, None)


def _instant_of(text: str) -> float:
    """Return a time as seconds since the epoch; of what is none the beginning of all times."""
    try:
        return instant(text)
    except BadValue:
        return float("-inf")


def is_of_one_pod(group: PodGroup) -> bool:
    """Return whether a group was made for one pod that has no other owner: it is called after that pod."""
    owners = group.metadata.owner_references
    if len(owners) != 1 or owners[0].kind != "Pod":
        return False
    return group.metadata.name == name_after(owners[0].name, owners[0].uid)


def recalled_starts(reader: Reader, groups: Iterable[PodGroup]) -> Iterator[Overlay]:
    """Yield the start times of those of some groups that have one pod and carry no annotation of it."""
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
    """Return when a pod got its node; None if it has none."""
    if not pod.spec.node_name:
        return None
    for condition in pod.status.conditions:
        if condition.type == names.POD_SCHEDULED_CONDITION and condition.status == "True":
            return condition.last_transition_time
    return pod.metadata.creation_timestamp
