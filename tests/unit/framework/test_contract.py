"""The names of the contract: documented, complete, and the only ones that built-in plugins import."""

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import kai.framework

ROOT = Path(__file__).parents[3]
MODULES = (
    "kai.framework",
    "kai.framework.claims",
    "kai.framework.division",
    "kai.framework.kernel",
)


def imports(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, [alias.name for alias in node.names]


def listed():
    """Return the names in the table of the plugin guide."""
    guide = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
    table = guide.partition("| purpose | names of `kai.framework` |")[2].partition("\n\n")[0]
    return re.findall(r"`(\w+)[`(]", table)


def test_the_plugin_guide_lists_each_contract_name_once():
    assert sorted(listed()) == sorted(kai.framework.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_all_imported_names_are_public_and_sorted(name):
    module = importlib.import_module(name)
    imported = {alias for _, names in imports(Path(module.__file__)) for alias in names}
    assert set(module.__all__) == imported
    assert len(module.__all__) == len(imported)


@pytest.mark.parametrize("name", MODULES)
def test_all_classes_and_functions_of_the_contract_are_documented(name):
    module = importlib.import_module(name)
    values = [getattr(module, each) for each in module.__all__]
    silent = [each for each in values if (inspect.isclass(each) or inspect.isfunction(each)) and not each.__doc__]
    assert not silent


def test_built_in_plugins_import_only_public_contract_names():
    hidden = []
    for path in sorted((ROOT / "kai" / "plugins").rglob("*.py")):
        for name, names in imports(path):
            if name.startswith("kai.framework"):
                public = getattr(importlib.import_module(name), "__all__", kai.framework.__all__)
                hidden += [f"{path.name}: {name}.{each}" for each in names if each not in public]
    assert not hidden
