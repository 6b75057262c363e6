"""Limits of run times on a real API server, with the Job controller: Jobs fail or go on, also across a kill of kai."""

import datetime as dt

import pytest

from tests.integration.stage import POD_GROUP, job, node, queue, scene, when

BATCH = "batch/v1"


@pytest.fixture
def stage(whole):
    """Give a test a node of four GPUs and a queue."""
    with scene(whole) as stage:
        for manifest in (node("n1", gpu=4), queue("top", gpu={"quota": -1}), queue("team", "top", gpu={"quota": -1})):
            stage.create(manifest)
        yield stage


def limited(name, pods=1, **annotations):
    manifest = job(name, pods)
    keys = {f"kai.scheduler/{key.replace('_', '-')}": value for key, value in annotations.items()}
    manifest["metadata"]["annotations"].update(keys)
    return manifest


def runs(stage, name, pods=1):
    when(lambda: len(stage.running(name)) == pods, f"{pods} pods of {name} to run")
    return stage.running(name)[0]["metadata"]["name"]


def conditions(stage, name):
    found = stage.get(BATCH, "Job", name).get("status", {}).get("conditions", ())
    return {each["type"]: each.get("reason", "") for each in found if each["status"] == "True"}


def group(stage, pod):
    return stage.group_of(pod)


def limit_of(stage, name):
    """Return status and reason of the condition of a group."""
    found = stage.get(POD_GROUP, "PodGroup", name)["status"].get("conditions", ())
    return next(((each["status"], each["reason"]) for each in found if each["type"] == "TimeLimit"), None)


def at(text):
    return dt.datetime.fromisoformat(text)


def test_a_gang_fails_at_its_limit_and_stays_ended(stage):
    stage.create(limited("train", 2, max_runtime="6s"))
    name = group(stage, runs(stage, "train", 2))["metadata"]["name"]
    when(lambda: "runningSince" in stage.get(POD_GROUP, "PodGroup", name)["status"], "the start of the run")
    since = at(stage.get(POD_GROUP, "PodGroup", name)["status"]["runningSince"])
    when(lambda: conditions(stage, "train").get("Failed") == "DeadlineExceeded", "the Job to fail")
    when(lambda: not stage.pods("train"), "its pods to go")
    (ended,) = (
        each for each in stage.get(POD_GROUP, "PodGroup", name)["status"]["conditions"] if each["type"] == "TimeLimit"
    )
    assert 6.0 <= (at(ended["lastTransitionTime"]) - since).total_seconds() < 9.0
    assert [each["reason"] for each in stage.events(name, "TimeLimit")]
    assert stage.pods("train") == []


def test_a_job_that_requeues_runs_again_after_its_delay(stage):
    stage.create(limited("turns", max_runtime="4s", runtime_policy="requeue", requeue_delay="2s"))
    first = runs(stage, "turns")
    name = group(stage, first)["metadata"]["name"]
    when(lambda: limit_of(stage, name) == ("True", "TimeLimit"), "the end")
    when(lambda: limit_of(stage, name) == ("False", "MayRunAgain"), "leave to run again")
    others = when(lambda: {each["metadata"]["name"] for each in stage.running("turns")} - {first}, "a second run")
    assert len(others) == 1
    assert "Failed" not in conditions(stage, "turns")


def test_a_limit_holds_across_a_kill_of_kai(stage):
    stage.create(limited("train", max_runtime="10s"))
    name = group(stage, runs(stage, "train"))["metadata"]["name"]
    when(lambda: "runningSince" in stage.get(POD_GROUP, "PodGroup", name)["status"], "the start of the run")
    since = at(stage.get(POD_GROUP, "PodGroup", name)["status"]["runningSince"])
    stage.stop(stage.programs[0], kill=True)
    stage.start("kai")
    assert at(stage.get(POD_GROUP, "PodGroup", name)["status"]["runningSince"]) == since
    when(lambda: conditions(stage, "train").get("Failed") == "DeadlineExceeded", "the Job to fail")
    found = next(each for each in stage.get(BATCH, "Job", "train")["status"]["conditions"] if each["type"] == "Failed")
    assert at(found["lastTransitionTime"]) >= since + dt.timedelta(seconds=9)
