"""The glossary is short, and the actors of sentences are things: pods, groups, plugins, users."""

import re

from tests.architecture.source import PACKAGE, ROOT

ROW = re.compile(r"^\| ([a-z][a-z, ]*) \| ", re.MULTILINE)
NO_ACTOR = re.compile(r"\b(?:nobody|somebody|whoever|anybody)\b", re.IGNORECASE)
MENDED = ("admission", "api", "cli", "controllers", "podgrouper", "simulation", "telemetry")
"""Packages whose sentences are mended; the others follow."""
WRITTEN_INTO_MANIFESTS = {"kai/api/explanations.py"}
"""Its texts are part of manifests that are made of it."""


def test_the_glossary_has_at_most_forty_words() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Words\n")[1].split("\n## ")[0]
    words = [word for word in ROW.findall(section) if word != "word"]
    assert 20 <= len(words) <= 40, len(words)
    assert words == sorted(set(words)), "each once, in order"


def test_sentences_name_who_acts() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    modules = [path for name in MENDED for path in (PACKAGE / name).rglob("*.py")]
    found = [
        f"{path.relative_to(ROOT).as_posix()}:{number}"
        for path in sorted([*pages, *modules])
        if path.relative_to(ROOT).as_posix() not in WRITTEN_INTO_MANIFESTS
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if NO_ACTOR.search(line)
    ]
    assert not found, f"say which pod, group, plugin or user acts: {found}"
