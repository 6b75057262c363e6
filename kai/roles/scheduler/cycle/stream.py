"""The stream of decisions of one cycle, and the traces of its phases.

`Stream` hands decisions from the cycle's thread to the event loop. It also stops a cycle: the cycle ends when it next
asks its budget.

`CycleObserver` records spans and durations. A cycle is one trace. The snapshot, the opening, each action and the
closing are its spans. Bind requests carry the trace context, so the spans of the binder join the same trace. Attributes
are counts and names of actions, never of objects.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs
from opentelemetry.trace import Span, Tracer, set_span_in_context

from kai.basics.errors import KaiError
from kai.cluster.port import Term
from kai.cluster.process.tracing import PluginTimes, trace_parent
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind, Decision, Evict
from kai.roles.scheduler.effects import Decided
from kai.roles.scheduler.reporting.decision_log import DecisionLog

IDLE: Final = ""
_MOST_COMMITS: Final = 100
"""How many commits of a cycle get spans of their own; the others are only counted."""


@attrs.define
class CycleObserver:
    """Times the phases of one cycle; used by one thread."""

    tracer: Tracer
    clock: Callable[[], float]
    root: Span
    stopwatch: PluginTimes
    """Times the functions of plugins."""
    seconds: dict[str, float] = attrs.field(factory=dict)
    """Duration of each phase, in order."""
    plugins: dict[tuple[str, str], float] = attrs.field(factory=dict)
    """Duration of each plugin, by plugin and phase."""
    action: str = IDLE
    """The current phase."""
    at_group: int = -1
    """The row of the group that the cycle is working on, -1 for none: if the cycle fails, this group is suspected."""
    statements: int = 0
    decisions: int = 0
    _plugin: str = ""
    _plugin_since: float = 0.0

    @classmethod
    def begin(cls, tracer: Tracer, clock: Callable[[], float], number: int) -> CycleObserver:
        """Begin the trace of a cycle."""
        root = tracer.start_span("cycle")
        root.set_attribute("kai.cycle", number)
        return cls(tracer=tracer, clock=clock, root=root, stopwatch=PluginTimes(clock))

    @property
    def trace(self) -> str:
        """The trace context as bind requests carry it; "" if the trace is not recorded."""
        return trace_parent(self.root)

    @contextmanager
    def phase(self, name: str, /) -> Iterator[None]:
        """Time a phase."""
        since, before = self.clock(), self.action
        span = self.tracer.start_span(name, context=set_span_in_context(self.root))
        self.action = name
        made, decided = self.statements, self.decisions
        try:
            yield
        finally:
            self.action = before
            span.set_attribute("kai.statements", self.statements - made)
            span.set_attribute("kai.decisions", self.decisions - decided)
            span.end()
            self.seconds[name] = self.seconds.get(name, 0.0) + self.clock() - since

    def plugin(self, name: str, /) -> None:
        """Time a plugin until the next call; "" ends the last one."""
        now = self.clock()
        if self._plugin:
            key = (self._plugin, self.action)
            self.plugins[key] = self.plugins.get(key, 0.0) + now - self._plugin_since
        self._plugin, self._plugin_since = name, now

    def group(self, row: int, /) -> None:
        """Remember the group that the cycle is working on."""
        self.at_group = row

    def committed(self, action: str, decisions: int, /) -> None:
        """Count a statement."""
        self.statements += 1
        self.decisions += decisions
        if self.statements <= _MOST_COMMITS and self.root.is_recording():
            span = self.tracer.start_span("commit", context=set_span_in_context(self.root))
            span.set_attributes({"kai.action": action, "kai.decisions": decisions})
            span.end()

    def finish(self, error: str = "") -> None:
        """End the trace."""
        self.root.set_attribute("kai.statements", self.statements)
        self.root.set_attribute("kai.decisions", self.decisions)
        if error:
            self.root.set_attribute("kai.error", error)
        self.root.end()


class AbandonedError(KaiError):
    """The cycle was stopped: the process ends, or another one leads."""


@attrs.define
class Stream:
    """A queue of decisions from the cycle's thread to the event loop."""

    term: Term
    number: int
    observer: CycleObserver
    wake: Callable[[Stream], None]
    """Called in the cycle's thread once there are decisions to take; must not block.

    It receives the stream instead of holding it: a reference cycle would keep the snapshot alive until the next garbage
    collection.
    """
    is_stopped: Callable[[], bool]
    log: DecisionLog | None = None
    """Where decisions are logged; None for nowhere."""
    snapshot: Snapshot | None = None
    groups: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    count: int = 0
    decided: list[Decision] = attrs.field(factory=list)
    # A deque and no lock: append and popleft are atomic, and one thread adds while another takes.
    _waiting: deque[Decided] = attrs.field(factory=deque)
    _is_woken: bool = False

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Hand over the decisions of one statement.

        Raises: AbandonedError once the cycle must stop.
        """
        self.check()
        if self.snapshot is None:
            raise AbandonedError("a statement was made before there was a snapshot")
        self.count += len(decisions)
        self.decided += decisions
        self._tally(decisions, self.snapshot)
        if self.log is not None:
            self.log.decided(decisions, self.snapshot, self.number, self.observer.action)
        event = Decided(
            term=self.term,
            cycle=self.number,
            snapshot=self.snapshot,
            decisions=decisions,
            trace=self.observer.trace,
        )
        self._waiting.append(event)
        if not self._is_woken:
            self._is_woken = True
            self.wake(self)

    def taken(self, most: int | None = None) -> tuple[Decided, ...]:
        """Remove and return waiting statements, at most ``most``; called on the event loop."""
        # Before the deque is emptied: a statement that is added in between wakes the loop again, so none is missed.
        self._is_woken = False
        out: list[Decided] = []
        while self._waiting and len(out) != most:
            out.append(self._waiting.popleft())
        return tuple(out)

    @property
    def waiting(self) -> int:
        """Count of statements that wait to be taken."""
        return len(self._waiting)

    def check(self) -> None:
        """Return unless the cycle must stop.

        Raises: AbandonedError.
        """
        if self.is_stopped():
            raise AbandonedError("the cycle was stopped")

    def _tally(self, decisions: tuple[Decision, ...], snapshot: Snapshot) -> None:
        bound = {int(snapshot.pod_group[each.pod]) for each in decisions if isinstance(each, Bind)}
        gain = {int(snapshot.pod_group[each.pod]) for each in decisions if not isinstance(each, Evict)}
        gain |= {each.aggressor for each in decisions if isinstance(each, Evict)}
        before = self.groups.get(self.observer.action, (0, 0))
        self.groups[self.observer.action] = (before[0] + len(bound), before[1] + len(gain - {-1}))
