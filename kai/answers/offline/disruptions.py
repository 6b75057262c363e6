"""The victims that disruption budgets protect, where there is no API server to enforce them.

In a cluster, all budgets of a statement are checked before the first of its pods is evicted. If a budget forbids one
eviction, no pod of the statement is evicted. The groups of the protected pods lose none for a while, and the scheduler
looks for other victims.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from kai.api.cluster_objects import ClusterObjects
from kai.api.kubernetes.pod import Pod
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Decision, Evict
from kai.intake.disruption_budgets import BudgetKey, Budgets, judged

MOST_ROUNDS = 64
"""After this many repeated decisions, no pod under a budget is evicted."""


@attrs.define
class Disruptions:
    """The disruption budgets of a cluster at an instant, and the number of rounds so far."""

    _budgets: Budgets
    _pods: dict[tuple[str, str], Pod]
    _rounds: int = 0
    _spared: frozenset[str] = frozenset()
    """UIDs of pods."""

    @classmethod
    def of(cls, objects: ClusterObjects, *, is_first: bool) -> "Disruptions | None":
        """Return the budgets among ``objects``; None if there are none.

        The first cycle uses their status; later cycles compute it from the pods.
        """
        if not objects.pod_disruption_budgets:
            return None
        budgets = judged(objects.pod_disruption_budgets, objects.pods, anew=not is_first)
        return cls(Budgets(budgets), {(pod.metadata.namespace, pod.metadata.name): pod for pod in objects.pods})

    def sparing(self, snapshot: Snapshot, statements: Iterable[Sequence[Decision]]) -> Snapshot | None:
        """Return ``snapshot`` with the pods protected that ``statements`` may not evict; None if they may evict all.

        Later calls keep the pods of earlier ones protected. A statement that evicts protected pods anyway is let
        through: its action does not search for victims.
        """
        more = self._spared_by(snapshot, statements)
        if not more:
            return None
        self._spared |= more
        protected = tuple(sorted(self._spared.union(snapshot.past.protected)))
        return attrs.evolve(snapshot, past=attrs.evolve(snapshot.past, protected=protected))

    def _spared_by(self, snapshot: Snapshot, statements: Iterable[Sequence[Decision]]) -> frozenset[str]:
        """Return the UIDs of budget-protected pods in the first statement that evicts some not yet spared."""
        self._rounds += 1
        taken: Counter[BudgetKey] = Counter()
        for statement in statements:
            victims = self._victims(snapshot, statement)
            found = self._budgets.obstacle(victims, taken)[1]
            uids = frozenset(map(_uid, found))
            # Ends the repeated decisions: once every covered pod is spared, no later round finds another one.
            if self._rounds >= MOST_ROUNDS and uids:
                uids = self._covered()
            if uids - self._spared:
                return uids
            if not found:
                taken.update({key: len(pods) for key, (_, pods) in self._budgets.wanted(victims).items()})
        return frozenset()

    def _victims(self, snapshot: Snapshot, statement: Sequence[Decision]) -> list[Pod]:
        facts = [snapshot.pods[each.pod] for each in statement if isinstance(each, Evict)]
        found = [self._pods.get((each.namespace, each.name)) for each in facts]
        return [pod for pod in found if pod is not None]

    def _covered(self) -> frozenset[str]:
        return frozenset(_uid(pod) for pod in self._pods.values() if self._budgets.covering(pod))


def _uid(pod: Pod) -> str:
    """Return the UID of a pod as a snapshot has it: a pod from a manifest may have none."""
    return pod.metadata.uid or pod.metadata.name
