"""A budget of GPU-hours on a real API server: what could exceed it waits, and a raised budget lets it start."""

import json

import pytest

from tests.integration.client import until
from tests.integration.installation import CRDS, install
from tests.integration.stage import job, node, queue, scene, staged, when
from tests.unit.deploy.rendering import DEPLOY


@pytest.fixture(scope="module")
def stage(lasting_control_plane, tmp_path_factory):
    install(lasting_control_plane, DEPLOY / "base")
    lasting_control_plane.define(CRDS)
    folder = tmp_path_factory.mktemp("budgets")
    usage = {"clientType": "sqlite", "connectionString": str(folder / "history.db")}
    shard = {
        "apiVersion": "kai.scheduler/v1",
        "kind": "SchedulingShard",
        "metadata": {"name": "default"},
        "spec": {"usageDBConfig": usage},
    }
    (folder / "shard.yaml").write_text(json.dumps(shard))
    with staged(lasting_control_plane, folder) as stage:
        stage.start("kai", flags=(f"--scheduler-conf={folder / 'shard.yaml'}",))
        yield stage


def limited(name, gpus, limit, place):
    made = job(name, 1, queue="budgeted", gpu=gpus)
    made["metadata"].setdefault("annotations", {})["kai.scheduler/max-runtime"] = limit
    made["spec"]["template"]["spec"]["nodeSelector"] = {"place": place}
    return made


def test_a_job_beyond_the_budget_waits_for_its_raise(stage):
    with scene(stage):
        stage.create(node("counted", gpu=4, labels={"place": "counted"}))
        stage.create(queue("budgeted-top", gpu={"quota": 4}))
        budget = {"name": "month", "amount": 4, "timeZone": "Europe/Berlin"}
        team = stage.create(queue("budgeted", "budgeted-top", gpu={"quota": 4}, budgets=[budget]))

        stage.create(limited("first", 2, "1h", "counted"))
        until(lambda: len(stage.running("first")) == 1, "the first job to run", seconds=90)
        stage.create(limited("second", 1, "3h", "counted"))
        pod = when(lambda: stage.waiting("second")[0], "a pod that waits")["metadata"]["name"]
        message = when(lambda: (stage.condition(pod) or {})["message"], "why it waits")
        assert "BudgetUsed" in message
        assert "of 4 GPU-hours left until" in message
        assert "this job may use 3 (1 GPU for 3h" in message

        def written():
            known = stage.get("scheduling.run.ai/v2", "Queue", "budgeted").get("status", {}).get("budgets", [])
            return known and known[0]["committed"] > 0 and known[0]

        status = until(written, "the status of the budget", seconds=60)
        assert 0 <= status["spent"] < 1
        assert status["spent"] + status["committed"] <= 4

        stage.api.patch(team, {"spec": {"budgets": [{**budget, "amount": 6}]}})
        until(lambda: len(stage.running("second")) == 1, "the second job to run", seconds=60)
        assert len(stage.running("first")) == 1
