"""Measure phases of a run, and how fast the machine is while it happens."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from attrs import Factory, define

_ROUNDS = 3
_STEPS = 200_000
_SORTED = 200_000


@define
class Stopwatch:
    """Add up processor time by phase, in milliseconds; phases may nest and may come back.

    A cycle is one thread that waits for nothing, so its processor time is what it takes on an idle core. Wall time on
    a busy machine says more about the neighbours.
    """

    phases_ms: dict[str, float] = Factory(dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the body as part of ``name``."""
        start = time.process_time()
        try:
            yield
        finally:
            elapsed = (time.process_time() - start) * 1000
            self.phases_ms[name] = self.phases_ms.get(name, 0.0) + elapsed


def calibrate() -> float:
    """Time a fixed piece of work, in milliseconds of processor time: the best of three.

    Half of it is interpreted arithmetic, half is sorting an array, roughly as in a scheduling cycle. Processor times
    divided by this one can be compared between machines, and between a quiet and a busy hour, which bare times cannot.
    """
    return min(_fixed_work() for _ in range(_ROUNDS))


def _fixed_work() -> float:
    values = (np.arange(_SORTED, dtype=np.int64) * 2_654_435_761) % 1_000_003
    start = time.process_time()
    state = 1
    for step in range(_STEPS):
        state = (state * 48_271 + step) % 2_147_483_647
    np.argsort(values, kind="stable")
    return (time.process_time() - start) * 1000
