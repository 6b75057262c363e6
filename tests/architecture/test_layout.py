"""Sizes, names and places of modules; what a package's ``__init__`` may hold; who is covered by the contracts."""

import ast
import importlib
import re
import tomllib
from statistics import median
from typing import Any

import pytest

from tests.architecture.source import PACKAGE, ROOT, AnyFunction, Module, modules, packages

LONGEST_MODULE = 600
MOST_MODULES = 600
SHORTEST_MEDIAN = 180
"""Of all modules but those that describe a package: with many small files a reader thinks in names of files."""
LONGEST_FUNCTION = 50
# A module with such a name attracts whatever has no better place, and nobody finds it there again.
SAYS_NOTHING = {"common", "helper", "helpers", "info", "manager", "misc", "shared", "types", "util", "utils"}

OURS = (*modules(), *modules(ROOT / "benchmarks"), *modules(ROOT / "tests"))


def test_no_module_is_longer_than_a_reader_can_hold() -> None:
    long = {module.place: lines for module in OURS if (lines := module.text.count("\n")) > LONGEST_MODULE}
    assert not long, f"longer than {LONGEST_MODULE} lines: {long}"


def test_a_reader_has_few_files_to_open() -> None:
    sizes = sorted(module.text.count("\n") for module in modules() if module.path.stem != "__init__")
    assert len(sizes) + len(packages()) <= MOST_MODULES, "merge what is only understood together"
    assert median(sizes) >= SHORTEST_MEDIAN


def test_module_names_say_what_is_inside() -> None:
    empty = [module.place for module in OURS if module.path.stem.strip("_") in SAYS_NOTHING]
    assert not empty, f"name these after what they hold: {empty}"


def test_functions_outside_kernels_fit_on_a_screen() -> None:
    long = {
        f"{module.place}:{function.lineno} {function.name}": lines
        for module in modules()
        if not module.name.startswith("kai.facts.kernels")
        for function in module.functions()
        if (lines := own_lines(function)) > LONGEST_FUNCTION
    }
    assert not long, f"longer than {LONGEST_FUNCTION} lines: {long}"


def own_lines(function: AnyFunction) -> int:
    """Count the lines of ``function`` without its docstring and without the functions inside it, which count alone."""
    skipped: set[int] = set()
    if ast.get_docstring(function, clean=False) is not None:
        skipped.update(span(function.body[0]))
    for node in ast.walk(function):
        if node is not function and isinstance(node, AnyFunction):
            skipped.update(span(node))
    return len(set(span(function)) - skipped)


def span(node: ast.stmt) -> range:
    return range(node.lineno, (node.end_lineno or node.lineno) + 1)


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_a_package_only_imports_and_lists_its_public_names(package: Module) -> None:
    listed: list[str] | None = None
    imported: list[str] = []
    for statement in package.tree.body:
        match statement:
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.ImportFrom(module="__future__"):
                pass
            case ast.ImportFrom(names=names):
                imported += [name.asname or name.name for name in names]
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                listed = ast.literal_eval(value)
            case _:
                pytest.fail(f"{package.place}:{statement.lineno}: only a docstring, imports and __all__ belong here")
    assert listed is not None or not imported, f"{package.place}: imports names without listing them in __all__"
    assert sorted(listed or []) == sorted(imported), f"{package.place}: __all__ and the imports differ"


@pytest.mark.parametrize("package", packages(), ids=lambda package: package.name)
def test_every_public_name_exists(package: Module) -> None:
    imported = importlib.import_module(package.name)
    missing = [name for name in getattr(imported, "__all__", ()) if not hasattr(imported, name)]
    assert not missing, f"{package.name} promises {missing}"


CORE = {"actions", "basics", "deciding", "facts", "framework", "plugins"}
LIGHT = {
    "api",
    "cluster",
    "doctor",
    "history",
    "manifests",
    *(f"roles.{name}" for name in ("admission", "binder", "controllers", "podgrouper")),
}
# In neither list on purpose: they join the two sides, or stand above or beneath both.
FREE = {"answers", "cli", "dashboard", "intake", "lab", "roles", "testing"}
MOST_PACKAGES = 18


def contracts() -> list[dict[str, Any]]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: list[dict[str, Any]] = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    return found


def test_every_package_is_under_the_contracts() -> None:
    sources = {
        contract["name"][:2]: {name.removeprefix("kai.").removesuffix(".*") for name in contract["source_modules"]}
        for contract in contracts()
        if contract["type"] == "forbidden" and contract["name"][:2] in {"1.", "2."}
    }
    assert (sources["1."], sources["2."]) == (CORE, LIGHT)
    found = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    strangers = found - CORE - LIGHT - FREE
    assert len(found) <= MOST_PACKAGES
    assert not strangers, f"decide whether {sorted(strangers)} is core, light or neither, here and in pyproject.toml"


def test_plugins_are_forbidden_all_of_kai_but_the_contract() -> None:
    (contract,) = (each for each in contracts() if each["name"].startswith("5b."))
    found = {f"kai.{path.stem}" for path in PACKAGE.glob("*.py")} | {
        f"kai.{path.parent.name}" for path in PACKAGE.glob("*/__init__.py")
    }
    expected = found - {"kai.__init__", "kai.framework", "kai.plugins"}
    assert set(contract["forbidden_modules"]) == expected
    assert contract["source_modules"] == ["kai.plugins.*"]
    assert "ignore_imports" not in contract, "built-in plugins have no door that others have not"


def test_every_folder_of_source_is_a_package() -> None:
    bare = {module.path.parent for module in modules()} - {package.path.parent for package in packages()}
    assert not bare, f"no __init__.py in {sorted(folder.relative_to(ROOT).as_posix() for folder in bare)}"


@pytest.mark.parametrize(
    "package", ["answers", "cluster", "deciding", "facts", "lab", "lab/virtual", "roles", "roles/scheduler"]
)
def test_a_package_with_rooms_says_where_everything_is(package: str) -> None:
    folder = PACKAGE / package
    text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))) or ""
    named = set(re.findall(r"[a-z_]+/?", text))
    there = {path.stem if path.suffix else f"{path.name}/" for path in folder.iterdir() if path.name[0] not in "_."}
    assert not there - named, "a newcomer finds no module that the list of the package lacks"


def test_one_class_stands_for_a_reason() -> None:
    classes = [
        module.name
        for module in modules()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef) and node.name in {"Reason", "Words"}
    ]
    # The reason of a refusal by an API server is another thing; Words are the texts of a plugin's code.
    assert classes == ["kai.api.plans", "kai.framework.verdict", "kai.framework.verdict"]
