"""What a run of the rig found: figures for people, the same as JSON, and whether anything was violated."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs

from tests.integration.chaos.beneficiaries import Beneficiaries
from tests.integration.chaos.history import History
from tests.integration.chaos.load import Load
from tests.integration.chaos.observer import Observer


@attrs.define
class Report:
    """Figures of one run."""

    seed: int
    kills: int = 0
    kills_before_ready: int = 0
    restarts: list[float] = attrs.field(factory=list)
    """Seconds from a kill to the first bind by another life of the same pod."""
    standbys: list[float] = attrs.field(factory=list)
    """Seconds from a kill to the first bind by the other replica."""
    freezes: list[float] = attrs.field(factory=list)
    """The same after a freeze."""
    settled: int = 0
    bound_twice: list[str] = attrs.field(factory=list)
    overfilled: list[str] = attrs.field(factory=list)
    orphans: list[str] = attrs.field(factory=list)
    late: list[str] = attrs.field(factory=list)
    """What was decided by lives that did not lead."""
    arrived_late: list[str] = attrs.field(factory=list)
    """What such lives wrote that decides nothing: it was on its way when another led."""
    bindings: int = 0
    evictions: int = 0
    outcomes: Counter[str] = attrs.field(factory=Counter)
    """How many evictions had which outcome, once everything came to rest in the end."""
    futile: list[str] = attrs.field(factory=list)
    pods: int = 0
    terms: int = 0
    calls: Counter[int] = attrs.field(factory=Counter)
    rig: list[str] = attrs.field(factory=list)
    """What the rig itself could not do; it tries again."""

    def take(self, history: History, observer: Observer, load: Load) -> None:
        """Take what is known so far."""
        self.bound_twice = history.bound_twice()
        self.bindings = history.bindings()
        self.evictions = sum(each.what == "pods/eviction" for each in history.writes)
        self.terms = len(history.terms())
        late = [(each, f"{each.received} {each.verb} {each.what} {'/'.join(each.key)}") for each in history.late()]
        self.late = [text for each, text in late if each.decides]
        self.arrived_late = [text for each, text in late if not each.decides]
        self.calls = history.calls
        self.overfilled = list(observer.check())
        self.pods = load.submitted
        self.rig = load.problems

    def judge(self, beneficiaries: Beneficiaries) -> None:
        """Take what became of evictions."""
        self.outcomes = beneficiaries.became()
        self.futile = beneficiaries.futile()

    @property
    def violations(self) -> list[str]:
        """Return what must not have been, in words."""
        return [
            *(f"bound twice: {each}" for each in self.bound_twice),
            *self.overfilled,
            *(f"left over: {each}" for each in self.orphans),
            *(f"decided by a replica that did not lead: {each}" for each in self.late),
            *(f"evicted in vain: {each}" for each in self.futile),
        ]

    def document(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        found = attrs.asdict(self)
        found["calls"] = {str(code): count for code, count in sorted(self.calls.items())}
        found["seconds"] = {name: _spread(getattr(self, name)) for name in ("restarts", "standbys", "freezes")}
        found["violations"] = self.violations
        return found

    def text(self) -> str:
        """Return the figures for people."""
        events = f"{self.kills} kills ({self.kills_before_ready} before ready), {len(self.freezes)} freezes"
        work = f"{self.pods} pods, {self.bindings} bindings, {self.evictions} evictions, {self.terms} terms"
        wrong = {
            "bound twice": self.bound_twice,
            "over-filled": self.overfilled,
            "left over": self.orphans,
            "decided by a replica that did not lead": self.late,
            "other writes of such a replica": self.arrived_late,
            "evicted in vain": self.futile,
        }
        lines = [
            f"seed {self.seed}: {events}; {work}; came to rest {self.settled} times",
            ", ".join(f"{what} {len(found)}" for what, found in wrong.items()),
            f"evictions: {', '.join(f'{what} {count}' for what, count in self.outcomes.items()) or 'none judged'}",
            *(f"first bind after {name}: {told(getattr(self, name))}" for name in ("restarts", "standbys", "freezes")),
            *(f"VIOLATION {each}" for each in self.violations),
        ]
        return "\n".join(lines)


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {}
    ordered = sorted(seconds)
    at = {"p50": 0.5, "p99": 0.99}
    found = {name: round(ordered[math.ceil(share * len(ordered)) - 1], 2) for name, share in at.items()}
    return {"n": len(ordered), "least": round(ordered[0], 2), **found, "most": round(ordered[-1], 2)}


def told(seconds: Sequence[float]) -> str:
    """Return durations in words: how many, the least, the middle, and the most."""
    return ", ".join(f"{name} {value:g}" for name, value in _spread(seconds).items()) or "none"
