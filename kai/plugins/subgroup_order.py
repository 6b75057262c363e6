"""Serve sub-groups that lack pods first, then the emptiest.

Source: the peer's plugins/subgrouporder.
"""

from collections.abc import Sequence

import attrs

from kai.framework import Extension, SessionView, SubGroupFill


@attrs.frozen(kw_only=True)
class SubGroupOrder:
    """Order sub-groups by how far they are from what they need."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (SubGroupFill(),)
