"""Scenarios that are written down, in the short form or in that of the conformance cases, for tests of one's own.

Places for decisions to go in tests.
"""

from pathlib import Path

import attrs

from kai.configuration.registry import Registry
from kai.errors import InputError
from kai.framework.decisions import Decision, Recorder
from kai.framework.hooks import Plugin, PluginUse
from kai.simulation.cases.case import Case
from kai.simulation.deciding.run import Outcome, simulate
from kai.simulation.request import Request
from kai.simulation.sources.loading import read_case
from kai.state.snapshot import Snapshot


def load_scenario(path: str | Path) -> Case:
    """Return the scenario in a file.

    Raises: InputError or ConfigError that names what is wrong.
    """
    case = read_case(str(path), Registry.installed())
    if not isinstance(case, Case):
        raise InputError(f"{path}: found a case without a cluster, expected a scenario")
    return case


def run_scenario(case: Case, *plugins: Plugin, registry: Registry | None = None) -> Outcome:
    """Return what happens in a scenario; ``plugins`` answer behind those of its configuration."""
    uses = tuple(PluginUse(name=type(plugin).__name__, plugin=plugin) for plugin in plugins)
    return simulate(case, registry, more=uses)


def check_scenario(path: str | Path) -> tuple[str, ...]:
    """Run the scenario in a file and return in what it differs from what it expects; nothing if it does not.

    Raises: InputError for a file that expects nothing, or cannot be read.
    """
    result = Request().run(str(path))
    found = result.differences()
    if found.unknown:
        raise InputError(f"{path}: found nothing that is expected, expected an `expect` or `expected`")
    return found.found


RecordingSink = Recorder
"""Keeps the decisions it is given, by statement."""


@attrs.define
class RejectingSink:
    """Accepts so many statements and refuses every further one by raising, as a cluster that has had enough."""

    accepts: int = 0
    taken: list[tuple[Decision, ...]] = attrs.field(factory=list)

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Keep the decisions of one statement, or refuse them.

        Raises: ConnectionError when enough were taken.
        """
        if len(self.taken) >= self.accepts:
            raise ConnectionError(f"the sink takes {self.accepts} statements and no more")
        self.taken.append(decisions)


def told(decisions: list[Decision], snapshot: Snapshot) -> list[str]:
    """Return decisions as lines with names in place of rows, so that runs on differently ordered objects compare."""
    lines = []
    for decision in decisions:
        node = getattr(decision, "node", -1)
        where = f" -> {snapshot.nodes[node].name}" if node >= 0 else ""
        lines.append(f"{type(decision).__name__} {snapshot.pods[decision.pod].key}{where}")
    return lines
