"""Changes for pods that find room but for a spread constraint, a host port, volumes or devices: tried, then told."""

import pytest

from kai.answers.documents.in_file import patches_of
from kai.answers.offline.run import simulate
from kai.dashboard.access import Scope
from kai.dashboard.feed import EndedCycle
from kai.dashboard.look import WholeLook
from kai.dashboard.own import OwnLook
from tests.unit.answers.why.test_suggestions import explain, scenario, sentence
from tests.unit.deciding.explain.test_gangs import (
    CLASS,
    DISKS,
    SPREAD,
    TEMPLATE,
    TWO,
    VOLUME,
    ZONES,
    asking,
    disk,
    limits,
    owned,
    slices,
)

PORTS = {"containers": [{"name": "main", "ports": [{"containerPort": 80, "hostPort": 8080}]}]}
HOME = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "home"}}]}
LIMITED = (DISKS, *limits(*TWO), *(owned(f"g-{at}") for at in range(3)))
EPHEMERAL = {"members": 3, "spec": {"volumes": [{"name": "v", "ephemeral": TEMPLATE}]}}
OTHER = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "other"}}
NONE = {**CLASS, "metadata": {"name": "none"}, "spec": {"selectors": [{"cel": {"expression": "false"}}]}}

SICK = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "n1"},
    "spec": {
        "driver": "nic",
        "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "nic-0"}, {"name": "nic-1", "taints": [{"key": "sick", "effect": "NoSchedule"}]}],
    },
}


def devices(name="one", device_class="nic", *, template=False, **more):
    asked = {"name": "nic", "exactly": {"deviceClassName": device_class, **more}}
    spec = {"devices": {"requests": [asked]}}
    kind = "ResourceClaimTemplate" if template else "ResourceClaim"
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"spec": spec} if template else spec,
    }


def case(gang, objects=(), nodes=TWO):
    return scenario({"g": {"queue": "a", **gang}}, {"nodes": nodes, "objects": list(objects)})


def told(*args, **more):
    (each,) = explain(case(*args, **more)).jobs
    return [
        trial for trial in each.suggestions.changes if not trial.change.text.startswith(("minimum", "1 pod", "2 pod"))
    ]


@pytest.mark.parametrize(
    ("gang", "objects", "nodes", "expected"),
    [
        (
            {"members": 5, "each": {"gpu": 1}, "labels": {"app": "g"}, "spec": {"topologySpreadConstraints": [SPREAD]}},
            (),
            ZONES,
            ["maxSkew of zone 1 -> 3: starts on n1 n2"],
        ),
        (
            {"labels": {"app": "g"}, "spec": {"topologySpreadConstraints": [{**SPREAD, "topologyKey": "rack"}]}},
            (),
            ZONES,
            ["spread over rack preferred, not required: starts on n1"],
        ),
        ({"members": 3, "spec": PORTS}, (), TWO, ["no host port 8080: starts on n1"]),
        ({"members": 3, "spec": {**PORTS, "hostNetwork": True}}, (), TWO, []),
        (
            {"members": 2, "spec": HOME},
            (DISKS, disk("home", "ReadWriteOncePod", "home"), VOLUME),
            TWO,
            ["claim home ReadWriteMany, not ReadWriteOncePod: starts on n1"],
        ),
        (EPHEMERAL, LIMITED, TWO, ["attach limit of driver csi.example.com 1 -> 2: starts on n1 n2"]),
        (
            {"spec": {"resourceClaims": [{"name": "nic", "resourceClaimName": "one"}]}},
            (CLASS, *slices(*TWO), devices(count=3)),
            TWO,
            ["1 device of class nic, not 3: starts on n1"],
        ),
        (
            {"spec": {"resourceClaims": [{"name": "nic", "resourceClaimName": "one"}]}},
            (CLASS, SICK, devices(allocationMode="All")),
            TWO,
            ["1 device of class nic, not all: starts on n1"],
        ),
        (
            {"spec": {"resourceClaims": [{"name": "nic", "resourceClaimName": "one"}]}},
            (NONE, OTHER, *slices(*TWO), devices(device_class="none")),
            TWO,
            ["device class none -> other: starts on n1"],
        ),
        (
            {"spec": {"resourceClaims": [{"name": "nic", "resourceClaimName": "one"}]}},
            (CLASS, *slices(*TWO), devices(selectors=[{"cel": {"expression": "false"}}])),
            TWO,
            ["no selectors in claim one: starts on n1"],
        ),
        (
            {"spec": asking(**{"deviceclass.resource.kubernetes.io_nic": "2"})},
            (CLASS, *slices(*TWO)),
            TWO,
            ["1 deviceclass.resource.kubernetes.io/nic a pod, not 2: starts on n1"],
        ),
    ],
)
def test_the_least_helpful_change_of_an_obstacle_is_suggested(gang, objects, nodes, expected):
    assert [sentence(trial) for trial in told(gang, objects, nodes)] == expected


def test_a_change_that_does_not_help_is_not_told():
    gang = {"members": 2, "spec": {**PORTS, **HOME}}
    found = told(gang, (DISKS, disk("home", "ReadWriteOncePod", "home"), VOLUME))
    assert [sentence(trial) for trial in found] == ["claim home ReadWriteMany, not ReadWriteOncePod: starts on n1 n2"]


def test_the_template_of_claims_changes_with_them():
    reference = {"name": "nic", "resourceClaimTemplateName": "t"}
    claim = devices("g-0-nic", count=2)
    claim["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Pod", "name": "g-0", "uid": "g-0", "controller": True}
    ]
    claim["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "nic"}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "uid": "p", "annotations": {"pod-group-name": "late"}},
        "spec": {
            "schedulerName": "kai-scheduler",
            "resourceClaims": [reference],
            "containers": [{"name": "main"}],
        },
        "status": {"phase": "Pending", "resourceClaimStatuses": [{"name": "nic", "resourceClaimName": "g-0-nic"}]},
    }
    claim["metadata"]["ownerReferences"][0] |= {"name": "p", "uid": "p"}
    group = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "late", "namespace": "default", "uid": "late"},
        "spec": {"queue": "a", "minMember": 1},
    }
    objects = [CLASS, *slices(*TWO), devices("t", template=True, count=2), claim, pod, group]
    (each,) = explain(scenario({}, {"nodes": TWO, "objects": objects})).jobs
    (trial,) = each.suggestions.changes
    assert sentence(trial) == "1 device of class nic, not 2: starts on n1"
    changed = {(each["kind"], each["name"]) for each in patches_of(trial.before, trial.change.objects)}
    assert changed == {("ResourceClaim", "g-0-nic"), ("ResourceClaimTemplate", "t")}


@pytest.mark.parametrize(
    ("given", "change"),
    [
        ((EPHEMERAL, LIMITED), "attach limit"),
        (
            (
                {"spec": {"resourceClaims": [{"name": "nic", "resourceClaimName": "one"}]}},
                (NONE, OTHER, *slices(*TWO), devices(device_class="none")),
            ),
            "device class",
        ),
    ],
)
@pytest.mark.parametrize("may_list", [True, False])
def test_node_facts_are_suggested_only_to_those_listing_nodes(given, change, may_list):
    look = WholeLook.of(EndedCycle(outcome=simulate(case(*given)), took=0.01))
    scope = Scope(namespaces=frozenset({"default"}), queues=frozenset({"a"}), nodes=may_list)
    own = OwnLook.of(look, scope)
    found = own.explain(own.find("default", "g"))
    assert any(change in trial.change.text for trial in found.suggestions.changes) is may_list
