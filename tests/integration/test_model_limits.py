"""Bounds by GPU model on a real API server: models from labels of nodes, what waits, and what is taken back."""

import pytest

from tests.integration.client import until
from tests.integration.installation import install
from tests.integration.stage import job, node, queue, scene, staged, when
from tests.unit.deploy.rendering import DEPLOY

PRODUCT = "nvidia.com/gpu.product"
H100, A100 = "NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB"


@pytest.fixture(scope="module")
def stage(bare_control_plane, tmp_path_factory):
    install(bare_control_plane, DEPLOY)
    with staged(bare_control_plane, tmp_path_factory.mktemp("models")) as stage:
        stage.start("kai")
        yield stage


@pytest.fixture
def models(stage):
    """Return the stage with two GPUs of each of two models, and no queue."""
    with scene(stage):
        for name, product in (("new", H100), ("old", A100)):
            stage.create(node(name, gpu=2, labels={PRODUCT: product}))
        stage.create(queue("all", gpu={"quota": 4}))
        yield stage


def on(product, name, pods, of, **body):
    made = job(name, pods, queue=of, **body)
    made["spec"]["template"]["spec"]["nodeSelector"] = {PRODUCT: product}
    return made


def with_models(name, gpu, **models):
    made = queue(name, "all", gpu=gpu)
    made["spec"]["resources"]["models"] = models
    return made


def nodes_of(stage, name):
    return sorted(each["spec"]["nodeName"] for each in stage.running(name))


def test_the_limit_of_a_model_sends_pods_to_another(models):
    models.create(with_models("few", {"quota": 4}, h100={"limit": 1}))
    models.create(job("spread", 3, queue="few", gang=False))
    until(lambda: nodes_of(models, "spread") == ["new", "old", "old"], "one pod on the limited model")

    models.create(on(H100, "more", 1, "few"))
    pod = when(lambda: models.waiting("more")[0], "a pod that waits")["metadata"]["name"]
    message = when(lambda: (models.condition(pod) or {})["message"], "why it waits")
    wanted = "few has reached its limit of h100 GPUs. Limit is 1 GPUs, currently 1 GPUs allocated"
    assert wanted in message
    until(lambda: any(wanted in each["message"] for each in models.events(reason="Unschedulable")), "the event")
    assert not models.events(reason="Evict")


@pytest.mark.parametrize("pods", [1, 2], ids=["one pod", "a gang"])
def test_a_quota_of_a_model_takes_it_back(models, pods):
    models.create(queue("other", "all", gpu={"quota": 2}))
    models.create(on(H100, "theirs", 2, "other", gang=False))
    until(lambda: nodes_of(models, "theirs") == ["new", "new"], "all GPUs of the model in use")

    models.create(with_models("owed", {"quota": 2}, h100={"quota": pods}))
    models.create(on(H100, "wants", pods, "owed"))
    until(lambda: nodes_of(models, "wants") == ["new"] * pods, "work that the model is owed to")
    until(lambda: len(models.waiting("theirs")) == pods, "evicted pods, made anew, that wait")
    assert nodes_of(models, "theirs") == ["new"] * (2 - pods)
    evicted = models.events(reason="Evict")
    assert len(evicted) == pods
    wanted = f"The quota of h100 GPUs allowed it: other used 2 and is owed 0, owed used 0 and is owed {pods}."
    assert evicted[0]["message"].endswith(wanted)
