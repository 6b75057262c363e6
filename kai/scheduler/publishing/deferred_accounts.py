"""Accounts of groups that are told later: some of it has to wait, or was not written.

A figure that changes again and again waits until the last one has stood for a while. What was refused, or left out, is
told again after a pause: no later cycle may give the account anew. A group that waits for its turn is told so once, the
cycles that follow have nothing to say about it, and it would hear nothing until its turn comes. So an account is kept
until all of it was written, or the group has another account or needs none.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

import attrs

from kai.api.kinds import Key
from kai.deadlines import Deadlines
from kai.scheduler.explanations import GroupAccount

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
