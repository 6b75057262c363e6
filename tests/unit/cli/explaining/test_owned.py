"""``kai why deployment/NAME``: jobs by what owns their pods, in a cluster file, a snapshot, and a cluster."""

import pytest
import yaml

from kai.answers.documents.document import as_json
from kai.answers.documents.jobs import JobItem, job_lines, owners_of_jobs
from kai.answers.outcomes.owners import owners_in
from kai.cli.arguments import owner_subject
from kai.cli.command import run
from kai.cli.explaining.subjects import named_jobs
from kai.cli.sources import Source
from kai.manifests.expansion import expand
from tests.doubles.list_server import listing

POD = {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "image": "i"}]}


def workload(version, kind, name, gpus, spec, at="template", namespace="default"):
    """Return a workload whose pods ask for GPUs each."""
    container = {**POD["containers"][0], "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    template = {
        "metadata": {"labels": {"kai.scheduler/queue": "a", "app": name}},
        "spec": {**POD, "restartPolicy": "Never" if version == "batch/v1" else "Always", "containers": [container]},
    }
    found = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    place = found["spec"]
    if version == "apps/v1":
        spec["selector"] = {"matchLabels": {"app": name}}
    *way, last = at.split(".")
    for step in way:
        place = place.setdefault(step, {})
    place[last] = template
    return found


def ray(name):
    head = workload("v1", "x", name, 1, {})["spec"]["template"]
    cluster = {"headGroupSpec": {"template": head}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"rayClusterSpec": cluster},
    }


FREE = {key: {"quota": -1, "limit": -1} for key in ("cpu", "memory", "gpu")}
OBJECTS = [
    {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n1"},
        "status": {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110", "nvidia.com/gpu": "2"}},
    },
    {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "a"}, "spec": {"resources": FREE}},
    workload("apps/v1", "Deployment", "web", 4, {"replicas": 2}),
    workload("batch/v1", "Job", "train", 4, {"parallelism": 2}),
    workload("apps/v1", "StatefulSet", "train", 3, {"replicas": 1, "serviceName": "s"}),
    workload("batch/v1", "CronJob", "nightly", 4, {"schedule": "0 3 * * *"}, at="jobTemplate.spec.template"),
    ray("ray"),
]


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(OBJECTS))
    return str(path)


@pytest.fixture
def asked(cluster, capsys):
    def ask(name, *more, code=0, place=cluster):
        assert run(["why", name, "--no-verify", "-f", place, *more]) == code
        return capsys.readouterr()

    return ask


@pytest.mark.parametrize(
    ("name", "job"),
    [
        ("deployment/web", "web-0"),
        ("deploy/web", "web-0"),
        ("Deployments.apps/web", "web-0"),
        ("deployment/default/web", "web-0"),
        ("web", "web-0"),
        ("pod/web-1", "web-1"),
        ("po/web-1", "web-1"),
        ("job/train", "train"),
        ("train", "train"),
        ("statefulset/train", "pg-train-"),
        ("sts/train", "pg-train-"),
        ("rayjob/ray", "ray"),
        ("raycluster/ray-cluster", "ray"),
        ("cronjob/nightly", "nightly-now"),
        ("cj/nightly", "nightly-now"),
    ],
)
def test_owners_lead_to_their_jobs(asked, name, job):
    assert asked(name).out.startswith(job)


def test_a_snapshot_resolves_the_owners_of_its_pods(asked, cluster, tmp_path, capsys):
    place = str(tmp_path / "now.zip")
    assert run(["snapshot", place, "-f", cluster]) == 0
    capsys.readouterr()
    for name, job in (("deploy/web", "web-0"), ("sts/train", "pg-train-"), ("rayjob/ray", "ray")):
        assert asked(name, place=place).out.startswith(job)


def test_evictions_are_asked_for_by_owner_as_well(asked):
    assert asked("deploy/web", "--evicted").out == "no pod has to go\n"
    assert asked("deploy/none", "--evicted", code=4).err.startswith("error: found no deployment none\n")


