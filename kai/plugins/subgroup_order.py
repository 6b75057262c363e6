"""Serve sub-groups that lack pods first, then the emptiest.

Source: the peer's plugins/subgrouporder.
"""

import attrs

from kai.framework.hooks import Hooks
from kai.framework.terms import SubGroupFill
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class SubGroupOrder:
    """Order sub-groups by how far they are from what they need."""

    def open(self, session: SessionView) -> Hooks:
        """Return the term."""
        del session
        return Hooks(terms=(SubGroupFill(),))
