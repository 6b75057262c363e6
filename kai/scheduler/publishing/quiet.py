"""Topics that are quiet: something was just said of them, and figures alone are no news for a while."""

from __future__ import annotations

from itertools import takewhile

import attrs


@attrs.define
class Quiet:
    """Until when each topic is quiet, those first that end first.

    Units: seconds of a clock that does not go back.
    """

    seconds: float
    """How long a topic is quiet after something was said of it."""
    _until: dict[str, float] = attrs.field(factory=dict)

    def until(self, topic: str, now: float) -> float | None:
        """Return until when a topic is quiet; None if it is not."""
        until = self._until.get(topic, 0.0)
        return until if until > now else None

    def begin(self, topic: str, now: float) -> None:
        """Take it that something is said of a topic."""
        self._until.pop(topic, None)
        self._until[topic] = now + self.seconds

    def forget(self, now: float) -> None:
        """Forget topics that are quiet no longer."""
        for topic in [*takewhile(lambda topic: self._until[topic] <= now, self._until)]:
            del self._until[topic]
