"""Each rule of matching once; and the scheduler and the binder agree on it."""

import pytest

from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.node import Node, NodeSpec
from kai.api.kubernetes.node import Taint as WireTaint
from kai.api.kubernetes.node import Toleration as WireToleration
from kai.api.kubernetes.pod import Pod, PodSpec
from kai.facts.model import pod as model
from kai.facts.model.constraints import Requirement, Selector, Taint, Toleration, compares, holds, tolerates
from kai.plugins.node_filters import Tainted
from kai.roles.binder.claims import untolerated

LABELS = {"zone": "a", "slots": "8"}


@pytest.mark.parametrize(
    ("key", "operator", "values", "expected"),
    [
        ("zone", "In", ("a", "b"), True),
        ("zone", "In", ("b",), False),
        ("rack", "In", ("b",), False),
        ("zone", "NotIn", ("a",), False),
        ("rack", "NotIn", ("a",), True),
        ("zone", "Exists", (), True),
        ("rack", "Exists", (), False),
        ("rack", "DoesNotExist", (), True),
        ("zone", "DoesNotExist", (), False),
        ("slots", "Gt", ("7",), True),
        ("slots", "Gt", ("8",), False),
        ("slots", "Lt", ("9",), True),
        ("rack", "Lt", ("9",), False),
        ("zone", "Like", ("a",), False),
    ],
)
def test_a_requirement_holds_as_kubernetes_says(key, operator, values, expected):
    requirement = Requirement(key, operator, values)
    assert holds(requirement, LABELS) is expected
    assert requirement.matches(LABELS) is expected
    assert Selector((requirement,)).matches(LABELS) is expected


@pytest.mark.parametrize("text", ["", " 9", "9 ", "٩", "1_0", "0x9", "9.0", str(2**63), "9" * 5000])
def test_a_non_go_integer_compares_with_nothing(text):
    assert not compares(text, "Gt", ("1",))
    assert not compares("1", "Lt", (text,))


def test_a_comparison_has_one_bound():
    assert not compares("9", "Gt", ())
    assert not compares("9", "Gt", ("1", "2"))


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (("", "Exists", "", ""), True),
        (("k", "Exists", "", "NoSchedule"), True),
        (("k", "Equal", "5", ""), True),
        (("k", "", "5", ""), True),
        (("k", "Equal", "6", ""), False),
        (("x", "Exists", "", ""), False),
        (("k", "Exists", "", "NoExecute"), False),
        (("k", "Gt", "4", ""), True),
        (("k", "Gt", "5", ""), False),
        (("k", "Lt", "6", ""), True),
        (("k", "Lt", "many", ""), False),
        (("k", "Matches", "5", ""), False),
    ],
)
def test_scheduler_and_binder_agree_on_each_toleration(toleration, expected):
    key, operator, value, effect = toleration
    taint = Taint("k", "5", "NoSchedule")
    assert tolerates(Toleration(*toleration), taint) is expected
    assert bool(Tainted([model.Node(name="n", taints=(taint,))]).covered(Toleration(*toleration))) is expected
    pod = Pod(
        metadata=ObjectMeta(name="p"),
        spec=PodSpec(tolerations=(WireToleration(key=key, operator=operator, value=value, effect=effect),)),
    )
    node = Node(
        metadata=ObjectMeta(name="n"),
        spec=NodeSpec(taints=(WireTaint(key="k", value="5", effect="NoSchedule"),)),
    )
    assert (untolerated(pod, node) is None) is expected
