import pytest

from kai.api.conventions.caps import REFUSED
from kai.roles.podgrouper import Settings, Verb
from kai.roles.podgrouper.decide import reconcile
from tests.unit.roles.podgrouper.workloads import pod_group, thing

OWNER = thing("apps/v1", "StatefulSet")
SPEC = {"minMember": 1, "queue": "q", "priorityClassName": "train"}


def group(spec=None, **metadata):
    return pod_group("pg", owners=[OWNER], spec={**SPEC, **(spec or {})}, **metadata)


def after(existing, desired, settings=None):
    return reconcile(existing, desired, settings or Settings())


def test_an_absent_group_is_created_as_desired():
    write = after(None, group())
    assert (write.verb, write.manifest) == (Verb.CREATE, group())


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ({}, {}),
        ({"subGroups": None, "topologyConstraint": {}}, {"subGroups": [], "topologyConstraint": {"topology": ""}}),
        ({"preemptionDelay": "90s"}, {"preemptionDelay": "1m30s"}),
        ({"preemptibility": ""}, {}),
        (
            {"subGroups": [{"name": "a", "minMember": 1, "parent": None}]},
            {"subGroups": [{"name": "a", "minMember": 1, "topologyConstraint": {}}]},
        ),
    ],
)
def test_a_group_that_means_the_same_is_not_written(held, wanted):
    assert after(group(held), group(wanted)).verb is Verb.NOTHING


def test_intakes_annotation_is_no_change_and_not_written():
    existing = group(annotations={REFUSED: "too much"})
    assert after(existing, group()).verb is Verb.NOTHING
    assert after(existing, group({"minMember": 2})).manifest["metadata"]["annotations"] == {}


def test_labels_that_others_added_are_no_change():
    assert after(group(labels={"theirs": "1"}), group()).verb is Verb.NOTHING


@pytest.mark.parametrize("field", ["queue", "markUnschedulable", "schedulingBackoff"])
def test_fields_of_others_are_kept(field):
    held = {"queue": "other", "markUnschedulable": False, "schedulingBackoff": 1}[field]
    write = after(group({field: held}), group({"minMember": 2, field: "ours"}))
    assert write.verb is Verb.UPDATE
    assert write.manifest["spec"][field] == held
    assert write.manifest["spec"]["minMember"] == 2


def test_a_queue_that_somebody_removed_stays_away():
    existing = group()
    del existing["spec"]["queue"]
    assert after(existing, group()).verb is Verb.NOTHING


def test_the_rest_of_the_spec_is_replaced():
    write = after(group({"preemptibility": "preemptible", "minMember": 3}), group({"minSubGroup": 1}))
    assert write.manifest["spec"] == {**SPEC, "minSubGroup": 1}


def test_a_foreign_constraint_stays_if_the_workload_has_none():
    theirs = {"topology": "t", "requiredTopologyLevel": "rack"}
    existing = group({"topologyConstraint": theirs})
    assert after(existing, group({"topologyConstraint": {"requiredTopologyLevel": "zone"}})).verb is Verb.NOTHING
    ours = {"topology": "u", "preferredTopologyLevel": "host"}
    assert after(existing, group({"topologyConstraint": ours})).manifest["spec"]["topologyConstraint"] == ours


def test_labels_and_annotations_are_added_and_never_removed():
    existing = group(labels={"old": "1", "both": "1"}, annotations={"old": "1"})
    write = after(existing, group(labels={"both": "2"}, annotations={"new": "2"}))
    assert write.manifest["metadata"]["labels"] == {"old": "1", "both": "2"}
    assert write.manifest["metadata"]["annotations"] == {"old": "1", "new": "2"}


def test_the_existing_group_alone_decides_the_node_pool():
    key = "kai.scheduler/node-pool"
    assert after(group(), group(labels={key: "a"})).verb is Verb.NOTHING
    assert after(group(labels={key: "a"}), group(labels={key: "b"})).verb is Verb.NOTHING
    assert after(group(labels={key: "a"}), group()).verb is Verb.NOTHING


def test_a_queue_label_is_added_but_not_changed():
    key = "kai.scheduler/queue"
    assert after(group(), group(labels={key: "a"})).manifest["metadata"]["labels"] == {key: "a"}
    assert after(group(labels={key: "a"}), group(labels={key: "b"})).verb is Verb.NOTHING


def test_the_owner_follows_the_workload():
    other = pod_group("pg", owners=[thing("apps/v1", "StatefulSet", "other")], spec=SPEC)
    write = after(group(), other)
    assert write.manifest["metadata"]["ownerReferences"] == other["metadata"]["ownerReferences"]


def test_an_update_carries_version_and_status_of_its_base():
    existing = group()
    existing["metadata"]["resourceVersion"] = "7"
    existing["status"] = {"conditions": [1]}
    manifest = after(existing, group({"minMember": 2})).manifest
    assert manifest["metadata"]["resourceVersion"] == "7"
    assert manifest["status"] == existing["status"]


def test_an_apply_omits_status_and_server_fields():
    existing = group(labels={"theirs": "1"})
    existing["metadata"] |= {"resourceVersion": "7", "managedFields": [1], "generation": 2}
    existing["status"] = {"conditions": [1]}
    sent = after(existing, group({"minMember": 2})).apply_configuration()
    assert sent == {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": "pg",
            "namespace": "ns",
            "resourceVersion": "7",
            "labels": {"theirs": "1"},
            "annotations": {},
            "ownerReferences": existing["metadata"]["ownerReferences"],
        },
        "spec": {**SPEC, "minMember": 2},
    }


@pytest.mark.parametrize("broken", [{}, {"spec": [], "metadata": None}, {"spec": {"subGroups": 1}, "metadata": {}}])
def test_a_malformed_group_is_set_right(broken):
    write = after(broken, group())
    assert write.verb is Verb.UPDATE
    assert write.manifest["spec"]["minMember"] == 1


@pytest.mark.parametrize("key", ["max-runtime", "expected-runtime", "runtime-policy", "requeue-delay"])
def test_an_existing_runtime_limit_of_the_group_is_kept(key):
    held, ours = (group(annotations={f"kai.scheduler/{key}": text}) for text in ("theirs", "ours"))
    assert after(held, ours).verb is Verb.NOTHING
    assert after(group(), ours).manifest["metadata"]["annotations"] == {f"kai.scheduler/{key}": "ours"}


def test_a_deadline_goes_with_that_of_the_owner():
    key = "kai.scheduler/owner-deadline"
    held, longer = (group(annotations={key: text}) for text in ("1m0s spec.a", "2m0s spec.a"))
    assert after(held, longer).manifest["metadata"]["annotations"] == {key: "2m0s spec.a"}
    assert after(held, group()).manifest["metadata"]["annotations"] == {}
