"""Scenarios that are written down, in the short form or in that of the conformance cases, for tests of one's own."""

from pathlib import Path

from kai.configuration.registry import Registry
from kai.errors import InputError
from kai.framework.hooks import Plugin, PluginUse
from kai.simulation.cases.case import Case
from kai.simulation.deciding.run import Outcome, simulate
from kai.simulation.request import Request
from kai.simulation.sources.loading import read_case


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