@pytest.mark.parametrize(
    ("name", "found", "near"),
    [
        ("deploy/wbe", "deployment wbe", "deployment/web"),
        ("wbe", "job, queue or node wbe", "deployment/web"),
        ("rayjob/web", "rayjob web", "deployment/web"),
        ("deploymnet/web", "job, queue or node deploymnet/web", "deployment/web"),
        ("sts/trian", "statefulset trian", "statefulset/train"),
    ],
)
def test_a_misspelled_name_gets_the_nearest_as_a_hint(asked, name, found, near):
    first, hint = asked(name, code=4).err.splitlines()
    assert first == f"error: found no {found}"
    assert hint.startswith(f"  help: kai why {near} --from ")


def test_where_no_name_is_near_the_owners_are_told(asked):
    first, hint = asked("rayjob/something-else", code=4).err.splitlines()
    assert first == "error: found no rayjob something-else"
    assert hint == (
        "  help: jobs here belong to cronjob/nightly, deployment/web, job/nightly-now, job/train, "
        "raycluster/ray-cluster, rayjob/ray and 2 more"
    )


def test_a_name_that_is_too_long_is_cut(asked):
    first = asked("x" * 5000, code=4).err.splitlines()[0]
    assert first == f"error: found no job, queue or node {'x' * 253}…"


def test_a_name_in_several_namespaces_needs_one(tmp_path, capsys):
    path = tmp_path / "two.yaml"
    there = workload("apps/v1", "Deployment", "web", 4, {"replicas": 1}, namespace="b")
    path.write_text(yaml.safe_dump_all([*OBJECTS, there]))
    assert run(["why", "deploy/web", "-f", str(path), "-A"]) == 4
    said = capsys.readouterr().err
    assert said == (
        "error: found web in the namespaces b, default, expected one of them\n"
        "  help: kai why deployment/b/web, or -n b\n"
    )
    assert run(["why", "deploy/b/web", "-f", str(path), "-A", "--no-verify"]) == 0
    assert capsys.readouterr().out.startswith("b/web-0 can never run here")


def live():
    """Return the cluster as an API server has it, with the pods and groups that controllers made."""
    return [dict(each) for each in expand(OBJECTS).manifests]


@pytest.mark.parametrize("hidden", [(), ("nodes",)], ids=["whole", "own"])
def test_a_cluster_is_asked_by_owner(tmp_path, capsys, hidden):
    with listing(live()) as server:
        if hidden:
            server.tenant, server.hidden = "jane", set()
        config = server.kubeconfig(tmp_path, namespace="default")
        for name, job in (("deploy/web", "web-0"), ("sts/train", "pg-train-"), ("raycluster/ray-cluster", "ray")):
            assert run(["why", name, "--no-verify", "--kubeconfig", config]) == 0
            assert capsys.readouterr().out.startswith(job)
        assert run(["why", "deploy/wbe", "--no-verify", "--kubeconfig", config]) == 4
        first, hint = capsys.readouterr().err.splitlines()
        assert first.startswith("error: found no deployment wbe")
        assert hint.startswith("  help: kai why deployment/web")


def test_a_service_says_what_jobs_belong_to(asked, cluster):
    result = Source(place=cluster).decide()
    objects = result.case.objects
    owners = owners_in(objects.pods, objects.pod_groups)
    items = [as_json(JobItem.of(line, with_pods=True, owners=owners[line.job.key])) for line in result.lines]
    lines, read = job_lines({"items": items}), owners_of_jobs({"items": items})
    assert read == owners
    found = named_jobs("deploy/web", lines, Source(), read)
    assert [line.job.name for line in found] == ["web-0", "web-1"]
    assert owners_of_jobs({"items": [as_json(JobItem.of(line, with_pods=True)) for line in result.lines]}) == {}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("deploy/x", ("deployment", "x")),
        ("PyTorchJobs.kubeflow.org/x", ("pytorchjob", "x")),
        ("ns/pod/x", ("n", "pod/x")),
        ("x", ("", "x")),
        ("deploy/", ("", "deploy/")),
        ("/x", ("", "/x")),
    ],
)
def test_kinds_are_written_as_with_kubectl(text, parts):
    assert owner_subject(text) == parts
