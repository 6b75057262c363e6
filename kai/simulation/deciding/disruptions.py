"""Which victims disruption budgets spare, where there is no API server to ask.

In a cluster all budgets of a statement are asked before the first of its pods is evicted. If one of them does not allow
it, none is evicted, and the groups of the pods that it covers lose none for a while: others are looked for.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from kai.api.kinds import ClusterObjects
from kai.api.kubernetes.pod import Pod
from kai.framework.decisions import Decision, Evict
from kai.intake.disruption_budgets import BudgetKey, Budgets, judged
from kai.state.snapshot import Snapshot

MOST_ROUNDS = 64
"""After so many decisions anew, no pod that a budget covers is evicted."""


@attrs.define
class Disruptions:
    """The budgets of a cluster at a moment, and how often they were asked."""

    _budgets: Budgets
    _pods: dict[tuple[str, str], Pod]
    _rounds: int = 0
    _spared: frozenset[str] = frozenset()
    """UIDs of pods."""

    @classmethod
    def of(cls, objects: ClusterObjects, *, is_first: bool) -> "Disruptions | None":
        """Return the budgets among ``objects``; None if there are none.

        What their status says holds for the first cycle; later it is worked out from the pods.
        """
        if not objects.pod_disruption_budgets:
            return None
        budgets = judged(objects.pod_disruption_budgets, objects.pods, anew=not is_first)
        return cls(Budgets(budgets), {(pod.metadata.namespace, pod.metadata.name): pod for pod in objects.pods})

    def sparing(self, snapshot: Snapshot, statements: Iterable[Sequence[Decision]]) -> Snapshot | None:
        """Return ``snapshot`` with the pods spared that ``statements`` may not evict; None if they may evict all.

        Asked again, it spares those of the time before as well. A statement that evicts spared pods all the same, as an
        action does that does not search, is let through.
        """
        more = self._spared_by(snapshot, statements)
        if not more:
            return None
        self._spared |= more
        protected = tuple(sorted(self._spared.union(snapshot.past.protected)))
        return attrs.evolve(snapshot, past=attrs.evolve(snapshot.past, protected=protected))

    def _spared_by(self, snapshot: Snapshot, statements: Iterable[Sequence[Decision]]) -> frozenset[str]:
        """Return the UIDs of pods that the first statement may not evict which is not allowed all of its evictions."""
        self._rounds += 1
        taken: Counter[BudgetKey] = Counter()
        for statement in statements:
            victims = self._victims(snapshot, statement)
            found = self._budgets.obstacle(victims, taken)[1]
            uids = frozenset(map(_uid, found))
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
    """Return the UID of a pod, as a snapshot has it: a pod of a manifest may have none."""
    return pod.metadata.uid or pod.metadata.name
