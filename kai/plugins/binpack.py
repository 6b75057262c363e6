"""Fill nodes that are fuller already, so that whole nodes stay free for large pods.

Source: the peer's plugins/nodeplacement with the strategy binpack.
"""

from collections.abc import Sequence

import attrs

from kai.framework import Density, Extension, SessionView


@attrs.frozen(kw_only=True)
class Binpack:
    """Prefer nodes with little left: of CPU for pods without GPUs (``cpu``), of GPU for the others (``gpu``)."""

    cpu: bool = True
    gpu: bool = True

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the density term."""
        del session
        return (Density(cpu_binpack=float(self.cpu), gpu_binpack=float(self.gpu)),)
