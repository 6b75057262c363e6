"""Scenario files for tests, in the short form or that of the conformance cases, and sinks for decisions."""

from pathlib import Path

import attrs

from kai.answers.cases.case import Case
from kai.answers.offline.run import Outcome, simulate
from kai.basics.errors import InputError
from kai.deciding.configuration.registry import Registry
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Decision, Recorder
from kai.framework.hooks import Plugin, PluginUse
from kai.lab.request import Request
from kai.lab.sources.loading import read_case


def load_scenario(path: str | Path) -> Case:
    """Return the scenario in a file.

    Raises: InputError or ConfigError that names what is wrong.
    """
    case = read_case(str(path), Registry.installed())
    if not isinstance(case, Case):
        raise InputError(f"{path}: found a case without a cluster, expected a scenario")
    return case


def run_scenario(case: Case, *plugins: Plugin, registry: Registry | None = None) -> Outcome:
    """Run a scenario and return its outcome; ``plugins`` come after those of its configuration."""
    uses = tuple(PluginUse(name=type(plugin).__name__, plugin=plugin) for plugin in plugins)
    return simulate(case, registry, more=uses)


def check_scenario(path: str | Path) -> tuple[str, ...]:
    """Run the scenario in a file and return the differences from its expectations; empty if there are none.

    Raises: InputError for a file without expectations, or one that cannot be read.
    """
    result = Request().run(str(path))
    found = result.differences()
    if found.unknown:
        raise InputError(f"{path}: found nothing that is expected, expected an `expect` or `expected`")
    return found.found


RecordingSink = Recorder
"""A sink that stores all decisions, by statement."""


@attrs.define
class RejectingSink:
    """A sink that accepts some statements and raises for every further one, like a cluster that rejects writes."""

    accepts: int = 0
    taken: list[tuple[Decision, ...]] = attrs.field(factory=list)

    def take(self, decisions: tuple[Decision, ...], /) -> None:
        """Store the decisions of one statement, or reject them.

        Raises: ConnectionError once enough were taken.
        """
        if len(self.taken) >= self.accepts:
            raise ConnectionError(f"the sink takes {self.accepts} statements and no more")
        self.taken.append(decisions)


def decision_lines(decisions: list[Decision], snapshot: Snapshot) -> list[str]:
    """Return decisions as lines with names in place of rows, so that runs on differently ordered objects compare."""
    lines = []
    for decision in decisions:
        node = getattr(decision, "node", -1)
        where = f" -> {snapshot.nodes[node].name}" if node >= 0 else ""
        lines.append(f"{type(decision).__name__} {snapshot.pods[decision.pod].key}{where}")
    return lines
