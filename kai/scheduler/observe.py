"""What the engine lets the outside know while a cycle runs: spans and durations. One observer for each cycle.

A cycle is one trace: the snapshot, the opening, each action and the closing are spans in it, and bind requests carry
its name on, so that the binder's work continues it. Attributes are counts and names of actions, never of objects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import attrs
from opentelemetry.trace import Span, Tracer, set_span_in_context

from kai.telemetry.plugin_times import PluginTimes
from kai.telemetry.tracing import trace_parent

IDLE: Final = ""
_MOST_COMMITS: Final = 100
"""So many commits of a cycle have spans of their own; the others are only counted."""


@attrs.define
class CycleObserver:
    """Times the phases of one cycle; used by one thread."""

    tracer: Tracer
    clock: Callable[[], float]
    root: Span
    stopwatch: PluginTimes
    """Times the functions of plugins."""
    seconds: dict[str, float] = attrs.field(factory=dict)
    """How long each phase took, in their order."""
    plugins: dict[tuple[str, str], float] = attrs.field(factory=dict)
    """How long each plugin took, by its name and the phase."""
    action: str = IDLE
    """The phase that is under way."""
    at_group: int = -1
    """The row of the group that the cycle is at, -1 for none: if it fails, that is what it failed at."""
    statements: int = 0
    decisions: int = 0
    _plugin: str = ""
    _plugin_since: float = 0.0

    @classmethod
    def begin(cls, tracer: Tracer, clock: Callable[[], float], number: int) -> CycleObserver:
        """Begin a trace."""
        root = tracer.start_span("cycle")
        root.set_attribute("kai.cycle", number)
        return cls(tracer=tracer, clock=clock, root=root, stopwatch=PluginTimes(clock))

    @property
    def trace(self) -> str:
        """The name of the trace as bind requests carry it; "" where nothing is recorded."""
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
        """Time a plugin, until the next one or until none follows."""
        now = self.clock()
        if self._plugin:
            key = (self._plugin, self.action)
            self.plugins[key] = self.plugins.get(key, 0.0) + now - self._plugin_since
        self._plugin, self._plugin_since = name, now

    def group(self, row: int, /) -> None:
        """Remember which group the cycle is at."""
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
