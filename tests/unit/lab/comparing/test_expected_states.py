import pytest

from kai.basics.errors import InputError
from kai.lab.request import Request

SCENARIO = """
about: One job starts, one waits, one gives way.
cluster: {{nodes: {{n1: {{gpu: 2}}}}}}
queues: {{root: {{quota: 2}}, a: {{parent: root, quota: 2}}}}
groups:
  low: {{queue: a, priority: 40, each: {{gpu: 2}}, runs_on: n1}}
  high: {{queue: a, priority: 60, each: {{gpu: 2}}}}
  big: {{queue: a, each: {{gpu: 4}}}}
run: [allocate, preempt]
{expected}
"""


def differences(tmp_path, expected):
    path = tmp_path / "s.yaml"
    path.write_text(SCENARIO.format(expected=expected))
    return Request().run(str(path)).differences()


def test_what_is_as_expected_differs_in_nothing(tmp_path):
    expected = """
expect: {low: evicted on n1, high: pipelined on n1, big: {pending: "the largest node has 2 GPUs"}}
idle: {n1: 0}
shares: {a: 2}
"""
    assert differences(tmp_path, expected).found == ()


@pytest.mark.parametrize(
    ("expected", "told"),
    [
        ("expect: {low: running}", "low: 1 evicted on n1, expected running"),
        ("expect: {low: 2 evicted}", "low: 1 evicted on n1, expected 2 evicted"),
        ("expect: {low: evicted on n2}", "low: 1 evicted on n1, expected evicted on n2"),
        ("expect: {low: {pending: OverLimit}}", "low: 1 evicted on n1, expected pending because of 'OverLimit'"),
        ("expect: {big: {pending: fairness}}", "expected 'fairness' to be said"),
        ("expect: {nobody: pending}", "nobody: found no such group"),
        ("idle: {n1: 2}", "node n1: 0.0 GPUs idle, expected 2"),
        ("idle: {n2: 2}", "node n2: None GPUs idle, expected 2"),
        ("shares: {a: 1}", "queue a: fair share of 2.0 GPUs, expected 1"),
        ("shares: {b: 1}", "queue b: fair share of None GPUs, expected 1"),
    ],
)
def test_what_differs_is_told(tmp_path, expected, told):
    (found,) = differences(tmp_path, expected).found
    assert told in found


def test_a_scenario_that_expects_nothing_says_so(tmp_path):
    assert differences(tmp_path, "").unknown


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("runing", "found 'runing', expected a number, one of allocated"),
        ("2 and 1", "found '2 and 1'"),
        (f"{'9' * 5000} running", "expected a number, one of allocated"),
        ("[pending]", "found ['pending'], expected \"allocated on n1\""),
        ("{pending: x, running: y}", 'expected "allocated on n1"'),
    ],
)
def test_a_sentence_that_cannot_be_read_is_named(tmp_path, sentence, message):
    with pytest.raises(InputError) as caught:
        differences(tmp_path, f"expect: {{low: {sentence}}}")
    assert "expect.low: " in str(caught.value)
    assert message in str(caught.value)


@pytest.mark.parametrize("key", ["idle.n1", "shares.a"])
@pytest.mark.parametrize(("number", "found"), [("{gpu: 7}", "{gpu: 7}"), ("all", "'all'"), ("true", "true")])
def test_an_expected_amount_that_is_no_number_is_named(tmp_path, key, number, found):
    group, name = key.split(".")
    with pytest.raises(InputError) as caught:
        differences(tmp_path, f"{group}: {{{name}: {number}}}")
    assert str(caught.value).endswith(f"{key}: found {found}, expected a number of GPUs")
