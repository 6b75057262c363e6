"""When a cycle follows a change, in the service and in virtual time.

Changes are gathered before they are decided on, for a gang is created pod by pod. A pod that starts without others
gains nothing by that: it is decided on at once, as long as such cycles do not become the rule.
"""

from __future__ import annotations

from math import inf
from typing import Final, Self

import attrs

from kai.api.scheduling.pod_group import PodGroup
from kai.scheduler.settings import SchedulerSettings

AT_ONCE: Final = 5
"""So many cycles follow pods at once, then one for each time that one is earned."""


@attrs.frozen(kw_only=True)
class Rhythm:
    """How soon a cycle follows a change.

    Units: seconds.
    """

    apart: float = 0.1
    """From one cycle to the next one, at least: as far as two cycles of an idle service are apart."""
    after: float = 0.0
    """From the first change to its cycle: what changes meanwhile is decided with it."""
    hurries: bool = False
    """Whether a cycle follows at once when a pod comes that starts without others."""

    @classmethod
    def of_service(cls, settings: SchedulerSettings) -> Self:
        """Return the rhythm of the service where deciding itself takes no time.

        It rests after a cycle, then waits for a change and then for those that come with it.
        """
        gathering = settings.coalescing_seconds
        return cls(apart=2 * gathering, after=gathering, hurries=True)

    def haste(self) -> Haste:
        """Return what counts the cycles that follow at once."""
        return Haste(self.apart / 2)


@attrs.define
class Haste:
    """How many cycles may follow at once: each takes one of a few, and one is earned in so many seconds."""

    seconds: float
    _earned: float = -inf
    """When all are earned again."""

    def due(self, now: float) -> float:
        """Return when the next one may follow."""
        return max(now, self._earned - (AT_ONCE - 1) * self.seconds)

    def take(self, now: float) -> None:
        """Take note of a cycle that follows at once."""
        self._earned = max(self._earned, now) + self.seconds


def starts_alone(group: PodGroup) -> bool:
    """Return whether a pod of a group may start without any other of them."""
    spec = group.spec
    return spec.minimum <= 1 and not spec.min_sub_group and not spec.sub_groups
