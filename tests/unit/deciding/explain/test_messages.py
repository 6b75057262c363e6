import pytest

from kai.deciding.engine.records import GroupRecord
from kai.deciding.explain.code_texts import amount
from kai.deciding.explain.messages import (
    Explanation,
    detailed_group_message,
    explanations,
    group_message,
    histogram_text,
    node_text,
    pod_message,
    reason_text,
)
from kai.facts.kernels import fit
from kai.framework.verdict import Code, Histogram, NodeReason, Reason
from kai.plugins.topology.tree import DOMAIN_TOO_SMALL

GB = 10**9
SHORT_OF_GPUS = NodeReason(code=fit.SHORT_OF + 2, subject="gpu")
NO_ROOM = Histogram(counts=((13, SHORT_OF_GPUS),), nodes=13)
NO_NODES = "no nodes with enough resources were found: 13 node(s) didn't have enough resources: GPUs."


def no_node(**facts):
    return Reason(code=Code.NO_NODE, facts={"pod": "ns/p-0", "histogram": NO_ROOM, **facts})


@pytest.mark.parametrize(
    ("resource", "numbers", "text"),
    [
        (
            "gpu",
            (40000, 28000, 24000),
            "GPUs. Limit is 40 GPUs, currently 28 GPUs allocated and workload requested 24 GPUs",
        ),
        (
            "cpu",
            (4000, 2500, 2000),
            "CPU cores. Limit is 4 cores, currently 2.5 cores allocated and workload requested 2 cores",
        ),
        (
            "memory",
            (10 * GB, 0, 11 * GB),
            "memory. Limit is 10 GB, currently 0 GB allocated and workload requested 11 GB",
        ),
    ],
)
def test_a_limit_is_told_with_its_numbers(resource, numbers, text):
    bound, used, requested = numbers
    facts = {"queue": "vision", "resource": resource, "bound": bound, "used": used, "requested": requested}
    told = reason_text(Reason(code=Code.OVER_LIMIT, facts=facts))
    assert told == f"vision quota has reached the allowable limit of {text}"


@pytest.mark.parametrize(
    ("resource", "numbers", "text"),
    [
        ("gpu", (0, 0, 250), "requested 0.25 GPUs, but a quota is 0 GPUs, while 0 GPUs are"),
        ("cpu", (2000, 1000, 1500), "requested 1.5 CPU cores, but a quota is 2 cores, while 1 cores are"),
        ("memory", (GB, 0, 2 * GB), "requested 2 GB memory, but a quota is 1 GB, while 0 GB are"),
    ],
)
def test_an_exceeded_non_preemptible_quota_shows_its_numbers(resource, numbers, text):
    bound, used, requested = numbers
    facts = {"queue": "a", "resource": resource, "bound": bound, "used": used, "requested": requested}
    assert reason_text(Reason(code=Code.OVER_QUOTA, facts=facts)) == (
        f"Non-preemptible workload is over quota. Workload {text} already allocated for non-preemptible pods. "
        "Use a preemptible workload to go over quota."
    )


@pytest.mark.parametrize(
    ("number", "resource", "text"),
    [
        (-1, "gpu", "Unlimited"),
        (333, "gpu", "0.333"),
        (1999.9, "cpu", "1.999"),  # cut off, not rounded
        (1_234_567_890, "memory", "1.234"),
        (1000, "cpu", "1"),
    ],
)
def test_amounts_have_at_most_three_decimals(number, resource, text):
    assert amount(number, resource) == text


def test_a_single_pod_is_named_in_its_reason():
    assert reason_text(no_node(gang=False)) == f"Resources were not found for pod ns/p-0 due to: {NO_NODES}"


def test_a_pod_beyond_its_gangs_minimum_is_named():
    assert reason_text(no_node(gang=True, satisfied=True)).startswith("Resources were not found for pod ns/p-0")


def test_a_gang_is_told_how_far_it_came():
    told = reason_text(no_node(gang=True, satisfied=False, single_leaf=True, placed=3, minimum=20))
    assert told == (
        "Resources were found for 3 pods while 20 are required for gang scheduling. "
        f"Additional pods cannot be scheduled due to: {NO_NODES}"
    )


def test_a_subgroup_reports_how_many_pods_found_resources():
    told = reason_text(no_node(gang=True, satisfied=False, single_leaf=False, placed=3, minimum=2, subgroup="workers"))
    assert told == (
        "Resources were found for 3 pods from all sub-groups while sub-group workers requires 2 pods for gang "
        f"scheduling. Additional pods cannot be scheduled in this sub-group due to: {NO_NODES}"
    )


