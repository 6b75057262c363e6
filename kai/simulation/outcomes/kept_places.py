"""Places that a cycle's input keeps for pods that were moved: rows of pods that are none."""

from collections.abc import Set as AbstractSet

import attrs

from kai.model.pod import STAND_IN
from kai.state.snapshot import Snapshot


@attrs.frozen
class KeptPlaces:
    """What is to be counted as a place, and what no more."""

    rows: AbstractSet[int] = frozenset()
    """Each stands in for a pod that is to come."""
    left: AbstractSet[int] = frozenset()
    """Pods that those stand in for, and that have not left their old node yet."""


def kept_places(snapshot: Snapshot) -> KeptPlaces:
    """Return the rows of stand-ins, and of the pods that they stand in for.

    Cost: a look at each pod.
    """
    rows = frozenset(row for row, pod in enumerate(snapshot.pods) if pod.is_stand_in)
    if not rows:
        return KeptPlaces()
    moved = {snapshot.pods[row].uid.removesuffix(STAND_IN) for row in rows}
    left = frozenset(row for row, pod in enumerate(snapshot.pods) if (pod.uid or pod.name) in moved)
    return KeptPlaces(rows, left)
