"""Groups of higher priority first.

Source: the peer's plugins/priority.
"""

from collections.abc import Sequence

import attrs

from kai.framework import Extension, PriorityOrder, SessionView


@attrs.frozen(kw_only=True)
class Priority:
    """Order the groups of a queue by the value of their priority class."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (PriorityOrder(),)
