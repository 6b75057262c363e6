"""What an eviction tells: the numbers of the victim's queue and of the aggressor's, where their paths part."""

from collections.abc import Callable, Mapping
from typing import Final

from kai.engine.session import Session
from kai.framework.verdict import Fact
from kai.model.rows import Float64s, Int64s, PodRows

Explain = Callable[[Session, int, Float64s | Int64s], Mapping[str, Fact]]
"""The numbers of a queue, given what it held before anything was evicted.

Only the number called ``USED`` is made of what it held, the others stay the same for a whole cycle.
"""
USED: Final = "used"


def facts_of(
    session: Session, explain: Explain | None, used: Float64s | Int64s, pods: PodRows, aggressor: int
) -> dict[int, Mapping[str, Fact]]:
    """Return, for each of ``pods``, the numbers of its queue and of the aggressor's where their paths part.

    ``used`` [Q, 3] is what queues held before the search.
    """
    if explain is None:
        return {}
    parents, groups = session.facts.queues.parent, session.facts.groups.queue
    own = int(groups[aggressor])
    out: dict[int, Mapping[str, Fact]] = {}
    for pod in pods.tolist():
        victim, mine = int(groups[session.facts.pods.group[pod]]), own
        if parents[victim] != parents[mine]:
            victim, mine = (int(parents[row]) if parents[row] >= 0 else row for row in (victim, mine))
        out[pod] = {
            "victim": explain(session, victim, used[victim]),
            "aggressor": explain(session, mine, used[mine]),
        }
    return out
