"""Limits of run times with the Job controller: the light roles count and end runs, tests bind the pods.

Each role has the account that it ships with, so its rights are tried as well.
"""

import datetime as dt

import pytest

from tests.integration.client import until
from tests.integration.test_services import POD_GROUP, SPACE, world

__all__ = ["world"]
BATCH = "batch/v1"


def limited(world, name, pods=1, **annotations):
    """Create a Job with kai's annotations, - for _, and bind its pods; return its group's name."""
    keys = {f"kai.scheduler/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "main", "image": "none"}
    spec = {
        "schedulerName": "kai-scheduler",
        "restartPolicy": "Never",
        "containers": [container],
        "terminationGracePeriodSeconds": 0,
    }
    world.api.create(
        {
            "apiVersion": BATCH,
            "kind": "Job",
            "metadata": {"name": name, "namespace": SPACE, "annotations": keys},
            "spec": {"parallelism": pods, "completions": pods, "backoffLimit": 100, "template": {"spec": spec}},
        }
    )
    until(lambda: len(world.owned(name)) == pods, f"{pods} pods")
    return bound(world, name)


def bound(world, name):
    """Bind the pods of a Job that wait."""
    group = ""
    for each in world.owned(name):
        group = world.group(each)["metadata"]["name"]
        if not world.pod(each)["spec"].get("nodeName"):
            world.order(world.pod(each))
    return group


def status(world, group):
    return world.find(POD_GROUP, "PodGroup", group).get("status", {})


def limit(world, group):
    found = next((each for each in status(world, group).get("conditions", ()) if each["type"] == "TimeLimit"), {})
    return found.get("status"), found.get("reason")


def failed(world, name):
    found = world.find(BATCH, "Job", name).get("status", {}).get("conditions", ())
    return next((each["reason"] for each in found if each["type"] == "Failed" and each["status"] == "True"), None)


def at(text):
    return dt.datetime.fromisoformat(text)


@pytest.mark.parametrize("restarts", [False, True], ids=["in one process", "across a restart"])
def test_a_gang_fails_at_its_limit_despite_restarts(world, restarts):
    name = f"fails-{restarts}".lower()
    group = limited(world, name, 2, max_runtime="6s", batch_min_member="2")
    until(lambda: "runningSince" in status(world, group), "the start of the run")
    since = at(status(world, group)["runningSince"])
    if restarts:
        world.roles.stop("podgroup-controller")
        world.roles.start("podgroup-controller")
    until(lambda: failed(world, name) == "DeadlineExceeded", "the Job to fail")
    ended = next(each for each in status(world, group)["conditions"] if each["type"] == "TimeLimit")
    assert 6.0 <= (at(ended["lastTransitionTime"]) - since).total_seconds() < 16.0
    assert (ended["status"], ended["reason"]) == ("True", "TimeLimit")
    events = world.api.list("v1", "Event", SPACE)
    assert [each for each in events if each["reason"] == "TimeLimit" and each["involvedObject"]["name"] == group]


def test_a_requeued_job_may_run_again_after_its_delay(world):
    group = limited(world, "turns", max_runtime="4s", runtime_policy="requeue", requeue_delay="2s")
    first = world.owned("turns")
    until(lambda: limit(world, group) == ("True", "TimeLimit"), "the end")
    until(lambda: limit(world, group) == ("False", "MayRunAgain"), "leave to run again")
    until(lambda: world.owned("turns") != first, "another pod")
    assert failed(world, "turns") is None
    assert "consumedRuntime" not in status(world, group)
