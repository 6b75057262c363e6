"""Groups of higher priority first.

Source: the peer's plugins/priority.
"""

import attrs

from kai.framework.hooks import Hooks
from kai.framework.terms import PriorityOrder
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class Priority:
    """Order the groups of a queue by the value of their priority class."""

    def open(self, session: SessionView) -> Hooks:
        """Return the term."""
        del session
        return Hooks(terms=(PriorityOrder(),))
