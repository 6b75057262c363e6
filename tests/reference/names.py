"""Labels, annotations and other names: from the sections of ``kai/api/names.py`` and the text under each constant."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import kai.api.names
from tests.reference.marks import table

SOURCE = Path(kai.api.names.__file__)
_SECTION = re.compile(r"# (?:--- )?(?P<title>[A-Z][^-\n]*?)(?: -+|\.)$")


def names(words: str, _: str) -> str:
    """Return the table of one section of the module, whose title is ``words``."""
    rows = [(f"`{value}`", meaning) for title, _, value, meaning in meanings() if title == words]
    if not rows:
        raise LookupError(f"{SOURCE.name} has no section {words!r}")
    return table(("name", "meaning"), rows)


def meanings() -> Iterator[tuple[str, str, str, str]]:
    """Yield section, constant, value and meaning of every constant that is a text; the meaning may be empty."""
    text = SOURCE.read_text(encoding="utf-8")
    titles = {
        number: found["title"] for number, line in enumerate(text.splitlines()) if (found := _SECTION.match(line))
    }
    body = ast.parse(text).body
    for at, statement in enumerate(body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.value, ast.Constant):
            continue
        value = statement.value.value
        if not isinstance(value, str) or not isinstance(statement.target, ast.Name):
            continue
        after = body[at + 1] if at + 1 < len(body) else None
        meaning = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meaning = " ".join(str(after.value.value).split())
        title = titles[max(number for number in titles if number < statement.lineno)]
        yield title, statement.target.id, value, meaning
