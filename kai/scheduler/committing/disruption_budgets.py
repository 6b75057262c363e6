"""Disruption budgets: which of them cover a pod, and whether they let a set of victims go.

The API server decides when it is asked; what is worked out here saves a request that it would refuse, and the wait for
it. Any user may write budgets, so where those of a namespace say more than any needs none is looked at: the API server
is asked about its pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from kai.api.kinds import key_of, title
from kai.api.kubernetes.core import PodDisruptionBudget
from kai.api.kubernetes.meta import LabelSelector
from kai.api.kubernetes.pod import Pod
from kai.model.matching import holds
from kai.scheduler.reader import Reader

MOST: Final = 4096
"""Selectors, labels, expressions and values of all budgets of a namespace that are looked at, for each pod."""


class Budgets:
    """Budgets by namespace, to be asked about pods.

    Cost: O(budgets) once; for each pod a look at those of its namespace.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget]) -> None:
        """Sort the budgets."""
        self._by_namespace: dict[str, list[PodDisruptionBudget]] = {}
        self._sizes: Counter[str] = Counter()
        for each in budgets:
            self._by_namespace.setdefault(each.metadata.namespace, []).append(each)
            self._sizes[each.metadata.namespace] += _size(each.spec.selector)

    def covering(self, pod: Pod) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets that cover a pod; none where there are too many to look at."""
        if self._are_too_many(pod):
            return ()
        labels = pod.metadata.labels
        there = self._by_namespace.get(pod.metadata.namespace, ())
        return tuple(each for each in there if each.spec.selector is not None and selects(each.spec.selector, labels))

    def may_cover(self, pod: Pod) -> bool:
        """Say whether a budget covers a pod, or may, where there are too many to look at."""
        return self._are_too_many(pod) or bool(self.covering(pod))

    def _are_too_many(self, pod: Pod) -> bool:
        return self._sizes[pod.metadata.namespace] > MOST

    def obstacle(self, victims: Iterable[Pod]) -> tuple[str, tuple[Pod, ...]]:
        """Return in words why not all of the victims may go, and which of them the budgets spare; "" if all may.

        Source: the API server evicts pods that are not running yet whatever the budgets say, and answers with an error
            where two of them cover a pod.
        """
        wanted: dict[tuple[str, str], tuple[PodDisruptionBudget, list[Pod]]] = {}
        for pod in victims:
            found = self.covering(pod) if pod.status.phase != "Pending" else ()
            if len(found) > 1:
                names = " and ".join(title(each) for each in found[:2])
                return f"{title(pod)} is covered by {names}: the API server evicts no pod of two", (pod,)
            for each in found:
                wanted.setdefault(key_of(each), (each, []))[1].append(pod)
        for _, (budget, pods) in sorted(wanted.items()):
            allowed = max(0, budget.status.disruptions_allowed)
            if len(pods) > allowed:
                return f"{title(budget)} allows {allowed} disruptions, {len(pods)} are needed", tuple(pods)
        return "", ()


@attrs.define
class LatestBudgets:
    """The budgets of a store. They are sorted once while none of them changes, not for each pod that is evicted."""

    _listing: tuple[PodDisruptionBudget, ...] = ()
    _sorted: Budgets = attrs.field(factory=lambda: Budgets(()))

    def of(self, reader: Reader) -> Budgets:
        """Return all budgets that ``reader`` has."""
        listing = reader.all(PodDisruptionBudget)
        if listing is not self._listing:
            self._listing, self._sorted = listing, Budgets(listing)
        return self._sorted


def _size(selector: LabelSelector | None) -> int:
    if selector is None:
        return 1
    return 1 + len(selector.match_labels) + sum(1 + len(each.values) for each in selector.match_expressions)


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether a selector selects an object with these labels."""
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    return all(holds(each, labels) for each in selector.match_expressions)
