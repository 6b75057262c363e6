"""When groups lost pods, until their annotations say so.

A cycle says it once. What is refused, or replaced before it was sent, no later cycle says again, and all of them go by
the annotation: without it a group would evict others before its preemption delay is over. A cycle that began before it
was written knows nothing of it, so an account never takes such a time away, nor puts an earlier one in its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

import attrs

from kai.api import names
from kai.api.kinds import Key, key_of
from kai.api.plans import Patch, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values.bad_value import BadValue
from kai.api.values.times import instant
from kai.deadlines import Deadlines

_MOST: Final = 50_000


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
