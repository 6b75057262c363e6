import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.basics.parsing import floating, is_number, is_whole, signed, truth, unsigned


def test_true_and_false_are_no_numbers():
    assert [is_whole(each) for each in (7, 0, 7.0, True, False, "7", None)] == [True, True, *[False] * 5]
    assert [is_number(each) for each in (7, 0, 7.5, True, False, "7", None)] == [True, True, True, *[False] * 4]


@pytest.mark.parametrize("value", [True, False])
def test_truth_values_have_words_letters_and_digits(value):
    word = str(value)
    texts = (word, word.lower(), word.upper(), word[0], word[0].lower(), str(int(value)))
    assert [truth(text) for text in texts] == [value] * 6


@pytest.mark.parametrize("text", ["", "tRUE", "yes", " true", "2", "on"])
def test_a_text_no_boolean_in_go_is_none(text):
    assert truth(text) is None


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "+1", "-1", "1.0", "1_0", "٣", "0x1", "18446744073709551616", "9" * 300]
)
def test_a_text_no_natural_number_in_go_is_none(text):
    assert unsigned(text) is None


def test_the_largest_natural_number_of_64_bits_is_read():
    assert unsigned("18446744073709551615") == 2**64 - 1


@pytest.mark.parametrize(
    "text", ["", " 1", "1e3", "1.0", "0x1", "\u0661", "9223372036854775808", "-9223372036854775809", "--1", "1_0"]
)
def test_a_text_no_integer_in_go_is_none(text):
    assert signed(text) is None


@pytest.mark.parametrize(
    ("text", "value"), [("12", 12), ("-3", -3), ("+7", 7), ("-9223372036854775808", -(2**63)), ("007", 7)]
)
def test_signs_and_leading_zeros_are_read(text, value):
    assert signed(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.5", 0.5), (".5", 0.5), ("5.", 5.0), ("1e-2", 0.01), ("0x1p-1", 0.5), ("0X.8P0", 0.5), ("1_0.5", 10.5)],
)
def test_every_float_spelling_of_go_is_read(text, value):
    assert floating(text) == value


@pytest.mark.parametrize(
    "text", ["", ".", "1e", "0x1", "1__0", "_1", "1_", " 1", "1e999", "0x1p9999", "+nan", "1" * 300]
)
def test_a_text_no_float_in_go_is_none(text):
    assert floating(text) is None


@pytest.mark.parametrize("text", ["NaN", "nan", "NAN"])
def test_nan_is_a_float(text):
    assert math.isnan(floating(text))


@pytest.mark.parametrize("text", ["inf", "+Inf", "-infinity"])
def test_infinities_are_floats(text):
    assert math.isinf(floating(text))


@given(st.text(max_size=30))
def test_no_text_ends_in_an_exception(text):
    for value in (unsigned(text), signed(text), floating(text)):
        assert value is None or isinstance(value, int | float)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_writes_is_read_back(value):
    assert floating(repr(value)) == value
