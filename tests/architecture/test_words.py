"""The glossary is short, and the actors of sentences are things: pods, groups, plugins, users."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import PACKAGE, ROOT

ROW = re.compile(r"^\| ([a-z][a-z, ]*) \| ", re.MULTILINE)
NO_ACTOR = re.compile(r"\b(?:(?:no|some|any|every)body|(?:some|any|every)one|no one|whoever)\b", re.IGNORECASE)
OUR_WORD = re.compile(r"\bthe peer\b", re.IGNORECASE)
"""What code calls KAI-Scheduler."""
WRITTEN_INTO_MANIFESTS = {"kai/api/crds/openapi.py"}
"""Its texts are part of manifests that are made of it."""
MOST_WORDS = 9
"""Words in the name of a test, beside ``test``: its condition and its result."""
TEST_IN_A_PAGE = re.compile(r"\bdef (test_\w+)")

RETIRED = {
    "adorn": "overlay",
    "bury": "remove, or leave a tombstone",
    "desk": "answer cache",
    "edition": "version",
    "editions": "versions",
    "grave": "tombstone",
    "graves": "tombstones",
    "growth": "prefix",
    "heat": "load",
    "hunt": "search",
    "hurried": "urgent",
    "lineage": "versions",
    "lonely": "single",
    "lone": "bare, or single",
    "neighbour": "hand-over, or surroundings",
    "neighbours": "surroundings",
    "plodding": "plain",
    "riding": "unwritten",
    "rush": "load",
    "shelf": "assume cache",
    "shelves": "assume caches",
    "standing": "assigned, or the state of groups",
    "striding": "compiled",
    "upfront": "write behind",
}
"""Words of our own that stood for a word of the field, and the word that is used."""


def test_the_glossary_has_at_most_forty_words() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Words\n")[1].split("\n## ")[0]
    words = [word for word in ROW.findall(section) if word != "word"]
    assert 20 <= len(words) <= 40, len(words)
    assert words == sorted(set(words)), "each once, in order"


def test_sentences_name_who_acts() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    modules = [*PACKAGE.rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number}"
        for path in sorted([*pages, *modules])
        if path.relative_to(ROOT).as_posix() not in WRITTEN_INTO_MANIFESTS
        for number, line in (spoken(path) if path.suffix == ".py" else written(path))
        if NO_ACTOR.search(line)
    ]
    assert not found, f"say which pod, group, plugin or user acts: {found}"


def test_pages_call_kai_scheduler_by_its_name() -> None:
    folders = [("docs", "*.md"), ("changelog.d", "*.md"), ("examples", "*.md"), ("tests", "*.md"), ("deploy", "*.yaml")]
    pages = [path for folder, names in folders for path in (ROOT / folder).rglob(names)]
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number}"
        for path in sorted([*pages, ROOT / "README.md", ROOT / "benchmarks" / "README.md"])
        for number, line in written(path)
        if OUR_WORD.search(line)
    ]
    assert not found


def test_no_retired_word_comes_back() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {word}, say {RETIRED[word]}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for word in sorted(words(f"{path.relative_to(PACKAGE)} {path.read_text(encoding='utf-8')}") & RETIRED.keys())
    ]
    assert not found


def test_names_of_tests_have_at_most_nine_words() -> None:
    modules = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    pages = [*(ROOT / "docs").rglob("*.md"), *(PACKAGE / "cli").rglob("*.py.txt")]
    named = [
        *((path, name) for path in modules for name in defined(path)),
        *((path, name) for path in pages for name in TEST_IN_A_PAGE.findall(path.read_text(encoding="utf-8"))),
    ]
    assert len(named) > 6_000, "tests are found"
    found = [f"{path.relative_to(ROOT)}: {name}" for path, name in named if len(name.split("_")) - 1 > MOST_WORDS]
    assert not found, f"state the condition and the result in {MOST_WORDS} words: {sorted(found)}"


def words(text: str) -> set[str]:
    """Return the words of ``text`` in lower case, those within names included."""
    return {word.lower() for word in re.findall(r"[A-Za-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text))}


def written(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page with their numbers."""
    return enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)


def defined(path: Path) -> Iterator[str]:
    """Yield the names of the test functions of a module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.name


def spoken(path: Path) -> Iterator[tuple[int, str]]:
    """Yield what strings and comments of a module say, with the numbers of lines; names of code are no sentences."""
    for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline):
        if token.type != tokenize.NAME:
            yield from enumerate(token.string.splitlines(), start=token.start[0])
