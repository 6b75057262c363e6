"""Bring pods to nodes where a shared device still has room for them.

The bookkeeping of shared devices is the engine's; this plugin is the preference.

Source: the peer's plugins/gpusharingorder, which rates every kind of pod, also one that shares nothing.
"""

from collections.abc import Sequence

import attrs

from kai.framework import Extension, SessionView, SharedDevices


@attrs.frozen(kw_only=True)
class GpuSharing:
    """Prefer nodes with a fitting shared device to nodes where a new one would have to be opened."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (SharedDevices(),)
