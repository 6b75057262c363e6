import attrs

from kai.api.codec.structuring import structure_as
from kai.api.conventions.device_claims import with_claims
from kai.api.kinds import key_of
from kai.api.kubernetes.dra import ResourceClaim, ResourceClaimTemplate
from kai.api.kubernetes.pod import Pod, claim_behind

TEMPLATE = structure_as(
    ResourceClaimTemplate,
    {
        "metadata": {"name": "one", "namespace": "team"},
        "spec": {
            "metadata": {"labels": {"l": "x"}, "annotations": {"a": "y"}},
            "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
        },
    },
)


def pod(*references, status=(), **spec):
    claims = [{"name": each, "resourceClaimTemplateName": "one"} for each in references]
    return structure_as(
        Pod,
        {
            "metadata": {"name": "p", "namespace": "team", "uid": "u"},
            "spec": {"resourceClaims": claims, **spec},
            "status": {"resourceClaimStatuses": list(status)},
        },
    )


def made(source, *claims):
    known = {key_of(each): each for each in claims}
    return with_claims(source, {key_of(TEMPLATE): TEMPLATE}.get, known.get)


def test_a_claim_copies_its_template_and_belongs_to_pod():
    told, (claim,) = made(pod("gpu"))
    assert claim.spec == TEMPLATE.spec.spec
    assert claim.metadata.labels == {"l": "x"}
    assert claim.metadata.annotations == {"a": "y", "resource.kubernetes.io/pod-claim-name": "gpu"}
    owner = claim.metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Pod", "p", "u", True)
    assert claim_behind(told, told.spec.resource_claims[0]) == claim.metadata.name == "p-gpu-0"


def test_two_claims_of_one_template_have_different_names():
    namesake = structure_as(ResourceClaim, {"metadata": {"name": "p-b-0", "namespace": "team"}})
    told, claims = made(pod("a", "b"), namesake)
    assert [each.metadata.name for each in claims] == ["p-a-0", "p-b-1"]
    assert [each.resource_claim_name for each in told.status.resource_claim_statuses] == ["p-a-0", "p-b-1"]


def test_a_pod_keeps_the_claim_that_it_has():
    waiting = pod("gpu", status=[{"name": "gpu", "resourceClaimName": "c"}])
    mine = {"metadata": {"name": "c", "namespace": "team", "ownerReferences": [{"kind": "Pod", "uid": "u"}]}}
    claim = structure_as(ResourceClaim, mine)
    assert made(waiting, claim) == (waiting, ())
    before = attrs.evolve(claim.metadata, owner_references=(attrs.evolve(claim.metadata.owner_references[0], uid="v"),))
    told, (fresh,) = made(waiting, attrs.evolve(claim, metadata=before))
    assert claim_behind(told, told.spec.resource_claims[0]) == fresh.metadata.name == "p-gpu-0"


def test_no_claim_is_made_where_none_is_needed():
    for source in (
        pod("gpu", nodeName="n1"),
        pod("gpu", status=[{"name": "gpu"}]),
        pod(resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "other"}]),
        pod(resourceClaims=[{"name": "gpu", "resourceClaimName": "one"}]),
    ):
        assert made(source) == (source, ())
