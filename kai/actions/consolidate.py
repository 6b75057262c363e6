"""Consolidate: move running pods together so that a large one fits. Nobody loses a place, everybody moved gets another.

Source: the peer's actions/consolidation.
"""

import attrs
import numpy as np

from kai.actions.search.waiting import Hunt, anybody
from kai.framework.decisions import Cause
from kai.framework.parameters import UNBOUNDED
from kai.framework.portion import Portion
from kai.framework.session import Session
from kai.kernels.booking import requested_gpu
from kai.kernels.victims import free_gpus
from kai.model.rows import Bools, GroupRows


def _preemptible(session: Session, groups: GroupRows) -> GroupRows:
    return groups[session.facts.groups.preemptible[groups]]


def _enough_in_all(session: Session, portion: Portion) -> bool:
    """Say whether ready nodes have enough GPUs between them, wherever they are: moving pods makes no more."""
    idle = np.zeros(len(session.all_nodes), np.int64)
    releasing = np.zeros(len(session.all_nodes), np.int64)
    free_gpus(session.facts, session.columns, idle, releasing)
    ready = session.facts.nodes.ready
    shapes = session.facts.pods.shape[portion.chunk()]
    wanted = sum(int(requested_gpu(session.facts, int(shape))) for shape in shapes)
    if wanted > int((idle + releasing)[ready].sum()):
        return False
    memory = int((session.facts.shapes.memory[shapes]).sum())
    if not memory:
        return True
    per_device = session.facts.nodes.gpu_memory
    return memory <= int(((idle + releasing) * per_device // 1000)[ready].sum())


def _anybody(session: Session, portion: Portion, placed: Bools) -> Bools:
    """Return the first groups, by name, that may be moved.

    The bound counts groups and, as the peer's does, admits one more than it says.
    """
    del portion
    bound = session.parameters.max_consolidation_preemptees
    if bound != UNBOUNDED:
        placed[np.flatnonzero(placed)[bound + 1 :]] = False
    return placed


@attrs.frozen
class Consolidate:
    """Move preemptible pods to other places to make one large enough."""

    name: str = "consolidation"

    def run(self, session: Session) -> None:
        """Search for every preemptible group that waits."""
        if session.parameters.max_consolidation_preemptees == 0:
            return
        Hunt(
            name=self.name,
            cause=Cause.CONSOLIDATE,
            rule="everybody finds another place",
            may_search=anybody,
            can_succeed=_enough_in_all,
            victims=_anybody,
            per_queue=False,
            pending_filter=_preemptible,
        ).run(session)
