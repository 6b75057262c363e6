"""Built-in features decide the same from a distribution of a stranger: they have no door that others have not.

The folder of the plugin is packed under another name and offered by an entry point; the built-in is not installed then,
and cannot be imported.
"""

import ast
import json
from importlib import import_module
from pathlib import Path

import attrs
import pytest

from kai.deciding.configuration.peer import PluginEntry
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.configuration.registry import Registry
from kai.facts.compiled.jit import prepare
from kai.testing import check_scenario
from tests.conformance.answer import answer, read_case
from tests.conformance.answer_scheduling import answer as answer_scheduling
from tests.conformance.judge import differences
from tests.conformance.test_cases import FILES, case_in, family_of, name_of
from tests.conformance.victims import CHOSEN_BETTER, as_peer
from tests.doubles.stranger import importable, pack, registry_without, unavailable

SCENARIOS = Path(__file__).parents[1] / "scenarios"


def cases(families, is_meant):
    """Return the recorded cases of the families whose text is meant."""
    return [path for path in FILES if family_of(path) in families and is_meant(path.read_text(encoding="utf-8"))]


def answered(case):
    """Return the answer to a case, with the peer's victims where kai chooses better ones by itself."""
    chosen_better = name_of(case) in CHOSEN_BETTER
    told = answer_scheduling(as_peer(read_case(case))) if chosen_better else answer(case)
    return json.loads(json.dumps(told))


def scenarios(*patterns):
    return sorted(path for pattern in patterns for path in SCENARIOS.glob(pattern))


@attrs.define
class Stranger:
    """A feature's package, and how often a session was opened for its plugin."""

    package: Path
    opened: int = 0


@pytest.fixture(scope="class")
def stranger(request, tmp_path_factory):
    """Return what a feature is packed as, while it is the only plugin of its name."""
    feature, folder = request.cls.feature, tmp_path_factory.mktemp("stranger")
    stranger = Stranger(folder / pack(feature, request.cls.class_name, folder))
    registry = registry_without(feature, folder)
    # Kernels of the built-in that other tests imported: the compiler looks for their modules, which are hidden now.
    prepare()
    with importable(folder), unavailable(f"kai.plugins.{feature}"), pytest.MonkeyPatch.context() as patch:
        plugin = getattr(import_module(stranger.package.name), request.cls.class_name)
        opens = plugin.open

        def counted(self, session):
            stranger.opened += 1
            return opens(self, session)

        patch.setattr(plugin, "open", counted)
        patch.setattr(Registry, "installed", lambda: registry)
        yield stranger


def imported(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def pytest_generate_tests(metafunc):
    """Give each feature its own cases and scenarios."""
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", metafunc.cls.cases, ids=name_of)
    if "scenario" in metafunc.fixturenames:
        metafunc.parametrize("scenario", metafunc.cls.scenarios, ids=lambda path: path.stem)


class Feature:
    """What holds for a folder of kai/plugins that a stranger brings."""

    def test_it_imports_the_contract_and_nothing_else_of_kai(self, stranger):
        taken = {tuple(name.split(".")[:2]) for file in stranger.package.rglob("*.py") for name in imported(file)}
        assert {name for name in taken if name[0] == "kai"} == {("kai", "framework")}

    def test_it_stands_in_the_place_of_the_built_in(self, stranger):
        configuration = attrs.evolve(default_configuration(), plugins=(PluginEntry(self.feature),))
        (use,) = make_profile(configuration).plugins
        assert type(use.plugin).__module__.split(".")[0] == stranger.package.name
        assert use.origin == f"{stranger.package.name} 1.0"
        with pytest.raises(ImportError):
            import_module(f"kai.plugins.{self.feature}.plugin")

    def test_there_are_cases_and_scenarios(self):
        assert len(self.cases) >= self.least
        assert self.scenarios

    def test_a_case_is_decided_the_same(self, stranger, case):
        before = stranger.opened
        assert differences(case_in(case), answered(case)) == []
        assert stranger.opened > before

    def test_a_scenario_ends_the_same(self, stranger, scenario):
        before = stranger.opened
        assert check_scenario(scenario) == ()
        assert stranger.opened > before


class TestTopology(Feature):
    feature, class_name, least = "topology", "Topology", 18
    cases = cases(
        {"allocate-topology", "consolidation", "integration-allocate", "integration-consolidation", "subgroups"},
        lambda text: "opolog" in text,
    )
    scenarios = scenarios("*/*rack*.yaml")


class TestProportion(Feature):
    feature, class_name, least = "proportion", "Proportion", 60
    cases = cases(
        {"allocate", "reclaim", "reclaim-departments", "integration-reclaim"},
        lambda text: "tiers:" not in text or "name: proportion" in text,  # a list of plugins may leave it out
    )
    scenarios = scenarios("capacity/*.yaml", "order/*.yaml", "reclaim/*.yaml")


class TestNuma(Feature):
    feature, class_name, least = "numa", "Numa", 4
    cases = cases({"numa"}, lambda text: "name: numa" in text)
    scenarios = scenarios("numa/*.yaml")


class TestVolumes(Feature):
    feature, class_name, least = "volumes", "Volumes", 5
    cases = cases({"mig"}, lambda _: True)  # no recorded case has volumes; these are decided with the plugin
    scenarios = scenarios("volumes/*.yaml")
