"""The design pages name what is there: each module, class and function of kai that they mention exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, ROOT

PAGES = sorted((ROOT / "docs" / "design").glob("*.md"))
NAMED = re.compile(r"\bkai(?:\.[A-Za-z_]\w*)+")
FILES = re.compile(r"\b(?:kai|tests|benchmarks|docs)/[\w./-]*\w")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_what_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    gone = sorted({name for name in NAMED.findall(text) if not is_there(name)})
    gone += sorted({place for place in FILES.findall(text) if not (ROOT / place).exists()})
    assert not gone, f"{page.name} names what is not there: {gone}"


def is_there(name: str) -> bool:
    """Return whether a dotted name is a package or a module of kai, or something that a module defines."""
    parts = name.split(".")[1:]
    for count in range(len(parts), -1, -1):
        path = PACKAGE.joinpath(*parts[:count])
        module = path.with_suffix(".py") if count else path / "__init__.py"
        if path.is_dir() and count == len(parts):
            return True
        source = module if module.is_file() else path / "__init__.py"
        if source.is_file():
            return all(re.search(rf"\b{re.escape(part)}\b", words(source)) for part in parts[count:])
    return False


@cache
def words(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "there"),
    [
        ("kai.api", True),
        ("kai.engine.cycle", True),
        ("kai.engine.cycle.run_cycle", True),
        ("kai.api.quick", False),
        ("kai.engine.cycle.run_bicycle", False),
    ],
)
def test_the_check_knows_what_is_there(name: str, there: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_there(name) is there
