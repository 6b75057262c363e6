"""The states of a job: one vocabulary for tables and documents."""

from enum import StrEnum


class State(StrEnum):
    """The state of a job after a cycle. Tables and documents show the values."""

    RUNNING = "Running"
    STARTS = "Starts"
    HELD = "Held"
    MOVES = "Moves"
    PARTIAL = "Partial"
    WAITS = "Waits"
    IMPOSSIBLE = "Impossible"
    EVICTED = "Evicted"
    LEAVING = "Leaving"
    LOST = "Lost"
    FINISHED = "Finished"
    EMPTY = "Empty"
    REFUSED = "Refused"


RUNS = frozenset({State.RUNNING, State.STARTS, State.FINISHED})
"""States in which all pods of the job have a node, or have ended."""


MEANINGS: dict[State, str] = {
    State.RUNNING: "All its pods have a node, and some of them had it before.",
    State.STARTS: "All its pods are bound to nodes in this cycle.",
    State.HELD: "It has places that pods which are leaving still occupy; it starts when they have left.",
    State.MOVES: "Some of its pods leave their node for another one, or left it and have not come back.",
    State.PARTIAL: "Some of its pods run or start, others wait.",
    State.WAITS: "None of its pods has a node, and the reason says why.",
    State.IMPOSSIBLE: "It waits, and these nodes could not hold it if they were empty.",
    State.EVICTED: "Its pods have to leave in this cycle.",
    State.LEAVING: "Its pods are terminating, and none waits.",
    State.LOST: "Its pods are bound to a node that does not exist: it was deleted, or the input lacks it.",
    State.FINISHED: "All its pods have ended.",
    State.EMPTY: "It has no pods.",
    State.REFUSED: "An API server would refuse it as it is written, so kai leaves it out; the finding says why.",
}
"""One sentence for each state."""
