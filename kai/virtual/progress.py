"""How far a run has come: virtual time against the horizon, or arrivals against all that come."""

from __future__ import annotations

from math import inf
from typing import Final

import attrs

from kai.progress import report
from kai.virtual.records import Records
from kai.virtual.scene import Scene
from kai.wording import counted, span_text

_STEPS: Final = 1000


@attrs.define
class Progress:
    """Tells listeners of a run in thousandths, no more often."""

    scene: Scene
    until: float
    _told: int = -1

    def show(self, now: float, records: Records) -> None:
        """Tell how far the run is, if that is another thousandth."""
        arrived, all_jobs = len(records.jobs), max(1, self.scene.jobs)
        if self.until < inf:
            done = int(_STEPS * now / self.until) if self.until else _STEPS
            where = f"T+{span_text(now)} of {span_text(self.until)}"
        else:
            done = int(_STEPS * arrived / all_jobs)
            where = f"T+{span_text(now)}, {arrived:,} of {counted(all_jobs, 'job')} arrived"
        done = min(done, _STEPS - 1)
        if done > self._told:
            self._told = done
            report(self._what, done, _STEPS, f"{where}, {counted(records.ended, 'job')} ended")

    def finish(self) -> None:
        """Tell that the run is over."""
        report(self._what, _STEPS, _STEPS, "")

    @property
    def _what(self) -> str:
        return f"simulating {self.scene.title}"
