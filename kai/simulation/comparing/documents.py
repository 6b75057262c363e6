"""What comparisons come to: the classes are the documents, and say what is written of them."""

from collections.abc import Mapping
from typing import Any

import attrs

from kai.wording import counted


@attrs.frozen(kw_only=True)
class JobState:
    """How a job ends on one side."""

    state: str
    nodes: tuple[str, ...]
    queue: str
    reason: str
    placed: int
    wanted: int


@attrs.frozen(kw_only=True)
class Metric:
    """One figure on both sides.

    None where a side does not say.
    """

    name: str
    unit: str
    a: float | None
    b: float | None
    change: float | None
    better: str
    """``a``, ``b``, ``equal`` or ``unclear``."""


@attrs.frozen(kw_only=True)
class JobChange:
    """A job that ends otherwise.

    None on a side that does not have it.
    """

    job: str
    a: JobState | None
    b: JobState | None


@attrs.frozen(kw_only=True)
class Divergence:
    """The first decision that differs.

    None on a side that does not decide it.
    """

    cycle: int
    decision_a: Mapping[str, Any] | None
    decision_b: Mapping[str, Any] | None


@attrs.frozen(kw_only=True, slots=False)  # documents add fields to it, and two bases with slots cannot be one class
class Comparison:
    """What changes from one side to the other."""

    a: str
    b: str
    metrics: tuple[Metric, ...]
    jobs: tuple[JobChange, ...]
    first_divergence: Divergence | None

    @property
    def is_equal(self) -> bool:
        """Whether nothing changes."""
        return not self.jobs and self.first_divergence is None and all(each.change == 0.0 for each in self.metrics)


@attrs.frozen(kw_only=True)
class Dissent:
    """A job about which the scheduler of the cluster decided otherwise."""

    job: str
    """``namespace/name``."""
    queue: str
    theirs: str
    ours: str
    rule: str
    """What allows or forbids it here."""
    their_rule: str | None
    """The code that stands in the condition; None where they keep pods."""


@attrs.frozen(kw_only=True)
class Agreement:
    """What the scheduler of the cluster wrote about its jobs, beside what is decided here."""

    decided: int
    undecided: int
    """Jobs that wait and about which nothing was written yet."""
    equal: int
    differences: tuple[Dissent, ...]

    @property
    def summary(self) -> str:
        """The count in one sentence."""
        more = f"; {counted(self.undecided, 'job')} not decided there yet" if self.undecided else ""
        return f"{self.equal} of {counted(self.decided, 'decision')} as the cluster's scheduler has it{more}"
