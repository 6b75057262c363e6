"""How far a run has come: virtual time against the horizon, or arrivals against all that come."""

from __future__ import annotations

from math import inf
from typing import Final

import attrs

from kai.progress import report
from kai.virtual.scene import Scene

_STEPS: Final = 100


@attrs.define
class Progress:
    """Tells listeners of a run in hundredths, no more often."""

    scene: Scene
    until: float
    _told: int = -1

    def show(self, now: float, arrived: int) -> None:
        """Tell how far the run is, if that is another hundredth."""
        if self.until < inf:
            done = int(_STEPS * now / self.until) if self.until else _STEPS
        else:
            done = int(_STEPS * arrived / max(1, self.scene.jobs))
        done = min(done, _STEPS - 1)
        if done > self._told:
            self._told = done
            report(f"simulating {self.scene.title}", done, _STEPS)

    def finish(self) -> None:
        """Tell that the run is over."""
        report(f"simulating {self.scene.title}", _STEPS, _STEPS)
