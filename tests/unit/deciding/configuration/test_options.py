from typing import Literal

import attrs
import pytest

from kai.basics.errors import ConfigError
from kai.deciding.configuration.options import build, described, from_text, wanted
from kai.deciding.configuration.registry import UnknownNameError


@attrs.frozen(kw_only=True)
class Sample:
    number: float = attrs.field(default=1.0, validator=attrs.validators.ge(0.0))
    count: int = attrs.field(default=2, validator=[attrs.validators.gt(0), attrs.validators.lt(10)])
    flag: bool = False
    text: str = "x"
    choice: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    maybe: float | None = None
    weight: bool | float = attrs.field(default=1.0, validator=attrs.validators.ge(0.0))
    needed: int


def built(**options):
    return build(Sample, {"needed": 1, **options}, "p.yaml: plugins.sample", "sample 1.0")


def test_options_are_the_fields_of_the_class():
    made = built(number=3, count=4, flag=True, text="y", choice="b", names=["p", "q"], maybe=0.5)
    assert made == Sample(number=3.0, count=4, flag=True, text="y", choice="b", names=("p", "q"), maybe=0.5, needed=1)


@pytest.mark.parametrize("given", [False, True, 0, 2, 0.5])
def test_a_switch_that_may_be_a_weight_takes_both(given):
    made = built(weight=given).weight
    assert (made, type(made)) == (given, bool if isinstance(given, bool) else float)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"number": "3"}, "number: found '3', expected number, 0 or more, default 1"),
        ({"number": -1}, "number: found -1, expected number, 0 or more"),
        ({"number": True}, "number: found true"),
        ({"number": float("nan")}, "number: found .nan"),
        ({"number": float("inf")}, "number: found .inf"),
        ({"count": 1.5}, "count: found 1.5, expected whole number, more than 0, less than 10, default 2"),
        ({"count": 10}, "count: found 10"),
        ({"flag": "yes"}, "flag: found 'yes', expected true or false, default false"),
        ({"flag": 1}, "flag: found 1"),
        ({"text": 5}, "text: found 5, expected text, default 'x'"),
        ({"choice": "c"}, "choice: found 'c', expected one of a, b, default 'a'"),
        ({"names": 5}, "names: found 5, expected list of texts, default []"),
        ({"names": ["a", 5]}, "names: found ['a', 5], expected list of texts, default []"),
        ({"maybe": "x"}, "maybe: found 'x', expected number or nothing"),
        ({"weight": "2"}, "weight: found '2', expected true or false or number, 0 or more, default 1"),
        ({"weight": -1}, "weight: found -1"),
        ({"needed": None}, "needed: found nothing, expected whole number"),
    ],
)
def test_a_bad_option_value_names_the_expected_one(options, message):
    with pytest.raises(ConfigError) as caught:
        built(**options)
    assert str(caught.value).startswith(f"p.yaml: plugins.sample.{message}")


def test_an_unknown_option_is_refused_with_what_was_meant():
    with pytest.raises(ConfigError) as caught:
        built(nubmer=3)
    assert str(caught.value) == "p.yaml: plugins.sample.nubmer is not an option of sample 1.0"
    assert caught.value.help == "did you mean number (number, 0 or more, default 1)?"


def test_a_missing_option_is_told():
    with pytest.raises(ConfigError, match="needed: found nothing, expected whole number"):
        build(Sample, {}, "p.yaml: plugins.sample", "sample 1.0")


def test_everything_that_is_wrong_is_told_at_once():
    with pytest.raises(ConfigError) as caught:
        built(number="x", count="y", other=1)
    assert len(caught.value.messages) == 3


def test_each_of_several_mistakes_has_its_own_help():
    with pytest.raises(UnknownNameError) as caught:
        built(nubmer=3, number="x", cuont=1)
    helps = dict(zip((each.split()[1] for each in caught.value.messages), caught.value.helps, strict=True))
    assert helps == {
        "plugins.sample.nubmer": "did you mean number (number, 0 or more, default 1)?",
        "plugins.sample.cuont": "did you mean count (whole number, more than 0, less than 10, default 2)?",
        "plugins.sample.number:": "",
    }


def test_a_class_without_options_takes_none():
    @attrs.frozen
    class Plain:
        pass

    assert described(object) == ()
    with pytest.raises(ConfigError) as caught:
        build(Plain, {"x": 1}, "here", "plain")
    assert caught.value.help == "it has no options"


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("flag", "True", True),
        ("count", " 4 ", 4),
        ("number", "0.5", 0.5),
        ("text", "abc", "abc"),
        ("choice", "b", "b"),
        ("names", "a, b", ("a", "b")),
        ("maybe", "2", 2.0),
        ("weight", "2", 2.0),
        ("weight", "false", False),
    ],
)
def test_texts_are_read_by_the_type_of_the_field(name, text, value):
    (field,) = [field for field in described(Sample) if field.name == name]
    assert from_text(field, text) == value


@pytest.mark.parametrize(("name", "text"), [("flag", "yes"), ("count", "1.5"), ("number", "many")])
def test_a_text_that_stands_for_no_value_is_refused(name, text):
    (field,) = [field for field in described(Sample) if field.name == name]
    with pytest.raises(ValueError, match=r"^$|invalid|could not"):
        from_text(field, text)


def test_a_factory_is_not_shown_as_a_default():
    @attrs.frozen
    class Listed:
        names: list[str] = attrs.field(factory=list)

    (field,) = described(Listed)
    assert wanted(field) == "list of texts"


def test_a_list_option_names_its_item_type_if_single():
    @attrs.frozen
    class Lists:
        counts: tuple[int, ...] = (1, 2)
        pair: tuple[int, str] = (1, "a")
        maps: list[dict[str, str]] = attrs.field(factory=list)

    told = [wanted(field) for field in described(Lists)]
    assert told == ["list of whole numbers, default [1, 2]", "list, default [1, 'a']", "list"]


def test_a_mapping_option_names_a_simple_value_type():
    @attrs.frozen
    class Mappings:
        weights: dict[str, float]
        lists: dict[str, list[str]]

    assert [wanted(field) for field in described(Mappings)] == ["mapping from names to numbers", "mapping"]


def raising(*_):
    raise OSError("no file")


@attrs.frozen
class Odd:
    name: str = attrs.field(default="a", validator=lambda *_: raising())
    number: complex = 1j


@attrs.frozen
class Late:
    name: str = "a"

    def __attrs_post_init__(self):
        raising()


@pytest.mark.parametrize(
    ("cls", "options", "message", "hint"),
    [
        (Odd, {"name": "b"}, ".name: found 'b', expected text, default 'a'", "validator of the option raised OSError"),
        (Odd, {"number": 2}, ".number: found 2, expected complex, default 1j", "cannot hold a value of this type"),
        (Odd, {}, ": Odd of mine 1.0 raised OSError: no file", ""),
        (Late, {}, ": Late of mine 1.0 raised OSError: no file", ""),
    ],
)
def test_an_option_class_that_raises_is_named(cls, options, message, hint):
    with pytest.raises(ConfigError) as caught:
        build(cls, options, "p.yaml: plugins.odd", "mine 1.0")
    assert str(caught.value) == f"p.yaml: plugins.odd{message}"
    assert hint in caught.value.help


def test_options_of_options_are_told_by_their_names():
    @attrs.frozen
    class Outer:
        inner: Sample = attrs.field(factory=lambda: Sample(needed=1))
        other: Sample = Sample(needed=1)

    names = "number, count, flag, text, choice, names, maybe, weight, needed"
    assert [wanted(field) for field in described(Outer)] == [f"mapping with {names}"] * 2
