"""Bring every group to its minimum before any group grows beyond it.

Source: the peer's plugins/elastic.
"""

from collections.abc import Sequence

import attrs

from kai.framework import ElasticOrder, Extension, SessionView


@attrs.frozen(kw_only=True)
class Elastic:
    """Order groups below their minimum before those at it, and those before the ones above it."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (ElasticOrder(),)
