"""Fill nodes that are fuller already, so that whole nodes stay free for large pods.

Source: the peer's plugins/nodeplacement with the strategy binpack.
"""

from collections.abc import Sequence

import attrs
from attrs.validators import ge

from kai.framework import Density, Extension, SessionView


@attrs.frozen(kw_only=True)
class Binpack:
    """Prefer nodes with little left: of CPU for pods without GPUs (``cpu``), of GPU for the others (``gpu``).

    A number is the weight against other scores: 0 is off, 1 is on.
    """

    cpu: bool | float = attrs.field(default=1.0, validator=ge(0.0))
    gpu: bool | float = attrs.field(default=1.0, validator=ge(0.0))

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the density term."""
        del session
        return (Density(cpu_binpack=float(self.cpu), gpu_binpack=float(self.gpu)),)
