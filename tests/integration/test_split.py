"""Each role in a process of its own, with the account and the rights that ``overlays/split`` gives it."""

import pytest

from tests.integration.behaviour import Job
from tests.integration.client import until
from tests.integration.stage import BIND_REQUEST, node, queue, scene, staged, when

GPU = "nvidia.com/gpu"
ROLES = ("scheduler", "binder", "podgrouper", "podgroup-controller", "queue-controller", "node-scale-adjuster")


@pytest.fixture(scope="module")
def theatre(control_plane, tmp_path_factory):
    with staged(control_plane, tmp_path_factory.mktemp("kai")) as stage:
        for role in ROLES:
            stage.begin(role, role, account=role)
        stage.await_ready()
        yield stage


@pytest.fixture
def stage(theatre):
    """Give a test two nodes of four GPUs and two queues that have a quota of four each."""
    with scene(theatre) as stage:
        share = {"gpu": {"quota": 4}}
        for manifest in (
            *(node(name, gpu=4) for name in ("n1", "n2")),
            queue("top", gpu={"quota": 8}),
            *(queue(name, "top", **share) for name in ("team", "owner")),
        ):
            stage.create(manifest)
        yield stage


def submit(stage, name, **text):
    for manifest in Job.read(name, text).manifests():
        stage.create(manifest)


def of_role(stage, role):
    return next(each for each in stage.programs if each.roles == (role,))


def orders(stage):
    return stage.api.list(BIND_REQUEST, "BindRequest", stage.space)


def bindings(stage):
    """Return who was bound, once for each time."""
    return [
        event["objectRef"]["name"]
        for event in stage.plane.audited()
        if event.get("objectRef", {}).get("subresource") == "binding"
        and event["objectRef"].get("namespace") == stage.space
        and event["responseStatus"]["code"] == 201
    ]


def audited(stage, names):
    """Hold that these pods were bound, once each; the audit log may be behind what it tells of."""
    until(lambda: len(bindings(stage)) >= len(names), f"{len(names)} bindings in the audit log")
    assert sorted(bindings(stage)) == names


def test_pods_gangs_and_shares_go_from_role_to_role(stage):
    submit(stage, "lone", gpu=1, bare=True)
    submit(stage, "gang", pods=3, gpu=2)
    submit(stage, "half", fraction=0.5, bare=True)
    until(lambda: len(stage.running()) == 5, "all of them to run")
    when(lambda: stage.queue_status("team")["allocated"][GPU] == "7500m", "the queue to count them")
    (event,) = until(lambda: stage.events("lone-0", "Scheduled"), "the event")
    assert event["message"].startswith(f"Successfully assigned pod {stage.space}/lone-0 to node")
    when(lambda: stage.events("lone-0", "Bound")[0]["source"]["component"] == "binder", "the binder to say so")
    submit(stage, "large", pods=2, gpu=4)
    until(lambda: stage.condition("large-0") and stage.condition("large-1"), "an explanation")
    audited(stage, ["gang-0", "gang-1", "gang-2", "half-0", "lone-0"])


def test_a_queue_reclaims_its_quota_across_roles(stage):
    submit(stage, "held", pods=8, min=1, gpu=1)
    until(lambda: len(stage.running("held")) == 8, "the lender to run")
    submit(stage, "claim", pods=4, gpu=1, queue="owner")
    until(lambda: len(stage.running("claim")) == 4, "the owner to run")
    assert len(stage.running("held")) == 4


def test_scheduler_and_binder_killed_before_bindings_are_continued(stage):
    stage.stop(of_role(stage, "binder"), kill=True)
    submit(stage, "gang", pods=4, gpu=1)
    until(lambda: len(orders(stage)) == 4, "bind requests")
    stage.stop(of_role(stage, "scheduler"), kill=True)
    submit(stage, "late", pods=4, gpu=1)
    for role in ("scheduler", "binder"):
        stage.begin(role, role, account=role)
    stage.await_ready()
    until(lambda: len(stage.running()) == 8, "all of them to run")
    audited(stage, sorted(each["metadata"]["name"] for each in stage.pods()))
    for name in ("n1", "n2"):
        assert len([each for each in stage.pods() if each["spec"]["nodeName"] == name]) == 4
