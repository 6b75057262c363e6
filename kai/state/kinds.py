"""Kinds of pods: which scheduler they name, and which labels they have, whatever their values.

There are few, so a question about either is asked once for each kind and not for each pod.
"""

from collections.abc import Iterable
from typing import TypeAlias

import attrs
import numpy as np

from kai.model.pod import Pod
from kai.model.rows import Int64s

PodKind: TypeAlias = tuple[str, ...]
"""The scheduler that a pod names, and then the names of its labels."""


@attrs.frozen(eq=False)
class PodKinds:
    """The kinds of all pods of a snapshot."""

    numbers: Int64s
    """[P] The number of each pod's kind; the same array for as long as the pods are the same."""
    kinds: tuple[PodKind, ...]

    @classmethod
    def of(cls, pods: Iterable[Pod]) -> "PodKinds":
        """Number the kinds of ``pods`` afresh. Cost: O(P)."""
        known: dict[PodKind, int] = {}
        numbers = [known.setdefault((pod.scheduler, *pod.labels), len(known)) for pod in pods]
        return cls(np.array(numbers, np.int64), tuple(known))
