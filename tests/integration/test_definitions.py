"""Definitions of kai's own kinds that are deleted, and all their objects with them, while work runs; and put back."""

import pytest

from tests.integration.client import until
from tests.integration.kubelet import GPU
from tests.integration.stage import POD_GROUP, QUEUE, job, node, queue, scene, when
from tests.unit.deploy.rendering import LASTING, of_kind, render

DEFINITIONS = {each["metadata"]["name"]: each for each in of_kind(render(LASTING), "CustomResourceDefinition")}


@pytest.fixture
def stage(whole):
    with scene(whole) as opened:
        opened.create(node("n1", gpu=8))
        queues(opened)
        yield opened


def queues(stage):
    for manifest in (queue("top", gpu={"quota": -1}), queue("team", "top", gpu={"quota": -1})):
        stage.api.ensure(manifest)


@pytest.mark.parametrize(
    "name", ["podgroups.scheduling.run.ai", "bindrequests.scheduling.run.ai", "queues.scheduling.run.ai"]
)
def test_kai_is_unready_without_a_kind_and_recovers(stage, name):
    (program,) = stage.programs
    stage.create(job("first", 2))
    when(lambda: len(stage.running("first")) == 2, "the first job to run")
    before = {each["metadata"]["uid"] for each in stage.pods()}
    definition = DEFINITIONS[name]
    stage.api.delete(definition)
    until(lambda: stage.api.find(definition) is None, "the definition to go, and all objects of the kind")
    until(lambda: not program.is_ready(), "kai to say that it is not ready")
    stage.plane.define_all([definition])
    queues(stage)
    until(program.is_ready, "kai to be ready")
    stage.create(job("second", 4))
    when(lambda: len(stage.running("second")) == 4, "the second job to run")
    assert before <= {each["metadata"]["uid"] for each in stage.running()}

    def is_counted():
        return stage.queue_status("team")["allocated"][GPU] == "6"

    when(is_counted, "the queue to count what ran before and what runs now")
    assert stage.api.list(POD_GROUP, "PodGroup", stage.space)
    assert stage.get(QUEUE, "Queue", "team")
