import pytest

from kai.answers.cases.live_cluster import read_cluster
from kai.cluster.transport.access import Access
from kai.lab.sources.adopting import with_adopted, with_adopted_of_cluster
from kai.manifests.adoption import Adoption
from tests.doubles.list_server import listing

TAKEN = Adoption(schedulers=frozenset({"default-scheduler"}))


def node(gpus):
    amounts = {"cpu": "32", "memory": "64Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n1"}, "status": status}


def pod(name, *owner, scheduler="default-scheduler", namespace="ml", phase="Pending", **spec):
    references = []
    if owner:
        version, kind, of = owner
        references = [{"apiVersion": version, "kind": kind, "name": of, "uid": f"uid-{of}", "controller": True}]
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "ownerReferences": references}
    limits = {"nvidia.com/gpu": "2"}
    container = {"name": "c", "image": "i", "resources": {"limits": limits, "requests": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": scheduler, "containers": [container], **spec},
        "status": {"phase": phase},
    }


def owner(version, kind, name, above=(), namespace="ml", **spec):
    references = []
    if above:
        of, parent = above
        references = [{"apiVersion": version, "kind": of, "name": parent, "uid": f"uid-{parent}", "controller": True}]
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "ownerReferences": references}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


@pytest.fixture
def server():
    with listing([node(8)]) as found:
        yield found


def serve(server, *manifests):
    for each in manifests:
        place = f"{each['apiVersion']}/{each['kind'].lower()}s"
        server.lists.setdefault(place, []).append({k: v for k, v in each.items() if k not in {"apiVersion", "kind"}})


def case_of(server, tmp_path, adoption=TAKEN):
    access = Access(kubeconfig=server.kubeconfig(tmp_path))
    return with_adopted_of_cluster(read_cluster(access), access, adoption)


def groups(case):
    return {each.metadata.name: each.spec for each in case.objects.pod_groups}


def test_pods_of_a_running_deployment_are_grouped_by_it(server, tmp_path):
    serve(
        server,
        pod("web-1", "apps/v1", "ReplicaSet", "web-abc", nodeName="n1", phase="Running"),
        owner("apps/v1", "ReplicaSet", "web-abc", ("Deployment", "web")),
        owner("apps/v1", "Deployment", "web", replicas=1),
    )
    case = case_of(server, tmp_path)
    (spec,) = groups(case).values()
    assert spec.priority_class_name == "inference"
    assert {each.spec.scheduler_name for each in case.objects.pods} == {"kai-scheduler"}


def test_pods_of_a_job_are_one_group(server, tmp_path):
    job = ("batch/v1", "Job", "train")
    serve(server, pod("train-1", *job), pod("train-2", *job), owner(*job, parallelism=2))
    assert list(groups(case_of(server, tmp_path))) == ["train"]


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("batch/v1", "Job"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "ReplicaSet"),
        ("kubeflow.org/v1", "PyTorchJob"),
        ("kubeflow.org/v2beta1", "MPIJob"),
        ("ray.io/v1", "RayCluster"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
        ("example.org/v1", "Unheard"),
    ],
)
def test_pods_of_an_unreadable_owner_are_grouped_by_reference(server, tmp_path, version, kind):
    serve(server, pod("w-1", version, kind, "w"), pod("w-2", version, kind, "w"))
    case = case_of(server, tmp_path)
    assert groups(case)
    assert all("pod-group-name" in each.metadata.annotations for each in case.objects.pods)


def test_an_unlistable_owner_does_not_stop_the_adoption(server, tmp_path):
    server.refusals["jobs"] = (403, 'User "ann" cannot list resource "jobs" in API group "batch" at the cluster scope')
    serve(server, pod("train-1", "batch/v1", "Job", "train"))
    assert list(groups(case_of(server, tmp_path))) == ["train"]


def test_a_job_held_by_kueue_gets_pods_and_queue(server, tmp_path):
    held = owner("batch/v1", "Job", "held", suspend=True, parallelism=2)
    held["spec"]["template"] = {"spec": pod("x")["spec"]}
    held["metadata"]["labels"] = {"kueue.x-k8s.io/queue-name": "lq"}
    local = owner("kueue.x-k8s.io/v1beta1", "LocalQueue", "lq", clusterQueue="cq")
    cluster = owner("kueue.x-k8s.io/v1beta1", "ClusterQueue", "cq")
    serve(server, held, local, cluster, owner("batch/v1", "Job", "other", suspend=True))
    case = case_of(server, tmp_path, Adoption(schedulers=frozenset({"default-scheduler"}), queue_from="kueue"))
    assert [(spec.queue, spec.min_member) for spec in groups(case).values()] == [("cq", 1)]
    assert len(case.objects.pods) == 2
    assert [each.metadata.name for each in case.objects.queues] == ["cq"]


def test_quotas_of_namespaces_bound_the_queues_that_are_made(server, tmp_path):
    quota = owner("v1", "ResourceQuota", "q", hard={"requests.nvidia.com/gpu": "3"})
    serve(server, pod("a"), pod("b", namespace="other"), quota)
    case = case_of(server, tmp_path, Adoption(schedulers=frozenset({"default-scheduler"}), queue_from="namespace"))
    quotas = {each.metadata.name: each.spec.resources.gpu.quota for each in case.objects.queues}
    assert quotas == {"all": 8, "ml": 3, "other": 5}


def test_kais_own_and_finished_pods_are_not_adopted(server, tmp_path):
    serve(server, pod("ours", scheduler="kai-scheduler"), pod("over", phase="Succeeded"))
    case = case_of(server, tmp_path)
    assert {pod.metadata.name: pod.spec.scheduler_name for pod in case.objects.pods} == {
        "ours": "kai-scheduler",
        "over": "default-scheduler",
    }


def test_a_case_without_adopted_pods_stays_the_same_object(server, tmp_path):
    case = case_of(server, tmp_path, Adoption())
    assert with_adopted(case, Adoption()) is case
