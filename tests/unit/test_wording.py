import pytest

from kai.wording import counted, first_of


@pytest.mark.parametrize(
    ("number", "noun", "plural", "text"),
    [
        (1, "pod", "", "1 pod"),
        (0, "pod", "", "0 pods"),
        (1.0, "GPU", "", "1 GPU"),
        (2.5, "GPU", "", "2.5 GPUs"),
        (8.0, "GPU", "", "8 GPUs"),
        (7255, "job", "", "7,255 jobs"),
        (1234567.0, "GPU", "", "1,234,567 GPUs"),
        (1, "job waits", "jobs wait", "1 job waits"),
        (2, "job waits", "jobs wait", "2 jobs wait"),
    ],
)
def test_a_number_stands_with_its_noun(number: float, noun: str, plural: str, text: str) -> None:
    assert counted(number, noun, plural) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [([], ""), (["a"], "a"), (["a", "b", "c"], "a, b, c"), (["a", "b", "c", "d", "e"], "a, b, c and 2 more")],
)
def test_a_list_is_cut_short_and_says_how_much_is_left_out(names: list[str], text: str) -> None:
    assert first_of(names) == text


def test_a_list_may_be_cut_elsewhere_and_joined_otherwise() -> None:
    assert first_of(["a", "b", "c"], 1, " ") == "a and 2 more"
