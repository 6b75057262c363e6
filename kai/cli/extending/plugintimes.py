"""``kai plugins --time``: how long each function of a plugin takes on a cluster that is written down."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from kai.cli.tables import columns
from kai.engine.observe import Silent
from kai.errors import InputError
from kai.telemetry.plugin_times import PluginTimes, Taken

if TYPE_CHECKING:
    from kai.simulation.request import Policy


class _Watching(Silent):
    """An observer that times cycles as a whole and the functions of plugins."""

    def __init__(self) -> None:
        self.stopwatch: PluginTimes = PluginTimes(time.perf_counter)
        self.seconds = 0.0

    @contextmanager
    def phase(self, name: str, /) -> Iterator[None]:
        """Time a phase."""
        since = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - since


@attrs.frozen(kw_only=True)
class Timing:
    """What plugins took in all cycles of a case, and what the cycles took as a whole."""

    seconds: float
    taken: Mapping[tuple[str, str], Taken]
    """By plugin and hook, what took longest first."""

    def table(self) -> str:
        """Return a line for each hook of a plugin, with its share of the cycles."""
        rows = [["PLUGIN", "HOOK", "CALLS", "TOTAL MS", "SHARE"]]
        rows += [
            [plugin, hook, str(each.calls), f"{each.seconds * 1000:.3f}", f"{self._share(each):.1%}"]
            for (plugin, hook), each in self.taken.items()
        ]
        return columns(rows, right={2, 3, 4})

    def values(self) -> dict[str, Any]:
        """Return the same as JSON has it."""
        items = [
            {"plugin": plugin, "hook": hook, "calls": each.calls, "seconds": each.seconds, "share": self._share(each)}
            for (plugin, hook), each in self.taken.items()
        ]
        return {"seconds": self.seconds, "items": items}

    def _share(self, taken: Taken) -> float:
        return taken.seconds / self.seconds if self.seconds else 0.0


def time_plugins(path: str, policy: "Policy | None") -> Timing:
    """Return how long plugins take in the case at ``path``. It is simulated twice, since the first run loads kernels.

    Raises: InputError or ConfigError that names what is wrong.
    """
    from kai.simulation.request import Request

    request = Request(policy=policy)
    if request.run(path).outcome is None:
        raise InputError.about(path, "--time", found="a fair-share case without plugins", wanted="a cluster")
    watching = _Watching()
    request.run(path, watching)
    asked = [(key, each) for key, each in watching.stopwatch.taken.items() if each.calls]
    return Timing(seconds=watching.seconds, taken=dict(sorted(asked, key=lambda entry: -entry[1].seconds)))
