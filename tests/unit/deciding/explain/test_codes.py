"""The list of reason codes is complete: everything that can be told is in it, and nothing else is."""

import ast
from pathlib import Path

import pytest

import kai
from kai.deciding.explain.codes import BY_CODE, NEVER, REASON_CODES, Stage, stage_of
from kai.framework.verdict import Code

KAI = Path(kai.__file__).parent
FOLDERS = ("deciding/explain", "answers", "lab", "plugins")


def texts(node):
    """Yield the texts that an expression may be."""
    for each in () if isinstance(node, ast.Subscript) else ast.walk(node):
        if isinstance(each, ast.Constant) and isinstance(each.value, str):
            yield each.value


def told():
    """Yield the codes in the code: those of the engine, those of sentences, and those of plugins."""
    yield from (code.value for code in Code)
    for path in [file for folder in FOLDERS for file in (KAI / folder).rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (
                isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"Reason", "Words"}
            ):
                continue
            yield from texts(node.args[0]) if node.args else ()
            for keyword in node.keywords:
                if keyword.arg in ("code", "plain_code"):
                    yield from texts(keyword.value)


def test_every_code_that_can_be_told_is_listed():
    assert set(told()) <= BY_CODE.keys()


def test_every_listed_code_can_be_told():
    assert BY_CODE.keys() <= set(told())


def test_codes_are_listed_once_in_the_order_of_dominance():
    codes = [each.code for each in REASON_CODES]
    assert len(codes) == len(set(codes))
    stages = [each.stage for each in REASON_CODES]
    assert stages == sorted(stages)


@pytest.mark.parametrize("each", REASON_CODES, ids=lambda each: each.code)
def test_each_code_has_one_sentence_for_meaning_and_help(each):
    for sentence in (each.means, each.help):
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert len(sentence) <= 130


def test_what_the_nodes_could_never_hold_is_impossible():
    assert "DomainTooSmall" in NEVER
    assert "GangDoesNotFit" not in NEVER


def test_codes_of_plugins_are_about_room():
    assert stage_of("RackIsFull") is Stage.ROOM
