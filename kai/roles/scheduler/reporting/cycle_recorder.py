"""Reports the outcome of each cycle: to metrics, to the log, and to an hourly log line.

The log names an object that was set aside, or a plugin that fails, once and not in every cycle.

The hourly line sums up binds, evictions, refusals, and pods that wait. It serves operators who read logs and have no
metrics: a healthy scheduler reports, and one that evicts much or binds nothing is visible at a glance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

import attrs
import structlog

from kai.cluster.port import Clock
from kai.roles.scheduler.cycle.cycling import Cycles, Done, Failure
from kai.roles.scheduler.failing.aside import common_error
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.reporting.signals import (
    BindOrdered,
    BindRefused,
    Evicted,
    EvictionRefused,
    Signal,
    StatementRejected,
)

HOUR: Final = 3600.0


@attrs.define(eq=False)
class Hourly:
    """Counts since the last hourly line."""

    clock: Clock
    waiting: Mapping[str, int] = attrs.field(factory=dict)
    """Count of waiting pods after the last cycle, by reason."""
    _cycles: int = 0
    _failed: int = 0
    _binds: int = 0
    _evictions: Counter[str] = attrs.field(factory=Counter)
    _refused: Counter[str] = attrs.field(factory=Counter)

    def take(self, signal: Signal) -> None:
        """Count the outcome of a decision."""
        match signal:
            case BindOrdered():
                self._binds += 1
            case Evicted():
                self._evictions[signal.cause] += 1
            case BindRefused():
                self._refused["binds"] += 1
            case EvictionRefused():
                self._refused["evictions"] += 1
            case StatementRejected():
                self._refused["decisions"] += signal.decisions
            case _:
                pass

    def cycle(self, waiting: Mapping[str, int] | None) -> None:
        """Count a cycle, and note the pods that wait after it; None for a failed cycle."""
        if waiting is None:
            self._failed += 1
        else:
            self._cycles += 1
            self.waiting = waiting

    async def run(self) -> None:
        """Log a line each hour, until cancelled."""
        while True:
            await self.clock.sleep(HOUR)
            self.log_line()

    def log_line(self) -> None:
        """Log the line and reset the counts."""
        structlog.get_logger().info(
            "last hour",
            cycles=self._cycles,
            failed=self._failed,
            binds=self._binds,
            evictions=dict(sorted(self._evictions.items())),
            refused=dict(sorted(self._refused.items())),
            waiting=dict(sorted(self.waiting.items())),
        )
        self._cycles = self._failed = self._binds = 0
        self._evictions.clear()
        self._refused.clear()


@attrs.define(eq=False)
class CycleRecorder:
    """Records the cycles of one process, one after the other."""

    metrics: SchedulerMetrics
    hourly: Hourly
    cycles: Cycles
    _common: str = ""
    """Place of the error that set aside most groups, as logged last; "" if there is none."""

    def record(self, number: int, outcome: Done | Failure, seconds: float) -> None:
        """Record the outcome and duration of cycle ``number``."""
        self._log_aside()
        self._log_faults()
        if isinstance(outcome, Failure):
            self._record_failure(number, outcome)
            return
        if not outcome.again:
            self._log_common(outcome)
        self._measure(outcome, seconds)
        self.hourly.cycle(self.metrics.waiting)
        log = structlog.get_logger().bind(cycle=number)
        counts = {name: count for name, count in outcome.report.counts.items() if count}
        (log.info if counts else log.debug)("cycle", seconds=round(seconds, 4), **counts)

    def _record_failure(self, number: int, failure: Failure) -> None:
        log = structlog.get_logger().bind(cycle=number)
        if failure.is_abandoned:
            log.info("cycle ended with its term", what=failure.message)
            return
        facts = {"kind": failure.kind, "why": failure.message, "at": failure.named, "snapshot": failure.dump}
        fields = {key: value for key, value in facts.items() if value}
        if failure.again:
            self.metrics.cycle_repeated(failure.kind)
            log.warning("cycle repeated", **fields)
        else:
            self.metrics.cycle_failed(failure.kind)
            self.hourly.cycle(None)
            log.error("cycle abandoned", **fields)

    def _measure(self, outcome: Done, seconds: float) -> None:
        self.metrics.cycle(seconds)
        for phase, took in outcome.seconds.items():
            self.metrics.phase(phase, took)
        for (plugin, hook), taken in outcome.taken.items():
            self.metrics.plugin_asked(plugin, hook, taken)
        for (plugin, phase), took in outcome.plugins.items():
            self.metrics.plugin(plugin, phase, took)
        for action, (bound, acted_on) in outcome.groups.items():
            self.metrics.decided(action, bound=bound, acted_on=acted_on)
        self.metrics.searches(outcome.spent)
        for each in outcome.report.failures:
            self.metrics.plugin_failed(each.plugin, each.hook, each.times)
        self.metrics.state(outcome.snapshot, outcome.report, outcome.overall.waiting)

    def _log_aside(self) -> None:
        """Log each object once that was set aside since the last cycle."""
        inquiry = self.cycles.inquiry
        self.metrics.set_aside(len(inquiry.records))
        for suspect in inquiry.fresh:
            blame = inquiry.records[suspect].blame if suspect in inquiry.records else None
            if blame is not None:
                log = structlog.get_logger()
                log.error(
                    "set aside", what=str(suspect), kind=blame.kind, why=blame.message, snapshot=blame.dump or None
                )
        inquiry.fresh.clear()

    def _log_faults(self) -> None:
        """Log each failing plugin once, and once more when it works again."""
        faults, log = self.cycles.faults, structlog.get_logger()
        for each in faults.fresh:
            log.error(
                "plugin fails",
                plugin=each.plugin,
                package=each.origin,
                hook=each.hook,
                groups=each.groups,
                then=each.reaction.value,
                why=each.message,
                snapshot=each.dump or None,
            )
        for each in faults.over:
            log.info("plugin works again", plugin=each.plugin, hook=each.hook)
        failing = frozenset((each.plugin, each.hook, each.reaction.value) for each in faults.known.values())
        self.metrics.plugins_failing(failing)
        faults.fresh.clear()
        faults.over.clear()

    def _log_common(self, outcome: Done) -> None:
        """Log once that a single error set aside most groups: then no group is at fault.

        The process stays ready: else a tenant with many groups could take the webhooks of this process away.
        """
        found = common_error(outcome.overall, self.cycles.inquiry.records)
        before, self._common = self._common, "" if found is None else found.where
        if found is not None and found.where != before:
            facts = {"kind": found.blame.kind, "why": found.blame.message, "waiting": found.waiting}
            structlog.get_logger().error("one error at most groups", groups=found.groups, **facts)
