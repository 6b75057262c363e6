"""The stream of decisions of one cycle, and how a cycle is told to stop: it ends at the next grant of its budget."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import attrs

from kai.cluster.port import Term
from kai.errors import KaiError
from kai.framework.decisions import Bind, Decision, Evict
from kai.scheduler.decision_log import DecisionLog
from kai.scheduler.effects import Decided
from kai.scheduler.observe import CycleObserver
from kai.state.snapshot import Snapshot


class AbandonedError(KaiError):
    """The cycle was told to stop: the process ends, or another leads."""


@attrs.define
class Stream:
    """A sink whose decisions another thread takes."""

    term: Term
    number: int
    observer: CycleObserver
    wake: Callable[[Stream], None]
    """Has the loop told, from the cycle's thread, that there is something to take; the cycle does not wait for it.

    It is given the stream and does not hold it: a stream that could be reached from itself would keep its snapshot
    until the collector comes by.
    """
    is_stopped: Callable[[], bool]
    log: DecisionLog | None = None
    """Where decisions are written down; None for nowhere."""
    snapshot: Snapshot | None = None
    groups: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    count: int = 0
    decided: list[Decision] = attrs.field(factory=list)
    _waiting: deque[Decided] = attrs.field(factory=deque)
    _is_told: bool = False

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Hand over the decisions of one statement.

        Raises: AbandonedError once the cycle is to stop.
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
        if not self._is_told:
            self._is_told = True
            self.wake(self)

    def taken(self, most: int | None = None) -> tuple[Decided, ...]:
        """Return what waits, on the loop; so many statements at most."""
        self._is_told = False
        out: list[Decided] = []
        while self._waiting and len(out) != most:
            out.append(self._waiting.popleft())
        return tuple(out)

    @property
    def waiting(self) -> int:
        """How many statements wait to be taken."""
        return len(self._waiting)

    def check(self) -> None:
        """Go on, unless the cycle is to stop.

        Raises: AbandonedError.
        """
        if self.is_stopped():
            raise AbandonedError("the cycle was told to stop")

    def _tally(self, decisions: tuple[Decision, ...], snapshot: Snapshot) -> None:
        bound = {int(snapshot.pod_group[each.pod]) for each in decisions if isinstance(each, Bind)}
        gain = {int(snapshot.pod_group[each.pod]) for each in decisions if not isinstance(each, Evict)}
        gain |= {each.aggressor for each in decisions if isinstance(each, Evict)}
        before = self.groups.get(self.observer.action, (0, 0))
        self.groups[self.observer.action] = (before[0] + len(bound), before[1] + len(gain - {-1}))
