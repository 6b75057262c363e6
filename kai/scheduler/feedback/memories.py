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
"""

from __future__ import annotations

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.scheduler.cycle_input import CycleInput
from kai.scheduler.feedback.bind_backoff import BindBackoff
from kai.scheduler.feedback.moved_pods import MovedPods
from kai.scheduler.feedback.node_refusals import NodeRefusals
from kai.scheduler.feedback.protected_pods import ProtectedPods
from kai.scheduler.feedback.recent_binds import RecentBinds
from kai.scheduler.feedback.recent_evictions import RecentEvictions
from kai.scheduler.settings import SchedulerSettings


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
