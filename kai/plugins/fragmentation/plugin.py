"""Place each pod where most of the GPUs stay usable for the pods that usually come.

    pods that run and wait -> the shapes that usually come, where they may run -> the term that kernels evaluate
    pods that wait         -> the order in which most of them fit

Nodes and devices are chosen by the term, one pod after the other; ``kai.kernels.fragments`` says what it counts.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023. The paper's measure counts neither memory nor what pods
    after the next will be short of, nor which nodes only some pods may use; and it does not order pods.
"""

from collections.abc import Sequence

import attrs
from attrs.validators import ge, gt, instance_of

from kai.framework import Extension, GroupOrder, SessionView
from kai.framework import Fragmentation as FragmentationTerm
from kai.plugins.fragmentation.mix import Kinds, term_of
from kai.plugins.fragmentation.order import order_keys


@attrs.frozen(kw_only=True)
class Fragmentation:
    """Keep what is left of GPUs usable for the pods that usually come.

    ``weight`` is what a GPU that stays usable is worth, in points of score. ``shapes`` is how many of the most frequent
    shapes count as usual. ``order`` has large groups go first and those that need no GPU last, so that more of what
    waits at once fits.
    """

    weight: float = attrs.field(default=10.0, validator=gt(0.0))
    shapes: int = attrs.field(default=48, validator=[instance_of(int), ge(1)])
    order: bool = True

    def open(self, session: SessionView) -> Sequence[Extension]:
        """Return the term, and the order; nothing where no pod asks for a GPU."""
        term = self._term(session)
        if term is None:
            return ()
        return (term, GroupOrder(order_keys(session))) if self.order else (term,)

    def _term(self, session: SessionView) -> FragmentationTerm | None:
        return term_of(session, Kinds.of(session), self.shapes, self.weight)
