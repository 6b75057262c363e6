import pytest

from kai.api.kubernetes.node import Node
from kai.api.plans import Ref
from kai.api.scheduling.queue import Queue
from kai.facts.model.pod import Status
from kai.intake import IntakeSettings, expired_bind_requests
from tests.unit.intake.making import bind_request, node, objects, other, pod, queue, taken

FAILED = {"phase": "Failed", "failedAttempts": 2}


def is_binding(*manifests, **settings) -> bool:
    return taken(pod("a"), node("n"), *manifests, **settings).pod_status.tolist() == [Status.BINDING]


@pytest.mark.parametrize(
    ("request_", "live"),
    [
        (bind_request("a", "n"), True),
        (bind_request("a", "n", status={"phase": "Pending"}), True),
        (bind_request("a", "n", status=FAILED), False),
        (bind_request("a", "n", status=FAILED, spec={"backoffLimit": 2}), False),
        (bind_request("a", "n", status=FAILED, spec={"backoffLimit": 3}), True),
        (bind_request("a", "gone"), False),
    ],
)
def test_a_request_holds_until_final_failure_or_node_loss(request_, live):
    assert is_binding(request_) == live
    expired = expired_bind_requests(objects(node("n"), request_), IntakeSettings())
    assert [each.request.metadata.name for each in expired] == ([] if live else ["a"])


GRANTED = {"annotations": {"kai.scheduler/granted": '{"queue":"q"}'}}


@pytest.mark.parametrize(
    ("request_", "queues", "lost"),
    [
        (bind_request("a", "n", metadata=GRANTED), ["q"], []),
        (bind_request("a", "n", metadata=GRANTED), ["r"], [Ref(Queue, "q")]),
        (bind_request("a", "n", metadata=GRANTED, status={"phase": "Succeeded"}), ["r"], []),
        (bind_request("a", "n"), ["r"], []),
        (bind_request("a", "gone", metadata=GRANTED), ["r"], [Ref(Node, "gone")]),
        (bind_request("a", "n", metadata=GRANTED, status=FAILED), ["r"], [None]),
    ],
)
def test_a_request_whose_queue_vanished_before_binding_expires(request_, queues, lost):
    manifests = [node("n"), request_, *map(queue, queues)]
    assert [each.lost for each in expired_bind_requests(objects(*manifests), IntakeSettings())] == lost


def test_a_request_with_a_type_that_nobody_knows_stands():
    assert is_binding(bind_request("a", "n", spec={"receivedResourceType": "Quantum"}))


def test_a_foreign_request_for_an_unseen_node_holds():
    foreign = bind_request("a", "theirs", metadata={"labels": {"kai.scheduler/node-pool": "theirs"}})
    assert is_binding(foreign)
    assert expired_bind_requests(objects(node("n"), foreign), IntakeSettings()) == ()


def test_a_request_is_found_by_the_pod_it_names():
    request = bind_request("a", "n", metadata={"name": "any-name"})
    assert taken(pod("a"), node("n"), request).pods[0].bind_request == "any-name"


def test_a_request_for_a_missing_pod_changes_nothing():
    assert taken(node("n"), bind_request("a", "n")).pods == ()


def test_a_claims_devices_are_taken_from_its_bind_request():
    claim = other("ResourceClaim", "resource.k8s.io/v1", "c", namespace="default")
    waiting = pod("a", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    result = {"request": "r", "driver": "d", "pool": "p", "device": "0"}
    given = {"name": "gpu", "allocation": {"devices": {"results": [result]}}}
    request = bind_request("a", "n", spec={"resourceClaimAllocations": [given]})
    found = taken(claim, waiting, node("n"), request).catalog.claims.claims["default", "c"]
    assert [device.key for device in found.allocation or ()] == [("d", "p", "0")]
    assert found.reserved_for == ("uid-a",)


def test_a_claim_keeps_the_devices_it_has():
    results = [{"request": "r", "driver": "d", "pool": "p", "device": "7"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"uid": "uid-a", "name": "a"}]}
    claim = other("ResourceClaim", "resource.k8s.io/v1", "c", namespace="default", status=status)
    waiting = pod("a", spec={"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]})
    given = {"name": "gpu", "allocation": {"devices": {"results": [{**results[0], "device": "0"}]}}}
    request = bind_request("a", "n", spec={"resourceClaimAllocations": [given]})
    found = taken(claim, waiting, node("n"), request).catalog.claims.claims["default", "c"]
    assert [device.device for device in found.allocation or ()] == ["7"]
    assert found.reserved_for == ("uid-a",)
