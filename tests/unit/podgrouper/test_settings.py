import pytest

from kai.errors import ConfigError
from kai.podgrouper import KindPattern, KindRule
from kai.podgrouper.settings import Declarations


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


def test_a_file_declares_kinds_and_kartas():
    karta = {"kind": "Karta"}
    declared = Declarations.read({"kinds": [{"kind": "g/v1/K", "grouper": "job"}], "kartas": [karta]}, "kinds.yaml")
    assert declared == Declarations((KindRule(KindPattern("g", "v1", "K"), "job"),), (karta,))
    assert Declarations.read({}, "kinds.yaml") == Declarations()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": []}, "kinds.yaml: .*: found 'kind', expected only kinds and kartas"),
        ({"kinds": "x"}, "kinds.yaml: kinds: found 'x', expected a list"),
        ({"kinds": [{"kind": "g/v1/K"}]}, "expected kind and grouper"),
        ({"kinds": [{"kind": "g/v1/K", "grouper": "job", "min": 1}]}, "found 'min', expected only kind and grouper"),
        ({"kinds": [{"kind": 1, "grouper": "job"}]}, r"kinds\[0\].kind: found 1, expected a string"),
        ({"kartas": ["x"]}, r"kartas\[0\]: found 'x', expected a map"),
    ],
)
def test_a_file_that_declares_something_else_stops_the_start(config, message):
    with pytest.raises(ConfigError, match=message):
        Declarations.read(config, "kinds.yaml")
