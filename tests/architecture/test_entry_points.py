"""Built-ins come in by the same door as third parties: entry points, which installing does not open."""

import tomllib
from importlib.metadata import EntryPoint

import pytest

from tests.architecture.source import PACKAGE, ROOT

GROUPS = {"kai.actions": PACKAGE / "actions", "kai.plugins": PACKAGE / "plugins"}
# What actions share and what is no action itself.
SHARED = {"placing", "search"}


def built_in(group: str) -> list[EntryPoint]:
    """Return the entries of ``group`` as pyproject.toml has them now, whatever was installed last."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        table = tomllib.load(file)["project"]["entry-points"][group]
    return [EntryPoint(name, value, group) for name, value in table.items()]


@pytest.mark.parametrize("group", GROUPS)
def test_every_built_in_is_registered(group: str) -> None:
    found = {path.stem for path in GROUPS[group].glob("[a-z]*.py")}
    found |= {path.parent.name for path in GROUPS[group].glob("[a-z]*/__init__.py")}
    missing = found - {point.module.split(".")[2] for point in built_in(group)} - SHARED
    assert not missing, f'{sorted(missing)}: add to [project.entry-points."{group}"] in pyproject.toml'


@pytest.mark.parametrize("group", GROUPS)
def test_every_entry_lies_in_its_own_package(group: str) -> None:
    assert all(point.module.startswith(f"{group}.") for point in built_in(group))


def has_landed(point: EntryPoint) -> bool:
    """Return whether the module that ``point`` names has been written."""
    place = ROOT.joinpath(*point.module.split("."))
    return place.with_suffix(".py").exists() or (place / "__init__.py").exists()


LANDED = [point for group in GROUPS for point in built_in(group) if has_landed(point)]


@pytest.mark.parametrize("point", LANDED, ids=lambda point: point.name)
def test_an_entry_names_a_class(point: EntryPoint) -> None:
    assert isinstance(point.load(), type)