@pytest.mark.parametrize(
    ("facts", "tail"),
    [
        ({"where": "the cluster"}, ": not enough resources in the cluster to allocate the job"),
        ({"where": "z1", "subgroup": "default"}, ": not enough resources in z1 to allocate the job"),
        ({"where": "z1", "subgroup": "w"}, ", subgroup w: not enough resources in z1 to allocate the job"),
        ({"where": "any domain"}, ""),
        ({}, ""),
    ],
)
def test_a_topology_is_told_with_what_it_lacks(facts, tail):
    known = {"topology": "lab", "requirement": "rack", "group": "ns/job", **facts}
    told = reason_text(Reason(code=DOMAIN_TOO_SMALL, facts=known))
    assert told == f"topology lab, requirement rack couldn't be satisfied for job <ns/job>{tail}"


def test_a_topology_that_does_not_exist_is_told():
    facts = {"topology": "lab", "missing": "topology"}
    assert reason_text(Reason(code=DOMAIN_TOO_SMALL, facts=facts)) == "Requested topology lab does not exist"


def test_a_level_that_does_not_exist_is_told():
    facts = {"topology": "lab", "missing": "level", "level": "row"}
    assert reason_text(Reason(code=DOMAIN_TOO_SMALL, facts=facts)) == (
        "topology constraint error: workload specified 'row' as the required topology constraint level, "
        "but the topology tree 'lab' does not contain a level with this name"
    )


def test_a_preemption_delay_is_told_with_its_end():
    reason = Reason(code=Code.PREEMPTION_DELAY, facts={"seconds": 5400.0, "until": 1767268800.0})
    assert reason_text(reason) == (
        "Workload is within its preemption delay window (1h30m0s) "
        "and may not trigger evictions before 2026-01-01T12:00:00Z"
    )


def test_other_reasons_have_their_sentence():
    assert reason_text(Reason(code=Code.QUEUE_MISSING, facts={"queue": "q"})) == "Queue 'q' does not exist"
    unknown = Reason(code=Code.UNKNOWN_SUBGROUP, facts={"subgroup": "s", "group": "ns/g"})
    assert reason_text(unknown) == 'Pod references subgroup "s", which does not exist in PodGroup ns/g'
    missing = Reason(code=Code.NOT_READY, facts={"missing": (("default", 4, 2, 1),)})
    assert reason_text(missing) == (
        "Job is not ready for scheduling. Waiting for 4 pods, currently 2 exist, 1 are gated"
    )
    parts = Reason(code=Code.NOT_READY, facts={"missing": (("w", 4, 2, 0), ("l", 1, 0, 0))})
    assert reason_text(parts) == (
        "Job is not ready for scheduling. Waiting for 4 pods for SubGroup w, currently 2 exist, 0 are gated."
        " Waiting for 1 pods for SubGroup l, currently 0 exist, 0 are gated."
    )
    assert reason_text(Reason(code=Code.PLUGIN, facts={"text": "no"})) == "no"


@pytest.mark.parametrize(
    ("reason", "text"),
    [
        (SHORT_OF_GPUS, "node(s) didn't have enough resources: GPUs"),
        (NodeReason(code=fit.SHORT_OF, subject="cpu"), "node(s) didn't have enough resources: CPU cores"),
        (NodeReason(code=fit.SHORT_OF + 1, subject="memory"), "node(s) didn't have enough resources: memory"),
        (NodeReason(code=fit.SHORT_OF + 2, subject="gpu-memory"), "node(s) didn't have enough resources: GPU memory"),
        (
            NodeReason(code=fit.SHORT_OF + 4, subject="example.com/x"),
            "node(s) didn't have enough resources: example.com/x",
        ),
        (
            NodeReason(code=fit.SHORT_OF + 4, subject="nvidia.com/mig-1g.5gb"),
            "node(s) didn't have enough of mig profile: nvidia.com/mig-1g.5gb",
        ),
        (NodeReason(code=fit.REFUSED_PODS), "node(s) pod number exceeded"),
        (NodeReason(code=fit.REFUSED_NOT_READY, subject="unschedulable"), "node is unschedulable"),
        (NodeReason(code=fit.REFUSED_NOT_READY, subject="deleting"), "node is being deleted"),
        (NodeReason(code=fit.REFUSED_NOT_READY, subject="Ready"), "node has NotReady condition"),
        (NodeReason(code=fit.REFUSED_NOT_READY, subject="DiskPressure"), "node has DiskPressure condition"),
        (NodeReason(code=fit.REFUSED_NOT_MIG), "MIG job cannot be scheduled on non-MIG node"),
        (NodeReason(code=fit.REFUSED_HOOK, text="said by a plugin"), "said by a plugin"),
    ],
)
def test_a_node_says_why_not(reason, text):
    assert node_text(reason) == text


