from unittest import mock

import attrs
import pytest

from kai.intake import claims as claims_module
from kai.intake.settings import IntakeSettings
from kai.intake.surroundings import read_library
from tests.unit.intake.making import objects, other, pod, taken

LATER = "2026-01-01T12:00:00Z"


def library(made, before=None):
    return read_library(made, IntakeSettings(), before)


def test_namespaces_have_labels():
    made = other("Namespace", "v1", "a", metadata={"labels": {"team": "x"}})
    assert taken(made).catalog.namespaces == {"a": {"team": "x"}}


def test_config_maps_are_known_when_there_is_any():
    assert not taken().catalog.config_maps_known
    found = taken(other("ConfigMap", "v1", "c", namespace="a")).catalog
    assert (found.config_maps_known, found.config_maps) == (True, {("a", "c")})


def test_the_library_is_the_same_while_its_objects_are():
    made = objects(other("ConfigMap", "v1", "c", namespace="a"))
    first = library(made)
    more_pods = attrs.evolve(made, pods=objects(pod("p")).pods, config_maps=(*made.config_maps,))
    assert library(more_pods, first) is first


@pytest.mark.parametrize("kind", ["ConfigMap", "ResourceClaim"])
def test_a_new_object_makes_a_new_library(kind):
    version = "resource.k8s.io/v1" if kind == "ResourceClaim" else "v1"
    made = objects(other(kind, version, "c", namespace="a"))
    first = library(objects())
    assert library(made, first) is not first
    assert library(objects(), library(made)).catalog == first.catalog


def test_namespaces_are_kept_while_other_objects_change():
    space = other("Namespace", "v1", "a", metadata={"labels": {"team": "x"}})
    made = objects(space, other("ConfigMap", "v1", "c", namespace="a"))
    first = library(made)
    fewer = library(attrs.evolve(made, config_maps=()), first)
    assert fewer.catalog.namespaces is first.catalog.namespaces
    more = library(objects(space, other("Namespace", "v1", "b")), fewer)
    assert sorted(more.catalog.namespaces) == ["a", "b"]


def test_only_a_changed_claim_is_read_again():
    version = "resource.k8s.io/v1"
    claims = [other("ResourceClaim", version, f"c{at}", namespace="a", spec={}) for at in range(20)]
    slices = [
        other(
            "ResourceSlice",
            version,
            f"s{at}",
            spec={
                "driver": "gpu.example.com",
                "nodeName": f"n{at}",
                "pool": {"name": f"n{at}"},
                "devices": [{"name": "gpu-0"}],
            },
        )
        for at in range(3)
    ]
    made = objects(*claims, *slices, other("DeviceClass", version, "gpu", spec={}))
    first = library(made)
    changed = objects(other("ResourceClaim", version, "c7", namespace="a", metadata={"deletionTimestamp": LATER}))
    claims_now = [each for each in made.resource_claims if each.metadata.name != "c7"]
    now = attrs.evolve(made, resource_claims=(*claims_now, *changed.resource_claims))
    with mock.patch.object(claims_module, "_claim", wraps=claims_module._claim) as read:
        second = library(now, first)
    assert [call.args[0].metadata.name for call in read.call_args_list] == ["c7"]
    assert second.catalog == library(now).catalog
    ours, theirs = second.catalog.claims, first.catalog.claims
    assert (ours.slices is theirs.slices, ours.classes is theirs.classes) == (True, True)
    assert second.node_gpus is first.node_gpus
    fewer = library(attrs.evolve(now, resource_slices=now.resource_slices[1:], device_classes=()), second)
    assert [each.name for each in fewer.catalog.claims.slices] == ["s1", "s2"]
    assert {node: each.gpus for node, each in fewer.node_gpus.items()} == {"n1": 1, "n2": 1}
    assert fewer.catalog.claims.classes == {}
    rule = {"deviceSelector": {"pool": "n1"}, "taint": {"key": "sick", "effect": "NoSchedule"}}
    (tainting,) = objects(other("DeviceTaintRule", version, "r", spec=rule)).device_taint_rules
    ruled = library(attrs.evolve(now, device_taint_rules=(tainting,)), second)
    assert [len(each.devices[0].taints) for each in ruled.catalog.claims.slices] == [0, 1, 0]
    assert library(now, ruled).catalog == second.catalog
