import pytest

from kai.answers.why.written import bound_evidence, condition_reasons, newest
from kai.api.codec.structuring import structure_as
from kai.api.scheduling.pod_group import PodGroup
from tests.doubles.own_cluster import GANG, OVER_LIMIT, OwnGroup


def group(*reasons, **condition):
    manifest = OwnGroup(name="job", told=[{"reason": "x"}]).manifests()[0]
    written = {**manifest["status"]["schedulingConditions"][0], "reasons": list(reasons), **condition}
    return structure_as(PodGroup, {**manifest, "status": {"schedulingConditions": [written]}})


def told(*reasons, **condition):
    return [(str(words.code), words.text) for words in condition_reasons(group(*reasons, **condition))]


def test_a_written_limit_is_explained_with_its_numbers():
    assert told(OVER_LIMIT) == [
        ("OverLimit", "queue team may not use more than 4 GPUs, and this job would make it 7 GPUs")
    ]
    (words,) = condition_reasons(group(OVER_LIMIT))
    (evidence,) = bound_evidence(words)
    assert (evidence.label, evidence.text) == ("team", "limit 4   used 3   this job 4   over by 3")


def test_a_written_non_preemptible_quota_is_explained_with_numbers():
    details = {
        "name": "team",
        "queueDeservedResources": {"cpu": "2", "nvidia.com/gpu": "-1"},
        "queueAllocatedNonPreemptibleResources": {"cpu": "1"},
        "podGroupRequestedNonPreemptibleResources": {"cpu": "1500m"},
    }
    reason = {"reason": "NonPreemptibleOverQuota", "message": "m", "details": {"queueDetails": details}}
    (words,) = condition_reasons(group(reason))
    assert words.text == "non-preemptible pods of team may use 2 cores, and this job would make it 2.5 cores"
    (evidence,) = bound_evidence(words)
    assert evidence.text == "quota 2000   used 1000   this job 1500   over by 500"


def test_a_limit_without_numbers_keeps_its_written_text():
    written = {key: text for key, text in OVER_LIMIT.items() if key != "details"}
    ((code, text),) = told(written)
    assert code == "OverLimit"
    assert text == OVER_LIMIT["message"]
    assert not list(bound_evidence(condition_reasons(group(written))[0]))


@pytest.mark.parametrize(("placed", "text"), [(0, "none fits"), (1, "only 1 fits"), (3, "only 3 fit")])
def test_a_gang_is_told_by_its_numbers(placed, text):
    message = GANG["message"].replace("for 1 pods while 2", f"for {placed} pods while 4")
    assert told({**GANG, "message": message}) == [("GangDoesNotFit", f"its 4 pods must start together, and {text} now")]


def test_a_written_gang_reason_includes_its_nodes():
    nodes = "were found: 1 node is unschedulable. \n2 node(s) didn't have enough resources: GPUs."
    ((_, text),) = told({**GANG, "message": GANG["message"].replace("were found.", nodes)})
    assert text == "its 2 pods must start together, and only 1 fits now: 1 node is unschedulable, 2 nodes lack GPUs"
    one_by_one = "were found: .\n<n1>: node is unschedulable."
    ((_, text),) = told({**GANG, "message": GANG["message"].replace("were found.", one_by_one)})
    assert text == "its 2 pods must start together, and only 1 fits now"


def test_an_unspecific_reason_keeps_its_written_code_and_text():
    reason = {"reason": "PodSchedulingErrors", "message": "no nodes were found: 1 is full. \n2 are small.."}
    assert told(reason) == [("PodSchedulingErrors", "no nodes were found: 1 is full. 2 are small")]
    assert told({"reason": "RackIsFull", "message": "rack a is full"}) == [("RackIsFull", "rack a is full")]


def test_the_dominant_reason_comes_first():
    assert [code for code, _ in told(GANG, OVER_LIMIT)] == ["OverLimit", "GangDoesNotFit"]


def test_a_condition_without_reasons_is_told_by_its_message():
    assert told(message="it waits.") == [("PodSchedulingErrors", "it waits")]


def test_the_newest_condition_in_effect_counts():
    manifest = OwnGroup(name="job", told=[GANG]).manifests()[0]
    (condition,) = manifest["status"]["schedulingConditions"]
    conditions = [
        {**condition, "nodePool": "a", "transitionID": "10"},
        {**condition, "nodePool": "b", "transitionID": "9"},
        {**condition, "nodePool": "c", "transitionID": "11", "status": "False"},
    ]
    found = newest(structure_as(PodGroup, {**manifest, "status": {"schedulingConditions": conditions}}))
    assert found.node_pool == "a"
    assert newest(structure_as(PodGroup, {**manifest, "status": {}})) is None
