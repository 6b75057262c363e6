import pytest

from kai.roles.podgrouper import KindPattern


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (KindPattern("example.com", "v1", "Work"), "example.com/v1/Work"),
        (KindPattern("example.com", "*", "Work"), "example.com/*/Work"),
        (KindPattern("", "v1", "Pod"), "v1/Pod"),
    ],
)
def test_a_pattern_is_written_as_group_version_and_kind(pattern, text):
    assert str(pattern) == text
