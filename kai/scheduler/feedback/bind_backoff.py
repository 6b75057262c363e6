"""Pods whose binds failed leave their capacity to others for a while, a little longer each time.

Without that a pod that cannot be bound would win every cycle and starve the pods behind it. Cycles are shown such a pod
at rest, with why it rests (`kai.api.conventions.refused_binds`): it waits, is counted, and users are told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kai.api.conventions.refused_binds import at_rest, refusal_text
from kai.api.kubernetes.pod import Pod
from kai.api.values.times import instant_text
from kai.backoff import doubling_pause

_FIRST: Final = 1.0
_LONGEST: Final = 300.0
_FORGOTTEN_AFTER: Final = 900.0


@attrs.frozen
class _Rest:
    """How often binds of a pod failed, until when it is not tried, and what is said of that."""

    count: int
    until: float
    text: str
    shown: tuple[Pod, Pod] | None = None
    """The pod, and how it is shown: the same again for as long as both are the same."""


@attrs.define
class BindBackoff:
    """Pods by UID whose binds failed.

    Units: seconds of a clock that does not go back; ``wall`` is what people read.
    """

    _rests: dict[str, _Rest] = attrs.field(factory=dict)

    def failed(self, uid: str, why: str, now: float, wall: float) -> None:
        """Count a failed bind of a pod."""
        known = self._rests.get(uid)
        count = 1 if known is None else known.count + 1
        pause = doubling_pause(count, _FIRST, _LONGEST)
        again = instant_text(float(round(wall + pause)))
        self._rests[uid] = _Rest(count, now + pause, refusal_text(why, count, again))

    def resting(self, now: float) -> Mapping[str, str]:
        """Return the UIDs of pods that are not to be tried now, each with what it is told."""
        if not self._rests:
            return {}
        self._rests = {uid: rest for uid, rest in self._rests.items() if rest.until > now - _FORGOTTEN_AFTER}
        return {uid: rest.text for uid, rest in self._rests.items() if rest.until > now}

    def shown(self, pod: Pod) -> Pod:
        """Return a pod that rests as cycles are shown it."""
        uid = pod.metadata.uid
        rest = self._rests[uid]
        if rest.shown is not None and rest.shown[0] is pod:
            return rest.shown[1]
        found = at_rest(pod, rest.text)
        self._rests[uid] = attrs.evolve(rest, shown=(pod, found))
        return found

    def next_due(self, now: float) -> float | None:
        """Return when the next of them may be tried again; None if none rests."""
        return min((rest.until for rest in self._rests.values() if rest.until > now), default=None)
