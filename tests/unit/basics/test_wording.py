import errno

import pytest

from kai.basics.wording import counted, first_of, found_by, number_text


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
def test_a_long_list_is_cut_with_a_count(names: list[str], text: str) -> None:
    assert first_of(names) == text


def test_a_list_may_be_cut_elsewhere_and_joined_otherwise() -> None:
    assert first_of(["a", "b", "c"], 1, " ") == "a and 2 more"


@pytest.mark.parametrize(
    ("number", "digits", "text"),
    [
        (16000.0, 4, "16000"),
        (15556.75, 4, "15557"),
        (102000.0, 4, "102000"),
        (824.625, 4, "824.6"),
        (0.375, 4, "0.375"),
        (1_048_576.0, 6, "1048576"),
        (1234567.5, 6, "1234568"),
        (0.00001, 6, "0.00001"),
        (-1.0, 6, "-1"),
        (0.0, 6, "0"),
        (float("inf"), 6, "inf"),
        (1e300, 6, "1e+300"),
    ],
)
def test_a_number_has_no_exponent(number: float, digits: int, text: str) -> None:
    assert number_text(number, digits) == text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory"), "no such file or folder"),
        (IsADirectoryError(errno.EISDIR, "Is a directory"), "a folder"),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory"), "a file where a folder belongs"),
        (FileExistsError(errno.EEXIST, "File exists"), "a file of that name"),
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError("odd"), "odd"),
    ],
)
def test_what_a_system_call_found_fits_behind_found(error: OSError, text: str) -> None:
    assert found_by(error) == text
