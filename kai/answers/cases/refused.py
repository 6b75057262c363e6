"""A workload that is left out of the simulation, because a cluster would refuse it as it is."""

from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from kai.manifests import Finding


@attrs.frozen(kw_only=True)
class RefusedWorkload:
    """The job that it would have been, and every finding that means refusal."""

    name: str
    namespace: str
    kind: str
    queue: str
    pods: int
    gpus: float
    findings: "tuple[Finding, ...]"

    @property
    def text(self) -> str:
        """Return the refusal in one sentence: the first fault, and the number of others."""
        others = len(self.findings) - 1
        return f"{self.findings[0].message}{f' (and {others} more)' if others else ''}"
