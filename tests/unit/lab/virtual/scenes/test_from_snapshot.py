"""A snapshot as the cluster of a run: what runs in it takes part, what waits or leaves in it does not."""

from pathlib import Path

import pytest

from kai.cli.command import run
from kai.cli.console import Console
from kai.cli.deciding.runlines import run_text
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.running.simulation import run as simulated
from kai.lab.virtual.scenes.loading import load
from tests.unit.lab.virtual.builders import cluster, gang, job

ROWS = "arrival_s,duration_s,pods,gpus_per_pod,queue\n"


def running(name: str, node: str, *, pods: int, gpus: int, leaving: bool = False) -> str:
    """Return a pod group whose pods run on a node."""
    text = gang(name, pods=pods, gpus=gpus).replace("  schedulerName:", f"  nodeName: {node}\n  schedulerName:")
    said = ', deletionTimestamp: "2026-01-01T00:00:00Z"' if leaving else ""
    text = text.replace(", namespace: default, annotations:", f", namespace: default{said}, annotations:")
    status = "status: {phase: Running}\n"
    return text.replace("\n---\napiVersion: v1", f"\n{status}---\napiVersion: v1") + status


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    """Return a snapshot of two nodes: on 8 GPUs runs what may be preempted, 4 are being left, a pod waits for 8."""
    parts = [cluster(nodes=2, quota=16), running("old", "n1", pods=2, gpus=4)]
    parts += [running("going", "n2", pods=1, gpus=4, leaving=True), gang("waiting", pods=1, gpus=8)]
    (tmp_path / "now.yaml").write_text("".join(parts), encoding="utf-8")
    path = str(tmp_path / "now.zip")
    assert run(["snapshot", path, "-f", str(tmp_path / "now.yaml"), "-q"]) == 0
    return path


def test_a_trace_starts_beside_a_snapshots_running_pods(snapshot: str, tmp_path: Path):
    (tmp_path / "own.csv").write_text(ROWS + "0,3600,1,8,work\n0,3600,1,8,work\n", encoding="utf-8")
    loaded = load(str(tmp_path / "own.csv"), snapshot)
    result = result_of(simulated(loaded.scene, until=7200.0))
    old, first, second = result.jobs
    assert (old.name, old.state, old.nodes, old.gpus, old.start_seconds) == ("old", "running", ("n1",), 8.0, 0.0)
    assert (first.start_seconds, first.nodes) == (0.0, ("n2",))
    assert (second.start_seconds, second.nodes) == (3600.0, ("n2",))
    assert [queue.name for queue in result.queues] == ["all", "work"]
    assert "Left out of the snapshot: 1 pod that is leaving, 1 pod that waits." in run_text(result, Console())
    assert any("Pods that run in the snapshot" in text for text in result.assumptions)


def test_running_pods_of_a_snapshot_are_evicted_for_arrivals(snapshot: str, tmp_path: Path):
    urgent = gang("urgent", pods=2, gpus=8, duration="10m").replace("Name: train", "Name: build")
    higher = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: build}\nvalue: 90\n"
    (tmp_path / "work.yaml").write_text(higher + urgent, encoding="utf-8")
    result = result_of(simulated(load(str(tmp_path / "work.yaml"), snapshot).scene, until=3600.0))
    jobs = {each.name: each for each in result.jobs}
    assert (jobs["old"].evictions, jobs["urgent"].start_seconds, jobs["urgent"].end_seconds) == (2, 30.0, 630.0)
    assert jobs["old"].waits_seconds[-1] == 630.0  # from its eviction until urgent has ended


def test_what_a_workload_has_as_well_is_counted_once(snapshot: str, tmp_path: Path):
    text = cluster(nodes=3) + job("more", duration="10m") + running("old", "n1", pods=1, gpus=1)
    (tmp_path / "work.yaml").write_text(text, encoding="utf-8")
    scene = load(str(tmp_path / "work.yaml"), snapshot).scene
    result = result_of(simulated(scene, until=600.0))
    assert (result.counts["nodes"], sorted(each.name for each in result.jobs)) == (2, ["more", "old"])
    assert "2 pods that the workload brings itself" in result.notes[0]
    assert result.notes[-1] == "Left out of the workload, for the snapshot has its own: 3 nodes and 2 queues."


def test_pods_sharing_gpu_memory_hold_part_of_a_gpu(tmp_path: Path):
    text = cluster(nodes=1).replace("hostname: n1}", 'hostname: n1, nvidia.com/gpu.memory: "40000"}')
    sharing = running("shares", "n1", pods=2, gpus=1).replace("nvidia.com/gpu:", "cpu:")
    said = (
        "{pod-group-name: shares, gpu-memory: '10000', received-resource-type: Fraction}, labels: {runai-gpu-group: d}"
    )
    (tmp_path / "now.yaml").write_text(text + sharing.replace("{pod-group-name: shares}", said), encoding="utf-8")
    path = str(tmp_path / "now.zip")
    assert run(["snapshot", path, "-f", str(tmp_path / "now.yaml"), "-q"]) == 0
    (tmp_path / "work.yaml").write_text(job("more", duration="10m"), encoding="utf-8")
    result = result_of(simulated(load(str(tmp_path / "work.yaml"), path).scene, until=3600.0))
    jobs = {each.name: each for each in result.jobs}
    assert jobs["shares"].gpus == 0.5
    assert [each.gpus for each in result.stays if result.jobs[each.job].name == "shares"] == [0.25, 0.25]
    assert result.queues[1].gpu_hours == pytest.approx(0.5 + 1 / 6, abs=1e-6)


def test_devices_of_pods_that_are_left_out_are_free(tmp_path: Path):
    drivers = """---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: nic}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1}
spec:
  driver: nic.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: a}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: nic}}]}}
status:
  allocation: {devices: {results: [{request: r, driver: nic.example.com, pool: n1, device: a}]}}
  reservedFor: [{resource: pods, name: going-0, uid: going-0}]
"""
    claim = "resourceClaims: [{name: mine, resourceClaimName: %s}]\n  schedulerName"
    going = running("going", "n1", pods=1, gpus=0, leaving=True).replace("schedulerName", claim % "c")
    (tmp_path / "now.yaml").write_text(cluster(gpus=0) + drivers + going, encoding="utf-8")
    assert run(["snapshot", str(tmp_path / "now.zip"), "-f", str(tmp_path / "now.yaml"), "-q"]) == 0
    other = drivers[
        drivers.index("---\napiVersion: resource.k8s.io/v1\nkind: ResourceClaim") : drivers.index("status:")
    ]
    next_one = gang("next", pods=1, gpus=0, duration="10m").replace("schedulerName", claim % "d")
    (tmp_path / "work.yaml").write_text(other.replace("name: c,", "name: d,") + next_one, encoding="utf-8")
    scene = load(str(tmp_path / "work.yaml"), str(tmp_path / "now.zip")).scene
    assert [each.end_seconds for each in result_of(simulated(scene, until=3600.0)).jobs] == [600.0]
