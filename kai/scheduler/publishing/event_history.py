"""What events have said: the publisher does not read events back, and says nothing twice.

Of objects that are gone it is forgotten, a part of them at a time, for as long as the event loop can wait.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from kai.api.plans import Emit, Reason, Ref, Refusal
from kai.scheduler.explanations import NOT_READY, STALE, UNSCHEDULABLE
from kai.scheduler.reader import Reader

_MOST: Final = 200_000
_SWEPT: Final = 600.0
"""So often what was said of objects that are gone is forgotten."""
_AT_ONCE: Final = 256


@attrs.define
class EventHistory:
    """The last message of each event, by UID and reason; "" after one that was dropped or refused.

    Units: seconds of a clock that does not go back.
    """

    reader: Reader
    _messages: dict[tuple[str, str], str] = attrs.field(factory=dict)
    _refs: dict[str, Ref[Any]] = attrs.field(factory=dict)
    """Which object each UID is of which something was said."""
    _unswept: list[str] = attrs.field(factory=list)
    """The UIDs of which it is still to be seen whether their objects are there."""
    _swept: float = 0.0
    """When the last such look began."""

    def __len__(self) -> int:
        """Return how many messages are remembered."""
        return len(self._messages)

    def of(self, uid: str, reason: str) -> str | None:
        """Return the last message; None if nothing is known to have been said."""
        return self._messages.get((uid, reason))

    def note(self, uid: str, reason: str, message: str, ref: Ref[Any]) -> None:
        """Remember a message about an object."""
        self._messages[uid, reason] = message
        self._refs[uid] = ref

    def forget(self, uid: str, reason: str) -> None:
        """Have the next message said, whatever was said before."""
        self._messages.pop((uid, reason), None)

    def unsay(self, event: Emit, refusal: Refusal) -> None:
        """Remember that an event was not written, unless another followed: it is said again after a while."""
        key = (event.uid, event.reason)
        # Names of events are unique: one that exists was written by an attempt whose answer was lost.
        if self._messages.get(key) == event.message and refusal.reason is not Reason.ALREADY_EXISTS:
            self._messages[key] = ""

    def sweep(self, now: float) -> None:
        """Forget what was said of some objects, if they are gone, and the oldest of more than may be remembered."""
        if now - self._swept >= _SWEPT and not self._unswept:
            self._swept, self._unswept = now, list(self._refs)
        some = self._unswept[-_AT_ONCE:]
        del self._unswept[-len(some) :]
        for uid in some:
            if not self._is_there(uid):
                self._refs.pop(uid, None)
                for reason in (NOT_READY, STALE, UNSCHEDULABLE):
                    self._messages.pop((uid, reason), None)
        while len(self._messages) > _MOST:
            del self._messages[next(iter(self._messages))]
        while len(self._refs) > _MOST:
            del self._refs[next(iter(self._refs))]

    @property
    def is_sweeping(self) -> bool:
        """Whether objects are left to look at."""
        return bool(self._unswept)

    def clear(self) -> None:
        """Forget everything."""
        self._messages.clear()
        self._refs.clear()
        self._unswept.clear()

    def _is_there(self, uid: str) -> bool:
        ref = self._refs.get(uid)
        found = None if ref is None else self.reader.get(ref.cls, ref.name, ref.namespace)
        return found is not None and found.metadata.uid == uid
