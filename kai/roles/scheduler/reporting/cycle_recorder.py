"""Reports the outcome of each cycle: to metrics, to the log, and to an hourly log line.

The log names an object that was set aside, or a plugin that fails, once and not in every cycle.

The hourly line sums up binds, evictions, refusals, and pods that wait. It serves operators who read logs and have no
metrics: a healthy scheduler reports, and one that evicts much or binds nothing is visible at a glance.

`Shadowing` is the shell of the shadow (`kai.roles.scheduler.reporting.shadow`): it logs differences and an hourly line
of its own, counts them in metrics, and answers requests.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

import attrs
import structlog

from kai.api.values import instant_text
from kai.basics.wording import counted, first_of
from kai.cluster.port import Clock, Cluster
from kai.cluster.process.connections import Response
from kai.roles.scheduler.cycle.cycling import Cycles, Done, Failure
from kai.roles.scheduler.cycle.faults import common_error
from kai.roles.scheduler.effects import BindOrdered, BindRefused, Evicted, EvictionRefused, Signal, StatementRejected
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics
from kai.roles.scheduler.reporting.shadow import Difference, Shadow, ShadowOutcome

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
        # Most cycles follow a change that calls for nothing. At level info their lines would be most of the log.
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


SHADOW_PATH: Final = "/api/v1/shadow"
_MOST: Final = 500
_FEW_PODS: Final = 4
Tally = Mapping[tuple[str, ShadowOutcome], int]


@attrs.define(eq=False)
class Shadowing:
    """Passes each cycle to the shadow, and reports the differences."""

    cluster: Cluster
    metrics: SchedulerMetrics
    shadow: Shadow
    differences: deque[Difference] = attrs.field(factory=lambda: deque(maxlen=_MOST))
    """The newest differences."""
    counts: Counter[tuple[str, ShadowOutcome]] = attrs.field(factory=Counter)
    """Counts since the start, as of the last look."""
    due: float | None = None
    """When an open decision becomes a difference, as of the last look."""
    _last_counts: Counter[tuple[str, ShadowOutcome]] = attrs.field(factory=Counter)
    """The counts at the last hourly line."""

    async def look(self, done: Done) -> None:
        """Compare the input of a cycle with earlier decisions, and remember its own."""
        found = await self.cluster.cpu.run(self.shadow.look, done, self.cluster.clock.monotonic())
        counts = self.shadow.counts.copy()
        for (decision, outcome), count in (counts - self.counts).items():
            self.metrics.shadowed(decision, outcome.value, count)
        self.counts, self.due = counts, self.shadow.due()
        for each in found:
            self.differences.append(each)
            structlog.get_logger().info(
                "decides otherwise",
                job=each.job,
                queue=each.queue,
                outcome=each.outcome.value,
                pods=len(each.pods),
                ours=each.ours,
                our_reason=each.our_reason,
                theirs=each.theirs,
                their_reason=each.their_reason,
            )

    async def run(self) -> None:
        """Log a line each hour and one at the end, until cancelled."""
        try:
            while True:
                await self.cluster.clock.sleep(HOUR)
                self.log_counts("shadow: last hour", self.counts - self._last_counts)
                self._last_counts = self.counts.copy()
        finally:
            self.log_counts("shadow: since the start", self.counts)

    def log_counts(self, event: str, counts: Tally) -> None:
        """Log how far the two schedulers agree."""
        structlog.get_logger().info(event, agreement=summary(counts), **by_outcome(counts))

    async def answer(self) -> Response:
        """Return the agreement and the newest differences as JSON."""
        body = json.dumps(self.document(), ensure_ascii=False).encode() + b"\n"
        return Response(body=body, content_type="application/json")

    def document(self) -> dict[str, Any]:
        """Return the content of `answer` as plain values."""
        compared = _compared(self.counts)
        return {
            "summary": summary(self.counts),
            "decided": compared,
            "equal": _equal(self.counts),
            "unseen": sum(count for (_, outcome), count in self.counts.items() if outcome is ShadowOutcome.UNSEEN),
            "counts": [
                {"decision": decision, "outcome": outcome.value, "pods": count}
                for (decision, outcome), count in sorted(self.counts.items())
            ],
            "differences": [_values(each) for each in reversed(self.differences)],
        }


def summary(counts: Tally) -> str:
    """Return how far the two schedulers agree, in one sentence."""
    compared, equal = _compared(counts), _equal(counts)
    text = f"{equal:,} of {compared:,} decisions equal"
    if compared == equal:
        return text
    parts = [f"{count:,} {name}" for name, count in by_outcome(counts).items() if name in _DIFFERENCES]
    return f"{text}; {compared - equal:,} differ: {', '.join(parts)}"


def by_outcome(counts: Tally) -> dict[str, int]:
    """Return the count of pods by outcome."""
    out: Counter[str] = Counter()
    for (_, outcome), count in counts.items():
        out[outcome.value] += count
    return dict(sorted(out.items()))


_DIFFERENCES: Final = frozenset(each.value for each in ShadowOutcome) - {
    ShadowOutcome.EQUAL.value,
    ShadowOutcome.UNSEEN.value,
}


def _compared(counts: Tally) -> int:
    return sum(count for (_, outcome), count in counts.items() if outcome is not ShadowOutcome.UNSEEN)


def _equal(counts: Tally) -> int:
    return sum(count for (_, outcome), count in counts.items() if outcome is ShadowOutcome.EQUAL)


def _values(each: Difference) -> dict[str, Any]:
    return {
        "time": instant_text(each.time),
        "cycle": each.cycle,
        "outcome": each.outcome.value,
        "job": each.job,
        "queue": each.queue,
        "pods": f"{counted(len(each.pods), 'pod')}: {first_of(each.pods, _FEW_PODS)}",
        "ours": {"does": each.ours, "because": each.our_reason},
        "theirs": {"does": each.theirs, "because": each.their_reason or None},
    }
