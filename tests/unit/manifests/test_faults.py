import pytest

from kai.manifests.faults import key_fault, one_of, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [("", "nothing"), ("a", '"a"'), (True, "true"), (["a", 1], '"a", 1'), ({"a": None}, "{a: null}")],
)
def test_a_value_is_quoted_as_yaml_has_it(value: object, text: str) -> None:
    assert shown(value) == text


def test_wrongly_typed_keys_and_words_are_quoted_as_yaml() -> None:
    (key,) = key_fault(("labels", "True"), True)  # what YAML reads `on` as
    (word,) = one_of((), {"operator": False}, "operator", ("In", "NotIn"))
    assert (key.found, key.expected, word.found) == ("true", 'a string: "true"', "false")
