import tomllib
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import attrs
import pytest

import kai.roles.podgrouper
from kai.basics.errors import ConfigError, PluginError
from kai.roles.podgrouper import KindPattern, Reader, Settings, grouper, load_groupers
from kai.roles.podgrouper.grouper import DEFAULT, ENTRY_POINTS, assemble
from kai.roles.podgrouper.resource import Kind
from tests.doubles.known_objects import KnownObjects


@attrs.frozen
class Stub:
    kinds: tuple = ()

    def draft(self, request, /):
        return None


NOTHING = Reader(KnownObjects.of([]))


def test_every_installed_grouper_is_loaded():
    assert set(load_groupers().by_name) == {point.name for point in entry_points(group=ENTRY_POINTS)}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind("batch", "v1", "Job"), "job"),
        (Kind("batch", "v1beta1", "CronJob"), "default"),
        (Kind("apps", "v1", "StatefulSet"), "default"),
        (Kind("run.ai", "v9", "TrainingWorkload"), "skip_top_owner"),
        (Kind("nvidia.com", "v1beta1", "DynamoGraphDeployment"), "skip_top_owner"),
        (Kind("kubeflow.org", "v2beta1", "MPIJob"), "mpi_job"),
        (Kind("kubeflow.org", "v2beta1", "TFJob"), "default"),
        (Kind("", "v1", "Pod"), "pod"),
        (Kind("example.com", "v1", "Unheard"), "default"),
    ],
)
def test_a_kind_is_served_by_its_grouper(kind, name):
    groupers = load_groupers()
    assert groupers.choose(kind, NOTHING, Settings()) is groupers.by_name[name]


def test_an_exact_version_comes_before_any_version():
    exact, any_version = Stub((KindPattern("g", "v1", "K"),)), Stub((KindPattern("g", "*", "K"),))
    groupers = assemble([("a", exact), ("b", any_version), (DEFAULT, Stub())])
    assert groupers.choose(Kind("g", "v1", "K"), NOTHING, Settings()) is exact
    assert groupers.choose(Kind("g", "v2", "K"), NOTHING, Settings()) is any_version


def test_without_groupers_the_message_says_how_to_install_them():
    with pytest.raises(ConfigError, match="uv pip install -e"):
        assemble([])


def test_two_groupers_for_one_kind_stop_the_start():
    pattern = KindPattern("g", "v1", "K")
    with pytest.raises(ConfigError, match='kind g/v1/K: claimed by groupers "a" and "b"'):
        assemble([("a", Stub((pattern,))), ("b", Stub((pattern,))), (DEFAULT, Stub())])


def test_two_groupers_of_one_name_stop_the_start():
    with pytest.raises(ConfigError, match="twice"):
        assemble([(DEFAULT, Stub()), (DEFAULT, Stub())])


def test_every_module_of_a_kind_has_an_entry_point():
    root = Path(kai.roles.podgrouper.__file__).parents[3]
    entries = tomllib.loads((root / "pyproject.toml").read_text())["project"]["entry-points"][ENTRY_POINTS]
    modules = {path.stem for path in (root / "kai/roles/podgrouper/groupers").glob("[a-z]*.py")}
    assert {value.partition(":")[0].rpartition(".")[2] for value in entries.values()} == modules


@pytest.mark.parametrize(
    "target", ["kai.roles.podgrouper:nothing", "kai.nowhere:Grouper", "kai.roles.podgrouper:Settings"]
)
def test_an_entry_point_without_grouper_is_a_plugin_error(target, monkeypatch):
    point = EntryPoint("odd", target, ENTRY_POINTS)
    monkeypatch.setattr(grouper, "entry_points", lambda **_: [point])
    with pytest.raises(PluginError, match='plugin "odd"'):
        load_groupers()


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "def broken(:", "raise OSError('no licence')"])
def test_a_grouper_whose_module_cannot_be_imported_is_named(text, tmp_path, monkeypatch):
    name = f"broken_grouper_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError, match=r'^plugin "mine", entry point of "kai\.groupers": cannot be made: [A-Z]'):
        grouper._load(EntryPoint("mine", f"{name}:Mine", ENTRY_POINTS))
