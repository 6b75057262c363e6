"""Prefer nodes where a pod can start now.

Source: the peer's plugins/nodeavailability.
"""

import attrs

from kai.framework.hooks import Hooks
from kai.framework.terms import Availability as Term
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class Availability:
    """Prefer idle resources to resources that are still being released."""

    def open(self, session: SessionView) -> Hooks:
        """Return the availability term."""
        del session
        return Hooks(terms=(Term(),))
