"""The first decisions of a run as lines of text: where two runs part is found by comparing them."""

from __future__ import annotations

from typing import Final

import attrs

from kai.framework.decisions import Bind, Decision, Evict, Nominate
from kai.state.snapshot import Snapshot
from kai.virtual.running.packed_rows import Rows


@attrs.define
class DecisionLines:
    """Keeps as many lines as it may, and writes one for each decision."""

    most: int = 100_000
    _lines: Rows[tuple[float, int, str]] = attrs.field(factory=lambda: Rows(tuple, lambda *line: line))

    def line(self, decision: Decision, snapshot: Snapshot, at: tuple[float, int], subject: str) -> str:
        """Return a decision as one line, and keep it if it is one of the first; ``at`` is its instant and its cycle."""
        text = f"{_VERBS[type(decision)]} {subject}"
        if isinstance(decision, Evict):
            gains = snapshot.groups[decision.aggressor].key if decision.aggressor >= 0 else "-"
            text = f"{text} {decision.cause.name} {gains}"
        if len(self._lines) < self.most:
            self._lines.append((*at, text))
        return f"{at[0]!r} {text}\n"

    @property
    def lines(self) -> tuple[tuple[float, int, str], ...]:
        """The lines that are kept."""
        return tuple(self._lines)


_VERBS: Final = {Bind: "bind", Evict: "evict", Nominate: "promise"}
