from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from kai.cli.command import complete, kai
from kai.cli.completing import complete_for_kubectl
from tests.doubles.list_server import listing, manifests_of


def completed(*words):
    """Return what may follow, by type."""
    *before, begun = words
    found = ShellComplete(kai, {}, "kai", "").get_completions(list(before), begun)
    return [item.value if item.type == "plain" else item.type for item in found]


LAB = ("-f", "examples/lab")


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["jobs", *LAB, "--queue", "v"], ["vision"]),
        (["queues", *LAB, "t"], ["training"]),
        (["nodes", *LAB, "--job", "vit"], ["vit-base", "vit-large", "vit-xl"]),
        (["jobs", *LAB, "-n", ""], ["lab"]),
        (["jobs", "--state", "wait"], ["waiting", "waits"]),
        (["jobs", *LAB, "--sort", "p"], ["priority", "position"]),
        (["jobs", "-f", "missing.yaml", "--queue", ""], []),
        (["jobs", "-f", "-", "--queue", ""], []),
        (["simulate", "exam"], ["file"]),
        (["simulate", "--config", ""], ["file"]),
        (["jobs", "-f", ""], ["file"]),
        (["simulate", "--actions", "pre"], ["preempt"]),
        (["simulate", "--actions", "allocate,re"], ["allocate,reclaim"]),
        (["run", "sched"], ["scheduler"]),
        (["run", "scheduler", "podgrouper", "sched"], []),
        (["run", "scheduler", "--sched"], ["--schedule-csi-storage", "--schedule-period", "--scheduler-conf",
                                           "--scheduler-name"]),
        (["run", "--schedule-period", "x", "b"], []),
        (["qu"], ["queues"]),
    ],
)  # fmt: skip
def test_what_may_follow_is_offered(words, found):
    assert completed(*words) == found


def test_names_of_a_cluster_are_asked_there(tmp_path, monkeypatch):
    monkeypatch.setattr("kai.cli.completing._PATIENCE_SECONDS", 600.0)  # the machine may be busy
    with listing(manifests_of(Path("examples/lab"))) as server:
        config = server.kubeconfig(tmp_path)
        assert completed("jobs", "--kubeconfig", config, "--queue", "v") == ["vision"]
        assert completed("jobs", "--kubeconfig", config, "--context", "") == ["prod", "staging"]
        assert {path for _, path, _ in server.requests} == {"/apis/scheduling.run.ai/v2/queues"}


def test_a_cluster_that_is_away_completes_to_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("kai.cli.completing._PATIENCE_SECONDS", 0.0)
    with listing([]) as gone:
        config = gone.kubeconfig(tmp_path)
    assert completed("jobs", "--kubeconfig", config, "--queue", "") == []


def test_completion_offers_jobs_and_subjects_behind_their_kind():
    def offered(begun):
        return completed("why", *LAB, begun)

    assert offered("vit-x") == ["vit-xl"]
    assert offered("qu") == ["queue/"]
    assert offered("queue/v") == ["queue/vision"]
    assert offered("node/gpu-13") == ["node/gpu-13"]
    assert offered("job/vit-x") == ["job/vit-xl"]


OWNED = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: chat}
spec:
  replicas: 2
  selector: {matchLabels: {app: chat}}
  template:
    metadata: {labels: {app: chat, kai.scheduler/queue: q}}
    spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
---
{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: q}, spec: {}}
"""


def test_completion_offers_owners_of_jobs_behind_their_kind(tmp_path):
    path = tmp_path / "chat.yaml"
    path.write_text(OWNED)
    kinds = completed("why", "-f", str(path), "")
    assert [each for each in kinds if each.endswith("/")] == [
        "deployment/", "job/", "node/", "pod/", "queue/", "replicaset/"
    ]  # fmt: skip
    assert completed("why", "-f", str(path), "deployment/") == ["deployment/chat"]
    assert completed("why", "-f", str(path), "deploy/c") == ["deploy/chat"]
    assert completed("why", "-f", str(path), "deployment/x") == completed("why", "-f", str(path), "cronjob/") == []
    pods = completed("why", "-f", str(path), "pod/")
    assert len(pods) == 2
    assert all(each.startswith("pod/chat-") for each in pods)


def test_a_cluster_is_not_asked_for_owners(tmp_path, monkeypatch):
    monkeypatch.setattr("kai.cli.completing._PATIENCE_SECONDS", 600.0)  # the machine may be busy
    with listing(manifests_of(Path("examples/lab"))) as server:
        config = server.kubeconfig(tmp_path)
        assert completed("why", "--kubeconfig", config, "deployment/") == []
        assert server.requests == []
        assert completed("why", "--kubeconfig", config, "job/vit-x") == ["job/vit-xl"]
        assert {path for _, path, _ in server.requests} == {"/apis/scheduling.run.ai/v2alpha2/podgroups"}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["jobs", *LAB, "--queue", "v"], "vision\n:4"),
        (["simulate", ""], ":0"),
        (["qu"], "queues\tShow who is entitled to what, who has it,...\n:4"),
    ],
)
def test_kubectl_is_answered_in_its_own_protocol(words, text):
    assert complete_for_kubectl(kai, words) == text


def test_the_program_that_kubectl_asks_answers_on_standard_output(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["kubectl_complete-kai", "jobs", *LAB, "--queue", "v"])
    complete()
    assert capsys.readouterr().out == "vision\n:4\n"
