import attrs
import numpy as np
import pytest

from kai.framework import NodeScore
from kai.testing import node_row, only, opened, pod_row, session_view, snapshot

NODES = {"n1": {"gpu": 4, "labels": {"rack": "a"}}, "n2": {"gpu": 4, "labels": {"rack": "b"}}}
GROUPS = {"g": {"members": 3, "each": {"gpu": 1}, "runs_on": ["n2"]}}


@attrs.frozen
class Sample:
    def open(self, session):
        column = session.track(np.zeros(1, np.int64))
        return [NodeScore(lambda _, nodes: nodes.astype(np.float64) + column.values[0])]


def test_a_view_answers_what_plugins_ask():
    view = session_view(NODES, GROUPS)
    pod = pod_row(view, "g-0")
    assert view.label_codes("rack").tolist() == [1, 2]
    assert view.nodes_of(view.group_of(pod)).tolist() == [node_row(view, "n2")]
    assert view.queue_of(view.group_of(pod)) >= 0


def test_pods_are_found_by_name_with_or_without_namespace():
    view = session_view(NODES, GROUPS)
    assert pod_row(view, "default/g-1") == pod_row(view, "g-1") == 1
    with pytest.raises(KeyError):
        pod_row(view, "nobody")
    with pytest.raises(KeyError):
        node_row(view, "nowhere")


def test_a_tracking_plugin_opens_with_the_session():
    session, extensions = opened(Sample(), snapshot(NODES, GROUPS))
    assert only(NodeScore, extensions).score(pod_row(session.view, "g-0"), session.view.nodes).tolist() == [0.0, 1.0]
    view = session_view(NODES, GROUPS, plugins=(Sample(),))
    assert view.nodes.tolist() == [0, 1]
