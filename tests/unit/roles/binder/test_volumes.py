import copy

import pytest

from kai.api import names
from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import PersistentVolume, PersistentVolumeClaim
from kai.api.plans import Await
from kai.api.scheduling.bind_request import BindRequest
from kai.roles.binder.outcome import BindContext, BindFailureError
from kai.roles.binder.volumes import VolumeBinding, claim_names, find_volume
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import bind_request, cluster, node, pod

ON_N1 = {
    "required": {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]},
        ],
    },
}


def claim(name="c", storage_class="slow", size="1Gi", annotations=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}", "annotations": annotations or {}},
        "spec": {
            "storageClassName": storage_class,
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": size}},
            **spec,
        },
    }


def bound(name="c", volume="v"):
    return claim(name, annotations={names.VOLUME_BIND_COMPLETED: "yes"}, volumeName=volume)


def volume(name="v", storage_class="slow", size="1Gi", phase="Available", labels=None, **spec):
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "storageClassName": storage_class,
            "capacity": {"storage": size},
            "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
            **spec,
        },
        "status": {"phase": phase},
    }


def storage_class(name="slow", provisioner="csi.example.com", mode="WaitForFirstConsumer", **more):
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": provisioner,
        "volumeBindingMode": mode,
        **more,
    }


def binds(server, request):
    """What the volume controller and a provisioner do."""
    key = request.ref.name
    manifest = server.get("PersistentVolumeClaim", key, "ns")
    offered = [
        name
        for name in server.names("PersistentVolume")
        if (server.get("PersistentVolume", name)["spec"].get("claimRef") or {}).get("name") == key
    ]
    if offered:
        name = offered[0]
    elif manifest["metadata"]["annotations"].get(names.VOLUME_NODE):
        name = f"made-for-{key}"
        server._put(volume(name, nodeAffinity=copy.deepcopy(ON_N1)))
    else:
        return
    patch = {"metadata": {"annotations": {names.VOLUME_BIND_COMPLETED: "yes"}}, "spec": {"volumeName": name}}
    server.change("PersistentVolumeClaim", key, "ns", patch)


def prepare(*manifests, names=("c",), settle=binds, node_name="n1"):
    volumes = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": name}} for i, name in enumerate(names)]
    server = cluster(*manifests, settle=settle)
    context = BindContext(
        pod=structure_as(Pod, pod(volumes=volumes)),
        node=structure_as(Node, node(node_name)),
        request=structure_as(BindRequest, bind_request()),
    )
    carry_out(VolumeBinding().prepare(context), server.perform)
    carry_out(VolumeBinding().undo(context), server.perform)
    return server


def refusal(*manifests, **fields):
    with pytest.raises(BindFailureError) as caught:
        prepare(*manifests, **fields)
    return str(caught.value)


def test_a_pod_without_claims_asks_nothing():
    assert prepare(names=()).requests == []


def test_a_bound_claim_with_reachable_volume_needs_no_write():
    server = prepare(bound(), volume(nodeAffinity=ON_N1))
    assert server.writes == []


@pytest.mark.parametrize(
    ("manifests", "message"),
    [
        ((), "persistentvolumeclaim ns/c: does not exist"),
        ((bound(),), "its volume v does not exist"),
        ((claim(),), "is not bound to a volume yet"),
        ((claim(), storage_class(mode="Immediate")), "is not bound to a volume yet"),
        ((claim(volumeName="v"), storage_class()), "is not bound to a volume yet"),
        ((claim(storage_class=None),), "is not bound to a volume yet"),
        ((claim(), storage_class(provisioner="kubernetes.io/no-provisioner")), "no volume suits it on node n1"),
        ((claim(annotations={names.VOLUME_NODE: "n2"}), storage_class()), "is being provisioned on node n2"),
        (
            (
                claim(),
                storage_class(
                    allowedTopologies=[{"matchLabelExpressions": [{"key": "zone", "values": ["a"]}]}],
                ),
            ),
            "storageclass slow provisions nothing on node n1",
        ),
    ],
)
def test_a_claim_that_cannot_bind_here_is_refused(manifests, message):
    assert message in refusal(*manifests)


def test_a_volume_out_of_reach_is_refused():
    assert "persistentvolume v: cannot be used from node n2" in refusal(
        bound(), volume(nodeAffinity=ON_N1), node_name="n2"
    )


def test_a_claim_that_is_being_deleted_is_refused():
    going = claim()
    going["metadata"]["deletionTimestamp"] = "2023-01-01T00:00:00Z"
    assert "is being deleted" in refusal(going)


def test_a_waiting_claim_gets_the_smallest_suitable_volume():
    server = prepare(
        claim(), storage_class(), volume("large", size="5Gi"), volume("fits", size="2Gi"), volume("tiny", size="1Mi")
    )
    reference = server.get("PersistentVolume", "fits")["spec"]["claimRef"]
    assert (reference["name"], reference["uid"]) == ("c", "uid-c")
    assert server.get("PersistentVolumeClaim", "c", "ns")["spec"]["volumeName"] == "fits"


