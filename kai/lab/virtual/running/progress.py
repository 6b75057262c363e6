"""The progress of a run: virtual time against the horizon, or arrivals against all arrivals.

Runs in processes of their own write their progress into memory that they share with the process that shows it.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.progress import Listener, report
from kai.basics.wording import span_text
from kai.lab.virtual.scenes.scene import Scene

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

    from kai.lab.virtual.running.records import Records

STEPS: Final = 1000
"""Progress steps of one run."""


@attrs.define
class Progress:
    """Reports the progress of a run to listeners, at most once for each thousandth."""

    scene: Scene
    until: float
    _reported: int = -1

    def show(self, now: float, records: Records) -> None:
        """Report the progress, if it reached another thousandth."""
        arrived, all_jobs = len(records.jobs), max(1, self.scene.jobs)
        if self.until < inf:
            done = int(STEPS * now / self.until) if self.until else STEPS
            where = f"T+{span_text(now)} of {span_text(self.until)}, {_jobs(records.ended)} ended"
        else:
            done = int(STEPS * arrived / all_jobs)
            where = f"T+{span_text(now)}, {arrived:,} of {_jobs(all_jobs)} arrived, {records.ended:,} ended"
        done = min(done, STEPS - 1)
        if done > self._reported:
            self._reported = done
            report(self._what, done, STEPS, where)

    def finish(self) -> None:
        """Report the end of the run."""
        report(self._what, STEPS, STEPS, "")

    @property
    def _what(self) -> str:
        return f"simulating {self.scene.title}"


def progress_into(shared: MutableSequence[int], at: int) -> Listener:
    """Return a listener that writes the progress of the run in this process into one place of shared memory."""

    def listen(_what: str, done: int, total: int, detail: str | None) -> None:
        if detail is not None:  # other work, such as compiling, reports without a detail
            shared[at] = min(STEPS * done // total, STEPS - 1)  # the last step is the gathering of the result

    return listen


def show_all(shared: Sequence[int], at_a_time: int) -> None:
    """Report the total progress of parallel runs, from what each of them wrote."""
    total, ended = STEPS * len(shared), sum(each == STEPS for each in shared)
    what = f"simulating {len(shared)} runs, {at_a_time} at a time"
    report(what, sum(shared), total, f"{ended} ended")


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"
