import pytest

from tests.unit.roles.podgrouper.workloads import failure_of, pod_of, spec_of, thing

KINDS = {"TFJob": "tfReplicaSpecs", "XGBoostJob": "xgbReplicaSpecs", "JAXJob": "jaxReplicaSpecs"}


def job(kind, replicas, version="v1", **spec):
    field = {**KINDS, "MPIJob": "mpiReplicaSpecs"}[kind]
    specs = {role: {} if count is None else {"replicas": count} for role, count in replicas.items()}
    return thing(f"kubeflow.org/{version}", kind, spec={field: specs, **spec})


@pytest.mark.parametrize(
    ("kind", "replicas", "minimum"),
    [
        ("TFJob", {"PS": 1, "Chief": 1, "Worker": 3}, 5),
        ("XGBoostJob", {"Master": 1, "Worker": 2}, 3),
        ("JAXJob", {"Worker": 4}, 4),
        ("MPIJob", {"Launcher": 1, "Worker": 2}, 3),
        ("TFJob", {"Chief": None, "Worker": 3}, 4),
        ("TFJob", {"Chief": 1, "Worker": 0}, 1),
        ("XGBoostJob", {"Master": 1}, 1),
        ("MPIJob", {"Launcher": 1}, 1),
    ],
)
def test_a_training_job_is_a_gang_of_its_replicas(kind, replicas, minimum):
    work = job(kind, replicas)
    assert spec_of(pod_of(work), work)["minMember"] == minimum


@pytest.mark.parametrize("minimum", [0, 2])
def test_the_run_policys_minimum_overrides_missing_replicas(minimum):
    work = job("XGBoostJob", {}, runPolicy={"schedulingPolicy": {"minAvailable": minimum}})
    assert spec_of(pod_of(work), work)["minMember"] == minimum


@pytest.mark.parametrize(
    ("kind", "replicas", "message"),
    [
        ("XGBoostJob", {"Worker": 1}, "spec.xgbReplicaSpecs.Master: found nothing"),
        ("JAXJob", {"Master": 1}, "spec.jaxReplicaSpecs.Worker: found nothing"),
        ("MPIJob", {"Worker": 1}, "spec.mpiReplicaSpecs.Launcher: found nothing"),
        ("TFJob", {"Worker": 0}, "spec.tfReplicaSpecs: found 0, expected at least 1 replica in all"),
        ("TFJob", {"PS": 3, "Worker": -1}, "spec.tfReplicaSpecs.Worker.replicas: found -1, expected at least 0"),
        ("TFJob", {"Worker": "2"}, "spec.tfReplicaSpecs.Worker.replicas: found '2', expected an integer"),
        ("TFJob", {}, "spec.tfReplicaSpecs: found 0, expected at least 1 replica in all"),
    ],
)
def test_replicas_that_are_missing_are_refused(kind, replicas, message):
    work = job(kind, replicas)
    assert f'{kind} "ns/work": {message}' in failure_of(pod_of(work), work)


def test_a_job_without_replica_specs_is_refused():
    work = thing("kubeflow.org/v1", "TFJob", spec={})
    assert "spec.tfReplicaSpecs: found nothing" in failure_of(pod_of(work), work)


def launcher(**metadata):
    labels = {"training.kubeflow.org/job-name": "work", "training.kubeflow.org/job-role": "launcher"}
    pod = pod_of(name="launcher", labels=labels)
    pod["metadata"].update(metadata)
    return pod


@pytest.mark.parametrize(
    ("others", "minimum"),
    [([], 2), ([launcher()], 3), ([launcher(deletionTimestamp="2026-01-01T00:00:00Z")], 2)],
)
@pytest.mark.parametrize("version", ["v1", "v2beta1"])
def test_a_launcher_waiting_for_workers_counts_once_it_exists(others, minimum, version):
    work = job("MPIJob", {"Launcher": 1, "Worker": 2}, version, launcherCreationPolicy="WaitForWorkersReady")
    assert spec_of(pod_of(work), work, *others)["minMember"] == minimum


def test_a_gang_below_nothing_is_refused():
    policy = {"schedulingPolicy": {"minAvailable": 0}}
    specs = {"Launcher": 1, "Worker": 2}
    work = job("MPIJob", specs, launcherCreationPolicy="WaitForWorkersReady", runPolicy=policy)
    assert "minMember: found -1" in failure_of(pod_of(work), work)
