"""The outcome of earlier decisions, as far as the next cycle needs it: six memories, combined in `Feedback`.

The committer fills the memories as answers arrive. The loop asks for the next input, and for the time at which the next
entry expires. A cycle reads them only through its `CycleInput`, so its decisions follow from one value.

    memory             filled when                            effect on the next cycle
    bind_backoff       a bind failed                          the pod is shown as resting for a while
    node_refusals      a node lacked room for a bind          the pod avoids the node
    recent_evictions   an eviction was ordered                input: what each queue lost within the hour
    protected_pods     a disruption budget protected a pod    groups of such pods lose none
    moved_pods         a statement moved pods                 stand-ins keep the places; successors are served first
    recent_binds       a bind was ordered                     none: a statement that evicts the pod is rejected

After a restart all memories are empty. Moves and binds are forgotten with their term.

`RecentBinds` protects pods whose bind was just ordered: they are evicted only after the bind is done or has failed.
Soon such a pod either has its place or none. An eviction before that could cost it both, for a group that may find the
place taken by a pod that the same cycle moves there. The binder may be down, so the protection lasts a few seconds, on
our own clock. A statement that needs such a pod is rejected, and a new cycle on the same facts would repeat it. So if a
cycle had no other outcome, the next one waits for a change, such as the end of the bind, or for the protection to end.

`RecentEvictions` counts what each queue lost within the last hour, for caps on evictions. An eviction counts from its
order, so that the next cycle knows of it before the API server answers; it is removed again if it was refused or came
too late. After a restart the hour begins anew.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs

from kai.basics.deadlines import Deadlines
from kai.roles.scheduler.feedback.moved_pods import MovedPods
from kai.roles.scheduler.feedback.refusals import BindBackoff, NodeRefusals, ProtectedPods
from kai.roles.scheduler.settings import SchedulerSettings

if TYPE_CHECKING:
    from kai.api.cluster_objects import ClusterObjects
    from kai.roles.scheduler.cycle.cycle_input import CycleInput

_KEPT: Final = 10.0
"""How long an ordered bind protects its pod from eviction.

Units: seconds.
"""


@attrs.define
class RecentBinds:
    """Ordered binds by the UID of their pods, and the pods that rejected statements of this cycle wait for.

    Units: seconds of a monotonic clock.
    """

    _until: Deadlines[str] = attrs.field(factory=Deadlines)
    _awaited: set[str] = attrs.field(factory=set)
    _is_decided: bool = False

    def note(self, uid: str, now: float) -> None:
        """Remember that the bind of a pod was ordered."""
        self._until.forget(now)
        self._until[uid] = now + _KEPT

    def holds(self, uid: str, now: float) -> bool:
        """Return whether a recent bind protects a pod."""
        return self._until.get(uid, now) > now

    def clear(self) -> None:
        """Forget everything."""
        self._until.clear()
        self.begin_cycle()

    def begin_cycle(self) -> None:
        """Begin a cycle: no statement was rejected or carried out yet."""
        self._awaited.clear()
        self._is_decided = False

    def wait_for(self, uid: str) -> None:
        """Note that a statement was rejected because it needs a pod that is being bound."""
        self._awaited.add(uid)

    def decided(self) -> None:
        """Note that a statement of the cycle was carried out."""
        self._is_decided = True

    @property
    def is_awaited(self) -> bool:
        """Whether the cycle had no effect, and the next one would have none before such a pod is bound."""
        return bool(self._awaited) and not self._is_decided

    def next_due(self) -> float | None:
        """Return when the protection of the next awaited pod ends; None if none is awaited."""
        return min((self._until.get(uid, 0.0) for uid in self._awaited), default=None)


HOUR: Final = 3600.0


@attrs.define
class RecentEvictions:
    """Evictions by the UID of their pods, oldest first.

    Units: seconds of a monotonic clock; thousandths of GPUs.
    """

    _known: dict[str, tuple[float, str, int]] = attrs.field(factory=dict)

    def note(self, uid: str, queue: str, gpus: int, now: float) -> None:
        """Count an eviction that was ordered, and forget those older than an hour, even if no cycle asks for them."""
        self._forget_old(now)
        # A cap counts GPUs: an eviction that frees none would only fill the memory.
        if gpus:
            self._known.pop(uid, None)
            # Inserted anew, since `_forget_old` relies on the order of time.
            self._known[uid] = (now, queue, gpus)

    def forget(self, uid: str) -> None:
        """Remove an eviction that did not take place."""
        self._known.pop(uid, None)

    def current(self, now: float) -> tuple[tuple[str, int], ...]:
        """Return the GPUs that each queue lost to evictions within the hour, by name, and forget older evictions."""
        self._forget_old(now)
        totals: Counter[str] = Counter()
        for _, queue, gpus in self._known.values():
            totals[queue] += gpus
        return tuple(sorted(totals.items()))

    def next_due(self) -> float | None:
        """Return when the oldest eviction is an hour old; None if there is none."""
        return next((since + HOUR for since, _, _ in self._known.values()), None)

    def _forget_old(self, now: float) -> None:
        while self._known:
            oldest = next(iter(self._known))
            if self._known[oldest][0] > now - HOUR:
                break
            del self._known[oldest]


@attrs.define
class Feedback:
    """All memories of one process.

    Units: seconds of a monotonic clock.
    """

    settings: SchedulerSettings
    bind_backoff: BindBackoff = attrs.field(factory=BindBackoff)
    node_refusals: NodeRefusals = attrs.field(init=False)
    recent_evictions: RecentEvictions = attrs.field(factory=RecentEvictions)
    protected_pods: ProtectedPods = attrs.field(factory=ProtectedPods)
    moved_pods: MovedPods = attrs.field(factory=MovedPods)
    recent_binds: RecentBinds = attrs.field(factory=RecentBinds)

    def __attrs_post_init__(self) -> None:
        """Begin without refusals."""
        self.node_refusals = NodeRefusals(self.settings.intake)

    @property
    def counts_the_hour(self) -> bool:
        """Whether a cap depends on the evictions within the hour."""
        return self.settings.configuration.parameters.caps_evictions_by_the_hour

    def applied(self, given: CycleInput, now: float) -> CycleInput:
        """Return ``given``, the input from the store, with the outcome of earlier decisions."""
        objects, moved = given.objects, self.moved_pods
        # Before everything else: what is shown, early and served first follows from this one look.
        moved.look(objects, now)
        return attrs.evolve(
            given,
            objects=moved.shown(self._with_resting(objects, now)),
            early=moved.early(objects),
            past=attrs.evolve(
                given.past,
                awaited=moved.served_first(given.past.awaited),
                refused=self.node_refusals.current(objects.nodes, objects.pods, now),  # also refusals of resting pods
                evicted=self.recent_evictions.current(now) if self.counts_the_hour else (),
                protected=moved.spared(self.protected_pods.current(now)),
            ),
        )

    def next_due(self, now: float) -> float | None:
        """Return when the next entry expires, so that a cycle may decide differently; None for never."""
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
        """Forget facts that another process may change in the meantime."""
        self.moved_pods.clear()
        self.recent_binds.clear()

    def _with_resting(self, objects: ClusterObjects, now: float) -> ClusterObjects:
        """Return the objects with pods in back-off shown as resting: these take no place, and count as waiting."""
        resting = self.bind_backoff.resting(now)
        if not resting:
            return objects
        rests, shown = resting.keys(), self.bind_backoff.shown
        pods = [shown(pod) if pod.metadata.uid in rests and not pod.spec.node_name else pod for pod in objects.pods]
        return attrs.evolve(objects, pods=tuple(pods))
