"""The table of shortcuts names what exists, each one can be left out, and one module says which are on."""

from importlib import import_module

import attrs
import pytest

from kai.deciding.engine.shortcuts import TABLE, takes
from kai.framework.parameters import Parameters
from tests.architecture.source import PACKAGE, ROOT

PAGE = (ROOT / "docs" / "design" / "0013-shortcuts.md").read_text(encoding="utf-8")


def exists(place):
    """Say whether a dotted name leads to something, past a module."""
    parts = place.split(".")
    for at in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:at]))
        except ModuleNotFoundError:
            continue
        for name in parts[at:]:
            found = getattr(found, name, None)
        return found is not None
    return False


@pytest.mark.parametrize("shortcut", TABLE, ids=lambda each: each.name)
def test_each_shortcut_has_both_forms_and_a_measured_gain(shortcut):
    assert exists(shortcut.plain)
    assert exists(shortcut.fast)
    before, after = (float(part.replace(",", "")) for part in shortcut.gain.split(" → "))
    assert after < 0.95 * before


@pytest.mark.parametrize("shortcut", TABLE, ids=lambda each: each.name)
def test_the_page_lists_each_shortcut_as_in_the_table(shortcut):
    assert f"| `{shortcut.name}` | {shortcut.applies} | {shortcut.workload} | {shortcut.gain} |" in PAGE


@pytest.mark.parametrize("shortcut", TABLE, ids=lambda each: each.name)
def test_each_shortcut_can_be_disabled_alone_or_with_all(shortcut):
    assert takes(Parameters(), shortcut)
    without = Parameters(without=(shortcut.name,))
    assert [each for each in TABLE if not takes(without, each)] == [shortcut]
    assert not takes(attrs.evolve(without, shortcuts=False), shortcut)


def test_one_module_says_which_shortcuts_are_on():
    readers = [
        path.relative_to(PACKAGE).as_posix()
        for path in sorted(PACKAGE.rglob("*.py"))
        if "parameters.shortcuts" in path.read_text(encoding="utf-8")
    ]
    assert readers == ["deciding/engine/shortcuts.py"]
