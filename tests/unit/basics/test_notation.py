import json
from datetime import date

import pytest
import yaml

from kai.basics.wording import as_text, shown

WRITTEN = [
    (True, "true"),
    (False, "false"),
    (7, "7"),
    (0.5, "0.5"),
    (float("nan"), ".nan"),
    (float("inf"), ".inf"),
    (float("-inf"), "-.inf"),
    ("rack", "'rack'"),
    ("true", "'true'"),
    ("", "''"),
    ("jöb", "'jöb'"),
    ("it's", '"it\'s"'),
    ('say "so"', "'say \"so\"'"),
    ("C:\\kai", "'C:\\kai'"),
    ("a\nb\x1b\u202e", r'"a\nb\u001b\u202e"'),
    ([], "[]"),
    (["a", None, [True]], "['a', null, [true]]"),
    ({}, "{}"),
    ({"gpu": 7, "nvidia.com/gpu": "1", "a b": None}, "{gpu: 7, nvidia.com/gpu: '1', 'a b': null}"),
    ({"on": 1, True: 2, None: 3, 4: 5}, "{'on': 1, true: 2, null: 3, 4: 5}"),
    (b"j\xf6b", "!!binary 'avZi'"),
    (date(2026, 1, 31), "2026-01-31"),
]


@pytest.mark.parametrize(("found", "text"), WRITTEN)
def test_a_value_is_written_as_yaml_has_it(found: object, text: str) -> None:
    assert shown(found) == text
    assert str(yaml.safe_load(text)) == str(found)


def test_an_absent_value_is_called_nothing() -> None:
    assert shown(None) == "nothing"


def test_a_tuple_is_written_as_a_list() -> None:
    assert shown(("a", 1)) == "['a', 1]"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        ("x" * 100, f"'{'x' * 40}...{'x' * 37}'"),
        (list(range(7)), "[0, 1, 2, 3, 4, 5, ...]"),
        (dict.fromkeys("abcdefg", 0), "{a: 0, b: 0, c: 0, d: 0, e: 0, f: 0, ...}"),
        ([[[[[1]]]]], "[[[[[...]]]]]"),
        ({"a": {"b": {"c": {"d": {"e": 1}}}}}, "{a: {b: {c: {d: {...}}}}}"),
        (10**5_000, "a value of type int too large to show"),
    ],
    ids=["text", "list", "mapping", "lists in lists", "mappings in mappings", "digits"],
)
def test_what_is_long_is_cut(found: object, text: str) -> None:
    assert shown(found) == text


@pytest.mark.parametrize(
    "found", [[["x" * 80] * 6] * 6, {"x" * 300: 1}, b"x" * 10_000, {str(each): "\n" * 80 for each in range(6)}]
)
def test_a_text_has_at_most_240_characters(found: object) -> None:
    assert len(shown(found)) <= 240
    assert shown(found).isprintable()


def test_a_list_that_contains_itself_can_be_shown() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert shown(ring) == "[[[[[...]]]]]"


def test_a_text_between_double_quotes_is_json_too() -> None:
    assert json.loads(shown("it's\n")) == "it's\n"


@pytest.mark.parametrize(
    ("written", "text"), [("yes", "true"), ("off", "false"), ("'yes'", "yes"), ("", ""), ("7", "7"), ("1.5", "1.5")]
)
def test_a_label_is_the_word_that_was_meant(written, text):
    assert as_text(yaml.safe_load(f"label: {written}")["label"]) == text
