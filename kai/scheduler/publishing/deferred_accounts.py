"""Accounts of groups that are told later: some of it has to wait, or was not written.

A figure that changes again and again waits until the last one has stood for a while. What was refused, or left out, is
told again after a pause: no later cycle may give the account anew. A group that waits for its turn is told so once, the
cycles that follow have nothing to say about it, and it would hear nothing until its turn comes. So an account is kept
until all of it was written, or the group has another account or needs none.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final

import attrs

from kai.api.kinds import Key
from kai.scheduler.explanations import GroupAccount

_MOST: Final = 50_000


@attrs.define
class DeferredAccounts:
    """The accounts that are told later, by group; of more than may wait the one that waits longest goes.

    Units: seconds of a clock that does not go back.
    """

    pause: float
    """How long after a refusal an account is told again."""
    _later: dict[Key, tuple[float, GroupAccount]] = attrs.field(factory=dict)
    _heap: list[tuple[float, Key]] = attrs.field(factory=list)
    """When each of them is due; entries that mean nothing any more are passed over."""
    _sent: dict[str, Key] = attrs.field(factory=dict)
    """By topic, of which group a write is that has no answer."""
    _under_way: dict[Key, tuple[GroupAccount, set[str]]] = attrs.field(factory=dict)
    """The accounts of these groups, and the topics of their writes."""

    def tell(self, account: GroupAccount) -> None:
        """Take a new account of a group: what is on its way, and is refused, is told again as this one has it."""
        key = key_of(account)
        self._later.pop(key, None)
        if key in self._under_way:
            self._under_way[key] = account, self._under_way[key][1]

    def send(self, account: GroupAccount, topic: str) -> None:
        """Remember of which account something is being written."""
        key = key_of(account)
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
        key = key_of(account)
        known = self._later.get(key)
        if known is None or due < known[0]:
            heapq.heappush(self._heap, (due, key))
        else:
            due = known[0]
        self._later[key] = due, account
        if len(self._later) > _MOST:
            del self._later[next(iter(self._later))]

    def settle(self, keys: Iterable[Key]) -> None:
        """Forget groups of which there is nothing to say."""
        for key in keys:
            self._later.pop(key, None)
            _, topics = self._under_way.pop(key, (None, ()))
            for topic in topics:
                del self._sent[topic]

    @property
    def keys(self) -> frozenset[Key]:
        """Return the groups of which something is told later or is on its way."""
        return frozenset((*self._later, *self._under_way))

    def take(self, now: float, most: int) -> tuple[GroupAccount, ...]:
        """Return accounts that are due, at most so many, and forget them."""
        found: list[GroupAccount] = []
        while self._heap and self._heap[0][0] <= now and len(found) < most:
            due, key = heapq.heappop(self._heap)
            if key in self._later and self._later[key][0] == due:
                found.append(self._later.pop(key)[1])
        return tuple(found)

    def next_due(self) -> float | None:
        """Return when to ask for what is due; None if nothing is told later."""
        while self._heap and self._later.get(self._heap[0][1], (None,))[0] != self._heap[0][0]:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def end_term(self, unheard: Iterable[GroupAccount], now: float) -> None:
        """Take it that nothing is answered any more; who waits for a turn in the next term hears of it then."""
        accounts = [account for account, _ in self._under_way.values()]
        accounts += [account for _, account in self._later.values()]
        accounts += unheard
        for memory in (self._sent, self._under_way, self._later):
            memory.clear()
        self._heap.clear()
        for account in accounts:
            if account.waits_for_turn:
                self.hold(account, now)


def key_of(account: GroupAccount) -> Key:
    """Return namespace and name of the group."""
    return account.namespace, account.name
