import pytest

from kai.api import names
from kai.basics.parsing import part_of
from kai.manifests.adoption import NONE, Adoption, adopted

OTHERS = Adoption(schedulers=frozenset({"default-scheduler"}))
NAMESPACES = Adoption(schedulers=frozenset({"default-scheduler"}), queue_from="namespace")
KUEUE = Adoption(schedulers=frozenset({"default-scheduler"}), queue_from="kueue")
VOLCANO = Adoption(schedulers=frozenset({"volcano"}), queue_from="volcano")


def pod(name="a", namespace="ml", scheduler=None, labels=None, annotations=None, phase="Pending", **metadata):
    spec = {"containers": [{"name": "c"}], **({} if scheduler is None else {"schedulerName": scheduler})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": labels or {},
            "annotations": annotations or {},
            **metadata,
        },
        "spec": spec,
        "status": {"phase": phase},
    }


def job(kind="Job", namespace="ml", labels=None, **spec):
    template = {"spec": {"containers": [{"name": "c"}]}}
    metadata = {"name": "train", "namespace": namespace, "labels": labels or {}}
    return {"apiVersion": "batch/v1", "kind": kind, "metadata": metadata, "spec": {"template": template, **spec}}


def taken(manifest, adoption=OTHERS):
    return adopted([manifest], adoption).manifests[0]


@pytest.mark.parametrize("scheduler", [None, "", "default-scheduler"])
def test_a_pod_without_scheduler_belongs_to_the_default_one(scheduler):
    assert taken(pod(scheduler=scheduler))["spec"]["schedulerName"] == "kai-scheduler"


def test_a_pod_of_an_unnamed_scheduler_stays_the_same():
    other = pod(scheduler="volcano")
    assert taken(other) is other


def test_nothing_is_changed_where_nothing_is_asked_for():
    manifests = [pod(), job(), {"kind": "x"}]
    assert adopted(manifests, NONE).manifests == tuple(manifests)
    assert adopted(manifests, NONE).notes == ()


def test_the_input_is_not_written_to():
    manifest = job()
    taken(manifest, NAMESPACES)
    assert manifest == job()


def test_the_pods_of_a_template_are_taken_over():
    found = taken(job())
    assert part_of(found, "spec", "template", "spec", "schedulerName") == "kai-scheduler"


@pytest.mark.parametrize(
    "manifest",
    [
        pod(namespace="kube-system"),
        pod(ownerReferences=[{"kind": "DaemonSet", "name": "d"}]),
        pod(ownerReferences=[{"kind": "Node", "name": "n"}]),
        job("DaemonSet"),
    ],
)
def test_what_belongs_to_the_system_stays_with_its_scheduler(manifest):
    found = adopted([manifest], OTHERS)
    assert found.manifests == (manifest,)
    assert found.notes[0].startswith("1 workload of the system or on each node: left to the scheduler")


def test_pods_that_have_ended_stay_as_they_are():
    ended = pod(phase="Succeeded")
    assert taken(ended) is ended


def test_a_workload_without_queue_gets_its_namespaces():
    assert taken(job(), NAMESPACES)["metadata"]["labels"] == {names.QUEUE: "ml"}


def test_a_queue_that_a_workload_names_is_kept():
    named = job(labels={names.QUEUE: "own"})
    assert taken(named, NAMESPACES)["metadata"]["labels"] == {names.QUEUE: "own"}


def test_pods_of_kai_get_a_queue_as_well():
    own = pod(scheduler="kai-scheduler")
    assert taken(own, Adoption(queue_from="namespace"))["metadata"]["labels"] == {names.QUEUE: "ml"}


def test_what_was_taken_over_is_counted_by_scheduler():
    found = adopted([pod(), job(), pod(scheduler="volcano")], OTHERS)
    assert found.notes == ("1 pod and 1 workload for default-scheduler: decided on as if for kai-scheduler",)


def test_a_scheduler_without_pods_is_told():
    assert adopted([], Adoption(schedulers=frozenset({"yunikorn"}))).notes == (
        "--scheduler-name yunikorn: no pod is for it",
    )


def test_kai_under_another_name_reads_unnamed_schedulers_pods():
    found = taken(pod(), Adoption(ours="default-scheduler"))
    assert found["spec"]["schedulerName"] == "default-scheduler"


def test_a_job_that_kueue_holds_is_let_in():
    held = job(labels={"kueue.x-k8s.io/queue-name": "lq"}, suspend=True)
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "LocalQueue",
        "metadata": {"name": "lq", "namespace": "ml"},
    }
    local["spec"] = {"clusterQueue": "cq"}
    cluster = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue", "metadata": {"name": "cq"}, "spec": {}}
    found = adopted([held, local, cluster], KUEUE)
    assert found.manifests[0]["spec"]["suspend"] is False
    assert found.manifests[0]["metadata"]["labels"][names.QUEUE] == "cq"
    assert [each["metadata"]["name"] for each in found.made] == ["cq"]


def test_a_job_that_its_owner_suspended_stays_suspended():
    assert taken(job(suspend=True), NAMESPACES)["spec"]["suspend"] is True


def test_pods_of_a_group_of_kueue_start_together():
    labels, total = {"kueue.x-k8s.io/pod-group-name": "g"}, {"kueue.x-k8s.io/pod-group-total-count": "2"}
    gated = pod(labels=labels, annotations=total)
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}, {"name": "mine"}]
    found = adopted([gated], KUEUE)
    assert found.manifests[0]["metadata"]["annotations"][names.POD_GROUP] == "g"
    assert found.manifests[0]["spec"]["schedulingGates"] == [{"name": "mine"}]
    assert [(each["metadata"]["name"], each["spec"]["minMember"]) for each in found.made] == [("g", 2)]


def test_a_group_of_volcano_becomes_one_of_kai():
    group = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": "g", "namespace": "ml", "uid": "u"},
        "spec": {"minMember": 3, "queue": "research", "priorityClassName": "high"},
    }
    member = pod(scheduler="volcano", annotations={"scheduling.k8s.io/group-name": "g"})
    found = adopted([group, member], VOLCANO)
    assert found.manifests[0]["apiVersion"] == names.POD_GROUP_VERSION
    assert found.manifests[0]["spec"] == {"queue": "research", "minMember": 3, "priorityClassName": "high"}
    assert found.manifests[1]["metadata"]["annotations"][names.POD_GROUP] == "g"
    assert [each["metadata"]["name"] for each in found.made] == ["research"]


def test_a_volcano_job_passes_its_scheduler_to_tasks():
    manifest = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "v"},
        "spec": {"schedulerName": "volcano", "tasks": [{"template": {"spec": {"containers": [{"name": "c"}]}}}]},
    }
    found = taken(manifest, VOLCANO)
    assert found["spec"]["schedulerName"] == "kai-scheduler"
    assert found["spec"]["tasks"][0]["template"]["spec"]["schedulerName"] == "kai-scheduler"
