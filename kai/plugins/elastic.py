"""Bring every group to its minimum before any group grows beyond it.

Source: the peer's plugins/elastic.
"""

import attrs

from kai.framework.hooks import Hooks
from kai.framework.terms import ElasticOrder
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class Elastic:
    """Order groups below their minimum before those at it, and those before the ones above it."""

    def open(self, session: SessionView) -> Hooks:
        """Return the term."""
        del session
        return Hooks(terms=(ElasticOrder(),))
