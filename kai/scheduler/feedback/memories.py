"""What became of earlier decisions, as far as the next cycle has to know it: six memories, and one value of them all.

The committer fills the memories as answers come; the loop asks for the next input, and when the next of them runs out.
A cycle sees nothing of them but its `CycleInput`, so what it decides follows from one value.

    memory             filled when                            what the next cycle is given
    bind_backoff       a bind failed                          the pod is shown at rest for a while
    node_refusals      a node had no room for a bind          which node refused which pod
    recent_evictions   an eviction was ordered                what each queue lost within the hour
    protected_pods     a disruption budget held a pod         groups of such pods lose none
    moved_pods         a statement moved pods                 stand-ins in their places; successors are served first
    recent_binds       a bind was ordered                     nothing: a statement that evicts the pod is rejected

A process that starts knows of none of this. Moves and binds are forgotten with their term.

Pods whose bind this process ordered a moment ago: they are evicted once it was carried out or failed.

Such a pod holds its place a moment later, or has none. Evicted meanwhile it would have lost both, for a group that may
find the place taken by what the same cycle moves there. The binder need not be there, so an order keeps a pod for a
few seconds only, by our own clock. A process that starts knows of none.

A statement that needs such a pod is rejected, and would be decided again at once on the same facts. So if nothing else
came of a cycle the next one waits: for a change, as when the pod is bound, or until the order keeps the pod no more.

What was evicted within the last hour, by queue: an input of the cycles that follow, for caps on evictions.

An eviction counts from when it is ordered, so that the next cycle knows of it before the API server answered; one that
was refused, or came too late, is taken out again. A process that starts knows of none: the hour begins with its term.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.deadlines import Deadlines
from kai.scheduler.feedback.moved_pods import MovedPods
from kai.scheduler.feedback.refusals import BindBackoff, NodeRefusals, ProtectedPods
from kai.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from kai.api.kinds import ClusterObjects
    from kai.scheduler.cycle.cycle_input import CycleInput

_KEPT: Final = 10.0
"""Seconds for which an order keeps its pod from being evicted."""


@attrs.define
class RecentBinds:
    """Orders by the UID of their pods, and those that statements of this cycle wait for.

    Units: seconds of a clock that does not go back.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)
    _awaited: set[str] = attrs.field(factory=set)
    _is_decided: bool = False

    def note(self, uid: str, now: float) -> None:
        """Remember that the bind of a pod is ordered."""
        self._until.forget(now)
        self._until[uid] = now + _KEPT

    def holds(self, uid: str, now: float) -> bool:
        """Return whether the bind of a pod was ordered a moment ago."""
        return self._until.get(uid, now) > now

    def clear(self) -> None:
        """Forget all."""
        self._until.clear()
        self.begin_cycle()

    def begin_cycle(self) -> None:
        """Begin with a cycle of which nothing is known."""
        self._awaited.clear()
        self._is_decided = False

    def wait_for(self, uid: str) -> None:
        """Note that a statement was rejected, since it needs a pod that is being bound."""
        self._awaited.add(uid)

    def decided(self) -> None:
        """Note that something was written of what the cycle decided."""
        self._is_decided = True

    @property
    def is_awaited(self) -> bool:
        """Whether nothing came of the cycle, and would of another one before such a pod is bound."""
        return bool(self._awaited) and not self._is_decided

    def next_due(self) -> float | None:
        """Return when the next of the orders that are waited for keeps its pod no more; None if none is."""
        return min((self._until.get(uid, 0.0) for uid in self._awaited), default=None)


HOUR: Final = 3600.0


@attrs.define
class RecentEvictions:
    """Evictions by the UID of their pods, oldest first.

    Units: seconds of a clock that does not go back; thousandths of GPUs.
    """

    _known: dict[str, tuple[float, str, int]] = attrs.field(factory=dict)

    def note(self, uid: str, queue: str, gpus: int, now: float) -> None:
        """Count an eviction that is ordered, and forget what is older than an hour, whether or not a cycle asks."""
        self._forget_old(now)
        if gpus:
            self._known.pop(uid, None)
            self._known[uid] = (now, queue, gpus)

    def forget(self, uid: str) -> None:
        """Take out an eviction that did not happen."""
        self._known.pop(uid, None)

    def current(self, now: float) -> tuple[tuple[str, int], ...]:
        """Return what pods of each queue lost within the hour, by name, and forget what is older."""
        self._forget_old(now)
        totals: Counter[str] = Counter()
        for _, queue, gpus in self._known.values():
            totals[queue] += gpus
        return tuple(sorted(totals.items()))

    def next_due(self) -> float | None:
        """Return when the next eviction is an hour old; None if none is known."""
        return next((since + HOUR for since, _, _ in self._known.values()), None)

    def _forget_old(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest][0] > now - HOUR:
                break
            del self._known[oldest]


@attrs.define
class Feedback:
    """The memories of one process.

    Units: seconds of a clock that does not go back.
    """

    settings: SchedulerSettings
    bind_backoff: BindBackoff = attrs.field(factory=BindBackoff)
    node_refusals: NodeRefusals = attrs.field(init=False)
    recent_evictions: RecentEvictions = attrs.field(factory=RecentEvictions)
    protected_pods: ProtectedPods = attrs.field(factory=ProtectedPods)
    moved_pods: MovedPods = attrs.field(factory=MovedPods)
    recent_binds: RecentBinds = attrs.field(factory=RecentBinds)

    def __attrs_post_init__(self) -> None:
        """Begin with nothing refused."""
        self.node_refusals = NodeRefusals(self.settings.intake)

    @property
    def counts_the_hour(self) -> bool:
        """Whether a cap asks for what was evicted within the hour."""
        return self.settings.configuration.parameters.caps_evictions_by_the_hour

    def applied(self, given: CycleInput, now: float) -> CycleInput:
        """Return what a cycle is given, with what became of decisions before; ``given`` has what the store shows."""
        objects, moved = given.objects, self.moved_pods
        moved.look(objects, now)
        return attrs.evolve(
            given,
            objects=moved.shown(self._with_resting(objects, now)),
            early=moved.early(objects),
            past=attrs.evolve(
                given.past,
                awaited=moved.served_first(given.past.awaited),
                refused=self.node_refusals.current(objects.nodes, objects.pods, now),  # of pods that rest, too
                evicted=self.recent_evictions.current(now) if self.counts_the_hour else (),
                protected=moved.spared(self.protected_pods.current(now)),
            ),
        )

    def next_due(self, now: float) -> float | None:
        """Return when the next of this is no longer so, and another cycle may decide otherwise; None for never."""
        dues = (
            self.bind_backoff.next_due(now),
            self.node_refusals.next_due(now),
            self.protected_pods.next_due(now),
            self.recent_evictions.next_due() if self.counts_the_hour else None,
            self.moved_pods.next_due(),
            self.recent_binds.next_due(),
        )
        return min((due for due in dues if due is not None), default=None)

    def end_term(self) -> None:
        """Forget what another process may have changed meanwhile."""
        self.moved_pods.clear()
        self.recent_binds.clear()

    def _with_resting(self, objects: ClusterObjects, now: float) -> ClusterObjects:
        """Return the objects with pods that rest shown as such: they take no place, and count as pods that wait."""
        resting = self.bind_backoff.resting(now)
        if not resting:
            return objects
        rests, shown = resting.keys(), self.bind_backoff.shown
        pods = [shown(pod) if pod.metadata.uid in rests and not pod.spec.node_name else pod for pod in objects.pods]
        return attrs.evolve(objects, pods=tuple(pods))
