import pytest

from kai.api.codec.structuring import keep
from kai.api.conventions.caps import APPLIED, REFUSED
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import ConfigMap, PodDisruptionBudget
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import PersistentVolumeClaim
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.caching.assume_cache import AssumeCache

BIG = {"kai.scheduler/queue": "team", "big": "x" * 70_000}
SAID = "metadata.annotations: found 70,026 characters, expected at most 65,536"
MANY = dict.fromkeys(map(str, range(1025)), "x")


def manifest(spec=None, **metadata):
    return {
        "metadata": {"name": "o", "namespace": "n", "uid": "u", "resourceVersion": "7", **metadata},
        "spec": spec or {},
    }


def cached(cls, made):
    cache = AssumeCache(cls, lambda *_: None)
    cache.see(made)
    return cache.get(("n", "o")), [each.message for each in cache.rejected]


@pytest.mark.parametrize("cls", [PodGroup, Queue, ResourceClaim, PersistentVolumeClaim, PodDisruptionBudget, ConfigMap])
def test_an_object_beyond_caps_keeps_only_what_kai_reads(cls):
    found, rejected = cached(cls, manifest(annotations=BIG, labels={"a": "b"}))
    assert found.metadata.annotations == {"kai.scheduler/queue": "team", REFUSED: SAID}
    assert (found.metadata.labels, rejected) == ({}, [])


@pytest.mark.parametrize("cls", [PodGroup, ResourceClaim])
def test_what_is_within_the_caps_is_the_same_object(cls):
    made = manifest(annotations={"a": "b"}, labels=dict.fromkeys(map(str, range(1024)), ""))
    assert keep(cls, made) is made


@pytest.mark.parametrize("made", [None, 3, [], {}, {"metadata": 3}, {"metadata": {"annotations": [1], "labels": "x"}}])
@pytest.mark.parametrize("cls", [Pod, PodGroup, PersistentVolumeClaim])
def test_what_is_no_object_is_left_to_the_codec(cls, made):
    assert keep(cls, made) == made


def test_a_users_own_cap_annotations_are_dropped():
    made = manifest(annotations={REFUSED: "mine", APPLIED: "secret", "note": "x"})
    assert keep(PodGroup, made)["metadata"]["annotations"] == {"note": "x"}


def test_owners_and_finalizers_beyond_the_cap_are_cut():
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": f"p{at}", "uid": f"u{at}"} for at in range(3000)]
    found, _ = cached(PodGroup, manifest(ownerReferences=owners, finalizers=["a/b"] * 2000))
    assert (len(found.metadata.owner_references), len(found.metadata.finalizers)) == (1024, 1024)
    assert found.metadata.annotations[REFUSED].startswith("metadata.ownerReferences: found 3,000 owners")


def test_a_claim_beyond_a_cap_holds_its_devices():
    result = {"request": "r", "driver": "d", "pool": "p", "device": "gpu-0"}
    made = manifest(annotations=BIG) | {"status": {"allocation": {"devices": {"results": [result]}}}}
    found, _ = cached(ResourceClaim, made)
    assert [each.device for each in found.status.allocation.devices.results] == ["gpu-0"]


@pytest.mark.parametrize("cls", [PersistentVolumeClaim, PodDisruptionBudget])
@pytest.mark.parametrize(
    ("selector", "said"),
    [
        ({"matchLabels": MANY}, "spec.selector: found 1,025 labels, expected at most 1,024"),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}] * 1025}, "spec.selector: found 1,025 expressions"),
        (
            {"matchExpressions": [{"key": "a", "operator": "In", "values": ["x"] * 16_385}]},
            "spec.selector: found 16,385 values, expected at most 16,384",
        ),
    ],
)
def test_an_impossible_selector_of_claims_or_budgets_is_rejected(cls, selector, said):
    found, (message,) = cached(cls, manifest({"selector": selector}))
    assert found is None
    assert message.startswith(f"{cls.__name__.lower()} n/o: {said}")


def test_a_claim_with_a_thousand_resources_is_rejected():
    found, (message,) = cached(PersistentVolumeClaim, manifest({"resources": {"requests": dict.fromkeys(MANY, "1")}}))
    assert (found, message) == (
        None,
        "persistentvolumeclaim n/o: spec.resources: found 1,025 resources, expected at most 1,024",
    )


def test_a_node_is_kept_whole():
    made = manifest(annotations=BIG)
    assert keep(Node, made) is made


@pytest.mark.parametrize(
    ("cls", "spec"),
    [
        (PodGroup, {"queue": "q" * 254}),
        (PodGroup, {"topologyConstraint": {"topology": "t", "requiredTopologyLevel": "l" * 317}}),
        (PodGroup, {"subGroups": [{"name": "s" * 254}]}),
        (Queue, {"displayName": "d" * 1025}),
        (Queue, {"parentQueue": "d" * 254}),
    ],
)
def test_an_overlong_name_is_rejected(cls, spec):
    found, (message,) = cached(cls, manifest(spec))
    assert found is None
    assert "expected at most " in message
