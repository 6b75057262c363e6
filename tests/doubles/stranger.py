"""A built-in plugin as a stranger's: its folder in a distribution of another name, the built-in switched off."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import distributions
from pathlib import Path

import pytest

from kai.deciding.configuration.registry import PLUGINS, Registry

PLUGIN_FOLDER = Path(__file__).parents[2] / "kai" / "plugins"


def pack(feature: str, class_name: str, into: Path) -> str:
    """Write the distribution ``kai-far-FEATURE`` into a folder, as an installer would; return the package's name."""
    package = f"kai_far_{feature}"
    for source in (PLUGIN_FOLDER / feature).rglob("*.py"):
        target = into / package / source.relative_to(PLUGIN_FOLDER / feature)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text(encoding="utf-8").replace(f"kai.plugins.{feature}", package)
        target.write_text(text, encoding="utf-8")
    described = into / f"{package}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8")
    (described / "entry_points.txt").write_text(f"[{PLUGINS}]\n{feature} = {package}:{class_name}\n", encoding="utf-8")
    return package


def registry_without(feature: str, folder: Path) -> Registry:
    """Return what is installed without the built-in ``feature``, and what distributions in ``folder`` offer."""
    installed = Registry.installed()
    points = [point for name, found in installed.plugins.items() if name != feature for point in found]
    points += [point for each in distributions(path=[str(folder)]) for point in each.entry_points.select(group=PLUGINS)]
    return Registry.of(points, [point for found in installed.actions.values() for point in found])


@contextmanager
def importable(folder: Path) -> Iterator[None]:
    """Let Python find packages in ``folder``, as it finds installed ones."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


@contextmanager
def unavailable(package: str) -> Iterator[None]:
    """Let every import of a package or of its modules fail."""
    with pytest.MonkeyPatch.context() as patch:
        for name in {package, *(name for name in sys.modules if name.startswith(f"{package}."))}:
            patch.setitem(sys.modules, name, None)
        yield


__all__ = ["importable", "pack", "registry_without", "unavailable"]
