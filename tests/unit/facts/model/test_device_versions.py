import pytest

from kai.facts.model.device_selectors import normalized, version


def test_versions_are_ordered_as_releases_are():
    ordered = [
        "0.9.9",
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0",
        "1.0.1",
        "1.10.0",
    ]
    shuffled = ordered[4:] + ordered[:4]
    assert sorted(shuffled, key=version) == ordered
    assert version("1.2.3+build") == version("1.2.3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "1.0.0"),
        ("v1.2", "1.2.0"),
        ("1.2.3", "1.2.3"),
        ("v01.002.0", "1.2.0"),
        ("00.00.00", "0.0.0"),
        ("1.2.03-rc.1+b", "1.2.3-rc.1+b"),
        ("1.2.0-rc.1", "1.2.0-rc.1"),
        ("1.2.00-rc.1", "1.2.0-rc.1"),
    ],
)
def test_a_text_that_is_nearly_a_version_becomes_one(text, expected):
    assert normalized(text) == expected


@pytest.mark.parametrize("text", ["", "v", "one", "1.x", "1.2-rc", "1+build", "1.2.3.4", " 1.2.3", "vv1.2.3"])
def test_other_texts_become_no_version(text):
    with pytest.raises(ValueError, match="expected"):
        normalized(text)


@pytest.mark.parametrize("text", ["1", "1.2", "v1.2.3", "01.2.3", "1.2.3-"])
def test_other_texts_are_no_versions(text):
    with pytest.raises(ValueError, match="expected a semantic version"):
        version(text)
