"""What the publisher wrote and has no answer to yet: a write of the same is not sent again before there is one.

Each write has a topic, such as the condition of one group. An answer ends it; a refusal keeps the topic quiet until
the store shows another version of the object, which is what a conflict waits for and what an object that is gone
never gets, or until some time has passed.
"""

from __future__ import annotations

from typing import Final

import attrs

from kai.api.plans import Patch, Reason, Refusal
from kai.deadlines import Deadlines
from kai.scheduler.effects import Send

_ECHO: Final = 60.0
"""So long at most the store may take to show what the API server refused a write for."""
_OUTDATED: Final = frozenset({Reason.CONFLICT, Reason.NOT_FOUND})


@attrs.frozen
class _Letter:
    """A write without an answer."""

    request: Patch
    content: object
    version: str


@attrs.define
class WritesInFlight:
    """The writes without an answer, by topic, and those that were refused, by topic and version."""

    pause: float
    """How long to wait after a refusal that says nothing about the object.

    Units: seconds.
    """
    _open: dict[str, _Letter] = attrs.field(factory=dict)
    _returned: Deadlines[tuple[str, str]] = attrs.field(factory=Deadlines)

    def is_sent(self, topic: str, content: object, version: str, now: float) -> bool:
        """Return whether a write of this need not, or should not, be sent now."""
        letter = self._open.get(topic)
        return self.is_refused(topic, version, now) or (letter is not None and letter.content == content)

    def is_refused(self, topic: str, version: str, now: float) -> bool:
        """Return whether a write about this version was refused, and is not to be tried again yet."""
        return self._returned.get((topic, version), now) > now

    def send(self, topic: str, request: Patch, content: object, version: str) -> Send:
        """Remember a write, and return how to send it."""
        self._open[topic] = _Letter(request, content, version)
        return Send(request, topic=topic)

    def answered(self, topic: str, request: object, reply: object, now: float) -> None:
        """Take the answer to a write; one that another has replaced tells nothing."""
        letter = self._open.get(topic)
        if letter is None or letter.request is not request:
            return
        del self._open[topic]
        if isinstance(reply, Refusal):
            pause = _ECHO if reply.reason in _OUTDATED else self.pause
            self._returned[topic, letter.version] = now + max(pause, reply.retry_after or 0.0)

    def forget(self, now: float) -> None:
        """Forget refusals that are long past."""
        self._returned.forget(now)

    def clear(self) -> None:
        """Forget everything: what was not sent never will be."""
        self._open.clear()
        self._returned.clear()
