"""Where an answer comes from; apart from cases, since what the service answers needs none of them.

How often one case may be decided. Values only: the help of commands reads them without what decides.
"""

from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Origin:
    """Where a case, or an answer, comes from, as documents for machines say it."""

    type: str = "scenario"
    """One of live, service, conditions, snapshot, manifests, scenario."""
    cluster: str | None = None
    """What the context of a live cluster is called."""
    namespace: str = ""
    """The namespace of that context."""
    revision: str | None = None
    """The version of the cluster's store."""
    sha256: str | None = None
    """Of the bytes that were read."""
    complete: bool = True
    """Whether everything was read that the scheduler reads."""


MOST_CYCLES: Final = 1_000
"""Each cycle is kept for as long as its outcome is: half a megabyte where fifty jobs change."""
