"""The generated parts of the documentation are what the code says now."""

import re

import pytest

from kai.api import names
from kai.cli.output_kinds import KINDS
from kai.deciding.explain.codes import REASON_CODES
from tests.reference import attacks
from tests.reference.attacks import elsewhere
from tests.reference.marks import DOCS, END, PART, filled, pages
from tests.reference.names import meanings
from tests.reference.parts import PARTS
from tests.reference.reasons import TITLES
from tests.reference.resources import definitions

PAGES = pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_a_page_says_what_the_code_says(path):
    text = path.read_text(encoding="utf-8")
    assert text == filled(text, PARTS), "python -m tests.reference writes it anew"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(DOCS).as_posix())
def test_every_mark_of_a_page_is_read(path):
    text = path.read_text(encoding="utf-8")
    assert len(PART.findall(text)) == text.count(END) == text.count("<!-- generated: ") / 2


def test_every_part_is_on_a_page():
    used = {match["words"].split()[0] for path in PAGES for match in PART.finditer(path.read_text(encoding="utf-8"))}
    assert used == PARTS.keys()


def test_every_kind_with_schema_is_on_the_output_page():
    page = (DOCS / "reference" / "output.md").read_text(encoding="utf-8").partition("\n## JSON Schemas\n")[2]
    cells = re.findall(r"^\| (`.*?) \| ", page, re.MULTILINE)
    assert sorted(name for cell in cells for name in re.findall(r"`(\w+)`", cell)) == sorted(KINDS)


def test_every_label_and_annotation_is_documented_with_meaning():
    page = (DOCS / "reference" / "labels.md").read_text(encoding="utf-8")
    for title, constant, value, meaning in meanings():
        if "abel" in title or "nnotation" in title:
            assert meaning, f"kai/api/names.py: {constant} has no sentence under it"
            assert f"| `{value}` |" in page, f"{constant} is not on the page"
    assert f"`{names.PREEMPTIBILITY}`" in page


def test_every_kind_has_a_section_on_the_page():
    page = (DOCS / "reference" / "kinds.md").read_text(encoding="utf-8")
    for kind in definitions():
        assert f"## {kind}\n" in page


def test_a_part_between_marks_is_replaced_and_nothing_else():
    page = f"a\n<!-- generated: x 1 2 -->\nold\n{END}\nb\n"
    made = filled(page, {"x": lambda words, before: f"{words} after {before.strip()}"})
    assert made == f"a\n<!-- generated: x 1 2 -->\n1 2 after a\n{END}\nb\n"


def test_every_reason_code_has_an_anchor():
    page = (DOCS / "pending.md").read_text(encoding="utf-8")
    headings = [line.removeprefix("#### ") for line in page.splitlines() if line.startswith("#### ")]
    assert headings == [*(each.code for each in REASON_CODES), "SetAside"]
    assert len({heading.lower() for heading in headings}) == len(headings), "anchors are small letters"
    assert {each.stage for each in REASON_CODES} == set(TITLES)


@pytest.mark.parametrize("each", elsewhere().values(), ids=elsewhere())
def test_an_attack_that_is_tried_elsewhere_is_tried_there(each):
    module, _, name = each["test"].partition("::")
    assert f"def {name}(" in (DOCS.parent / module).read_text(encoding="utf-8")


def test_every_attack_is_described_and_25_are_performed():
    assert all(case["about"] for case in attacks.cases().values())
    assert len(attacks.cases()) >= 25
