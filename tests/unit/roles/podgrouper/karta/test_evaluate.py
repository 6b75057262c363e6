import pytest

from kai.roles.podgrouper.karta.evaluate import evaluate
from kai.roles.podgrouper.karta.values import QueryError

VALUE = {
    "spec": {
        "n": 3,
        "list": [{"name": "b", "n": 2}, {"name": "a"}],
        "map": {"y": 2, "x": 1},
        "text": "a-b",
        "null": None,
    },
    "metadata": {"labels": {"role": "worker", "a/b": "slash"}},
}


@pytest.mark.parametrize(
    ("query", "results"),
    [
        ("", (VALUE,)),
        (".spec.n", (3,)),
        (".spec.none.at.all", (None,)),
        ('.metadata.labels["a/b"]', ("slash",)),
        ('.metadata.labels."a/b"', ("slash",)),
        (".spec.list[0].name", ("b",)),
        (".spec.list[-1].name", ("a",)),
        (".spec.list[9]", (None,)),
        (".spec.list[].n", (2, None)),
        (".spec.list[].n // 1", (2,)),
        ("[.spec.list[] | .n // 1]", ([2, 1],)),
        (".spec.map[]", (1, 2)),
        (".spec.map | to_entries[] | .key", ("x", "y")),
        (".spec.list[:1] | length", (1,)),
        (".spec.text[2:]", ("b",)),
        (".spec.n // 7, .spec.none // 7", (3, 7)),
        ('.spec.none // "0"', ("0",)),
        ("(.spec.n // 1) * ((.spec.none // 2) - 1)", (3,)),
        ("1 + 2 * 3 - 4 / 2 % 2", (7,)),
        ("-(.spec.n)", (-3,)),
        ("7 / 2", (3.5,)),
        ("-7 % 3", (-1,)),
        ('.metadata.labels.role == "worker"', (True,)),
        (".spec.n > 2 and .spec.none == null or false", (True,)),
        ("1 == 1.0, true == 1, null == false", (True, False, False)),
        ('[null, false, true, 1, "a", [], {}] | sort == .', (True,)),
        ("if .spec.n > 5 then 1 elif .spec.n > 2 then 2 else 3 end", (2,)),
        ("if .spec.none then 1 end", (VALUE,)),
        ('.spec.list | map(select(.name == "a")) | .[0].name', ("a",)),
        ("reduce .spec.list[] as $x (0; . + ($x.n // 1))", (3,)),
        (".spec.n as $n | .spec.list[] | select(.n == $n) | .name", ()),
        ('{(.spec.text): .spec.n, n: 1, "m": 2}', ({"a-b": 3, "n": 1, "m": 2},)),
        ("{n: .spec.list[].name} | .n", ("b", "a")),
        (".spec | {n, text} | keys", (["n", "text"],)),
        ('"n=\\(.spec.n + 1)!"', ("n=4!",)),
        ('"\\u00e9\\n"', ("é\n",)),
        ('.spec.text | split("-") | join("+")', ("a+b",)),
        ('.spec.text | startswith("a"), endswith("a"), test("^a.b$")', (True, False, True)),
        ('.spec.text | ltrimstr("a-"), rtrimstr("-b"), ascii_upcase', ("b", "a", "A-B")),
        ('.spec.map | has("x"), has("z")', (True, False)),
        (".spec.list | any(.n == 2), all(.n == 2)", (True, False)),
        (".spec.list | map(.n // 0) | add, min, max", (2, 0, 2)),
        ('[3, 1, 3] | unique, sort, reverse, (map(tostring) | join(","))', ([1, 3], [1, 3, 3], [3, 1, 3], "3,1,3")),
        ("[1, [2, [3]]] | flatten | length", (3,)),
        (".spec.list | sort_by(.name) | .[0].name", ("a",)),
        (".spec.list | group_by(.n) | length", (2,)),
        (".spec.map | with_entries(.value += 0)? // 1", (1,)),
        (".spec.map | map_values(. + 1)", ({"x": 2, "y": 3},)),
        ("first(.spec.list[].name), last(.spec.list[].name)", ("b", "a")),
        ('"3" | tonumber + 1', (4,)),
        ('"[1]" | fromjson | tojson', ("[1]",)),
        ("2.0 | tostring", ("2",)),
        (".spec.text.x?", ()),
        ('try error("no") catch .', ("no",)),
        ('[.spec.list[] | .name | select(. != "b")] | length == 1', (True,)),
        ("3.7 | floor, ceil, round", (3, 4, 4)),
        ("[.spec.null, 1] | map(values)", ([1],)),
        ("[1, 2, 1] - [1]", ([2],)),
        ("{} | .a.b | type", ("null",)),
        ('["a", "b"] | contains(["a"]), inside(["a", "b", "c"])', (True, True)),
        ("-3 | length, abs", (3, 3)),
        ("null | length", (0,)),
        ("[[], {}] | map(add)", ([None, None],)),
        ('[{"k": "a", "v": 1}, {"name": 2, "value": 3}] | from_entries', ({"a": 1, "2": 3},)),
        ('"abc" | reverse, trim, ascii_downcase', ("cba", "abc", "abc")),
        ("[false, 1] | any, all", (True, False)),
        ("[1, 2] | first, last, (. | contains([2]))", (1, 2, True)),
        ("[[2, 1], [1, 9]] | min_by(.[0]), max_by(.[0])", ([1, 9], [2, 1])),
        ("[1, 2] | unique_by(. % 1)", ([1],)),
        ('[1, "a", null, true, [], {}] | map(numbers, strings, booleans, nulls) | length', (4,)),
        ("[1, [], {}] | map(iterables), map(scalars)", ([[], {}], [1])),
        ('[{"a": 1}, {"b": 0}, {"a": 0}] | sort', ([{"a": 0}, {"a": 1}, {"b": 0}],)),
        ("[[1, 2], [1]] | sort", ([[1], [1, 2]],)),
        ('{"a": 1} + {"b": 2}', ({"a": 1, "b": 2},)),
        ('"a,b" / ","', (["a", "b"],)),
        ("null + 1, 1 + null", (1, 1)),
        ("[1, 2] | .[1:][0], (null | .[1:])", (2, None)),
        ('{"a": {"b": 1}} | contains({"a": {}}), contains({"c": 1})', (True, False)),
        ("[3][0.5]", (3,)),
        ("[1, 2] | has(1), has(2)", (True, False)),
        ("empty", ()),
        ("isempty(empty) # a comment", (True,)),
    ],
)  # fmt: skip
def test_a_query_is_answered(query, results):
    assert evaluate(query, VALUE) == results


