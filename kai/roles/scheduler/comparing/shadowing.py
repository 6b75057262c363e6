"""The shell of the shadow: logs differences and an hourly line, counts them in metrics, and answers requests."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs
import structlog

from kai.api.values import instant_text
from kai.basics.wording import counted, first_of
from kai.cluster.port import Cluster
from kai.cluster.process.connections import Response
from kai.roles.scheduler.comparing.shadow import Difference, Shadow, ShadowOutcome
from kai.roles.scheduler.reporting.cycle_recorder import HOUR
from kai.roles.scheduler.reporting.metrics import SchedulerMetrics

if TYPE_CHECKING:
    from kai.roles.scheduler.cycle.cycling import Done

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
