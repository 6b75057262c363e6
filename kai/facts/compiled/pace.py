"""When to compile: plain work so far, compared with the cost of compiling kernels.

A plain cycle takes at most 0.1 milliseconds for each pair of a waiting pod and a node or pod that is checked for it
(measured: 5 to 80 microseconds; groups that take from others cost most). Loading cached kernels takes 1.5 seconds of
processor time, compiling all of them 75 seconds. A process decides plainly until that has cost about as much as kernels
would, and then has them compiled. So it spends at most twice the minimum, whatever work comes, and small clusters never
pay for a compiler.
"""

from collections.abc import Callable
from typing import Final

from kai.facts.compiled.jit import is_plain, run_compiled, run_plainly

WORTH_LOADING: Final = 30_000
"""The work after which cached kernels are loaded."""
WORTH_COMPILING: Final = 1_000_000
"""The work after which kernels are compiled."""


def work_of(nodes: int, pods: int, waiting: int) -> int:
    """Return the work of a cycle, in pairs of a waiting pod and a node or pod."""
    return (waiting + 1) * (nodes + pods)


class Pace:
    """The work that a process has decided plainly so far."""

    def __init__(self, worth_loading: int = WORTH_LOADING) -> None:
        """Begin without any work; cached kernels are loaded after ``worth_loading``."""
        self.done = 0
        self._worth_loading = worth_loading
        self._is_cached: bool | None = None

    def settle(self, work: int, modules: tuple[str, ...], tell: Callable[[int, int], None]) -> None:
        """Choose how kernels run for a cycle of ``work``; ``modules`` are those of plugins with kernels.

        ``tell`` receives the progress of compiling: kernels done, and kernels in all. Compiled kernels stay compiled.
        """
        if is_plain() is False:
            return
        if not self.wants_compiled(work):
            run_plainly()
            return
        from kai.facts.compiled.warm import missing, warm

        # If all are cached, each is loaded at its first call, because most cycles call only some of them.
        if missing(*modules):
            warm(*modules, tell=tell)
        run_compiled()

    def wants_compiled(self, work: int) -> bool:
        """Return whether kernels should be compiled before a cycle of ``work``.

        Cost: nothing while there is little work; then half a second, once, to look into the cache.
        """
        total = self.done + work
        if self._worth_loading < total <= WORTH_COMPILING and self._is_cached is None:
            from kai.facts.compiled.warm import missing

            self._is_cached = not missing()
        return total > (self._worth_loading if self._is_cached else WORTH_COMPILING)

    def add(self, work: int) -> None:
        """Count work that is decided plainly."""
        self.done += work


__all__ = ["WORTH_COMPILING", "WORTH_LOADING", "Pace", "work_of"]
