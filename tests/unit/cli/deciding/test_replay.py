"""``kai snapshot``, ``kai replay`` and ``kai diff``: a cluster written down, decided again, compared."""

import json
import zipfile

import pytest
import yaml

from kai.cli.command import run

CLUSTER = """
about: One starts, one waits.
cluster: {nodes: {n1: {gpu: 2}}}
queues: {root: {quota: 2}, a: {parent: root, quota: 2}}
groups:
  starts: {queue: a, each: {gpu: 1}}
  waits: {queue: a, each: {gpu: 2}}
run: [allocate]
"""


@pytest.fixture
def cluster(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text(CLUSTER)
    return str(path)


@pytest.fixture
def saved(tmp_path, cluster, capsys):
    path = str(tmp_path / "now.zip")
    assert run(["snapshot", path, "-f", cluster, "-q"]) == 0
    capsys.readouterr()
    return path


def test_a_snapshot_prints_its_contents_and_the_replay_command(tmp_path, cluster, capsys):
    path = str(tmp_path / "now.zip")
    assert run(["snapshot", path, "-f", cluster]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first == f"saved {path}: 1 node · 2 pods · 2 jobs · 2 queues"
    assert second.endswith(f"again: kai replay {path} --expect")


def test_what_is_saved_is_decided_as_before(saved, capsys):
    assert run(["replay", saved, "--expect"]) == 0
    text = capsys.readouterr().out
    assert "Plan: 1 pod starts now." in text
    assert text.splitlines()[-1].endswith(", as recorded")


def group(name, *, node="", code="", pods=1):
    """Return a group of queue a with a pod of one GPU, and why a scheduler left it waiting."""
    place = {"namespace": "ml", "creationTimestamp": "2026-11-22T08:00:00Z"}
    condition = {
        "type": "UnschedulableOnNodePool",
        "nodePool": "default",
        "reason": "Unschedulable",
        "status": "True",
        "transitionID": "1",
        "reasons": [{"reason": code, "message": "in its words"}],
    }
    return [
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {**place, "name": name, "uid": name},
            "spec": {"queue": "a", "minMember": pods},
            "status": {"schedulingConditions": [condition] if code else []},
        },
        *(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    **place,
                    "name": f"{name}-{at}",
                    "uid": f"{name}{at}",
                    "annotations": {"pod-group-name": name},
                },
                "spec": {
                    "schedulerName": "kai-scheduler",
                    "nodeName": node,
                    "containers": [{"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}],
                },
                "status": {"phase": "Running" if node else "Pending"},
            }
            for at in range(pods)
        ),
    ]


@pytest.fixture
def theirs(tmp_path, capsys):
    """Save a cluster that another scheduler looks after."""
    amounts = {"cpu": "8", "memory": "8Gi", "pods": "10", "nvidia.com/gpu": "2"}
    share = {"quota": 2, "limit": -1, "overQuotaWeight": 1}
    shares = {"gpu": share, "cpu": {**share, "quota": -1}, "memory": {**share, "quota": -1}}
    queues = [
        {
            "apiVersion": "scheduling.run.ai/v2",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": {"resources": shares, **more},
        }
        for name, more in (("root", {}), ("a", {"parentQueue": "root"}))
    ]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "status": status}

    def save(*groups):
        items = [node, *queues, *(each for group in groups for each in group)]
        (tmp_path / "theirs.yaml").write_text(yaml.safe_dump_all(items))
        path = str(tmp_path / "theirs.zip")
        assert run(["snapshot", path, "-f", str(tmp_path / "theirs.yaml"), "-q"]) == 0
        capsys.readouterr()
        return path

    return save


