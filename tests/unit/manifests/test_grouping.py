"""One pod of a Job that was never applied is grouped for all that differ from it in name and UID alone."""

from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api import names
from kai.manifests import grouping
from kai.manifests.expansion import expand
from kai.manifests.grouping import Grouping

NAME = st.sampled_from("ab")
QUEUE = st.sampled_from(({}, {names.QUEUE: "q"}))
JOBS = st.fixed_dictionaries(
    {
        "name": NAME,
        "labels": QUEUE,
        "annotations": st.sampled_from(({}, {names.MIN_MEMBER: "2"}, {names.MIN_MEMBER: "none"})),
        "template": QUEUE,
        "pods": st.integers(1, 3),
        "mode": st.sampled_from(("NonIndexed", "Indexed")),
        "uid": st.sampled_from(("", "u")),
        "owners": st.sampled_from(((), ("RayJob",))),
    }
)


def job(name="a", labels=(), annotations=(), template=(), pods=3, mode="NonIndexed", uid="", owners=()):
    metadata = {"name": name, "namespace": "n", "labels": dict(labels), "annotations": dict(annotations)}
    if uid:
        metadata["uid"] = uid
    if owners:
        above = {"apiVersion": "ray.io/v1", "kind": owners[0], "name": "r", "uid": "r"}
        metadata["ownerReferences"] = [above]
    pod = {"schedulerName": names.SCHEDULER_NAME, "containers": [{"name": "main"}]}
    spec = {
        "parallelism": pods,
        "completions": pods,
        "completionMode": mode,
        "template": {"metadata": {"labels": dict(template)}, "spec": pod},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def group_of_earlier_release(uid):
    metadata = {"name": f"pg-a-0-{uid}", "namespace": "n"}
    return {"apiVersion": names.POD_GROUP_VERSION, "kind": "PodGroup", "metadata": metadata, "spec": {"queue": "q"}}


def looked_at(*manifests):
    """Return how many pods the pod grouper decided on, and the expansion."""
    with mock.patch.object(grouping, "group_pod", wraps=grouping.group_pod) as decided:
        expansion = expand(manifests)
    return decided.call_count, expansion


@given(st.lists(JOBS, min_size=1, max_size=3), st.booleans())
def test_pods_are_grouped_as_if_each_were_decided_on(drawn, has_earlier):
    manifests = [job(**each) for each in drawn] + [group_of_earlier_release("u")] * has_earlier
    with mock.patch.object(Grouping, "_is_of_new_job", return_value=False):
        one_by_one = expand(manifests)
    assert expand(manifests) == one_by_one


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        pytest.param(job(), 1, id="alike"),
        pytest.param(job(mode="Indexed"), 3, id="pods that have numbers"),
        pytest.param(job(uid="u"), 3, id="a Job that was applied, which may have groups of earlier releases"),
        pytest.param(job(owners=("RayJob",)), 3, id="another grouper may decide about a Job with an owner"),
    ],
)
def test_only_like_pods_of_new_jobs_share_a_decision(manifest, expected):
    asked, expansion = looked_at(manifest)
    assert asked == expected
    assert len([each for each in expansion.manifests if each["kind"] == "Pod"]) == 3


def test_pods_of_another_job_are_decided_on_anew():
    asked, expansion = looked_at(job("a"), job("b"))
    assert asked == 2
    assert len(expansion.jobs) == 2
