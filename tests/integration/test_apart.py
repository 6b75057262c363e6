"""Replicas that disagree: two shards between which nodes move, and a stand-by whose clock is an hour ahead."""

import random
import time
from collections import Counter
from http.client import CREATED

import pytest

from tests.integration.chaos.observer import Observer
from tests.integration.client import until
from tests.integration.forking import AHEAD
from tests.integration.installation import install
from tests.integration.processes import NAMESPACE, frozen
from tests.integration.stage import an_object, job, node, queue, scene, staged, when
from tests.unit.deploy.rendering import DEPLOY

POOL = "kai.scheduler/node-pool"
NODES = {f"n{number}": 4 for number in range(6)}
LEASE = an_object("coordination.k8s.io/v1", "Lease", "kai-scheduler", metadata={"namespace": NAMESPACE})
LEADING = ("--leader-elect", "--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s")


@pytest.fixture(scope="module")
def theatre(bare_control_plane, tmp_path_factory):
    install(bare_control_plane, DEPLOY)
    with staged(bare_control_plane, tmp_path_factory.mktemp("apart")) as stage:
        yield stage


@pytest.fixture
def stage(theatre):
    """Give a test six nodes of four GPUs, and watch that none ever holds more."""
    observer = Observer(theatre.api, dict(NODES))
    observer.start()
    try:
        with scene(theatre) as opened:
            for name, gpus in NODES.items():
                opened.create(node(name, gpu=gpus))
            yield opened
            assert not observer.check()
            for program in tuple(opened.programs):
                opened.stop(program)
    finally:
        observer.stop()


def test_a_node_moving_between_shards_is_filled_by_one(stage):
    draw = random.Random(4)
    for pool in ("red", "blue"):
        for name, parent in ((f"{pool}-top", ""), (f"{pool}-team", f"{pool}-top")):
            made = queue(name, parent, gpu={"quota": -1})
            stage.create({**made, "metadata": {**made["metadata"], "labels": {POOL: pool}}})
        stage.begin(pool, "scheduler", flags=(f"--partition-label-value={pool}",))
    stage.begin("rest", "binder", "podgrouper", "podgroup-controller", "queue-controller")
    stage.await_ready()
    for number in range(12):
        pool = ("red", "blue")[number % 2]
        stage.create(job(f"gang-{number}", 2, queue=f"{pool}-team", labels={POOL: pool}))
        for _ in range(4):
            moved = draw.choice(list(NODES))
            stage.change(an_object("v1", "Node", moved, metadata={"labels": {POOL: draw.choice(("red", "blue"))}}))
            time.sleep(draw.uniform(0.0, 0.1))
    # Pods stay where they were bound, so all nodes go to one shard after the other until everything runs.
    for pool, wanted in (("red", range(0, 12, 2)), ("blue", range(12))):
        for name in NODES:
            stage.change(an_object("v1", "Node", name, metadata={"labels": {POOL: pool}}))
        gangs = [f"gang-{number}" for number in wanted]
        when(lambda gangs=gangs: all(len(stage.running(each)) == 2 for each in gangs), f"all gangs of {pool} to run")
    assert not stage.events(reason="Evict")


def test_a_standby_with_a_fast_clock_leads_and_yields(stage):
    for manifest in (queue("top", gpu={"quota": -1}), queue("team", "top", gpu={"quota": -1})):
        stage.create(manifest)
    right = stage.start("right", flags=LEADING, environment={"POD_NAME": "right"})
    when(lambda: holder(stage).startswith("right"), "the first replica to lead")
    ahead = stage.start("ahead", flags=LEADING, environment={"POD_NAME": "ahead", AHEAD: "3600"})
    stage.create(job("first", 4))
    when(lambda: len(stage.running("first")) == 4, "the first job to run")
    with frozen(right):
        when(lambda: holder(stage).startswith("ahead"), "the stand-by to lead")
        stage.create(job("second", 4))
        when(lambda: len(stage.running("second")) == 4, "the second job to run")
    stage.create(job("third", 4))
    when(lambda: len(stage.running("third")) == 4, "the third job to run")
    until(right.is_ready, "the first replica to stand by")
    stage.stop(ahead, kill=True)
    when(lambda: holder(stage).startswith("right"), "the first replica to lead again")
    stage.create(job("fourth", 4))
    when(lambda: len(stage.running("fourth")) == 4, "the fourth job to run")
    bound = Counter(
        event["objectRef"]["name"]
        for event in stage.plane.audited()
        if event.get("objectRef", {}).get("subresource") == "binding"
        and event["objectRef"]["namespace"] == stage.space
        and event["responseStatus"]["code"] == CREATED
    )
    assert len(bound) == 16
    assert set(bound.values()) == {1}
    assert not stage.events(reason="Evict")


def holder(stage):
    lease = stage.api.find(LEASE)
    return (lease or {}).get("spec", {}).get("holderIdentity", "")