def test_objections_are_sorted_as_text_with_their_counts():
    taint = NodeReason(code=fit.REFUSED_HOOK, text="node(s) had untolerated taint {a: b}")
    told = histogram_text(Histogram(counts=((12, SHORT_OF_GPUS), (2, taint)), nodes=14))
    assert told == (
        "no nodes with enough resources were found: 12 node(s) didn't have enough resources: GPUs. \n"
        "2 node(s) had untolerated taint {a: b}."
    )
    assert histogram_text(Histogram()) == "no nodes with enough resources were found"


def test_a_group_with_one_reason_begins_with_it():
    assert (
        group_message([no_node()])
        == f"PodSchedulingErrors: Resources were not found for pod ns/p-0 due to: {NO_NODES}."
    )


def test_a_group_with_several_reasons_counts_equal_ones():
    missing = Reason(code=Code.QUEUE_MISSING, facts={"queue": "q"})
    told = group_message([missing, missing, no_node()])
    assert told == (
        "Unable to schedule podgroup: 2 Queue 'q' does not exist. \n"
        f"Resources were not found for pod ns/p-0 due to: {NO_NODES}."
    )
    assert group_message([]) == "Unable to schedule podgroup"


def test_a_condition_lists_each_reason():
    assert explanations([no_node()]) == (
        Explanation("PodSchedulingErrors", f"Resources were not found for pod ns/p-0 due to: {NO_NODES}"),
    )


def test_a_pod_shows_its_own_reason_or_its_groups():
    record = GroupRecord(reasons=[no_node()], pods={3: no_node()})
    assert pod_message(record, 3) == NO_NODES
    assert pod_message(record, 4) == group_message([no_node()])
    assert pod_message(None, 4) == "Unable to schedule pod"


@pytest.mark.parametrize(
    "held_back",
    [
        Reason(code=Code.EVICTIONS_CAPPED, facts={"cap": "evicted_gpus_per_cycle", "most": 1.0, "found": 2.0}),
        Reason(code=Code.VICTIMS_PROTECTED, facts={"groups": 2}),
    ],
    ids=lambda reason: reason.code.name,
)
def test_a_pod_held_back_from_evicting_shows_its_groups(held_back):
    record = GroupRecord(reasons=[no_node(), held_back], pods={3: no_node()})
    assert reason_text(held_back) in pod_message(record, 3)
    assert pod_message(record, 3) == pod_message(record, 4) == group_message(record.reasons)
    assert pod_message(record, 3, detailed=True) == detailed_group_message(record.reasons)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (
            {"cap": "evicted_gpus_per_cycle", "most": 1.0, "found": 2.0},
            "2 GPUs would be evicted in a cycle, and at most 1 may be",
        ),
        (
            {"cap": "queue_evicted_gpus_per_hour", "most": 4.0, "found": 6.0, "before": 4.0},
            "6 GPUs would be evicted from one queue in an hour, 4 of them before this job, and at most 4 may be",
        ),
        (
            {"cap": "evicted_gpus_per_hour", "most": 0.5, "found": 1.0, "part": True},
            "at least 1 GPU would be evicted in an hour, and at most 0.5 may be",
        ),
        (
            {"cap": "evicted_gpus_per_gpu", "most": 0.0, "found": 2.0},
            "2 GPUs would be evicted for a job that gains none",
        ),
    ],
    ids=["cycle", "hour", "part", "gains none"],
)
def test_a_cap_shows_the_evictions_its_value_and_setting(facts, text):
    told = reason_text(Reason(code=Code.EVICTIONS_CAPPED, facts=facts))
    setting = f"parameters.{facts['cap']} in the configuration of the scheduler"
    assert told == f"No room could be made within a cap: {text} ({setting})"


def test_a_refusal_on_every_node_is_the_whole_message():
    refusals = (Reason(code=Code.POD_REFUSED, facts={"rule": "VolumeBinding", "text": "claim c not found"}),)
    record = GroupRecord(pods={0: Reason(code=Code.NO_NODE, facts={"pod": "ns/p-0", "refusals": refusals})})
    assert pod_message(record, 0) == (
        "Scheduling conditions were not met for pod ns/p-0:\nVolumeBinding: claim c not found.\n"
    )