@pytest.mark.parametrize(
    "query",
    [
        ".spec.text[0]",
        ".spec.n.x",
        ".spec.n[]",
        '.spec.list["x"]',
        '1 + "a"',
        "1 / 0",
        "1 % 0",
        "true | length",
        "1 | flatten",
        "[1] | to_entries",
        "[1] | from_entries",
        "[1] | has({})",
        '"{" | fromjson',
        "true | floor",
        "{} | .[1:]",
        "1 | keys",
        "[1] | join(1)",
        '{} | keys | .[0] | startswith("a")',
        "unheard",
        "map",
        "$none",
        '"x" | tonumber',
        "error",
        "{(1): 2}",
        '"[" as $r | "x" | test($r)',
        "..",
        ".a = 1",
    ],
)
def test_a_query_that_cannot_be_answered_is_a_problem(query):
    with pytest.raises(QueryError):
        evaluate(query, VALUE)


def test_too_many_results_are_a_problem():
    with pytest.raises(QueryError, match="1000 results or more"):
        evaluate(".[]", list(range(1000)))
    assert len(evaluate(".[]", list(range(999)))) == 999


def chained(start, step, times=40):
    """A query that does the same thing again and again, within the number of parts that a query may have."""
    return " | ".join([start, *[step] * times])


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (chained('"x"', "(. + .)") + " | length", "too much work"),
        (chained("[1]", "(. + .)") + " | length", "too much work"),
        (chained("3", "(. * .)"), "more than 1024 bits"),
        (chained(". as $a | [.]", "[.,.]", 30) + " | tojson | length", "too much work"),
        (chained(". as $a | [.]", "[.,.]", 30) + " | flatten | length", "too much work"),
        (chained(". as $a | [.]", "[.,.]", 30) + " | . == .", "too much work"),
        ("[.[] as $a | .[] as $b | .[] as $c | .[] as $d | 1] | length", "too much work"),
        ("[.[] as $a | (.[] as $b | (.[] as $c | (.[] as $d | 1)?)?)?] | length", "too much work"),
        ("[.[] | tostring] - [.[]] | . - . | length", "too much work"),
        ("reduce .[] as $x (0; [.]) | tojson | length", "too much work"),
        ('([.[] | tostring] | join("")) as $t | [.[] | $t] | join($t) | length', "too much work"),
        ('"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" | test("(a+)+b")', "take too long"),
        ('([.[] | "a"] | join("")) | test("a*a*a*b")', "take too long"),
    ],
)  # fmt: skip
def test_a_query_that_would_take_for_ever_ends(query, problem):
    with pytest.raises(QueryError, match=problem):
        evaluate(query, list(range(5000)))


def test_a_regular_expression_of_the_usual_kind_is_matched():
    assert evaluate('test("^train-[0-9]+-.*-worker$")', "train-17-a-worker") == (True,)


def test_work_is_counted_for_each_query_by_itself():
    for _ in range(3):
        assert evaluate("[.[] | . + 1] | length", list(range(10_000))) == (10_000,)
