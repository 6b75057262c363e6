from collections import Counter

from kai.api import names


def constants() -> dict[str, object]:
    return {name: value for name, value in vars(names).items() if name.isupper()}


def test_no_key_of_ours_is_declared_twice() -> None:
    keys = Counter(value for value in constants().values() if isinstance(value, str) and "kai.scheduler/" in value)
    assert {key: count for key, count in keys.items() if count > 1} == {}


def test_names_are_text_without_spaces() -> None:
    texts = [value for value in constants().values() if isinstance(value, str)]
    assert len(texts) > 50
    assert all(text and not any(map(str.isspace, text)) for text in texts)
