import pytest

from kai.api.codec.structuring import structure_as
from kai.api.conventions.device_claims import extended_claim_name
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Create, Patch, Reason, Refusal, RefusedError
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder.claims import DynamicResources, requested_by_claim
from kai.roles.binder.outcome import BindContext, BindFailureError
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import bind_request, cluster, node, pod

ALLOCATION = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n1", "device": "gpu-0"}]}}
ME = {"resource": "pods", "name": "p", "uid": "uid-ns-p"}
OTHER = {"resource": "pods", "name": "q", "uid": "uid-ns-q"}


def claim(name="claim", finalizers=(), **status):
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "finalizers": list(finalizers)},
        "spec": {},
        "status": status,
    }


def context(server, **spec):
    spec.setdefault("resourceClaimAllocations", [{"name": "gpu", "allocation": ALLOCATION}])
    return BindContext(
        pod=structure_as(Pod, server.get("Pod", "p", "ns")),
        node=structure_as(Node, node()),
        request=structure_as(BindRequest, bind_request(**spec)),
    )


def claiming_pod(**reference):
    reference = reference or {"resourceClaimName": "claim"}
    return pod(resourceClaims=[{"name": "gpu", **reference}])


def prepare(server, **spec):
    carry_out(DynamicResources().prepare(context(server, **spec)), server.perform)


def undo(server, **spec):
    carry_out(DynamicResources().undo(context(server, **spec)), server.perform)


def status(server, name="claim"):
    return server.get("ResourceClaim", name, "ns").get("status") or {}


def test_a_claim_is_allocated_and_reserved_for_the_pod():
    server = cluster(claiming_pod(), claim())
    prepare(server)
    assert status(server) == {"allocation": ALLOCATION, "reservedFor": [ME]}
    writes = len(server.writes)
    prepare(server)
    assert len(server.writes) == writes


def test_a_claim_is_protected_from_deletion_before_allocation():
    server = cluster(claiming_pod(), claim(finalizers=["other"]))
    prepare(server)
    protected = ["other", "resource.kubernetes.io/delete-protection"]
    assert server.get("ResourceClaim", "claim", "ns")["metadata"]["finalizers"] == protected
    first, second = server.writes
    assert (first.subresource, second.subresource) == ("", "status")


UNCHANGEABLE = Refusal(reason=Reason.REJECTED, message='ResourceClaim "claim" is invalid: spec: field is immutable')


def refusing_protection(server, refusal):
    """Let an API server refuse each change of claims but of their status."""
    server.fault = lambda request: refusal if isinstance(request, Patch) and not request.subresource else None
    return server


def test_a_pods_own_claim_may_stay_unprotected():
    manifest = claiming_pod(resourceClaimTemplateName="t")
    manifest["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "claim"}]
    made = claim()
    made["metadata"]["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ME["uid"]}]
    server = refusing_protection(cluster(manifest, made), UNCHANGEABLE)
    prepare(server)
    assert status(server) == {"allocation": ALLOCATION, "reservedFor": [ME]}


def test_an_unchangeable_claim_outlasting_its_pod_is_not_allocated():
    server = refusing_protection(cluster(claiming_pod(), claim()), UNCHANGEABLE)
    with pytest.raises(BindFailureError, match=r"ns/claim: spec\.devices\.config: .* written with blanks"):
        prepare(server)
    assert not status(server)


def test_another_refusal_of_the_protection_is_passed_on():
    server = refusing_protection(cluster(claiming_pod(), claim()), Refusal(reason=Reason.REJECTED, message="forbidden"))
    with pytest.raises(RefusedError, match="forbidden"):
        prepare(server)


def test_a_claim_being_deleted_takes_no_further_user():
    leaving = claim(allocation=ALLOCATION, reservedFor=[OTHER], finalizers=["other"])
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    server = cluster(claiming_pod(), leaving)
    with pytest.raises(BindFailureError, match="is being deleted"):
        prepare(server)
    assert not server.writes


def test_an_allocation_that_stands_is_shared():
    other = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n1", "device": "gpu-7"}]}}
    server = cluster(claiming_pod(), claim(allocation=other, reservedFor=[OTHER]))
    prepare(server)
    assert status(server) == {"allocation": other, "reservedFor": [OTHER, ME]}


def test_devices_that_the_node_cannot_use_are_refused():
    elsewhere = {
        **ALLOCATION,
        "nodeSelector": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]},
            ],
        },
    }
    server = cluster(claiming_pod(), claim(allocation=elsewhere))
    with pytest.raises(BindFailureError, match="resourceclaim ns/claim: its devices cannot be used from node n1"):
        prepare(server)


def test_a_template_claim_is_found_through_the_pods_status():
    manifest = claiming_pod(resourceClaimTemplateName="t")
    manifest["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": "claim"}]
    server = cluster(manifest, claim())
    prepare(server)
    assert status(server)["reservedFor"] == [ME]


