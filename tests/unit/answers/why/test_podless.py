import pytest

from kai.cli.command import run
from tests.doubles.list_server import listing

REFUSED = (
    'Error creating: pods "train-" is forbidden: violates PodSecurity "restricted:latest": privileged (container "c")'
)


def workload(version, kind, name="train", conditions=(), **spec):
    metadata = {"name": name, "namespace": "ml", "uid": f"u-{name}"}
    return version, f"{kind.lower()}s", {"metadata": metadata, "spec": spec, "status": {"conditions": list(conditions)}}


def event(kind, name, reason="FailedCreate", message=REFUSED, **more):
    subject = {"kind": kind, "name": name, "namespace": "ml"}
    said = {"involvedObject": subject, "reason": reason, "message": message, "type": "Warning", **more}
    return "v1", "events", {"metadata": {"name": f"{name}.{reason}", "namespace": "ml"}, **said}


@pytest.fixture
def why(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("kai.cluster.requesting.listing._PATIENCE", (0.0, 0.0))

    def ask(name, *objects, refusals=()):
        with listing([]) as server:
            for version, plural, manifest in objects:
                server.lists.setdefault(f"{version}/{plural}", []).append(manifest)
            server.refusals.update(refusals)
            path = server.kubeconfig(tmp_path, namespace="ml")
            assert run(["why", name, "--kubeconfig", path, "--no-verify"]) == 4
        return capsys.readouterr().err

    return ask


@pytest.mark.parametrize("name", ["train", "job/train", "ml/train"])
def test_a_job_without_pods_shows_the_api_servers_refusal(why, name):
    said = why(name, workload("batch/v1", "Job"), event("Job", "train", count=7))
    assert f"error: Job train has no pod that waits or runs: FailedCreate: {REFUSED} (7 times)" in said
    assert "help: kubectl -n ml describe job train" in said


def test_the_newest_refusal_is_told(why):
    old = event("Job", "train", message="old", lastTimestamp="2026-01-01T00:00:00Z")
    new = event("Job", "train", message="new", lastTimestamp="2026-01-02T00:00:00Z")
    assert "FailedCreate: new" in why("train", workload("batch/v1", "Job"), old, new)


def test_a_deployment_without_pods_shows_its_replica_set_failure(why):
    failure = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": "exceeded quota: gpus"}
    assert "exceeded quota: gpus" in why("web", workload("apps/v1", "Deployment", "web", [failure]))
    assert REFUSED in why(
        "deploy/web", workload("apps/v1", "Deployment", "web"), event("ReplicaSet", "web-5d8f", count=1)
    )


def test_a_workload_that_is_suspended_is_told_so(why):
    assert "it is suspended (spec.suspend: true)" in why("train", workload("batch/v1", "Job", suspend=True))


def test_a_workload_without_any_cause_is_still_named(why):
    said = why("train", workload("batch/v1", "Job"), event("Job", "other"))
    assert "Job train has no pod that waits or runs: its conditions and events do not say why" in said


def test_an_unknown_name_is_still_not_found(why):
    assert "found no job, queue or node nothing" in why("nothing", workload("batch/v1", "Job"))


def test_without_job_rights_the_name_is_not_found(why):
    forbidden = (403, 'User "ann" cannot list resource "jobs" in API group "batch" in the namespace "ml"')
    said = why("train", workload("batch/v1", "Job"), refusals={"jobs": forbidden})
    assert "found no job, queue or node train" in said
