"""Pages name what is there: each module, class, function and path of the repository that they mention exists."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.architecture.source import PACKAGE, ROOT

DESIGN = ROOT / "docs" / "design"
PAGES = sorted(
    [
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "benchmarks/README.md")),
        *(page for folder in ("docs", "tests", "examples") for page in (ROOT / folder).rglob("*.md")),
    ]
)
DRAWN = [DESIGN / "0010-map.md", DESIGN / "0012-reading-commands.md"]
BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
NAMED = re.compile(r"(?<![\w./-])kai(?:\.[A-Za-z_]\w*)+(?![\w/-])")
FILES = re.compile(r"(?<![\w./:-])(?:kai|tests|benchmarks|docs|deploy|examples)/[\w./-]*\w")
STEP = re.compile(r"(?:→|⇒) ([a-z_]+)(?= →| ─|,|$|  )", re.MULTILINE)
"""A module in a drawing: what an arrow leads to, and no more words after it."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_a_page_names_what_is_there(page: Path) -> None:
    text = words(page)
    if page.parent != DESIGN:  # blocks of other pages hold names of users' files
        text = "\n".join(CODE.findall(BLOCK.sub("", text)))
    points = entry_points()
    gone = sorted({name for name in NAMED.findall(text) if not (is_there(name) or name in points)})
    gone += sorted({place for place in FILES.findall(text) if not (ROOT / place).exists()})
    assert not gone, f"{page.name} names what is not there: {gone}"


@pytest.mark.parametrize("page", DRAWN, ids=lambda page: page.stem)
def test_arrows_of_drawings_lead_to_modules(page: Path) -> None:
    modules = {path.stem for path in PACKAGE.rglob("*.py")}
    steps = {step for block in BLOCK.findall(words(page)) for step in STEP.findall(block)}
    assert len(steps) > 15, "the drawings are found"
    assert not steps - modules


def entry_points() -> set[str]:
    """Return the names of the groups of entry points of kai."""
    return set(re.findall(r'entry-points\."([\w.]+)"', words(ROOT / "pyproject.toml")))


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
        ("kai.deciding.engine.cycle", True),
        ("kai.deciding.engine.cycle.run_cycle", True),
        ("kai.api.quick", False),
        ("kai.deciding.engine.cycle.run_bicycle", False),
    ],
)
def test_the_check_knows_what_is_there(name: str, there: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_there(name) is there
