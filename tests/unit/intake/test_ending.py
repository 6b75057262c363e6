"""Pods of a namespace that is being deleted are leaving, before each of them was told."""

import pytest

from kai.facts.model.pod import Status
from kai.intake import Intake
from tests.unit.intake.making import NOW, group, node, objects, other, pod, queue


def space(**metadata):
    return other("Namespace", "v1", "default", metadata=metadata)


ENDS = {"deletionTimestamp": "1970-01-12T13:46:30Z"}
"""Ten seconds before ``NOW``."""
PODS = (pod("runs", group="g", phase="Running", node="n"), pod("waits", group="g"), pod("done", phase="Succeeded"))


def statuses(snapshot):
    return {each.name: Status(int(status)) for each, status in zip(snapshot.pods, snapshot.pod_status, strict=True)}


def take(intake, *made, now=NOW):
    return intake.take(objects(queue("q"), group("g"), node("n"), *made), now)


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [({}, (Status.RUNNING, Status.PENDING)), (ENDS, (Status.RELEASING, Status.RELEASING))],
)
def test_a_pod_leaves_with_its_namespace(metadata, expected):
    found = statuses(take(Intake(), space(**metadata), *PODS))
    assert (found["runs"], found["waits"]) == expected
    assert found["done"] is Status.SUCCEEDED


def test_a_pod_in_an_ending_namespace_holds_its_resources():
    before, after = (take(Intake(), space(**each), *PODS) for each in ({}, ENDS))
    row = [each.name for each in after.pods].index("runs")
    assert after.pod_node[row] == before.pod_node[row] == 0
    assert after.shapes[after.pod_shape[row]].request == before.shapes[before.pod_shape[row]].request


def test_an_overdue_pod_of_an_ending_namespace_is_stuck():
    found = statuses(take(Intake(), space(**ENDS), *PODS, now=NOW + 3600))
    assert found["runs"] is Status.STUCK_IN_RELEASING


def test_nothing_is_taken_anew_while_a_namespace_ends():
    intake = Intake()
    whole = objects(queue("q"), group("g"), node("n"), space(**ENDS), *PODS)
    assert intake.take(whole, NOW).pods is intake.take(whole, NOW + 1).pods


def test_a_recreated_namespace_has_running_pods_again():
    intake = Intake()
    take(intake, space(**ENDS), *PODS)
    assert statuses(take(intake, space(), *PODS))["runs"] is Status.RUNNING
