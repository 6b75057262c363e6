"""When a pod group ends at the latest, and who says so."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.conventions.runtime_limits import LONGEST, Force, Policy, bound, ended_at, owner_deadline
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue

LIMIT = "kai.scheduler/max-runtime"


def group(labels=None, status=None, **annotations):
    keys = {key.replace("_", "-"): value for key, value in annotations.items()}
    metadata = {
        "name": "g",
        "namespace": "ns",
        "labels": labels or {},
        "annotations": {f"kai.scheduler/{key}": value for key, value in keys.items()},
        "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}],
    }
    return structure_as(PodGroup, {"metadata": metadata, "status": status or {}})


def queue(name, **spec):
    return structure_as(Queue, {"metadata": {"name": name}, "spec": spec})


def told(found):
    return [(each.seconds, each.source) for each in found.limits]


def test_a_group_without_any_field_has_no_limit():
    found = bound(group(), (queue("leaf"), queue("top")))
    assert (found.limits, found.least, found.end(100.0), found.faults) == ((), None, None, ())


def test_the_least_of_all_limits_counts():
    each = group(
        {"kueue.x-k8s.io/max-exec-time-seconds": "50"},
        max_runtime="90s",
        owner_deadline="1m10s spec.activeDeadlineSeconds",
    )
    found = bound(each, (queue("leaf", maxRuntime="80s"),))
    assert told(found) == [
        (50.0, "label kueue.x-k8s.io/max-exec-time-seconds"),
        (70.0, "Job train: spec.activeDeadlineSeconds"),
        (80.0, "queue leaf: spec.maxRuntime"),
        (90.0, "annotation kai.scheduler/max-runtime"),
    ]
    assert found.of(Force.KAI).source == "queue leaf: spec.maxRuntime"
    assert found.end(1000.0).at == 1050.0


def test_a_queue_below_can_only_shorten_the_limit():
    chain = (queue("leaf", maxRuntime="2h"), queue("middle"), queue("top", maxRuntime="1h"))
    assert bound(group(), chain).least.source == "queue top: spec.maxRuntime"


def test_the_nearest_default_counts():
    chain = (queue("leaf"), queue("middle", defaultRuntime="2h"), queue("top", defaultRuntime="1h"))
    assert told(bound(group(), chain)) == [(7200.0, "queue middle: spec.defaultRuntime")]


@pytest.mark.parametrize(
    "stated", [{"max_runtime": "3h"}, {"owner_deadline": "3h0m0s spec.activeDeadlineSeconds"}], ids=["kai's", "owner's"]
)
def test_a_default_does_not_count_beside_a_stated_limit(stated):
    assert bound(group(**stated), (queue("leaf", defaultRuntime="1h"),)).least.seconds == 10800.0


@pytest.mark.parametrize("text", ["", "0s", "-5m", "soon", "5", "2000000h"])
def test_an_invalid_limit_is_ignored_and_reported(text):
    found = bound(group(max_runtime=text), ())
    assert found.limits == ()
    assert "expected a duration above 0" in str(found.faults[0])


def test_an_unknown_policy_counts_as_fail():
    found = bound(group(max_runtime="1h", runtime_policy="explode"), ())
    assert found.policy is Policy.FAIL
    assert 'found "explode", expected one of fail, requeue, yield' in str(found.faults[0])


def test_a_yielding_group_does_not_end_at_its_limit():
    found = bound(group(max_runtime="1h", runtime_policy="yield"), ())
    assert (found.least, found.end(0.0), found.of(Force.NOTHING).seconds) == (None, None, 3600.0)


def test_a_group_cannot_yield_at_its_queues_maximum():
    found = bound(group(max_runtime="1h", runtime_policy="yield"), (queue("leaf", maxRuntime="2h"),))
    assert found.least.source == "queue leaf: spec.maxRuntime"


def test_the_expected_run_time_ends_nothing():
    found = bound(group(expected_runtime="1h"), ())
    assert (found.expected, found.end(0.0)) == (3600.0, None)


def test_earlier_runs_count_against_kais_limit_only():
    each = group(max_runtime="100s", owner_deadline="80s spec.activeDeadlineSeconds")
    found = bound(each, ())
    assert [(end.at, end.limit.force) for end in (found.end(0.0), found.end(0.0, 50.0))] == [
        (80.0, Force.OWNER),
        (50.0, Force.KAI),
    ]


@given(st.floats(0, LONGEST), st.floats(0, LONGEST), st.integers(1, 10**9))
def test_earlier_runs_only_bring_the_end_closer(since, consumed, limit):
    found = bound(group(max_runtime=f"{limit}s"), ())
    assert since <= found.end(since, consumed).at <= found.end(since).at


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6))
def test_the_least_queue_maximum_up_the_chain_holds(limits):
    chain = [queue(f"q{row}", maxRuntime=f"{each}s") for row, each in enumerate(limits)]
    assert bound(group(), chain).least.seconds == min(limits)


JOBS = {
    "a Job": ({"kind": "Job", "spec": {"activeDeadlineSeconds": 60}}, "1m0s spec.activeDeadlineSeconds"),
    "a training job": (
        {"kind": "PyTorchJob", "spec": {"runPolicy": {"activeDeadlineSeconds": 90}}},
        "1m30s spec.runPolicy.activeDeadlineSeconds",
    ),
    "a set of Jobs": (
        {
            "kind": "JobSet",
            "spec": {
                "replicatedJobs": [{}, {"template": {"spec": {"activeDeadlineSeconds": 60}}}],
                "failurePolicy": {"maxRestarts": 2},
            },
        },
        "3m0s spec.replicatedJobs[1].template.spec.activeDeadlineSeconds",
    ),
    "Spark, in minutes": (
        {"kind": "SparkApplication", "spec": {"sparkConf": {"spark.driver.timeout": "30"}}},
        '30m0s spec.sparkConf["spark.driver.timeout"]',
    ),
    "Spark, with a unit": (
        {"kind": "SparkApplication", "spec": {"sparkConf": {"spark.driver.timeout": "2h"}}},
        '2h0m0s spec.sparkConf["spark.driver.timeout"]',
    ),
    "Spark without a timeout": ({"kind": "SparkApplication", "spec": {"sparkConf": {"spark.driver.timeout": "0"}}}, ""),
    "no deadline": ({"kind": "Job", "spec": {}}, ""),
    "a deadline of a wrong type": ({"kind": "Job", "spec": {"activeDeadlineSeconds": "60"}}, ""),
    "a truth value": ({"kind": "Job", "spec": {"activeDeadlineSeconds": True}}, ""),
    "a spec of a wrong type": ({"kind": "Job", "spec": []}, ""),
}


@pytest.mark.parametrize(("manifest", "text"), JOBS.values(), ids=JOBS)
def test_the_deadline_of_an_owner_is_found(manifest, text):
    assert owner_deadline(manifest) == text


def test_a_condition_says_that_the_limit_was_reached():
    condition = {"type": "TimeLimit", "status": "True", "lastTransitionTime": "1970-01-01T00:01:00Z"}
    assert ended_at(group(status={"conditions": [condition]})) == 60.0
    assert ended_at(group(status={"conditions": [{**condition, "status": "False"}]})) is None
