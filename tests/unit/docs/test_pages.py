"""What the pages show is what happens: their files are written, their commands run, their programs executed."""

import ast
import re
from pathlib import Path

import pytest

from kai.cli.command import run
from kai.testing import check_plugin

ROOT = Path(__file__).parents[3]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")), ROOT / "examples" / "rack" / "README.md")
BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: +title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)


FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def blocks(page):
    return [match.groupdict() for match in BLOCK.finditer(page.read_text(encoding="utf-8"))]


def commands(text):
    """Yield each command of a console block with what it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output.strip("\n")


SHOWN = [
    (page, command, output)
    for page in PAGES
    for block in blocks(page)
    if block["language"] == "console"
    for command, output in commands(block["text"])
]
WITH_PROGRAMS = [page for page in PAGES if any(b["language"] == "python" and b["title"] for b in blocks(page))]


def lay_out(page, folder):
    """Write the files that a page shows into ``folder``, the examples beside them."""
    for block in blocks(page):
        if block["title"]:
            (folder / block["title"]).write_text(block["text"], encoding="utf-8")
    (folder / "examples").symlink_to(ROOT / "examples")


@pytest.mark.parametrize(
    ("page", "command", "output"), SHOWN, ids=[f"{page.stem}: {command}" for page, command, _ in SHOWN]
)
def test_a_command_prints_what_its_page_shows(page, command, output, tmp_path, monkeypatch, capsys):
    lay_out(page, tmp_path)
    monkeypatch.chdir(tmp_path)
    if page == README:
        monkeypatch.setenv("COLUMNS", "100")  # as a person sees it who has no wider window
    program, *arguments = command.split()
    assert program == "kai"
    assert run(arguments) == 0
    assert capsys.readouterr().out.strip("\n") == output


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: page.stem)
def test_the_programs_of_a_page_keep_their_own_tests(page, tmp_path, monkeypatch):
    lay_out(page, tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("kai.testing.answer_laws.clock", lambda: 0.0)  # a busy machine breaks no law
    tests = 0
    for path in sorted(tmp_path.glob("*.py")):
        scope = {"__name__": path.stem, "__file__": str(path)}
        exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)  # noqa: S102  a page of our own
        for name in [name for name in scope if name.startswith("test_")]:
            scope[name]()
            tests += 1
    assert tests > 0


def test_the_readmes_plugin_keeps_all_laws_in_25_lines(monkeypatch):
    monkeypatch.setattr("kai.testing.answer_laws.clock", lambda: 0.0)  # a busy machine breaks no law
    (program,) = [block["text"] for block in blocks(README) if block["language"] == "python"]
    assert sum(bool(line.strip()) for line in program.splitlines()) <= 25
    scope = {"__name__": "readme"}
    exec(compile(program, "README.md", "exec"), scope)  # noqa: S102  a page of our own
    check_plugin(scope["SameRack"], weight=2.0)


def test_programs_in_pages_can_be_read_as_python():
    for page in PAGES:
        for block in blocks(page):
            if block["language"] == "python":
                ast.parse(block["text"])


def test_each_page_is_in_navigation_and_two_clicks_away():
    docs = ROOT / "docs"
    navigation = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert {page.relative_to(docs).as_posix() for page in docs.rglob("*.md")} == navigation
    first = links(README)
    found = first.union(*map(links, first))
    assert sorted(page.name for page in docs.rglob("*.md") if page not in found) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_table_rows_have_as_many_cells_as_heads(page):
    """A site leaves out what has no head, without a word."""
    head = None
    for number, line in enumerate(FENCED.sub("", page.read_text(encoding="utf-8")).splitlines(), start=1):
        cells = line.replace("\\|", "").count("|")
        head = (head or cells) if line.startswith("|") else None
        assert head in {None, cells}, f"line {number}, blocks of code left out: {line}"


def links(page):
    """Return the pages that ``page`` links to."""
    targets = re.findall(r"\]\(([^)\s#:]+\.md)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    return {(page.parent / target).resolve() for target in targets}


def test_pages_that_show_commands_or_programs_are_found():
    assert {page.stem for page, _, _ in SHOWN} >= {"concepts", "README"}
    assert [page.stem for page in WITH_PROGRAMS] == ["plugins"]
