from importlib.metadata import Distribution, EntryPoint

import pytest

from kai.basics.errors import ConfigError
from kai.deciding.configuration.peer import DEFAULT_ACTIONS
from kai.deciding.configuration.registry import Registry, UnknownNameError, origin_of, suggestion
from kai.framework.decisions import BUILT_IN, Cause


def point(name, value, group="kai.plugins"):
    return EntryPoint(name, value, group)


def registry(*points):
    return Registry.of(points, [point("allocate", "kai.actions.allocate:Allocate", "kai.actions")])


def test_nothing_is_imported_before_it_is_asked_for():
    assert list(registry(point("broken", "no_such_module:Plugin")).plugins) == ["broken"]


def test_a_plugin_is_found_by_name():
    assert registry(point("binpack", "kai.plugins.scores:Binpack")).plugin("binpack", "here").__name__ == "Binpack"


def test_an_action_is_found_by_name():
    assert registry().action("allocate", "here").__name__ == "Allocate"


def test_an_unknown_plugin_is_refused_with_a_suggestion():
    with pytest.raises(UnknownNameError, match="found 'binpak', expected the name of an installed plugin") as caught:
        registry(point("binpack", "kai.plugins.scores:Binpack")).plugin("binpak", "policy.yaml: plugins.binpak")
    assert caught.value.help == "did you mean binpack?"


def test_two_distributions_with_one_name_are_refused():
    both = registry(point("mine", "kai.plugins.scores:Binpack"), point("mine", "kai.plugins.scores:Spread"))
    with pytest.raises(UnknownNameError, match="expected one distribution to offer the plugin") as caught:
        both.plugin("mine", "here")
    where = '[project.entry-points."kai.plugins"] of a package of yours'
    off = "switch the plugin off (mine: false under with:)"
    assert caught.value.help == f"rename it in {where}, uninstall that package, or {off}"


def test_one_distribution_found_twice_is_one():
    twice = registry(point("mine", "kai.plugins.scores:Binpack"), point("mine", "kai.plugins.scores:Binpack"))
    assert twice.plugin("mine", "here").__name__ == "Binpack"


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("no_such_module:Plugin", "cannot be loaded from no_such_module:Plugin"),
        ("kai.plugins.scores:NoSuchClass", "cannot be loaded"),
        ("kai.plugins.scores:attrs", "expected a class with a method open"),
        ("kai.basics.errors:KaiError", "expected a class with a method open"),
        ("pathlib:Path", "found a class without attrs at pathlib:Path, expected a frozen attrs class"),
    ],
)
def test_an_entry_point_that_is_no_plugin_is_refused(value, words):
    with pytest.raises(ConfigError, match=words):
        registry(point("mine", value)).plugin("mine", "here")


def test_a_plugin_module_that_exits_is_refused(tmp_path, monkeypatch):
    (tmp_path / "leaving_plugin.py").write_text("raise SystemExit(3)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot be loaded from leaving_plugin:Plugin: SystemExit: 3"):
        registry(point("mine", "leaving_plugin:Plugin")).plugin("mine", "here")


