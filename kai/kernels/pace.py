"""Whether kernels are worth compiling: the work that was decided plainly so far, against what compiling costs.

Plain, a cycle takes at most 0.1 milliseconds for each pair of a pod that waits and a node or pod that is looked at for
it (measured: 5 to 80 microseconds; groups that take from others cost most). Loading what is compiled takes a second and
a half of processor, compiling everything 75 seconds. A process decides plainly until that has cost about as much as
the kernels would, and has them compiled then. So it spends at most twice what it had to, whatever comes, and small
clusters never pay for a compiler.
"""

from collections.abc import Callable
from typing import Final

from kai.kernels._jit import is_plain, run_compiled, run_plainly

WORTH_LOADING: Final = 30_000
"""Work after which compiled kernels are loaded, if they are there."""
WORTH_COMPILING: Final = 1_000_000
"""Work after which kernels are compiled."""


def work_of(nodes: int, pods: int, waiting: int) -> int:
    """Return the work of a cycle, in pairs of a waiting pod and a node or pod."""
    return (waiting + 1) * (nodes + pods)


class Pace:
    """The work that a process has decided plainly."""

    def __init__(self, worth_loading: int = WORTH_LOADING) -> None:
        """Begin without any; compiled kernels are loaded after ``worth_loading``, if they are there."""
        self.done = 0
        self._worth_loading = worth_loading
        self._is_cached: bool | None = None

    def settle(self, work: int, modules: tuple[str, ...], tell: Callable[[int, int], None]) -> None:
        """Settle how kernels run while so much work is decided; ``modules`` are those of plugins with kernels.

        ``tell`` hears how many of the kernels that have to be compiled are. What runs compiled goes on doing so.
        """
        if is_plain() is False:
            return
        if not self.wants_compiled(work):
            run_plainly()
            return
        from kai.kernels.warm import missing, warm

        # Where all are cached, each is loaded with its first call: most cycles call a part of them.
        if missing(*modules):
            warm(*modules, tell=tell)
        run_compiled()

    def wants_compiled(self, work: int) -> bool:
        """Say whether kernels should be compiled before so much work is decided.

        Cost: nothing while there is little work; then half a second, once, to see what is cached.
        """
        total = self.done + work
        if self._worth_loading < total <= WORTH_COMPILING and self._is_cached is None:
            from kai.kernels.warm import missing

            self._is_cached = not missing()
        return total > (self._worth_loading if self._is_cached else WORTH_COMPILING)

    def add(self, work: int) -> None:
        """Count work that is decided plainly."""
        self.done += work


__all__ = ["WORTH_COMPILING", "WORTH_LOADING", "Pace", "work_of"]
