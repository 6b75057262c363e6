"""What a tenant whose pods all differ may not do to the others: make them wait.

The flood is 300 pods of 300 shapes in one namespace and one queue with a limit, many more than a cycle considers of a
namespace.
"""

import pytest

from tests.integration.behaviour import Job, Part
from tests.integration.client import until
from tests.integration.stage import POD_GROUP, node, queue, scene

FLOOD = 300
LIMIT = 2


@pytest.fixture
def stage(whole):
    with scene(whole) as opened:
        yield opened


def submit(stage, name, **part):
    job = Job(name=name, part=Part(**part), queue="other" if name.startswith("canary") else "team")
    for manifest in job.manifests():
        stage.create(manifest)


def reasons(stage, space):
    """Return the reasons of each group of a namespace, by name."""
    found = {}
    for group in stage.api.list(POD_GROUP, "PodGroup", space):
        told = group.get("status", {}).get("schedulingConditions", ())
        found[group["metadata"]["name"]] = {one["reason"] for each in told for one in each.get("reasons", ())}
    return found


def test_other_pods_are_bound_during_a_flood(stage):
    for manifest in (node("n1", gpu=8), queue("team", gpu={"limit": LIMIT}), queue("other")):
        stage.create(manifest)
    flooded = stage.space
    for at in range(FLOOD):
        submit(stage, f"flood-{at:03}", gpu=1, cpu=f"{100 + at}m")
    until(lambda: len(stage.running()) == LIMIT, "the queue of the flood to be full", every=0.5)
    stage.open()  # another namespace, of another tenant
    for at in range(4):
        submit(stage, f"canary-{at}", gpu=1)
        until(lambda at=at: stage.running(f"canary-{at}"), f"canary {at} to run")

    def waiting():
        bound = {each["metadata"]["name"].rpartition("-")[0] for each in running_in(stage, flooded)}
        return {name: told for name, told in reasons(stage, flooded).items() if name not in bound}

    until(
        lambda: len(waiting()) == FLOOD - LIMIT and all(waiting().values()), "every group to have a reason", every=0.5
    )
    until(
        lambda: all(told == {"OverLimit"} for told in waiting().values()), "every group to have had its turn", every=0.5
    )
    assert len(running_in(stage, flooded)) == LIMIT
    # What is left of the flood goes with the control plane: to delete it pod by pod takes as long as to make it.


def running_in(stage, space):
    return [each for each in stage.api.list("v1", "Pod", space) if each["status"].get("phase") == "Running"]
