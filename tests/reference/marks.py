"""Find the generated parts of pages, and fill them."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
END = "<!-- generated: end -->"
PART = re.compile(rf"^<!-- generated: (?!end)(?P<words>[^>]+) -->\n(?P<text>.*?)^{END}$", re.MULTILINE | re.DOTALL)
Make = Callable[[str, str], str]
"""Return the text of a part; it is given the words behind its name and the text of the page before it."""


def filled(page: str, parts: Mapping[str, Make]) -> str:
    """Return ``page`` with every generated part made anew."""

    def make(match: re.Match[str]) -> str:
        name, _, words = match["words"].partition(" ")
        text = parts[name](words, page[: match.start()]).strip("\n")
        return f"<!-- generated: {match['words']} -->\n{text}\n{END}"

    return PART.sub(make, page)


def pages() -> list[Path]:
    """Return the pages with generated parts."""
    return [path for path in sorted(DOCS.rglob("*.md")) if END in path.read_text(encoding="utf-8")]


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table in Markdown; cells keep their marks, but for the bar that would end them."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )
