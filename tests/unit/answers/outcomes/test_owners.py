"""What jobs belong to, from the pods up."""

import pytest

from kai.answers.outcomes.owners import Above, owners_in, topmost
from kai.api.kubernetes.meta import ObjectMeta, OwnerReference
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup


def pod(name, *owners, labels=None, group="g"):
    references = tuple(OwnerReference(kind=kind, name=owner, uid=f"u-{owner}") for kind, owner in owners)
    annotations = {"pod-group-name": group} if group else {}
    metadata = ObjectMeta(
        name=name, namespace="x", labels=labels or {}, annotations=annotations, owner_references=references
    )
    return Pod(metadata=metadata)


def group(text="", *owners):
    references = tuple(OwnerReference(kind=kind, name=owner, uid=f"u-{owner}") for kind, owner in owners)
    annotations = {"kai.scheduler/top-owner-metadata": text} if text else {}
    metadata = ObjectMeta(name="g", namespace="x", annotations=annotations, owner_references=references)
    return PodGroup(metadata=metadata)


def test_owners_are_listed_from_pods_and_groups_nearest_first():
    found = owners_in([pod("a", ("RayCluster", "c"))], [group("name: j\nuid: u\nkind: RayJob\n", ("RayJob", "j"))])
    assert found == {"x/g": (Above("RayCluster", "c"), Above("RayJob", "j"))}


def test_a_replica_set_belongs_to_the_deployment_by_hash():
    found = owners_in([pod("a", ("ReplicaSet", "web-5d8f"), labels={"pod-template-hash": "5d8f"})], [])
    assert found == {"x/g": (Above("ReplicaSet", "web-5d8f"), Above("Deployment", "web"))}
    lone = owners_in([pod("a", ("ReplicaSet", "web-5d8f"), labels={"pod-template-hash": "other"})], [])
    assert lone == {"x/g": (Above("ReplicaSet", "web-5d8f"),)}


def test_what_owns_owners_is_followed_and_a_circle_ends():
    above = {"u-j": [("CronJob", "c", "u-c")], "u-c": [("Job", "j", "u-j")]}
    found = owners_in([pod("a", ("Job", "j"))], [], above)
    assert found == {"x/g": (Above("Job", "j"), Above("CronJob", "c"))}


def test_pods_are_no_owners_and_groupless_pods_count_nothing():
    assert owners_in([pod("a", ("Job", "j"), group="")], [group("", ("Pod", "a"))]) == {"x/g": ()}


@pytest.mark.parametrize(
    "text", ["", "7", "name: x", "kind: Job", "[", "\t", "name: &a [*a]", "name: 2026-13-45\nkind:"]
)
def test_what_is_no_owner_is_none(text):
    assert topmost(text) is None
