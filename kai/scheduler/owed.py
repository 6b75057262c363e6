"""Accounts of groups of which something was not written, and which no later cycle may give anew.

A group that waits for its turn is told so once; the cycles that follow have nothing to say about it until its turn
comes. Where that one message was refused, or left out, the group would hear nothing for as long as that takes. So its
account is kept until all of it was written, or the group has another account or needs none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import attrs

from kai.cluster.port import Key
from kai.scheduler.explanations import GroupAccount

_MOST: Final = 50_000


@attrs.define
class Owed:
    """The accounts that are told again, by group; of more than may wait the one that waits longest goes.

    Units: seconds of a clock that does not go back.
    """

    pause: float
    """How long after a refusal an account is told again."""
    _due: dict[Key, tuple[float, GroupAccount]] = attrs.field(factory=dict)
    """Accounts of which something was refused, and when to tell them again; first those that are due first."""
    _sent: dict[str, Key] = attrs.field(factory=dict)
    """By topic, of which group a write is that has no answer."""
    _under_way: dict[Key, tuple[GroupAccount, set[str]]] = attrs.field(factory=dict)
    """The accounts of these groups, and the topics of their writes."""

    def tell(self, account: GroupAccount) -> None:
        """Take a new account of a group: what is on its way, and is refused, is told again as this one has it."""
        key = _key(account)
        self._due.pop(key, None)
        if key in self._under_way:
            self._under_way[key] = account, self._under_way[key][1]

    def send(self, account: GroupAccount, topic: str) -> None:
        """Remember of which account something is being written."""
        key = _key(account)
        self._sent[topic] = key
        _, topics = self._under_way.get(key, (account, set()))
        self._under_way[key] = account, {*topics, topic}

    def answered(self, topic: str, now: float, *, is_refused: bool) -> None:
        """Take it how a write ended."""
        key = self._sent.pop(topic, None)
        if key is None:
            return
        account, topics = self._under_way[key]
        topics.discard(topic)
        if not topics:
            del self._under_way[key]
        if is_refused:
            self.owe(account, now)

    def owe(self, account: GroupAccount, now: float) -> None:
        """Tell an account again after a pause."""
        self._due.setdefault(_key(account), (now + self.pause, account))
        if len(self._due) > _MOST:
            del self._due[next(iter(self._due))]

    def settle(self, keys: Iterable[Key]) -> None:
        """Forget groups of which there is nothing to say."""
        for key in keys:
            self._due.pop(key, None)
            _, topics = self._under_way.pop(key, (None, ()))
            for topic in topics:
                del self._sent[topic]

    @property
    def keys(self) -> frozenset[Key]:
        """Return the groups of which something is owed or on its way."""
        return frozenset((*self._due, *self._under_way))

    def take(self, now: float) -> tuple[GroupAccount, ...]:
        """Return the accounts that are due, and forget them."""
        found = []
        while self._due and next(iter(self._due.values()))[0] <= now:
            found.append(self._due.pop(next(iter(self._due)))[1])
        return tuple(found)

    def next_due(self) -> float | None:
        """Return when the first account is due; None if there is none."""
        return next((due for due, _ in self._due.values()), None)

    def end_term(self, now: float) -> None:
        """Take it that nothing is answered any more; who waits for a turn in the next term hears of it then."""
        unheard = [account for account, _ in self._under_way.values()] + [account for _, account in self._due.values()]
        self._sent.clear()
        self._under_way.clear()
        self._due.clear()
        for account in unheard:
            if account.waits_for_turn:
                self._due[_key(account)] = now, account


def _key(account: GroupAccount) -> Key:
    return account.namespace, account.name


__all__ = ["Owed"]
