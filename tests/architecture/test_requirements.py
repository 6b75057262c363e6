"""Dependencies are declared once, pinned with hashes, and each has its line of why."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.architecture.source import ROOT

PINNED = sorted((ROOT / "requirements").glob("*.txt"))
WHY = ROOT / "docs" / "design" / "0001-dependencies.md"


def declared() -> dict[str, set[str]]:
    """Return the names that pyproject.toml asks for, by the file that pins them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    groups = project["dependency-groups"]
    dev = [item for group in ("test", "lint", "dev") for item in groups[group] if isinstance(item, str)]
    return {
        "runtime.txt": names(project["project"]["dependencies"]),
        "dev.txt": names([*project["project"]["dependencies"], *dev]),
        "docs.txt": names(groups["docs"]),
    }


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(text).name) for text in requirements}


def pins(path: Path) -> dict[str, str]:
    """Return each pinned name with the block of text that pins it."""
    blocks = re.split(r"^(?=[A-Za-z0-9])", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {canonicalize_name(block.split("==")[0]): block for block in blocks if not block.startswith("#")}


@pytest.mark.parametrize("file", declared())
def test_every_dependency_is_pinned(file: str) -> None:
    missing = declared()[file] - set(pins(ROOT / "requirements" / file))
    assert not missing, f"{sorted(missing)}: run `nox -s lock`"


@pytest.mark.parametrize("path", PINNED, ids=lambda path: path.name)
def test_every_pin_has_a_hash_and_no_address(path: Path) -> None:
    unhashed = [name for name, block in pins(path).items() if "--hash=sha256:" not in block]
    assert not unhashed
    text = path.read_text(encoding="utf-8")
    assert "://" not in text, "which index serves a package is the machine's setting"
    assert "--index" not in text


def test_every_dependency_has_its_reason() -> None:
    text = WHY.read_text(encoding="utf-8")
    silent = [
        name for name in sorted(set().union(*declared().values())) if not re.search(rf"\b{re.escape(name)}\b", text)
    ]
    assert not silent, f"no line of why in {WHY.relative_to(ROOT)}: {silent}"
