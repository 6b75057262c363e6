"""Growing the set of those who might have to go: batch by batch off the victim heap, until the filters see a chance.

Source: the peer's actions/common/solvers/scenario (by pod, accumulated scenario builder).
"""

from collections.abc import Iterator, Sequence

import numpy as np

from kai.actions.search.filters import Filters, held_by, wanted_by
from kai.framework.heaps import GroupHeap
from kai.framework.portion import Portion
from kai.framework.scenario import Batch, Outer
from kai.framework.session import Session
from kai.model.rows import Int64s, NodeRows


def outer_scenarios(
    session: Session,
    aggressor: Portion,
    recorded: Sequence[Batch],
    victims: GroupHeap,
    free: Int64s,
    feasible: NodeRows,
) -> Iterator[Outer]:
    """Yield the outer scenarios that pass the filters: first without new victims, then after each added batch."""
    waiting = tuple(int(pod) for pod in aggressor.chunk())
    if not waiting:
        return
    known = {pod for batch in recorded for pod in batch}
    filters = Filters(session, aggressor, waiting, free, feasible)
    held = held_by(session, sorted(known))
    batches: list[Batch] = []
    while True:
        taken = [pod for batch in (*recorded, *batches) for pod in batch]
        if filters.accept(taken, held):
            yield Outer(
                view=session.view,
                aggressor=aggressor,
                waiting=waiting,
                wanted=wanted_by(session, waiting),
                recorded=tuple(recorded),
                batches=tuple(batches),
                free=free,
                feasible=feasible,
            )
        batch = _next_batch(victims, known)
        if batch is None:
            return
        batches.append(batch)
        held = held + held_by(session, batch)


def _next_batch(victims: GroupHeap, known: set[int]) -> Batch | None:
    """Return what the last-ranked group gives up next; what is left of it goes back.

    Groups with recorded victims give up the rest later.
    """
    while (portion := victims.pop()) is not None:
        pods, more = portion.next_victims()
        if not len(pods):
            continue
        everything = portion.pods()
        if known.intersection(map(int, pods)):
            rest = everything[[int(pod) not in known for pod in everything]]
            if len(rest):
                victims.push(portion.part(rest))
            continue
        if more:
            victims.push(portion.part(everything[~np.isin(everything, pods)]))
        return tuple(int(pod) for pod in pods)
    return None
