"""Which devices of a node a sharing pod gets.

Source: the peer's plugins/gpupack and gpuspread.
"""

from collections.abc import Sequence

import attrs

from kai.framework import DeviceOrder, Extension, SessionView


@attrs.frozen(kw_only=True)
class PackDevices:
    """Fill the fullest shared device first, open a new one last."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (DeviceOrder(pack=1.0),)


@attrs.frozen(kw_only=True)
class SpreadDevices:
    """Open a new device first, then use the emptiest."""

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term."""
        del session
        return (DeviceOrder(spread=1.0),)
