"""How long plugins take: a stopwatch around each of their functions.

The engine has no clock. It hands each function of a plugin to a stopwatch, if the shell brings one, and calls what it
gets back. Time that the engine or another plugin needs in between does not count.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import attrs

P = ParamSpec("P")
R = TypeVar("R")


@attrs.define
class Taken:
    """What the calls of one function of a plugin took."""

    calls: int = 0
    seconds: float = 0.0


@attrs.define
class PluginTimes:
    """A stopwatch for one cycle; used by one thread."""

    clock: Callable[[], float]
    taken: dict[tuple[str, str], Taken] = attrs.field(factory=dict)
    """By the name of the plugin, and of what it was asked."""
    _inside: float = 0.0
    """What calls within the present call took."""

    def timed(self, plugin: str, hook: str, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function`` with its time counted for ``plugin``. Cost: half a microsecond a call."""
        return self._counted(self.taken.setdefault((plugin, hook), Taken()), function)

    def paused(self, function: Callable[P, R], /) -> Callable[P, R]:
        """Return ``function``, whose time counts for no plugin, whichever calls it."""
        return self._counted(Taken(), function)

    def _counted(self, taken: Taken, function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def ask(*args: P.args, **kwargs: P.kwargs) -> R:
            outside, self._inside = self._inside, 0.0
            since = self.clock()
            try:
                return function(*args, **kwargs)
            finally:
                took = self.clock() - since
                taken.calls += 1
                taken.seconds += took - self._inside
                self._inside = outside + took

        return ask
