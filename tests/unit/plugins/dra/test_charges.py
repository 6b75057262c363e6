"""What queues are charged for devices of claims that pods share, or that claims have in part."""

import pytest

from kai.facts.model.axis import GPU
from kai.plugins.dra import Dra
from tests.unit.plugins.dra.manifests import CLASS, NODE, claim, claiming, device, exactly, offer
from tests.unit.plugins.stage import Stage, snapshot_of


def stage_of(*manifests):
    return Stage.of(Dra(), snapshot_of(NODE, CLASS, *manifests))


def used(stage):
    """Return thousandths of GPUs that the queue of all pods, and the one above it, are charged for."""
    found = {tuple(stage.session.columns.queue_used[row, [GPU]]) for row in range(2)}
    assert len(found) == 1
    return int(found.pop()[0])


def shared(*users):
    return claim("c", held=[("n1", "d0")], users=users)


def test_pods_that_share_a_claim_are_charged_once_together():
    pods = [claiming(f"{name}-0", "c", on="n1") for name in "abc"]
    stage = stage_of(offer("n1", "d0", "d1"), shared("default-a-0", "default-b-0", "default-c-0"), *pods)
    assert used(stage) == 1000


def test_a_pod_that_joins_costs_nothing():
    joining = claiming("b-0", "c")
    stage = stage_of(offer("n1", "d0"), shared("default-a-0"), claiming("a-0", "c", on="n1"), joining)
    assert stage.session.requested[stage.session.facts.pods.shape[stage.row("b-0")], GPU] == 0


def test_a_pod_pays_for_a_claim_without_queue():
    stage = stage_of(offer("n1", "d0"), shared("a-stranger"), claiming("b-0", "c"))
    assert stage.session.requested[stage.session.facts.pods.shape[stage.row("b-0")], GPU] == 1000


def part(name, amount):
    made = claim(
        name, exactly(capacity={"requests": {"memory": amount}}), held=[("n1", "d0")], users=[f"default-{name}-0"]
    )
    made["status"]["allocation"]["devices"]["results"][0] |= {"shareID": name, "consumedCapacity": {"memory": amount}}
    return made


def test_parts_of_a_device_are_charged_as_parts():
    many = device("d0", capacity={"memory": "40Gi"}, allowMultipleAllocations=True)
    wanting = claim("x", exactly(capacity={"requests": {"memory": "10Gi"}}))
    pods = [claiming("a-0", "a", on="n1"), claiming("b-0", "b", on="n1"), claiming("x-0", "x")]
    stage = stage_of(offer("n1", many), part("a", "10Gi"), part("b", "20Gi"), wanting, *pods)
    assert used(stage) == 750
    assert stage.session.requested[stage.session.facts.pods.shape[stage.row("x-0")], GPU] == 250


@pytest.mark.parametrize("held", ["whole", "half-0"])
def test_a_partition_is_charged_by_its_drawn_counters(held):
    def drawing(name, amount):
        return device(name, consumesCounters=[{"counterSet": "card", "counters": {"memory": {"value": amount}}}])

    counters = [{"name": "card", "counters": {"memory": {"value": "80Gi"}}}]
    devices = (drawing("whole", "80Gi"), drawing("half-0", "40Gi"), drawing("half-1", "40Gi"))
    slices = (
        offer("n1", *devices, pool="n1", name="devices"),
        offer("n1", pool="n1", name="counters", sharedCounters=counters),
    )
    for each in slices:
        each["spec"]["pool"]["resourceSliceCount"] = 2
    mine = claim("c", held=[("n1", held)], users=["default-a-0"])
    stage = stage_of(*slices, mine, claiming("a-0", "c", on="n1"))
    assert used(stage) == (1000 if held == "whole" else 500)