def test_two_claims_get_two_volumes():
    server = prepare(claim("a"), claim("b"), storage_class(), volume("v1"), volume("v2"), names=("a", "b"))
    assert [server.get("PersistentVolumeClaim", name, "ns")["spec"]["volumeName"] for name in ("a", "b")] == [
        "v1",
        "v2",
    ]


def test_nothing_is_written_unless_every_claim_has_an_answer():
    server = cluster(claim("a"), claim("b", storage_class="none"), storage_class(), volume())
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("a", "b")]
    context = BindContext(
        pod=structure_as(Pod, pod(volumes=volumes)),
        node=structure_as(Node, node()),
        request=structure_as(BindRequest, bind_request()),
    )
    with pytest.raises(BindFailureError):
        carry_out(VolumeBinding().prepare(context), server.perform)
    assert server.writes == []


def test_a_claim_without_volume_goes_to_its_provisioner():
    server = prepare(claim(), storage_class())
    annotations = server.get("PersistentVolumeClaim", "c", "ns")["metadata"]["annotations"]
    assert annotations[names.VOLUME_NODE] == "n1"
    assert server.get("PersistentVolumeClaim", "c", "ns")["spec"]["volumeName"] == "made-for-c"


def test_a_provisioner_that_takes_too_long_fails_the_bind():
    assert "was not bound to a volume on node n1 in time" in refusal(claim(), storage_class(), settle=lambda *_: None)


@pytest.mark.parametrize("node_of_claim", [None, "", "n2"])
def test_a_provisioner_giving_up_fails_the_bind_at_once(node_of_claim):
    """It takes the annotation away, by which the scheduler of Kubernetes knows as well."""

    def gives_up(server, request):
        annotations = {names.VOLUME_NODE: node_of_claim}
        server.change("PersistentVolumeClaim", request.ref.name, "ns", {"metadata": {"annotations": annotations}})

    assert "its provisioner gave up on node n1" in refusal(claim(), storage_class(), settle=gives_up)


def test_a_matched_claim_times_out_without_being_bound():
    assert "in time" in refusal(claim(), storage_class(), volume(), settle=lambda *_: None)


def test_all_claims_share_one_timeout():
    clock = iter([0.0, 50.0, 130.0])
    server = cluster(claim("a"), claim("b"), storage_class(), volume("v1"), volume("v2"), settle=binds)
    perform = server.perform

    def timed(request):
        if type(request).__name__ == "Now":
            return next(clock)
        return perform(request)

    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("a", "b")]
    context = BindContext(
        pod=structure_as(Pod, pod(volumes=volumes)),
        node=structure_as(Node, node()),
        request=structure_as(BindRequest, bind_request()),
    )
    carry_out(VolumeBinding(timeout_seconds=120).prepare(context), timed)
    assert [request.seconds for request in server.requests if isinstance(request, Await)] == [70.0, 0.0]


def found(claim_manifest, *volumes, node_name="n1"):
    chosen = find_volume(
        structure_as(PersistentVolumeClaim, claim_manifest),
        [structure_as(PersistentVolume, manifest) for manifest in volumes],
        structure_as(Node, node(node_name)),
    )
    return None if chosen is None else chosen.metadata.name


@pytest.mark.parametrize(
    "unsuitable",
    [
        volume(storage_class="fast"),
        volume(size="1Mi"),
        volume(phase="Released"),
        volume(accessModes=["ReadOnlyMany"]),
        volume(volumeMode="Block"),
        volume(claimRef={"namespace": "ns", "name": "other"}),
        volume(claimRef={"namespace": "ns", "name": "c", "uid": "older"}),
        volume(nodeAffinity={"required": {"nodeSelectorTerms": [{}]}}),
    ],
)
def test_a_volume_that_does_not_suit_is_not_chosen(unsuitable):
    assert found(claim(), unsuitable) is None


def test_a_claim_with_a_selector_gets_a_labelled_volume():
    selecting = claim(selector={"matchLabels": {"tier": "gold"}})
    assert found(selecting, volume("a"), volume("b", labels={"tier": "gold"})) == "b"


def test_a_volume_kept_for_the_claim_comes_first():
    kept = volume("z", size="9Gi", phase="", claimRef={"namespace": "ns", "name": "c"})
    assert found(claim(), volume("a"), kept) == "z"


def test_equal_volumes_are_taken_in_name_order():
    assert found(claim(), volume("b"), volume("a")) == "a"


def test_a_pods_claims_are_distinct_and_include_ephemeral_ones():
    volumes = [
        {"name": "x", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "y", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "config", "configMap": {"name": "m"}},
    ]
    assert claim_names(structure_as(Pod, pod(volumes=volumes))) == ("shared", "p-scratch")
