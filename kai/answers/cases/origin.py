"""The origin of an answer, and the limit on cycles, separate from cases.

Answers of the service have an origin but no case. The help of commands reads the limit without loading the code that
decides.
"""

from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Origin:
    """The origin of a case or an answer, as it appears in machine-readable documents."""

    type: str = "scenario"
    """One of live, service, conditions, snapshot, manifests, scenario, history."""
    cluster: str | None = None
    """The name of the context of a live cluster."""
    namespace: str = ""
    """The namespace of that context."""
    revision: str | None = None
    """The resourceVersion of the listing."""
    sha256: str | None = None
    """SHA-256 of the bytes that were read."""
    complete: bool = True
    """Whether the input includes all objects that the scheduler reads."""


MOST_CYCLES: Final = 1_000
"""Most cycles of one case. An outcome keeps every cycle: half a megabyte each where fifty jobs change."""
