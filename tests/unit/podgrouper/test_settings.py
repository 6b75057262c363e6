import pytest

from kai.errors import ConfigError
from kai.podgrouper import KindPattern


@pytest.mark.parametrize(
    ("text", "pattern"),
    [
        ("example.com/v1/Work", KindPattern("example.com", "v1", "Work")),
        ("example.com/*/Work", KindPattern("example.com", "*", "Work")),
        ("v1/Pod", KindPattern("", "v1", "Pod")),
    ],
)
def test_a_pattern_is_written_as_it_is_read(text, pattern):
    assert KindPattern.parse(text) == pattern
    assert str(pattern) == text


@pytest.mark.parametrize("text", ["", "Work", "/v1/Work", "a/b/c/d", "v1/", "/"])
def test_other_texts_are_no_patterns(text):
    with pytest.raises(ConfigError, match="group/version/Kind"):
        KindPattern.parse(text)
