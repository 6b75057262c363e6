"""A workload of an input that has no part in the simulation, because a cluster would not take it as it is."""

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from kai.manifests import Finding


@attrs.frozen(kw_only=True)
class RefusedWorkload:
    """What would have been a job, and every finding that means refusal."""

    name: str
    namespace: str
    kind: str
    queue: str
    pods: int
    gpus: float
    findings: "tuple[Finding, ...]"

    @property
    def text(self) -> str:
        """Return what is wrong in one sentence: the first fault, and how many others there are."""
        others = len(self.findings) - 1
        return f"{self.findings[0].message}{f' (and {others} more)' if others else ''}"
