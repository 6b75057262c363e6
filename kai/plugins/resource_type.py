"""Keep pods without GPUs off GPU nodes as long as there are others.

Source: the peer's plugins/resourcetype.
"""

from collections.abc import Sequence

import attrs

from kai.framework import CpuOnlyNodes, Extension, SessionView


@attrs.frozen(kw_only=True)
class ResourceType:
    """Prefer nodes without GPUs for pods that need none."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (CpuOnlyNodes(),)