@pytest.mark.parametrize(
    ("manifests", "spec", "message"),
    [
        ((claiming_pod(),), {}, "resourceclaim ns/claim: does not exist"),
        ((claiming_pod(resourceClaimTemplateName="t"),), {}, "no resource claim was made for its claim gpu yet"),
        ((pod(),), {}, "has no claim gpu, which the bind request allocates"),
        ((claiming_pod(), claim()), {"resourceClaimAllocations": [{"name": "gpu"}]}, "claim gpu has no allocation"),
        ((pod(),), {"resourceClaimAllocations": [], "extendedResourceClaimAllocation": {}}, "have no allocation"),
    ],
)
def test_what_does_not_fit_together_is_refused_in_words(manifests, spec, message):
    with pytest.raises(BindFailureError, match=message):
        prepare(cluster(*manifests), **spec)


def test_a_conflict_is_met_with_another_look():
    server = cluster(claiming_pod(), claim())
    raced = []

    def fault(request):
        if isinstance(request, Patch) and not raced:
            raced.append(True)
            server.change("ResourceClaim", "claim", "ns", {"status": {"reservedFor": [OTHER]}})

    server.fault = fault
    prepare(server)
    assert status(server)["reservedFor"] == [OTHER, ME]


def test_a_constantly_changing_claim_is_tried_five_times():
    server = cluster(claiming_pod(), claim())
    server.fault = lambda request: Refusal(reason=Reason.CONFLICT) if isinstance(request, Patch) else None
    with pytest.raises(RefusedError):
        prepare(server)
    assert len([request for request in server.requests if isinstance(request, Patch)]) == 5


def test_undoing_gives_back_what_the_bind_took():
    server = cluster(claiming_pod(), claim())
    prepare(server)
    undo(server)
    assert status(server) == {}


def test_undoing_leaves_a_shared_claim_to_the_others():
    server = cluster(claiming_pod(), claim(allocation=ALLOCATION, reservedFor=[OTHER]))
    prepare(server)
    undo(server)
    assert status(server) == {"allocation": ALLOCATION, "reservedFor": [OTHER]}


def test_undoing_keeps_an_allocation_that_existed_before():
    before = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n1", "device": "gpu-7"}]}}
    server = cluster(claiming_pod(), claim(allocation=before))
    prepare(server)
    undo(server)
    assert status(server) == {"allocation": before}


def test_undoing_what_was_never_done_writes_nothing():
    for manifests in ((claiming_pod(), claim()), (claiming_pod(),), (pod(),)):
        server = cluster(*manifests)
        undo(server)
        assert server.writes == []


EXTENDED = {
    "resourceClaimAllocations": [],
    "extendedResourceClaimAllocation": {
        "allocation": ALLOCATION,
        "deviceRequests": [{"name": "r", "exactly": {"deviceClassName": "gpu.example.com", "count": 1}}],
        "containerMappings": [{"containerName": "main", "resourceName": "example.com/gpu", "requestName": "r"}],
    },
}


def test_extended_resources_get_a_claim_owned_by_the_pod():
    server = cluster(pod())
    prepare(server, **EXTENDED)
    (name,) = server.names("ResourceClaim")
    made = server.get("ResourceClaim", name, "ns")
    assert made["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert made["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    assert made["metadata"]["ownerReferences"][0]["controller"] is True
    assert made["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu.example.com"
    assert made["status"] == {"allocation": ALLOCATION, "reservedFor": [ME]}
    told = server.get("Pod", "p", "ns")["status"]["extendedResourceClaimStatus"]
    assert told["resourceClaimName"] == name == extended_claim_name(structure_as(Pod, pod()))


def test_a_second_time_makes_no_second_claim():
    server = cluster(pod())
    prepare(server, **EXTENDED)
    writes = len(server.writes)
    prepare(server, **EXTENDED)
    assert len(server.writes) == writes
    assert sum(isinstance(write, Create) for write in server.writes) == 1


def test_undoing_deletes_the_claim_and_tells_the_pod():
    server = cluster(pod())
    prepare(server, **EXTENDED)
    undo(server, **EXTENDED)
    assert server.names("ResourceClaim") == []
    assert "extendedResourceClaimStatus" not in server.get("Pod", "p", "ns")["status"]
    writes = len(server.writes)
    undo(server, **EXTENDED)
    assert len(server.writes) == writes


def test_the_protection_of_others_on_the_claim_is_kept():
    server = cluster(pod())
    prepare(server, **EXTENDED)
    (name,) = server.names("ResourceClaim")
    finalizers = ["resource.kubernetes.io/delete-protection", "other"]
    server.change("ResourceClaim", name, "ns", {"metadata": {"finalizers": finalizers}})
    undo(server, **EXTENDED)
    assert server.get("ResourceClaim", name, "ns")["metadata"]["finalizers"] == ["other"]


def test_resources_that_a_claim_serves_are_known():
    request = structure_as(BindRequest, bind_request(**EXTENDED))
    assert requested_by_claim(request) == {"example.com/gpu"}
    assert requested_by_claim(structure_as(BindRequest, bind_request())) == frozenset()


def test_an_extended_claims_name_fits_and_differs_per_uid():
    long = pod("x" * 253)
    assert len(extended_claim_name(structure_as(Pod, long))) <= 253
    assert extended_claim_name(structure_as(Pod, pod(uid="a"))) != extended_claim_name(structure_as(Pod, pod(uid="b")))
