import pytest

from kai.deciding.engine.rules import RULE, unusable_requests
from kai.plugins.order import Priority
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of

UNUSABLE = [{"gpu-fraction": text} for text in ("nan", "1.5", " 0.5", "٣", "-0.5", "abc", "0", "0.004")]
UNUSABLE += [{"gpu-memory": "-5"}, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "none"}]


def asking(name, on="", **annotations):
    metadata = {"annotations": {"pod-group-name": name.rpartition("-")[0], **annotations}}
    return pod(name, on, metadata=metadata)


@pytest.mark.parametrize("annotations", UNUSABLE)
def test_a_pod_with_an_unusable_request_is_not_placed(annotations):
    host = node("n1", allocatable={"nvidia.com/gpu": "4"})
    played = play(Priority(), snapshot_of(host, asking("a-0", **annotations), asking("b-0", **{"gpu-fraction": "0.5"})))
    assert played.bound == {"b-0": "n1"}
    group = next(row for row, each in enumerate(played.session.snapshot.groups) if each.name == "a")
    (refusal,) = played.session.records[group].reasons[0].facts["refusals"]
    assert refusal.facts["rule"] == RULE
    assert "expected a" in refusal.facts["text"]


def test_nobody_pays_where_every_request_makes_sense():
    stage = Stage.of(Priority(), snapshot_of(node("n1"), pod("a-0")))
    assert unusable_requests(stage.session.view) == []
    assert len(stage.session.policy.plugins) == 1
