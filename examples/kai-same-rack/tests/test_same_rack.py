from kai.framework import NodeScore
from kai.testing import check_plugin, only, pod_row, session_view

from kai_same_rack import SameRack

RACKS = {
    "n1": {"gpu": 2, "labels": {"topology.kubernetes.io/rack": "a"}},
    "n2": {"gpu": 2, "labels": {"topology.kubernetes.io/rack": "b"}},
    "n3": {"gpu": 2, "labels": {"topology.kubernetes.io/rack": "b"}},
    "n4": {"gpu": 2},
}


def test_a_rack_counts_each_pod_of_the_group():
    view = session_view(RACKS, {"train": {"members": 3, "each": {"gpu": 1}, "runs_on": ["n2", "n3"]}})
    score = only(NodeScore, SameRack(weight=3.0).open(view)).score
    assert score(pod_row(view, "train-2"), view.nodes).tolist() == [0.0, 6.0, 6.0, 0.0]


def test_it_keeps_the_laws():
    check_plugin(SameRack, weight=2.0)
