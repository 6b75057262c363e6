import datetime as dt

import pytest

from kai.api.codec import json_values
from kai.api.codec.json_values import Reader
from kai.api.fields import Bounds, Pattern
from kai.api.values import BadValue

SMALL = json_values.integers(Bounds(-5, 5))
COUNT = json_values.integers(Bounds(0, 5))
NAME = json_values.patterned(Pattern("^[a-z]+$", shortest=2, longest=3))
COLOUR = json_values.one_of(("", "red", "blue"))
ELEVEN = dt.datetime(2026, 1, 1, 11, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("reader", "value", "expected"),
    [
        (json_values.text, "a", "a"),
        (json_values.text, ELEVEN, "2026-01-01T11:00:00Z"),
        (json_values.flag, False, False),
        (json_values.number, 3, 3.0),
        (json_values.share, -1, -1.0),
        (json_values.time, "2026-01-01T11:00:00Z", 1767265200.0),
        (json_values.time, ELEVEN, 1767265200.0),
        (json_values.duration, "1m", 60.0),
        (json_values.duration, 1_500_000_000, 1.5),
        (json_values.number_or_text, "50%", "50%"),
        (json_values.number_or_text, 2, 2),
        (json_values.quantity_text, "1Gi", "1Gi"),
        (json_values.quantity_text, 2, "2"),
        (json_values.quantity_text, 1e15, "1000000000000000.0"),
        (json_values.amounts, {"cpu": "-1", "memory": 5}, {"cpu": "-1", "memory": "5"}),
        (json_values.requests, {"cpu": "-0"}, {"cpu": "-0"}),
        (json_values.requests, {"memory": "5Ei", "hugepages-2Mi": "5Ei"}, {"memory": "5Ei", "hugepages-2Mi": "5Ei"}),
        (json_values.labels, {"a": "b", "c": None}, {"a": "b", "c": ""}),
        (json_values.json_object, {"a": (1, None, ELEVEN)}, {"a": [1, None, "2026-01-01T11:00:00Z"]}),
        (SMALL, -5, -5),
        (SMALL, 5.0, 5),
        (NAME, "abc", "abc"),
        (COLOUR, "", ""),
    ],
)
def test_a_good_value_is_read(reader: Reader, value: object, expected: object) -> None:
    assert reader(value, None) == expected


@pytest.mark.parametrize(
    ("reader", "value", "wanted"),
    [
        (json_values.text, 1, "found 1, expected a string"),
        (json_values.flag, 1, "found 1, expected true or false"),
        (json_values.number, True, "found true, expected a number"),
        (json_values.number, "1", 'found "1", expected a number'),
        (json_values.number, float("nan"), "found NaN, expected a finite number"),
        (json_values.number, 1e301, "found 1e+301, expected a finite number"),
        (json_values.share, -0.5, "found -0.5, expected -1 (unlimited), 0 or a positive number"),
        (json_values.time, 1767265200, 'found 1767265200, expected a time such as "2026-01-31T12:00:00Z"'),
        (json_values.duration, 1.5, 'found 1.5, expected a duration such as "90s", "1h30m" or "2d"'),
        (json_values.duration, True, 'found true, expected a duration such as "90s", "1h30m" or "2d"'),
        (json_values.number_or_text, 1.5, 'found 1.5, expected a whole number or a percentage such as "50%"'),
        (json_values.quantity_text, [], 'found a list of 0, expected a quantity such as "1", "500m" or "2Gi"'),
        (json_values.amounts, [], "found a list of 0, expected an object of quantities by resource name"),
        (json_values.amounts, {1: "1"}, "found 1, expected a resource name"),
        (json_values.requests, {"a/gpu": "-1"}, '["a/gpu"]: found "-1", expected a quantity that is not negative'),
        (json_values.requests, {"a/gpu": "1E"}, '["a/gpu"]: found "1E", expected a quantity that fits into 64 bits'),
        (json_values.requests, {"cpu": "10P"}, 'cpu: found "10P", expected a quantity that fits into 64 bits'),
        (json_values.labels, "a", 'found "a", expected an object of strings'),
        (json_values.labels, {1: "a"}, "found 1, expected a string as key (in YAML, put it in quotes)"),
        (json_values.labels, {"a": 1}, "a: found 1, expected a string (in YAML, put it in quotes)"),
        (json_values.json_object, [], "found a list of 0, expected an object"),
        (json_values.json_value, float("inf"), "found Infinity, expected JSON"),
        (json_values.json_value, {1, 2}, "found a value of type set, expected JSON"),
        (SMALL, -6, "found -6, expected at least -5"),
        (SMALL, 6, "found 6, expected at most 5"),
        (COUNT, -1, "found -1, expected a whole number that is not negative"),
        (SMALL, 1.5, "found 1.5, expected a whole number"),
        (SMALL, True, "found true, expected a whole number"),
        (SMALL, float("nan"), "found NaN, expected a whole number"),
        (NAME, "a", 'found "a", expected a name that matches ^[a-z]+$'),
        (NAME, "A1", 'found "A1", expected a name that matches ^[a-z]+$'),
        (NAME, "abcd", 'found "abcd", expected at most 3 characters'),
        (COLOUR, "green", 'found "green", expected one of "red", "blue"'),
        (COLOUR, ["red"], 'found a list of 1, expected one of "red", "blue"'),
    ],
)
def test_a_bad_value_names_the_expected_one(reader: Reader, value: object, wanted: str) -> None:
    with pytest.raises(BadValue) as caught:
        reader(value, None)
    assert str(caught.value) == wanted


def test_json_may_not_nest_without_end() -> None:
    ring: list[object] = []
    ring.append(ring)
    with pytest.raises(BadValue, match="expected nesting of at most 64 levels"):
        json_values.json_value(ring)


def test_a_name_may_not_end_in_a_line_break() -> None:
    with pytest.raises(BadValue):
        NAME("ab\n", None)
