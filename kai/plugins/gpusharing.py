"""Bring pods to nodes where a shared device still has room for them.

The bookkeeping of shared devices is the engine's; this plugin is the preference.

Source: the peer's plugins/gpusharingorder, which rates every kind of pod, also one that shares nothing.
"""

import attrs

from kai.framework.hooks import Hooks
from kai.framework.terms import SharedDevices
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class GpuSharing:
    """Prefer nodes with a fitting shared device to nodes where a new one would have to be opened."""

    def open(self, session: SessionView) -> Hooks:
        """Return the term."""
        del session
        return Hooks(terms=(SharedDevices(),))
