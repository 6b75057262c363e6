"""Built-in features decide the same from a distribution of a stranger: they have no door that others have not.

The folder of the plugin is packed under another name and offered by an entry point; the built-in is not installed then.
"""

import ast
import json
from pathlib import Path

import pytest

from kai.configuration.reading import default_profile
from kai.configuration.registry import Registry
from kai.testing import check_scenario
from tests.conformance.answer import answer
from tests.conformance.judge import differences
from tests.conformance.test_cases import FILES, case_in, family_of, name_of
from tests.doubles.stranger import importable, pack, registry_without

STRANGERS = {"topology": "Topology"}
FAMILIES = ("allocate-topology", "consolidation", "integration-allocate", "integration-consolidation", "subgroups")
CASES = [path for path in FILES if family_of(path) in FAMILIES and "opolog" in path.read_text(encoding="utf-8")]
SCENARIOS = Path(__file__).parents[1] / "scenarios"


@pytest.fixture(scope="module", params=STRANGERS)
def feature(request):
    return request.param


@pytest.fixture(scope="module")
def stranger(feature, tmp_path_factory):
    """Return the package that a feature is packed as, while it is the only plugin of its name."""
    folder = tmp_path_factory.mktemp("stranger")
    package = pack(feature, STRANGERS[feature], folder)
    registry = registry_without(feature, folder)
    with importable(folder), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Registry, "installed", lambda: registry)
        yield folder / package


def imported(file):
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


def test_a_stranger_imports_the_contract_and_nothing_else_of_kai(stranger):
    taken = {tuple(name.split(".")[:2]) for file in stranger.rglob("*.py") for name in imported(file)}
    assert {name for name in taken if name[0] == "kai"} == {("kai", "framework")}


def test_the_stranger_answers_in_the_place_of_the_built_in(stranger, feature):
    (use,) = (use for use in default_profile().plugins if use.name == feature)
    assert type(use.plugin).__module__.split(".")[0] == stranger.name
    assert use.origin == f"{stranger.name} 1.0"


def test_there_are_cases():
    assert len(CASES) >= 18


@pytest.mark.parametrize("path", CASES, ids=name_of)
def test_a_case_of_the_feature_is_decided_the_same(stranger, path):
    assert differences(case_in(path), json.loads(json.dumps(answer(path)))) == []


@pytest.mark.parametrize("path", sorted(SCENARIOS.rglob("*rack*.yaml")), ids=lambda path: path.stem)
def test_a_scenario_of_the_feature_ends_the_same(stranger, path):
    assert check_scenario(path) == ()
