"""A quota that follows the clock, on a real API server: a window opens and closes while a job waits and runs."""

import datetime as dt
import time

import pytest

from tests.integration.client import until
from tests.integration.installation import CRDS, install
from tests.integration.stage import job, node, queue, scene, staged, when
from tests.unit.deploy.rendering import DEPLOY

OPEN_SECONDS = 15
LATE_SECONDS = 6.0
"""How late a decision may be: a cycle and the writes of this machine."""


@pytest.fixture(scope="module")
def stage(lasting_control_plane, tmp_path_factory):
    install(lasting_control_plane, DEPLOY / "base")
    lasting_control_plane.define(CRDS)
    with staged(lasting_control_plane, tmp_path_factory.mktemp("windows")) as stage:
        stage.start("kai")
        yield stage


def next_minute(after):
    return (after // 60 + 1) * 60


def test_a_window_opens_and_closes_within_a_cycle(stage):
    with scene(stage):
        stage.create(node("clocked", gpu=2, labels={"clocked": "yes"}))
        opens = next_minute(time.time() + 8)
        clock = dt.datetime.fromtimestamp(opens, dt.UTC)
        window = {
            "name": "minute",
            "start": f"{clock.minute} {clock.hour} {clock.day} {clock.month} *",
            "duration": f"{OPEN_SECONDS}s",
            "resources": {"gpu": {"quota": 2, "limit": 2}},
            "onClose": "evict",
        }
        stage.create(queue("clocked-top", gpu={"quota": 2}))
        stage.create(queue("clocked", "clocked-top", gpu={"quota": 0, "limit": 0}, schedules=[window]))
        train = job("train", 2, queue="clocked")
        train["spec"]["template"]["spec"]["nodeSelector"] = {"clocked": "yes"}
        stage.create(train)

        pod = when(lambda: stage.waiting("train")[0], "a pod that waits")["metadata"]["name"]
        message = when(lambda: (stage.condition(pod) or {})["message"], "why it waits")
        assert time.time() < opens, "the job waited before its window opened"
        assert "allowable limit" in message
        assert f"until {clock:%a %H:%M} (UTC), then 2 GPUs" in message

        until(lambda: len(stage.running("train")) == 2, "the job to run", seconds=90)
        assert opens <= time.time() < opens + LATE_SECONDS

        evicted = until(lambda: stage.events(reason="Evict"), "its eviction", seconds=60)
        assert opens + OPEN_SECONDS <= time.time() < opens + OPEN_SECONDS + LATE_SECONDS
        assert "window minute of queue clocked closed" in evicted[0]["message"]
        until(lambda: len(stage.waiting("train")) == 2, "the job to wait again", seconds=30)
