"""Parts of a GPU that no GPU can give, on a real API server: the pod is told why in plain words, and never bound.

Neither the webhooks nor the policies that would refuse such a pod are installed, so what is seen is what the
scheduler itself says.
"""

import pytest

from tests.integration.behaviour import Job
from tests.integration.client import until
from tests.integration.installation import install
from tests.integration.stage import BIND_REQUEST, POD_GROUP, an_object, node, queue, scene, staged
from tests.unit.deploy.rendering import DEPLOY

POLICIES = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
RESERVED = "kai-resource-reservation"
UNUSABLE = {"number": "nan", "large": "1.5", "space": " 0.5", "negative": "-0.5"}


@pytest.fixture(scope="module")
def cluster(bare_control_plane, tmp_path_factory):
    install(bare_control_plane, DEPLOY, but=POLICIES)
    with staged(bare_control_plane, tmp_path_factory.mktemp("fractions")) as stage:
        stage.start("kai")
        yield stage


@pytest.fixture
def stage(cluster):
    with scene(cluster) as opened:
        for manifest in (node("n1", gpu=4), queue("top"), queue("team", "top")):
            opened.create(manifest)
        yield opened


def submit(stage, name, **text):
    for manifest in Job.read(name, {"bare": True, "queue": "team", **text}).manifests():
        stage.create(manifest)
    return f"{name}-0"


def condition(stage, pod):
    """Return why a pod is not scheduled, once it is told."""
    return until(lambda: (stage.condition(pod) or {}).get("message"), f"a condition of {pod}")


def test_an_impossible_fraction_is_reported_and_never_bound(stage):
    pods = {submit(stage, name, fraction=text): text for name, text in UNUSABLE.items()}
    for pod, text in pods.items():
        message = condition(stage, pod)
        assert "gpu-fraction" in message, message
        assert text in message, message
        told = until(lambda pod=pod: stage.events(pod), f"an event of {pod}")
        assert any("gpu-fraction" in each["message"] and each["type"] == "Warning" for each in told), told
    # One that can be given is bound beside them, and what waits goes on waiting.
    usable = submit(stage, "usable", fraction="0.5")
    until(lambda: stage.pod(usable)["spec"].get("nodeName"), "the usable share to be bound")
    stage.settle()
    assert {each["metadata"]["name"] for each in stage.waiting()} == set(pods)
    requests = {each["metadata"]["name"] for each in stage.api.list(BIND_REQUEST, "BindRequest", stage.space)}
    assert not requests & set(pods)


def test_an_unfitting_share_does_not_delay_a_fitting_one(stage):
    lost = submit(stage, "lost", fraction="0.5", spec={"nodeSelector": {"tests/there": "yes"}})
    until(scaling_pods_of(stage, lost), "a scaling pod of the share that fits nowhere")
    usable = submit(stage, "usable", fraction="0.5")
    until(lambda: stage.pod(usable)["spec"].get("nodeName"), "the share that fits to be bound")
    # The node that it waits for comes, and with it the end of its need.
    stage.change(an_object("v1", "Node", "n1", metadata={"labels": {"tests/there": "yes"}}))
    until(lambda: stage.pod(lost)["spec"].get("nodeName"), "the share that fits now to be bound")
    until(lambda: not scaling_pods_of(stage, lost)(), "its scaling pod to go")


def scaling_pods_of(stage, pod):
    return lambda: [
        each
        for each in stage.api.list("v1", "Pod", "kai-scale-adjust")
        if each["metadata"]["labels"].get("shared-gpu-pod-name") == pod
    ]


def test_a_share_refused_by_a_quota_waits_with_reason(stage):
    hard = {"pods": "0"}
    quota = stage.api.create(
        an_object("v1", "ResourceQuota", "none", metadata={"namespace": RESERVED}, spec={"hard": hard})
    )
    try:
        # Where its controller does not run, nothing else tells the API server that the quota is used up.
        stage.api.patch(quota, {"status": {"hard": hard, "used": {"pods": "0"}}}, subresource="status")
        pod = submit(stage, "refused", fraction="0.5")
        until(lambda: "refused 2 times" in (stage.condition(pod) or {}).get("message", ""), "the second refusal")
        found = stage.condition(pod)
        assert (found["reason"], "exceeded quota: none" in found["message"]) == ("BindRefused", True)
        assert "; the next try is at 20" in found["message"]
        (event,) = stage.events(pod, "BindingError")
        assert event["count"] >= 2
        (group,) = stage.api.list(POD_GROUP, "PodGroup", stage.space)
        (condition,) = group["status"]["schedulingConditions"]
        assert [each["reason"] for each in condition["reasons"]] == ["BindRefused"]
    finally:
        stage.api.delete(quota)
    until(lambda: stage.pod(pod)["spec"].get("nodeName"), "the share to be bound")
