"""Integrals over time: held and wanted GPUs by queue, fairness, and fragmentation of idle GPUs.

The current values are columns. Advancing the clock adds them, weighted by the time for which they held.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

import attrs
import numpy as np

from kai.facts.model.axis import Float64s

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_TINY: Final = 1e-6
MOST_BUCKETS: Final = 2048
PIECES: Final = (1.0, 2.0, 4.0, 8.0)
"""Idle GPUs are classified by the largest gang on one node that they could hold: 1, 2, 4, 8 or more."""
_DIGITS: Final = 6


@attrs.define(eq=False)
class Series:
    """Means of columns over time buckets; the width doubles whenever there would be too many buckets.

    Units: seconds.
    """

    columns: int
    width: float = 1.0
    _sums: Float64s = attrs.field(init=False)
    _end: float = 0.0

    def __attrs_post_init__(self) -> None:
        self._sums = np.zeros((MOST_BUCKETS, self.columns))

    def add(self, start: float, end: float, values: Float64s) -> None:
        """Add values that held from ``start`` to ``end``."""
        # The length of a run is not known in advance. Halving keeps the memory fixed, and the sums stay exact.
        while end > self.width * MOST_BUCKETS:
            half = MOST_BUCKETS // 2
            self._sums[:half] = self._sums[0::2] + self._sums[1::2]
            self._sums[half:] = 0.0
            self.width *= 2
        width, self._end = self.width, end
        first, last = int(start // width), min(int(end // width), MOST_BUCKETS - 1)
        if first == last:
            self._sums[first] += values * (end - start)
            return
        self._sums[first] += values * ((first + 1) * width - start)
        self._sums[first + 1 : last] += values * width
        self._sums[last] += values * (end - last * width)

    def means(self) -> tuple[Float64s, Float64s]:
        """Return the starts of the buckets and float64[buckets, columns]: the mean of each column in each."""
        # Without the small term, an end that a float puts just above a boundary would add a bucket without any time.
        count = min(MOST_BUCKETS, int(np.ceil(self._end / self.width - _TINY)))
        starts = np.arange(count, dtype=np.float64) * self.width
        spans = np.minimum(self.width, self._end - starts)
        found: Float64s = np.round(self._sums[:count] / spans[:, None], _DIGITS)
        return starts, found


class Meters:
    """The current figures of the cluster, and their integrals over time so far.

    Shapes: Q queues. Units: GPUs, seconds.
    """

    def __init__(self, queues: Sequence[str]) -> None:
        """Begin at 0 with these leaf queues; the last row stands for queues that do not exist."""
        self.queues = (*queues, "")
        self._row: Mapping[str, int] = {name: row for row, name in enumerate(self.queues)}
        count = len(self.queues)
        self.now = 0.0
        self.used, self.wanted, self.fair = np.zeros(count), np.zeros(count), np.zeros(count)
        self.used_sum, self.below_sum = np.zeros(count), np.zeros(count)
        self.capacity = 0.0
        self.capacity_sum = 0.0
        self.largest = 0.0
        """The most GPUs that any node ever had."""
        self.even_sum, self.even_seconds = 0.0, 0.0
        self.idle_sum, self.unusable_sum = 0.0, 0.0
        """GPU-seconds while pods wait: of all idle GPUs, and of idle GPUs too few for the largest waiting pod."""
        self.series = Series(3 * count + len(PIECES) + 1)
        self._nodes: dict[str, tuple[float, float]] = {}
        """By node: its GPUs, and the held ones among them."""
        self._idle: Counter[float] = Counter()
        """Number of nodes by their idle GPUs."""
        self._waiting = 0
        """Number of waiting pods."""
        self._asked: Counter[float] = Counter()
        """Number of waiting pods by the GPUs that each requests."""
        self._pieces: Float64s | None = None

    def advance(self, now: float) -> None:
        """Integrate the current values up to ``now``."""
        seconds = now - self.now
        if seconds <= 0.0:
            return
        used, wanted = self.used, self.wanted
        # No cycle divides anew while no pod waits; then each queue is entitled to its request, and has it.
        fair = self.fair if self._waiting else used
        self.used_sum += used * seconds
        self.capacity_sum += self.capacity * seconds
        # Queues without work would count as even or uneven by chance, and those without a share divide by 0.
        wants = (used + wanted > _TINY) & (fair > _TINY)
        if wants.any():
            parts = used[wants] / fair[wants]
            squares = float((parts * parts).sum())
            even = float(parts.sum()) ** 2 / (len(parts) * squares) if squares else 1.0
            self.even_sum += even * seconds
            self.even_seconds += seconds
            self.below_sum += ((wanted > _TINY) & (used < fair - _TINY)) * seconds
        if self._asked:
            idle, unusable = self._unusable(max(self._asked))
            self.idle_sum += idle * seconds
            self.unusable_sum += unusable * seconds
        self.series.add(self.now, now, np.concatenate([used, wanted, fair, self.pieces(), [self.capacity]]))
        self.now = now

    # --- Changes ---------------------------------------------------------------------------------------------------

    def wait(self, queue: str, gpus: float, count: int) -> None:
        """Add ``count`` (or remove, if negative) waiting pods that request ``gpus`` GPUs each."""
        self._waiting += count
        # The last row takes jobs of queues that do not exist: they wait in vain, and still count.
        self.wanted[self._row.get(queue, -1)] += gpus * count
        if gpus:
            self._asked[gpus] += count
            if not self._asked[gpus]:
                del self._asked[gpus]

    def hold(self, queue: str, node: str, gpus: float) -> None:
        """Add ``gpus`` (or remove, if negative) to the GPUs of a node that a queue holds."""
        row = self._row.get(queue, -1)
        # Rounded at each change: thirds of GPUs that come and go would leave a rest that never becomes 0.
        self.used[row] = round(float(self.used[row]) + gpus, _DIGITS)
        total, held = self._nodes.get(node, (0.0, 0.0))
        self._set(node, total, round(held + gpus, _DIGITS))

    def node(self, name: str, gpus: float | None) -> None:
        """Set the GPUs of a node; None: the node is gone."""
        total, held = self._nodes.get(name, (0.0, 0.0))
        self.capacity += (gpus or 0.0) - total
        self.largest = max(self.largest, gpus or 0.0)
        self._set(name, gpus or 0.0, held)

    def share(self, fair: Mapping[str, float]) -> None:
        """Set the fair shares of leaf queues; parents are ignored, as the sums of their leaves."""
        for name, gpus in fair.items():
            if name in self._row:
                self.fair[self._row[name]] = gpus

    def _set(self, node: str, total: float, held: float) -> None:
        before = self._nodes.get(node)
        if before is not None:
            # A node that failed has pods without GPUs until they are gone, so it may hold more than it has.
            idle = max(0.0, round(before[0] - before[1], _DIGITS))
            self._idle[idle] -= 1
            if not self._idle[idle]:
                del self._idle[idle]
        self._nodes[node] = (total, held)
        self._idle[max(0.0, round(total - held, _DIGITS))] += 1
        self._pieces = None

    # --- Idle GPUs -------------------------------------------------------------------------------------------------

    def pieces(self) -> Float64s:
        """Return the idle GPUs on nodes that could hold a gang of 1, 2, 4, and 8 or more of them."""
        if self._pieces is None:
            found = np.zeros(len(PIECES))
            for idle, count in self._idle.items():
                at = sum(1 for size in PIECES if idle >= size - _TINY) - 1
                if at >= 0:
                    found[at] += int(idle + _TINY) * count
            self._pieces = found
        return self._pieces

    def _unusable(self, asked: float) -> tuple[float, float]:
        """Return the idle GPUs, and those among them that a pod requesting ``asked`` GPUs cannot use."""
        idle = sum(each * count for each, count in self._idle.items())
        # A fraction may fit beside others on a GPU in use, so idle whole GPUs do not tell what is unusable.
        if asked < 1:
            return idle, 0.0
        usable = sum(int((each + _TINY) // asked) * asked * count for each, count in self._idle.items())
        return idle, idle - usable
