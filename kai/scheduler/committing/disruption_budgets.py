"""The disruption budgets of the cluster as they are now. What they say of pods is `kai.intake.disruption_budgets`."""

from __future__ import annotations

import attrs

from kai.api.kubernetes.core import PodDisruptionBudget
from kai.intake.disruption_budgets import Budgets
from kai.scheduler.reader import Reader


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
