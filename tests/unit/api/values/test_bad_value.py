import pytest

from kai.api.values import BadValue, show, show_path
from kai.basics.errors import InputError


def test_the_message_names_object_path_found_and_wanted() -> None:
    bad = BadValue("abc", "a quantity")
    for step in ("nvidia.com/gpu", "requests", "resources", 0, "containers", "spec"):
        bad.under(step)
    expected = (
        'pod default/train-0: spec.containers[0].resources.requests["nvidia.com/gpu"]: found "abc", expected a quantity'
    )
    assert str(bad.of("pod default/train-0")) == expected
    assert bad.messages == (expected,)


def test_the_file_comes_before_the_object() -> None:
    assert str(BadValue(1, "a string").of("pod a/b").of("x.yaml")) == "x.yaml: pod a/b: found 1, expected a string"


def test_it_joins_other_input_errors() -> None:
    joined = InputError.joined([InputError("one"), BadValue(None, "a name", path=("metadata", "name"))])
    assert str(joined) == "one\nmetadata.name: found nothing, expected a name"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "nothing"),
        (True, "true"),
        ("a\nb", r'"a\nb"'),
        (float("nan"), "NaN"),
        ("\ud800", r'"\ud800"'),
        ({"a": [1]}, "an object with 1 field"),
        (dict.fromkeys(map(str, range(7250)), 0), "an object with 7,250 fields"),
        ([0] * 7250, "a list of 7,250"),
        ({1, 2}, "a value of type set"),
        (10**5000, "a value of type int"),
    ],
    ids=["null", "true", "lines", "nan", "half a pair", "object", "fields", "list", "set", "digits"],
)
def test_values_are_shown_as_in_json(value: object, expected: str) -> None:
    assert show(value) == expected


def test_long_values_are_cut() -> None:
    assert len(show("x" * 1000)) == 60


def test_a_value_that_contains_itself_can_be_shown() -> None:
    ring: list[object] = []
    ring.append(ring)
    assert show(ring) == "a list of 1"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), ""),
        (("spec",), "spec"),
        ((0, "name"), "[0].name"),
        (("labels", "a/b"), 'labels["a/b"]'),
        (("labels", 'a"b'), r'labels["a\"b"]'),
        (("a-b", "c_d"), "a-b.c_d"),
        (("labels", "\ud800"), r'labels["\ud800"]'),
    ],
)
def test_paths_are_written_as_people_write_them(path: tuple[str | int, ...], expected: str) -> None:
    assert show_path(path) == expected
