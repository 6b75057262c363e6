"""Scenarios: who would have to go so that somebody can run.

A search grows an *outer* scenario batch by batch; generators propose smaller *scenarios* out of it, and each is tried
by evicting its victims in an open statement and placing everybody again.
"""

from collections.abc import Sequence

import attrs
import numpy as np

from kai.framework.portion import Portion
from kai.framework.view import SessionView
from kai.kernels.booking import accepted_gpu
from kai.model.rows import GroupRow, Int64s, NodeRows, PodRows

Batch = tuple[int, ...]
"""Pods that were put into a scenario together: they are evicted together and remembered together."""


@attrs.frozen(kw_only=True)
class Scenario:
    """One set of victims to try.

    ``recorded`` victims come from an easier problem that was solved before, ``potential`` ones are new.
    """

    aggressor: Portion = attrs.field(eq=False)
    waiting: tuple[int, ...]
    """Pods of the aggressor that are to be placed."""
    recorded: tuple[Batch, ...] = ()
    potential: tuple[Batch, ...] = ()

    @property
    def batches(self) -> tuple[Batch, ...]:
        """All batches, recorded first."""
        return self.recorded + self.potential

    def victims(self) -> PodRows:
        """Return each victim once, in the order of the batches."""
        return np.array(list(dict.fromkeys(pod for batch in self.batches for pod in batch)), np.int64)

    def fingerprint(self) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Return what makes two scenarios of one search the same."""
        return (
            tuple(sorted(self.waiting)),
            tuple(sorted(pod for batch in self.recorded for pod in batch)),
            tuple(sorted(pod for batch in self.potential for pod in batch)),
        )


@attrs.frozen(kw_only=True)
class Outer:
    """The outer scenario at one moment.

    Everything that may be taken so far, with the numbers that generators choose by.

    Amounts are thousandths of a GPU.
    """

    view: SessionView = attrs.field(eq=False)
    aggressor: Portion = attrs.field(eq=False)
    waiting: tuple[int, ...]
    wanted: tuple[int, ...]
    """What each waiting pod asks for."""
    recorded: tuple[Batch, ...]
    batches: tuple[Batch, ...]
    free: Int64s = attrs.field(eq=False)
    """[N] idle and being released, with the free parts of shared devices, before anything is taken."""
    feasible: NodeRows = attrs.field(eq=False)
    """Nodes that may have room without taking anything."""

    def scenario(self, potential: Sequence[Batch]) -> Scenario:
        """Return the scenario with these batches besides the recorded ones."""
        return Scenario(
            aggressor=self.aggressor,
            waiting=self.waiting,
            recorded=self.recorded,
            potential=tuple(batch for batch in potential if batch),
        )

    def group_of(self, pod: int) -> int:
        """Return the group of ``pod``."""
        return int(self.view.facts.pods.group[pod])

    def node_of(self, pod: int) -> int:
        """Return the node of ``pod``, -1 for none."""
        return int(self.view.columns.node[pod])

    def gpus_of(self, pod: int) -> int:
        """Return what ``pod`` holds on its node."""
        return int(accepted_gpu(self.view.facts, int(self.view.facts.pods.shape[pod]), self.node_of(pod)))

    def nodes_of_group(self, group: int) -> list[int]:
        """Return the nodes of all pods of ``group``, in name order."""
        nodes = self.view.columns.node[self.view.pods_of(GroupRow(group))]
        return [int(node) for node in np.unique(nodes[nodes >= 0])]