def test_a_disagreeing_decision_is_printed_with_both_rules(theirs, capsys):
    saved = theirs(group("fits", code="OverLimit"), group("large", code="PodSchedulingErrors", pods=3), group("new"))
    assert run(["replay", saved]) == 0
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if "cluster's scheduler" in line)
    assert lines[at] == "1 of 2 decisions as the cluster's scheduler has it; 1 job not decided there yet:"
    assert " ".join(lines[at + 1].split()) == "ml/fits there waits: in its words (OverLimit)"
    assert " ".join(lines[at + 2].split()) == "here starts on n1 (it fits, within the share of its queue)"
    assert len(lines) == at + 3
    assert run(["replay", saved, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["agreement"]
    assert (found["decided"], found["equal"], found["undecided"]) == (2, 1, 1)
    (one,) = found["differences"]
    assert (one["job"], one["theirRule"]) == ("ml/fits", "OverLimit")


def test_replay_without_recorded_decisions_compares_nothing(theirs, capsys):
    saved = theirs(group("new"))
    assert run(["replay", saved, "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["agreement"] is None


def test_a_decision_unlike_the_recorded_one_exits_1(saved, tmp_path, capsys):
    policy = tmp_path / "none.yaml"
    policy.write_text("actions: preempt\n")
    assert run(["replay", saved, "--policy", str(policy)]) == 1
    text = capsys.readouterr().out
    assert "1 differ from what is recorded:" in text
    assert "recorded: starts on n1; now: not" in text


def test_the_plan_for_programs_has_its_kind_and_hash(saved, capsys):
    assert run(["replay", saved, "-o", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["apiVersion"], document["kind"]) == ("output.kai/v1", "Plan")
    assert [(each["pod"].rpartition("/")[2], each["node"]) for each in document["place"]] == [("starts-0", "n1")]
    assert document["expected"] == {"equal": True, "differences": []}
    assert len(document["decisionHash"]) == 16


def test_a_snapshot_that_records_nothing_has_nothing_to_expect(tmp_path, cluster, capsys):
    path = str(tmp_path / "theirs.zip")
    assert run(["snapshot", path, "-f", cluster, "--compat", "-q"]) == 0
    assert set(json.loads(zipfile.ZipFile(path).read("snapshot.json"))) == {"config", "schedulerParams", "rawObjects"}
    assert run(["replay", path]) == 0
    assert run(["replay", path, "--expect"]) == 4
    assert "records no decisions" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_said(tmp_path, cluster, capsys):
    assert run(["snapshot", str(tmp_path / "no" / "now.zip"), "-f", cluster]) == 4
    assert "found no such file or folder, expected a file that can be written" in capsys.readouterr().err


def test_two_snapshots_of_one_cluster_differ_in_nothing(tmp_path, cluster, capsys):
    (tmp_path / "one.yaml").write_text(CLUSTER.replace("run: [allocate]\n", ""))
    saved = str(tmp_path / "all.zip")
    assert run(["snapshot", saved, "-f", cluster, "-q"]) == 0
    capsys.readouterr()
    assert run(["diff", saved, cluster, "--exit-code"]) == 0
    assert capsys.readouterr().out == "nothing changes: the same decisions, jobs and figures\n"


def test_another_reason_to_wait_is_a_difference(saved, cluster, capsys):
    assert run(["diff", saved, cluster, "--exit-code"]) == 1  # a snapshot does not keep which actions a scenario runs
    text = capsys.readouterr().out
    assert "default/waits  Waits 0/1 (AtFairShare)  Waits 0/1 (NoRoom)" in text


def test_two_policies_are_compared_on_one_cluster(saved, tmp_path, capsys):
    policy = tmp_path / "none.yaml"
    policy.write_text("actions: preempt\n")
    assert run(["diff", "default", str(policy), "--on", saved, "--exit-code"]) == 1
    text = capsys.readouterr().out
    assert text.splitlines()[0].split() == ["default", "none", "better"]
    assert "first divergence: cycle 1" in text
    assert "default starts it on n1, none decides nothing about it" in text
    assert run(["diff", "default", str(policy), "--on", saved]) == 0


def test_a_comparison_for_programs(saved, tmp_path, capsys):
    policy = tmp_path / "none.yaml"
    policy.write_text("actions: preempt\n")
    assert run(["diff", "default", str(policy), "--on", saved, "-o", "yaml"]) == 0
    (document,) = yaml.safe_load_all(capsys.readouterr().out)
    assert (document["kind"], document["a"], document["b"]) == ("Comparison", "default", "none")
    started = next(each for each in document["metrics"] if each["name"] == "pods started")
    assert (started["a"], started["b"], started["change"], started["better"]) == (1.0, 0.0, -1.0, "a")
    assert document["firstDivergence"]["decisionB"] is None


def test_results_that_were_written_down_are_compared(cluster, tmp_path, capsys):
    for name, words in (("a", []), ("b", ["--actions", "preempt"])):
        assert run(["simulate", cluster, "-o", "json", *words]) == 0
        (tmp_path / f"{name}.json").write_text(capsys.readouterr().out)
    assert run(["diff", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--exit-code"]) == 1
    assert "jobs running" in capsys.readouterr().out
