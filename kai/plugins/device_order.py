"""Which devices of a node a sharing pod gets.

Source: the peer's plugins/gpupack and gpuspread.
"""

import attrs

from kai.framework.hooks import Hooks
from kai.framework.terms import DeviceOrder
from kai.framework.view import SessionView


@attrs.frozen(kw_only=True)
class PackDevices:
    """Fill the fullest shared device first, open a new one last."""

    def open(self, session: SessionView) -> Hooks:
        """Return the term."""
        del session
        return Hooks(terms=(DeviceOrder(pack=1.0),))


@attrs.frozen(kw_only=True)
class SpreadDevices:
    """Open a new device first, then use the emptiest."""

    def open(self, session: SessionView) -> Hooks:
        """Return the term."""
        del session
        return Hooks(terms=(DeviceOrder(spread=1.0),))
