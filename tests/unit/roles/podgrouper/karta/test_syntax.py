import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.basics.errors import InputError
from kai.roles.podgrouper.karta.evaluate import evaluate
from kai.roles.podgrouper.karta.syntax import QuerySyntaxError, UnsupportedSyntaxError, check_reads_only, parse


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (".a | .b, .c", ".a | (.b, .c)"),
        (".a // .b // .c", ".a // (.b // .c)"),
        (".a - .b - .c", "(.a - .b) - .c"),
        ('.a // "x" == "y"', '.a // ("x" == "y")'),
        (".a and .b or .c", "(.a and .b) or .c"),
        (".a == .b + 1 * 2", ".a == (.b + (1 * 2))"),
        (".a.[0]", ".a[0]"),
        (". as $x | 1, 2", ". as $x | (1, 2)"),
        ("-.a + 1", "(-.a) + 1"),
        (".a?.b", "(.a?) | .b"),
    ],
)
def test_operators_bind_as_in_jq(one, other):
    value = {"a": {"b": 1}, "c": 3}
    assert outcome(one, value) == outcome(other, value)


def outcome(query, value):
    try:
        return evaluate(query, value)
    except InputError:
        return "a problem"


@pytest.mark.parametrize(
    "text",
    [".spec.template.[", ".spec.containers[0", '"open', "1 +", "a b", ")", "{", "{a:}", "if 1 then 2", ".a == .b == .c",
     '"\\x"', "$", "reduce .a as $x (0)", "'a'", ".a as x | x", "catch"],
)  # fmt: skip
def test_what_is_no_jq_is_refused(text):
    with pytest.raises(QuerySyntaxError):
        parse(text)


@pytest.mark.parametrize(
    "text", ["def f: 1; f", "foreach .a as $x (0; 1)", "label $out | 1", ". as [$a] | $a", "@base64"]
)
def test_unsupported_jq_raises_an_error_of_its_own(text):
    with pytest.raises(UnsupportedSyntaxError):
        parse(text)


@pytest.mark.parametrize(
    "text",
    ["..", "del(.a)", ".a | recurse", "walk(.)", "[paths]", "range(9)", "repeat(.)", ".a = 1", ".a += 1", ".a |= 2",
     ".a //= 1", "if .a then (.b = 1) else 2 end", "map(select(.x |= 1))", '"\\(del(.a))"', "{a: range(3)}"],
)  # fmt: skip
def test_writing_or_unbounded_queries_are_refused_at_any_depth(text):
    with pytest.raises(QuerySyntaxError, match="not allowed"):
        check_reads_only(parse(text))


@pytest.mark.parametrize("text", ["." * 3000, "(" * 900, "-" * 900, "[" * 900, ".|" * 900, "try " * 400, '"\\(' * 600])
def test_an_expression_has_a_greatest_size(text):
    with pytest.raises(UnsupportedSyntaxError, match=r"found .*, expected at most"):
        parse(text)


def test_the_largest_expressions_can_be_run():
    assert evaluate("1" + " + 1" * 99, None) == (100,)
    assert evaluate("(" * 59 + ".a" + ")" * 59, {"a": 1}) == (1,)
    assert evaluate(".|" * 59 + ".a", {"a": 1}) == (1,)
    assert evaluate("[" * 59 + "]" * 59 + " | length", None) == (1,)


@given(st.text('.[]{}()|,:;"\\$ab01 ?/=<>+-*%', max_size=30))
def test_no_text_does_more_harm_than_a_problem(text):
    outcome(text, {"a": {"b": [1, 2]}, "b": "x"})
