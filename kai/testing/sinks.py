"""Places for decisions to go in tests."""

import attrs

from kai.framework.decisions import Decision, Recorder
from kai.state.snapshot import Snapshot

RecordingSink = Recorder
"""Keeps the decisions it is given, by statement."""


@attrs.define
class RejectingSink:
    """Accepts so many statements and refuses every further one by raising, as a cluster that has had enough."""

    accepts: int = 0
    taken: list[tuple[Decision, ...]] = attrs.field(factory=list)

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Keep the decisions of one statement, or refuse them.

        Raises: ConnectionError when enough were taken.
        """
        if len(self.taken) >= self.accepts:
            raise ConnectionError(f"the sink takes {self.accepts} statements and no more")
        self.taken.append(decisions)


def told(decisions: list[Decision], snapshot: Snapshot) -> list[str]:
    """Return decisions as lines with names in place of rows, so that runs on differently ordered objects compare."""
    lines = []
    for decision in decisions:
        node = getattr(decision, "node", -1)
        where = f" -> {snapshot.nodes[node].name}" if node >= 0 else ""
        lines.append(f"{type(decision).__name__} {snapshot.pods[decision.pod].key}{where}")
    return lines
