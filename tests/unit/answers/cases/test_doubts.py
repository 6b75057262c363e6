import json

import pytest

from kai.cli.command import run

CLUSTER = """
{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {allocatable: {cpu: 8, pods: 99, nvidia.com/gpu: 8}}}
---
apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {name: q}
spec: {resources: {gpu: {quota: 8, limit: -1}, cpu: {quota: -1, limit: -1}, memory: {quota: -1, limit: -1}}}
"""
POD = """---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: x, labels: {kai.scheduler/queue: q}}
spec:
  schedulerName: kai-scheduler
  nodeName: %s
  containers: [{name: a, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]
"""
NOTE = "pod x/p: spec.nodeName: found ghost, which is not among the nodes"


@pytest.fixture
def cluster(tmp_path):
    def write(*pods):
        path = tmp_path / "c.yaml"
        path.write_text(CLUSTER + "".join(POD % pod for pod in pods))
        return str(path)

    return write


def test_a_pod_on_a_missing_node_is_lost(cluster, capsys):
    path = cluster(("p", "ghost"), ("r", "n1"))
    assert run(["jobs", "-f", path, "-o", "json"]) == 0
    out, err = capsys.readouterr()
    states = {item["name"]: (item["state"], item["reason"]) for item in json.loads(out)["items"]}
    assert states["r"] == ("Running", None)
    assert states["p"] == ("Lost", {"code": "NodeMissing", "text": "its pods name a node that is not there"})
    assert err == f"note: {NOTE}\n"


def test_why_says_it_and_its_code_is_no(cluster, capsys):
    assert run(["why", "p", "-f", cluster(("p", "ghost")), "--exit-code"]) == 1
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == "p does not run: its pods name a node that is not there."
    assert err == f"note: {NOTE}\n"


def test_simulate_names_pod_field_and_node(cluster, capsys):
    path = cluster(("p", "ghost"))
    assert run(["simulate", path]) == 0
    out, err = capsys.readouterr()
    assert f"note: {path}: {NOTE}\n" in err
    assert " Lost " in out


def test_many_such_pods_are_few_sentences(cluster, capsys):
    assert run(["jobs", "-f", cluster(*((f"p{number}", "ghost") for number in range(9)))]) == 0
    assert capsys.readouterr().err.splitlines()[-1] == "note: so it is with 6 more pods"


@pytest.mark.parametrize(
    ("amounts", "told"),
    [
        ("quota: 8, limit: 4", ["note: c.yaml: queue a: its limit of gpu, 4, is below its quota, 8"]),
        (
            "quota: {cpu: 2}, limit: {cpu: 0}",
            ["note: c.yaml: queue a: its limit of cpu, 0, is below its quota, 2000"],
        ),
        ("quota: 4, limit: 4", []),
        ("quota: 4", []),
        ("limit: 4", []),
    ],
)
def test_a_limit_below_the_quota_is_told(tmp_path, monkeypatch, capsys, amounts, told):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(
        f"cluster: {{nodes: {{n1: {{gpu: 4}}}}}}\nqueues: {{a: {{{amounts}}}}}\ngroups: {{}}\n"
    )
    assert run(["simulate", "c.yaml"]) == 0
    assert capsys.readouterr().err.splitlines() == told


POOLS = """
apiVersion: v1
kind: Pod
metadata: {name: here, namespace: ml, labels: {kai.scheduler/queue: q}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
---
apiVersion: v1
kind: Pod
metadata: {name: there, namespace: ml, labels: {kai.scheduler/queue: q, kai.scheduler/node-pool: west}}
spec: {schedulerName: kai-scheduler, containers: [{name: c, image: i}]}
"""


def test_groups_of_other_pools_are_counted_with_a_hint(tmp_path, capsys):
    path = tmp_path / "pools.yaml"
    path.write_text(POOLS)
    assert run(["jobs", "-f", str(path)]) == 0
    assert (
        "note: 1 pod group of other node pools not shown (west: 1); "
        "--config with a SchedulingShard of partitionLabelValue west shows that pool"
    ) in capsys.readouterr().err


def test_why_says_in_which_node_pool_a_job_is(tmp_path, capsys):
    path = tmp_path / "pools.yaml"
    path.write_text(POOLS)
    assert run(["why", "there", "-f", str(path)]) == 4
    assert capsys.readouterr().err == (
        "error: there is in node pool west, and this is decided for what has no label kai.scheduler/node-pool\n"
        "  help: --config FILE with a SchedulingShard of partitionLabelValue: west decides for it\n"
    )
