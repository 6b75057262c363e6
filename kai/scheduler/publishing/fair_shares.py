"""Fair shares in the status of queues: a figure that was just written stands for a while."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from kai.api.conventions.amounts import same
from kai.api.plans import Patch, Ref
from kai.api.scheduling.queue import Queue
from kai.scheduler.effects import Send
from kai.scheduler.publishing.outgoing import Outgoing
from kai.scheduler.reader import Reader


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
