import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.values import BadValue, amount
from kai.basics import parsing


@given(st.text(alphabet="0123456789.eEmkMGiKn+-", max_size=8), st.sampled_from([1, 1000]))
def test_manifests_are_read_as_other_texts_are(text: str, parts: int) -> None:
    try:
        wanted = parsing.amount(text, parts)
    except parsing.QuantityError as error:
        with pytest.raises(BadValue, match=f"expected {error.wanted}"):
            amount(text, parts)
    else:
        assert amount(text, parts) == wanted


def test_what_is_no_quantity_is_repeated() -> None:
    with pytest.raises(BadValue, match='found "lots", expected a quantity such as "1"'):
        amount("lots")
