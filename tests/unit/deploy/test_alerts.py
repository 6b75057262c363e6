"""What the alert of a missing leader says of drawn samples, a scrape a minute."""

import pytest

from tests.unit.deploy.promql import series, value
from tests.unit.deploy.rendering import DEPLOY, of_kind, render

(RULE,) = of_kind(render(DEPLOY / "components" / "monitoring"), "PrometheusRule")
EXPRESSION = {each["alert"]: each["expr"] for group in RULE["spec"]["groups"] for each in group["rules"]}
A0, A1, B0, B1 = (f'kai_is_leader{{nodepool="{pool}",pod="{pool}-{pod}"}}' for pool in "ab" for pod in "01")


def told(at, **drawn):
    """Return the node pools of which the alert says that no replica decides; "" is all of them."""
    names = {"a0": A0, "a1": A1, "b0": B0, "b1": B1, "shadow": 'kai_shadow_writes_under_way{pod="shadow"}'}
    found = value(EXPRESSION["KaiNobodyDecides"], series({names[name]: text for name, text in drawn.items()}), at)
    return sorted(dict(labels).get("nodepool", "") for labels in found)


@pytest.mark.parametrize(
    ("drawn", "pools"),
    [
        pytest.param({"a0": "1", "a1": "0", "b0": "0", "b1": "1"}, [], id="each has a leader"),
        pytest.param({"a0": "1", "a1": "0", "b0": "0", "b1": "0"}, ["b"], id="one has none while another has"),
        pytest.param({"a0": "0", "b0": "0"}, ["a", "b"], id="none has"),
        pytest.param({}, [""], id="kai does not run"),
        pytest.param({"shadow": "0"}, [""], id="a shadow alone hides nothing"),
        pytest.param({"a0": "0", "shadow": "0"}, ["a"], id="a shadow beside it hides nothing"),
        pytest.param({"a0": "1", "shadow": "0"}, [], id="a shadow beside it raises nothing"),
    ],
)
def test_each_node_pool_needs_a_leader(drawn, pools):
    assert told(0, **drawn) == pools


def test_a_node_pool_whose_replicas_are_all_gone_is_told_for_a_day():
    drawn = {"a0": "1x3000", "b0": "1x9 _x3000", "b1": "0x9 _x3000"}
    assert told(9, **drawn) == []
    assert told(10, **drawn) == ["b"]
    assert told(9 + 1439, **drawn) == ["b"]
    assert told(9 + 1440, **drawn) == []


def test_when_all_replicas_of_all_are_gone_each_node_pool_is_told_and_none_twice():
    drawn = {"a0": "1x9 _x3000", "b0": "1x9 _x3000"}
    assert told(10, **drawn) == ["a", "b"]
    assert told(2000, **drawn) == [""]


def test_a_leader_that_hands_over_between_two_scrapes_leaves_no_gap():
    assert told(1, a0="1 0", a1="0 1") == []
