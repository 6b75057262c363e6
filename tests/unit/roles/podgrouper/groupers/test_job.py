import pytest

from kai.roles.podgrouper import Settings
from tests.unit.roles.podgrouper.workloads import failure_of, group_of, pod_group, pod_of, spec_of, thing

MIN_MEMBER = "kai.scheduler/batch-min-member"


def job(**annotations):
    return thing("batch/v1", "Job", annotations=annotations, spec={"parallelism": 4})


def test_pods_of_a_job_share_a_group_without_gang():
    one = group_of(pod_of(job(), name="a"), job())
    other = group_of(pod_of(job(), name="b"), job())
    assert one["metadata"]["name"] == other["metadata"]["name"] == "pg-work-work-uid"
    assert one["spec"]["minMember"] == 1


@pytest.mark.parametrize(("text", "minimum"), [("3", 3), ("0", 0)])
def test_an_annotation_makes_it_a_gang(text, minimum):
    gang = job(**{MIN_MEMBER: text})
    assert spec_of(pod_of(gang), gang)["minMember"] == minimum


@pytest.mark.parametrize(
    ("completions", "status", "minimum"),
    [
        (4, {}, 3),
        (4, {"succeeded": 1}, 3),
        (4, {"succeeded": 2}, 2),
        (9, {"succeeded": 2}, 3),
        (4, {"succeeded": 1, "failedIndexes": "0,2-3"}, 1),
        (4, {"succeeded": 4}, 1),
        (2, {}, 2),
        (None, {"succeeded": 2}, 3),
    ],
)
def test_a_gangs_minimum_is_at_most_the_remaining_completions(completions, status, minimum):
    gang = job(**{MIN_MEMBER: "3"})
    gang["spec"]["completions"], gang["status"] = completions, status
    assert spec_of(pod_of(gang), gang)["minMember"] == minimum


@pytest.mark.parametrize("text", ["three", "-1", "", "99999999999"])
def test_an_unusable_annotation_is_refused(text):
    gang = job(**{MIN_MEMBER: text})
    assert f'Job "ns/work": metadata.annotations["{MIN_MEMBER}"]' in failure_of(pod_of(gang), gang)


def test_a_pod_stays_in_its_group_of_earlier_releases():
    gang = job(**{MIN_MEMBER: "3"})
    old = pod_group("pg-pod-0-work-uid")
    group = group_of(pod_of(gang), gang, old)
    assert group["metadata"]["name"] == "pg-pod-0-work-uid"
    assert group["spec"]["minMember"] == 1
    without = Settings(legacy_groups=False)
    assert group_of(pod_of(gang), gang, old, settings=without)["metadata"]["name"] == "pg-work-work-uid"
