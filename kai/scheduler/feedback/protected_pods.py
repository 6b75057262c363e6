"""Pods that a disruption budget protected from eviction: what the next decisions must know.

The API server alone decides whether a budget lets a pod go, and says so when the eviction is asked for. Where a budget
is known to be exhausted, nothing is asked. Decided anew on the same facts the same pods would be the victims again, and
the job that gains would wait although other pods could make room. So it is an input of the cycles that follow: groups
of such pods lose none for a while. A process that starts knows of none.
"""

from __future__ import annotations

from typing import Final

import attrs

from kai.deadlines import Deadlines

REFUSED: Final = 60.0
"""Seconds until a pod is asked to go again after the API server refused it."""
EXHAUSTED: Final = 10.0
"""The same after its budget was seen to be exhausted: when that changes, it is seen as well."""


@attrs.define
class ProtectedPods:
    """Pods by UID, and until when none of them is asked to go.

    Units: seconds of a clock that does not go back.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)

    def note(self, uid: str, now: float, seconds: float) -> None:
        """Remember for so long that a budget protected a pod."""
        self._until[uid] = max(now + seconds, self._until.get(uid, now))

    def holds(self, uid: str, now: float) -> bool:
        """Return whether a budget protected a pod a moment ago."""
        return self._until.get(uid, now) > now

    def current(self, now: float) -> tuple[str, ...]:
        """Return the UIDs of the pods that are protected, in order, and forget the others."""
        self._until.forget(now)
        return tuple(sorted(self._until))

    def next_due(self, now: float) -> float | None:
        """Return when the next pod may be asked to go again; None if none is protected."""
        self._until.forget(now)
        return self._until.first()
