"""What is left of objects that are set aside: their places, and what they are charged for."""

import pytest

from kai.intake import IntakeSettings, take_snapshot
from kai.intake.aside import Suspect, without
from tests.unit.intake.making import NOW, group, node, objects, pod, queue

GROUP = Suspect("PodGroup", "default", "g")
SIDECAR = {"name": "helper", "restartPolicy": "Always", "resources": {"requests": {"cpu": "3"}}}
RESIZED = {
    "containerStatuses": [{"name": "main", "allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "6"}}}]
}
PORT = {"name": "main", "ports": [{"containerPort": 80}]}


def held(aside, **body):
    """Return what a running pod takes of its node, with its group set aside or not."""
    pods = pod("p", group="g", phase="Running", node="n", **body)
    found = without(objects(node("n"), queue("q"), group("g"), pods), aside)
    snapshot = take_snapshot(found, NOW, IntakeSettings())
    shape = snapshot.shapes[0]
    places = snapshot.pod_node.tolist(), snapshot.pod_group.tolist(), snapshot.pod_reservation.tolist()
    return shape.request, shape.gpu, shape.constraints.host_ports, places


@pytest.mark.parametrize(
    "body",
    [
        {"requests": {"cpu": "2", "memory": "1Gi", "nvidia.com/gpu": "1"}},
        {"spec": {"initContainers": [SIDECAR], "overhead": {"memory": "1Gi"}}},
        {"spec": {"resources": {"requests": {"cpu": "4"}}}, "requests": {"cpu": "1"}},
        {"requests": {"cpu": "2"}, "status": RESIZED},
        {"spec": {"hostNetwork": True, "containers": [PORT]}},
        {"annotations": {"gpu-fraction": "0.5"}, "labels": {"runai-gpu-group": "x"}},
        {"annotations": {"nvidia.com/mig-1g.10gb": "2"}},
    ],
)
def test_a_suspected_pod_still_takes_its_nodes_resources(body):
    assert held({GROUP: False}, **body) == held({}, **body)


def test_a_suspected_reservation_still_holds_its_device():
    labelled = {"labels": {"app": "kai-resource-reservation"}, "metadata": {"namespace": "kai-resource-reservation"}}
    made = pod("p", phase="Running", node="n", requests={"nvidia.com/gpu": "1"}, **labelled)
    aside = {Suspect("Pod", "kai-resource-reservation", "p"): False}
    found = take_snapshot(without(objects(node("n"), made), aside), NOW, IntakeSettings())
    assert found.pod_reservation.tolist() == [True]


def test_what_is_set_aside_is_not_tried():
    waiting = objects(node("n"), queue("q"), group("g"), pod("p", group="g"), pod("other"))
    assert [each.metadata.name for each in without(waiting, {GROUP: False}).pods] == ["other"]
    assert without(waiting, {}) is waiting
