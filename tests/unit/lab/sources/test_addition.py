import pytest

from kai.basics.errors import InputError
from kai.lab.sources.addition import add
from kai.lab.sources.loading import read_case
from kai.manifests import RefusedError, documents_of, open_text

CLUSTER = """\
cluster: {nodes: {n1: {gpu: 8}}}
queues: {root: {quota: 8}, a: {parent: root, quota: 4}}
groups: {w: {queue: a, members: 1, each: {gpu: 1}, runs_on: n1}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {kai.scheduler/queue: a}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
"""
QUEUE = """\
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: a}
spec: {parentQueue: root, displayName: new, resources: {}}
---
"""


@pytest.fixture
def case(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(CLUSTER)
    return read_case(str(path))


def documents(text):
    return documents_of(*open_text(text.encode(), "x.yaml"))


def names(objects):
    return [each.metadata.name for each in objects]


def test_a_workload_joins_the_objects_that_are_there(case):
    found = add(case, documents(POD % "p"))
    assert names(found.case.objects.pods) == ["w-0", "p"]
    assert names(found.case.objects.pod_groups) == ["w", "p"]
    assert found.jobs == {"default/p"}
    assert found.case.objects.pods[-1].metadata.creation_timestamp == case.now


def test_added_objects_are_created_now(case):
    old = (POD % "p").replace("name: p,", "name: p, creationTimestamp: '2020-01-01T00:00:00Z',")
    found = add(case, documents(old))
    assert found.case.objects.pods[-1].metadata.creation_timestamp == case.now
    assert found.case.objects.pod_groups[-1].metadata.creation_timestamp == case.now


def test_a_changed_object_keeps_its_creation_time(case):
    before, after = (
        {each.metadata.name: each for each in objects}["a"]
        for objects in (case.objects.queues, add(case, documents(QUEUE + POD % "p")).case.objects.queues)
    )
    assert after.metadata.creation_timestamp == before.metadata.creation_timestamp


def test_an_added_object_replaces_its_namesake(case):
    found = add(case, documents(QUEUE + POD % "p"))
    assert sorted(names(found.case.objects.queues)) == ["a", "root"]
    assert next(each for each in found.case.objects.queues if each.metadata.name == "a").spec.display_name == "new"


def test_an_added_pod_avoids_an_existing_pods_name(case):
    job = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: w, labels: {kai.scheduler/queue: a}}\n"
        "spec: {template: {spec: {restartPolicy: Never, "
        "schedulerName: kai-scheduler, containers: [{name: c, image: i}]}}}\n"
    )
    found = add(case, documents(job))
    assert names(found.case.objects.pods) == ["w-0", "w-0-2"]
    assert len(found.case.objects.pod_groups) == 2


def test_adding_an_existing_pod_is_refused(case):
    with pytest.raises(InputError, match=r"x\.yaml: pod default/w-0: found it in the cluster already, expected"):
        add(case, documents(POD % "w-0"))


def test_copies_are_workloads_of_other_names(case):
    assert add(case, documents(POD % "p"), copies=3).jobs == {"default/p", "default/p-2", "default/p-3"}


def test_the_namespace_is_the_one_that_is_asked_for(case):
    assert add(case, documents(POD % "p"), namespace="team").jobs == {"team/p"}


def test_a_workload_of_an_unknown_queue_is_reported(case):
    found = add(case, documents((POD % "p").replace("queue: a", "queue: b")))
    assert ([each.code for each in found.findings], found.jobs, found.refused) == (["J001"], {"default/p"}, ())
    with pytest.raises(RefusedError, match="J001 queue b does not exist"):
        add(case, documents(POD % "p"), queue="b")


def test_a_refused_workload_is_left_out_and_named(case):
    wrong = (POD % "wrong").replace("image: i", "image: ''")
    found = add(case, documents((POD % "p") + "---\n" + wrong))
    assert (found.jobs, [each.name for each in found.refused]) == ({"default/p"}, ["wrong"])
    assert add(case, documents(wrong)).case.objects.pods == case.objects.pods


def test_files_without_a_workload_are_refused(case):
    with pytest.raises(InputError, match="found no workload for this scheduler"):
        add(case, documents("apiVersion: v1\nkind: Namespace\nmetadata: {name: m}\n"))


def test_an_added_pod_gets_the_claim_of_its_template(case):
    template = (
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaimTemplate\nmetadata: {name: t, namespace: default}\n"
        "spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}\n---\n"
    )
    named = "{resourceClaims: [{name: r, resourceClaimTemplateName: t}], "
    found = add(case, documents(template + (POD % "p").replace("spec: {", "spec: " + named)))
    assert names(found.case.objects.resource_claims) == ["p-r-0"]
