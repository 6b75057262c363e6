import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.fields import INT64_MAX
from kai.basics.parsing import QuantityError, Style, amount, canonical

POWERS = {
    "": Fraction(1),
    **{suffix: Fraction(10) ** power for suffix, power in zip("num", (-9, -6, -3), strict=True)},
    **{suffix: Fraction(10) ** (3 * place) for place, suffix in enumerate("kMGTPE", start=1)},
    **{f"{suffix}i": Fraction(1024) ** place for place, suffix in enumerate("KMGTPE", start=1)},
}


@pytest.mark.parametrize(
    ("text", "parts", "expected"),
    [
        ("1", 1, 1),
        ("1", 1000, 1000),
        ("500m", 1000, 500),
        ("500m", 1, 1),
        ("-500m", 1, -1),
        ("1.5", 1, 2),
        ("+1.5", 1000, 1500),
        (".5", 1000, 500),
        ("5.", 1, 5),
        ("0.1", 1000, 100),
        ("2Gi", 1, 2 << 30),
        ("0.5Ki", 1, 512),
        ("20k", 1000, 20_000_000),
        ("1E", 1, 10**18),
        ("1E3", 1, 1000),
        ("1e3", 1, 1000),
        ("1e-3", 1000, 1),
        ("12.5e-1", 1000, 1250),
        ("100u", 1000, 1),
        ("1n", 10**9, 1),
        ("0", 1000, 0),
        ("-0", 1, 0),
        ("0e999999999", 1, 0),
        ("1e-999999999", 1, 1),
        ("7Ei", 1, 7 << 60),
        ("9223372036854775807", 1, INT64_MAX),
    ],
)
def test_a_quantity_is_read_exactly_and_rounded_up(text: str, parts: int, expected: int) -> None:
    assert amount(text, parts) == expected


NO_QUANTITIES = [
    *("", " ", "abc", "1 ", " 1", "1 Gi", "1\n", "NaN", "nan", "inf", "-", "+", ".", "1..2", "1,5", "0x10", "1_000"),
    *("1e", "1e1.5", "1gi", "1GiB", "1K", "1mi", "--1", "1e3k", "\u0661", "1" * 81),
]


@pytest.mark.parametrize("text", NO_QUANTITIES)
def test_text_that_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match='expected a quantity such as "1", "500m" or "2Gi"'):
        amount(text)


@pytest.mark.parametrize("text", ["8Ei", "-8Ei", "9223372036854775808", "1e19", "1e999999999", "10E"])
def test_a_quantity_beyond_64_bits_is_refused(text: str) -> None:
    with pytest.raises(QuantityError, match="fits into 64 bits"):
        amount(text)


def test_whether_a_quantity_fits_depends_on_the_parts() -> None:
    assert amount("5E") == 5 * 10**18
    with pytest.raises(QuantityError, match="found '5E'"):
        amount("5E", 1000)


@given(
    st.from_regex(r"[0-9]{1,7}(\.[0-9]{0,9})?", fullmatch=True),
    st.sampled_from(sorted(POWERS)),
    st.sampled_from([1, 1000, 10**6, 10**9]),
    st.sampled_from(["", "-"]),
)
def test_reading_agrees_with_exact_fractions(number: str, suffix: str, parts: int, sign: str) -> None:
    exact = math.ceil(Fraction(number.rstrip(".")) * POWERS[suffix] * parts)
    text = sign + number + suffix
    if exact > INT64_MAX:
        with pytest.raises(QuantityError):
            amount(text, parts)
    else:
        assert amount(text, parts) == (-exact if sign else exact)


@given(
    st.integers(-INT64_MAX, INT64_MAX), st.sampled_from([1, 1000, 10**6, 10**9]), st.sampled_from(["decimal", "binary"])
)
def test_canonical_text_is_read_back_as_the_same_amount(value: int, parts: int, style: Style) -> None:
    assert amount(canonical(value, parts, style=style), parts) == value


@given(st.text(max_size=12))
def test_any_text_is_read_or_refused(text: str) -> None:
    value, refusal = 0, "expected a quantity"
    try:
        value = amount(text, 1000)
    except QuantityError as bad:
        refusal = str(bad)
    assert abs(value) <= INT64_MAX
    assert "expected a quantity" in refusal


@pytest.mark.parametrize(
    ("value", "parts", "style", "expected"),
    [
        (0, 1, "decimal", "0"),
        (1000, 1, "decimal", "1k"),
        (1500, 1, "decimal", "1500"),
        (1500, 1000, "decimal", "1500m"),
        (2000, 1000, "decimal", "2"),
        (2_000_000, 1000, "decimal", "2k"),
        (-3000, 1000, "decimal", "-3"),
        (7, 10**9, "decimal", "7n"),
        (10**18, 1, "decimal", "1E"),
        (1 << 30, 1, "binary", "1Gi"),
        (1 << 30, 1, "decimal", "1073741824"),
        (512, 1, "binary", "512"),
        (1536, 1, "binary", "1536"),
        (1000, 1, "binary", "1k"),
        (2048_000, 1000, "binary", "2Ki"),
        (500, 1000, "binary", "500m"),
    ],
)
def test_canonical_text_has_no_fraction_and_the_largest_suffix(
    value: int, parts: int, style: Style, expected: str
) -> None:
    assert canonical(value, parts, style=style) == expected
