"""Use nodes evenly: the emptiest first.

Source: the peer's plugins/nodeplacement with the strategy spread.
"""

from collections.abc import Sequence

import attrs

from kai.framework import Density, Extension, SessionView


@attrs.frozen(kw_only=True)
class Spread:
    """Prefer nodes with much left: of CPU for pods without GPUs (``cpu``), of GPU for the others (``gpu``)."""

    cpu: bool = True
    gpu: bool = True

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the density term."""
        del session
        return (Density(cpu_spread=float(self.cpu), gpu_spread=float(self.gpu)),)
