"""Scenarios: which pods would have to go so that a group can run.

A search grows an *outer* scenario batch by batch; generators propose smaller *scenarios* out of it, and each is tried
by evicting its victims in an open statement and placing all affected groups again.
"""

from collections.abc import Iterable, Iterator
from functools import cached_property

import attrs
import numpy as np

from kai.facts.kernels import victims
from kai.facts.kernels.booking import accepted_gpu
from kai.facts.model.axis import GroupRow, Int64s, NodeRows, PodRows
from kai.framework.view import SessionView

Batch = tuple[int, ...]
"""Pods that were added to a scenario together; they are evicted together and recorded together."""


@attrs.frozen(eq=False)
class Batches:
    """Batches as arrays, so that kernels can read them: batch ``i`` is ``pods[start[i] : start[i + 1]]``."""

    pods: Int64s
    start: Int64s

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> "Batches":
        """Return ``batches`` as arrays, without the empty ones."""
        # An empty batch frees nothing, and a generator that counts batches would still spend a try on it.
        known = [batch for batch in batches if len(batch)]
        start = np.zeros(len(known) + 1, np.int64)
        np.cumsum([len(batch) for batch in known], out=start[1:])
        return cls(np.array([pod for batch in known for pod in batch], np.int64), start)

    def __len__(self) -> int:
        """Return the number of batches."""
        return len(self.start) - 1

    def __getitem__(self, at: int) -> Batch:
        """Return one batch; a negative ``at`` counts from the end."""
        row = at + len(self) if at < 0 else at
        if not 0 <= row < len(self):
            raise IndexError(at)
        return tuple(self.pods[self.start[row] : self.start[row + 1]].tolist())

    def __iter__(self) -> Iterator[Batch]:
        """Yield the batches in order."""
        return (self[at] for at in range(len(self)))

    def chosen(self, rows: Int64s) -> "Batches":
        """Return the batches ``rows``, in their order."""
        return Batches(*victims.gather(self.pods, self.start, rows))

    def followed_by(self, others: "Batches") -> "Batches":
        """Return these batches and then the ``others``."""
        if not len(others) or not len(self):
            return self if len(self) else others
        return Batches(
            np.concatenate([self.pods, others.pods]), np.concatenate([self.start, others.start[1:] + len(self.pods)])
        )


NO_BATCHES = Batches.of(())


@attrs.frozen(kw_only=True)
class Scenario:
    """One set of victims to try.

    ``recorded`` victims come from a smaller problem that was solved before, ``potential`` ones are new.
    """

    aggressor: GroupRow = attrs.field(eq=False)
    waiting: tuple[int, ...]
    """Pods of the aggressor to place."""
    recorded: Batches = NO_BATCHES
    potential: Batches = NO_BATCHES

    @property
    def batches(self) -> Batches:
        """All batches, recorded first."""
        return self.recorded.followed_by(self.potential)

    def victims(self) -> PodRows:
        """Return each victim once, in the order of the batches."""
        if len(self.potential.pods) == 1 and not len(self.recorded.pods):  # a fast path for the most frequent case
            return self.potential.pods
        return self._victims

    @cached_property
    def _victims(self) -> PodRows:
        pods = np.concatenate([self.recorded.pods, self.potential.pods])
        if len(pods) <= 1:
            return pods
        return victims.distinct(pods, int(pods.max(initial=-1)) + 1)

    def fingerprint(self) -> tuple[tuple[int, ...], bytes, bytes]:
        """Return the key that identifies equal scenarios of one search."""
        # The waiting pods are sorted and the victims, too: the order in which a generator found them changes no
        # simulation, and equal sets are most of what several generators propose.
        return (
            tuple(sorted(self.waiting)),
            np.sort(self.recorded.pods).tobytes(),
            np.sort(self.potential.pods).tobytes(),
        )


@attrs.frozen(kw_only=True)
class Outer:
    """The outer scenario at one moment.

    It holds all pods that may be taken so far, with the numbers by which generators choose.

    Amounts are thousandths of a GPU.
    """

    view: SessionView = attrs.field(eq=False)
    aggressor: GroupRow = attrs.field(eq=False)
    waiting: tuple[int, ...]
    wanted: tuple[int, ...]
    """The request of each waiting pod."""
    recorded: Batches
    # All that may be taken so far, the last one added at the end. Generators rely on that order: earlier batches belong
    # to groups that should go first.
    batches: Batches
    free: Int64s = attrs.field(eq=False)
    """[N] Idle and releasing amounts, with the free parts of shared devices, before any eviction."""
    feasible: NodeRows = attrs.field(eq=False)
    """Nodes that may have room without evictions."""

    def scenario(self, potential: Batches = NO_BATCHES) -> Scenario:
        """Return the scenario with these batches besides the recorded ones."""
        return Scenario(aggressor=self.aggressor, waiting=self.waiting, recorded=self.recorded, potential=potential)

    def group_of(self, pod: int) -> int:
        """Return the group of ``pod``."""
        return int(self.view.facts.pods.group[pod])

    def node_of(self, pod: int) -> int:
        """Return the node of ``pod``, -1 for none."""
        return int(self.view.columns.node[pod])

    def gpus_of(self, pod: int) -> int:
        """Return the amount that ``pod`` holds on its node."""
        return int(accepted_gpu(self.view.facts, int(self.view.facts.pods.shape[pod]), self.node_of(pod)))

    def held(self, pods: PodRows) -> Int64s:
        """Return int64[N]: the amounts that ``pods`` hold on each node. Cost: O(nodes + pods)."""
        out = np.zeros(len(self.free), np.int64)
        victims.add_held(self.view.facts, self.view.columns, pods, out)
        return out

    def losing_on(self, node: int) -> Batches:
        """Return one batch for each group that would lose a pod on ``node``: all its pods that may be taken.

        Groups come in the order of their first pods, recorded pods before others.
        """
        pods, columns = self.recorded.pods, self.view.columns
        return Batches(*victims.losing_on(self.view.facts, columns, pods, self.batches.pods, node))

    def nodes_of_group(self, group: int) -> list[int]:
        """Return the nodes of all pods of ``group``, in name order."""
        nodes = self.view.columns.node[self.view.pods_of(GroupRow(group))].tolist()
        return sorted({node for node in nodes if node >= 0})
