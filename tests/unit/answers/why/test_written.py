"""Conditions that a group and its pods carry already, beside the answer."""

from kai.answers.why.written import written
from kai.api.kubernetes.meta import Condition
from kai.api.kubernetes.pod import Pod, PodStatus
from kai.api.scheduling.pod_group import PodGroup, PodGroupStatus, SchedulingCondition

WAITS = "example.com/Approved False, Waits: it is not approved yet"


def group(message, **more):
    told = SchedulingCondition(message=message, status="True", last_transition_time=1_000_000.0, **more)
    return PodGroup(status=PodGroupStatus(scheduling_conditions=(told,)))


def pod(*conditions):
    return Pod(status=PodStatus(conditions=conditions))


def lines(source, *pods):
    return [(each.label, each.text) for each in written(source, pods)]


def test_the_groups_last_condition_fits_one_line_with_time():
    message = "Unable to schedule podgroup: no room. \n3 node(s) didn't have enough resources: GPUs."
    found = lines(group(message, node_pool="blue"))
    text = "Unable to schedule podgroup: no room. 3 node(s) didn't have enough resources: GPUs."
    assert found == [("condition", f"{text} (node pool blue, written at 1970-01-12T13:46:40Z)")]


def test_a_long_message_is_cut():
    ((_, text),) = lines(group("x" * 1000))
    assert text == f"{'x' * 159}… (written at 1970-01-12T13:46:40Z)"


def test_pods_add_only_new_conditions_and_equal_ones_once():
    repeats = Condition(type="PodScheduled", status="False", reason="Unschedulable", message="no room.")
    bound = Condition(type="PodScheduled", status="True")
    ready = Condition(type="Ready", status="False", reason="ContainersNotReady")
    hook = Condition(type="example.com/Approved", status="False", reason="Waits", message="it is not approved yet")
    found = lines(group("Unable: not now."), pod(repeats, ready), pod(hook), pod(hook, bound))
    assert found[1:] == [("on 1 pod", "PodScheduled False, Unschedulable: no room."), ("on 2 pods", WAITS)]
    assert lines(group("Unable: no room."), pod(repeats))[1:] == []


def test_without_conditions_nothing_is_told():
    assert lines(PodGroup(), pod()) == []
