"""Tiers of queues: the label of a queue says how much of what no quota covers it gets beside its siblings."""

from collections.abc import Mapping, Sequence

import attrs
import numpy as np
from kai.framework import SHARED_RESOURCES, Extension, Queue, QueueWeights, SessionView


def _positive(_: object, field: "attrs.Attribute[Mapping[str, float]]", factors: Mapping[str, float]) -> None:
    for tier, factor in factors.items():
        if factor < 0:
            raise ValueError(f"{field.name}.{tier}: found {factor}, expected 0 or more")


@attrs.frozen(kw_only=True)
class Tiers:
    """Multiply the weights of queues by the factor of their tier, a value of ``label``; without one they stay."""

    label: str = "example.com/tier"
    factors: Mapping[str, float] = attrs.field(factory=lambda: {"gold": 4.0, "silver": 2.0}, validator=_positive)

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Look at the labels of all queues; the same for CPU, memory and GPUs."""
        own = [self._factor(queue) for queue in session.snapshot.queues]
        return [QueueWeights(np.repeat(np.array(own, np.float64)[:, None], SHARED_RESOURCES, axis=1))]

    def _factor(self, queue: Queue) -> float:
        return self.factors.get(queue.labels.get(self.label, ""), 1.0)