def test_a_plugin_with_unresolvable_option_types_is_refused(tmp_path, monkeypatch):
    text = "import attrs\n@attrs.frozen\nclass Plugin:\n    most: 'Amount' = 1\n    def open(self, session): pass\n"
    (tmp_path / "untyped_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = "the types of its options cannot be resolved: NameError: name 'Amount' is not defined"
    with pytest.raises(ConfigError, match=f"here: plugin 'mine' of : {found}"):
        registry(point("mine", "untyped_plugin:Plugin")).plugin("mine", "here")


def test_the_built_ins_are_installed_like_everything_else():
    installed = Registry.installed()
    assert {"proportion", "gang", "binpack", "spread", "topology", "gpusharing"} <= set(installed.plugins)
    assert {"allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"} == set(installed.actions)
    for name in installed.plugins:
        assert callable(installed.plugin(name, "here").open)


def test_the_installed_registry_is_reread_only_on_path_changes(tmp_path, monkeypatch):
    before = Registry.installed()
    assert Registry.installed() is before
    (tmp_path / "kai_mine-1.0.dist-info").mkdir()
    for name, text in (
        ("METADATA", "Name: kai-mine\nVersion: 1.0\n"),
        ("entry_points.txt", "[kai.plugins]\nmine = m:M\n"),
    ):
        (tmp_path / "kai_mine-1.0.dist-info" / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert Registry.installed().plugins.keys() - before.plugins.keys() == {"mine"}


def test_everything_there_is_is_listed_when_nothing_is_near():
    assert suggestion("xyz", ["b", "a"]) == "known are a, b"
    assert suggestion("xyz", []) == "none is installed"


class Counting(Distribution):
    """A distribution that counts how often its metadata is read."""

    def __init__(self):
        self.reads = 0

    def read_text(self, filename):
        self.reads += filename == "METADATA"
        return "Metadata-Version: 2.1\nName: mine\nVersion: 1.2\n"

    def locate_file(self, path):
        return path


def test_a_distributions_metadata_is_read_once_for_its_plugins():
    mine = Counting()
    points = [point(name, "kai.plugins.scores:Binpack")._for(mine) for name in ("one", "two", "three")]
    assert {str(origin_of(each)) for each in points} == {"mine 1.2"}
    assert mine.reads == 1


def test_a_plugin_module_that_panics_is_refused(tmp_path, monkeypatch):
    """Compiled libraries raise what is no Exception."""
    text = "class PanicException(BaseException): pass\nraise PanicException('index out of bounds')\n"
    (tmp_path / "panicking_plugin.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="cannot be loaded from panicking_plugin:Plugin: PanicException: index out"):
        registry(point("mine", "panicking_plugin:Plugin")).plugin("mine", "here")


@pytest.mark.parametrize("reads", ["CAPS", "[CAPS]", "('RackPowerCap',)", "None"])
def test_read_kinds_must_be_a_tuple_of_objects(reads, tmp_path, monkeypatch):
    text = f"""
import attrs
from typing import ClassVar
from kai.framework import Objects
CAPS = Objects(api_version="power.example.com/v1", kind="RackPowerCap", plural="rackpowercaps", read=str)

@attrs.frozen
class Plugin:
    reads: ClassVar = {reads}
    def open(self, session): return ()
"""
    name = f"reading_plugin_{abs(hash(reads))}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    known = registry(point("mine", f"{name}:Plugin"))
    with pytest.raises(
        ConfigError, match=r"here: plugin 'mine' of : reads: found .*, expected a ClassVar with a tuple of"
    ):
        known.plugin("mine", "here")
    assert not known.objects()


ACTIONS = """
from kai.framework import Cause

class Overdue:
    name, cause, priority = "overdue", Cause("overdue", rule="it ran too long"), 600
    def run(self, session): pass

class Silent:
    name = "silent"
    def run(self, session): pass

class Fails(Silent):
    def __init__(self): raise OSError("no licence")
"""


def test_causes_and_priorities_are_those_that_actions_have(tmp_path, monkeypatch):
    (tmp_path / "actions_of_others.py").write_text(ACTIONS)
    monkeypatch.syspath_prepend(tmp_path)
    names = ("overdue", "silent", "fails")
    known = Registry.of((), [point(each, f"actions_of_others:{each.title()}", "kai.actions") for each in names])
    assert {each: (known.cause_of(each), known.priority_of(each)) for each in (*names, "gone")} == {
        "overdue": (Cause("overdue", rule="it ran too long"), 600),
        "silent": (Cause("silent"), 0),
        "fails": (Cause("fails"), 0),
        "gone": (Cause("gone"), 0),
    }


def test_default_actions_have_contract_causes_and_descending_priorities():
    known = Registry.installed()
    actions = [known.action(name, "actions")() for name in DEFAULT_ACTIONS]
    causes = {each.cause.name: each.cause for each in actions if each.cause is not None}
    assert causes | {each.name: each for each in (Cause.WINDOW, Cause.BUDGET)} == dict(BUILT_IN)
    assert all(each.cause is None or each.cause.name == each.name for each in actions)
    assert sorted(actions, key=lambda each: -each.priority) == actions
