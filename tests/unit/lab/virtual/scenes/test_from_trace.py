from pathlib import Path

import pytest

from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.running.simulation import run
from kai.lab.virtual.scenes.loading import load

NODES = "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,4,A10\nn1,64000,262144,4,T4\n"
HEAD = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"


def test_a_trace_runs_on_nodes_of_another_file(tmp_path: Path):
    rows = [
        "a,1000,1024,4,1000,T4,LS,Running,0,600,0",  # all of n1
        "b,1000,1024,1,500,,BE,Running,60,660,60",
        "c,1000,1024,1,500,,BE,Running,60,660,60",  # shares a device with b
        "d,1000,1024,4,1000,T4,BE,Running,120,720,120",  # waits for a
        "e,1000,1024,4,1000,V100,BE,Running,120,720,120",  # no node has its model
    ]
    (tmp_path / "pods.csv").write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "nodes.csv").write_text(NODES, encoding="utf-8")
    loaded = load(str(tmp_path / "pods.csv"), str(tmp_path / "nodes.csv"))
    result = result_of(run(loaded.scene))
    a, b, c, d, e = result.jobs
    assert [job.nodes for job in (a, b, c, d, e)] == [("n1",), b.nodes, b.nodes, ("n1",), ()]
    assert (d.start_seconds, d.end_seconds) == (600.0, 1200.0)
    assert e.state == "waiting"
    assert [job.name for job in result.jobs] == ["a", "b", "c", "d", "e"]
    used = sum(sum(column) for name, column in result.series.columns.items() if name.startswith("used/"))
    assert used * result.series.bucket_seconds > 0
    assert any("Queues that the cluster has not are made" in text for text in result.assumptions)


def test_a_trace_uses_the_queues_of_its_cluster_file(tmp_path: Path):
    (tmp_path / "own.csv").write_text(
        "arrival_s,duration_s,pods,gpus_per_pod,queue\n0,3600,2,8,a\n60,60,1,8,a\n", encoding="utf-8"
    )
    (tmp_path / "cluster.yaml").write_text(
        "shapes: {x: {gpu: 8, count: 2}}\nqueues: {all: {quota: 16}, a: {parent: all, quota: 16}}\n", encoding="utf-8"
    )
    loaded = load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml"))
    result = result_of(run(loaded.scene, until=7200.0))
    assert [job.start_seconds for job in result.jobs] == [0.0, 3600.0]
    assert [queue.name for queue in result.queues] == ["a", "all"]


def test_priorities_that_are_no_classes_are_told(tmp_path: Path):
    (tmp_path / "own.csv").write_text(
        "arrival_s,duration_s,gpus_per_pod,priority\n0,60,1,train\n0,60,1,urgent\n0,60,1,\n", encoding="utf-8"
    )
    (tmp_path / "cluster.yaml").write_text("shapes: {x: {gpu: 8}}\n", encoding="utf-8")
    notes = load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml")).scene.notes
    assert notes == ("No priority class is called urgent: jobs of such a priority have the default one.",)


def test_all_nodes_may_be_made_when_pods_wait(tmp_path: Path):
    (tmp_path / "own.csv").write_text("arrival_s,duration_s,gpus_per_pod\n0,60,8\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text(
        "shapes: {x: {gpu: 8, count: 0}}\nautoscale: [{shape: x, max: 2, provision: 5m}]\n", encoding="utf-8"
    )
    result = result_of(run(load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml")).scene, until=3600.0))
    assert [job.start_seconds for job in result.jobs] == [300.0]
    assert (result.counts["gpus"], result.most_gpus) == (0.0, 8.0)


@pytest.mark.parametrize("offered", ["amd.com/gpu: 8", "nvidia.com/mig-2g.10gb: 4"])
def test_generated_queues_divide_gpus_of_any_vendor_and_slices(tmp_path: Path, offered: str):
    (tmp_path / "own.csv").write_text("arrival_s,duration_s,gpus_per_pod,queue\n0,60,1,a\n0,60,1,b\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text(f"shapes: {{x: {{resources: {{{offered}}}}}}}\n", encoding="utf-8")
    result = result_of(run(load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml")).scene))
    assert {queue.name: queue.quota_gpus for queue in result.queues} == {"all": 8.0, "a": 4.0, "b": 4.0}
    assert result.value("started") == (2.0 if offered.startswith("amd") else 0.0)


def test_jobs_of_a_queue_that_runs_none_are_told(tmp_path: Path):
    (tmp_path / "own.csv").write_text("arrival_s,duration_s,queue\n0,60,lab\n0,60,a\n", encoding="utf-8")
    file = "shapes: {x: {gpu: 8}}\nqueues: {lab: {quota: 8}, a: {parent: lab}}\n"
    (tmp_path / "cluster.yaml").write_text(file, encoding="utf-8")
    notes = load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml")).scene.notes
    said = "Jobs never start: queue lab has children; only a leaf queue can run jobs; leaf queues below it: a."
    assert notes == (said,)


def test_a_trace_queue_named_like_the_root_runs_jobs(tmp_path: Path):
    (tmp_path / "own.csv").write_text("arrival_s,duration_s,gpus_per_pod,queue\n0,60,4,all\n0,60,4,b\n", "utf-8")
    (tmp_path / "cluster.yaml").write_text("shapes: {x: {gpu: 8}}\n", encoding="utf-8")
    result = result_of(run(load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml")).scene))
    assert {queue.name: queue.parent for queue in result.queues} == {"all": "all-2", "all-2": None, "b": "all-2"}
    assert result.value("done") == 2.0


def test_columns_that_are_not_read_are_told(tmp_path: Path):
    (tmp_path / "own.csv").write_text("arrival_s,duration,gpus,queue\n0,60,4,default\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text("shapes: {x: {gpu: 8}}\n", encoding="utf-8")
    (note,) = load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml")).scene.notes
    assert note.startswith("2 columns not read: duration, gpus. Columns are name, arrival_s, duration_s, pods,")


@pytest.mark.parametrize(
    ("times", "expected"),
    [(("2026-11-21T06:00:00", "2026-11-21T07:00:00"), "2026-11-21T06:00:00Z"), (("60", "3660"), None)],
    ids=["dates", "seconds"],
)
def test_a_run_starts_at_the_first_jobs_date(tmp_path: Path, times: tuple[str, str], expected: str | None):
    rows = "\n".join(f"{name},{at},0,60,1,8,1,COMPLETED,ada,vc" for name, at in zip("ab", times, strict=True))
    head = "job_id,submit_time,queue,duration,node_num,gpu_num,cpu_num,state,user,vc\n"
    (tmp_path / "cluster_log.csv").write_text(head + rows + "\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text("shapes: {x: {gpu: 8}}\n", encoding="utf-8")
    result = result_of(run(load(str(tmp_path / "cluster_log.csv"), str(tmp_path / "cluster.yaml")).scene))
    assert result.starts_at == expected


SLURM = "JobID|Account|Submit|Eligible|ElapsedRaw|NNodes|ReqTRES|AllocTRES"


@pytest.mark.parametrize(
    ("label", "asked", "started", "said"),
    [
        ("NVIDIA-A100-SXM4-80GB", "a100", True, ""),
        ("NVIDIA-A100-SXM4-80GB", "nvidia_a100", True, ""),
        ("Tesla-V100-SXM2-32GB", "a100", False, "No node has GPUs of the type a100: jobs that ask for it never start."),
        ("", "a100", True, "Types of GPUs count for nothing (a100): no node has the label nvidia.com/gpu.product."),
    ],
)
def test_a_gpu_type_means_models_containing_its_words(
    tmp_path: Path, label: str, asked: str, said: str, *, started: bool
):
    row = f"6|ml|5|5|16|2|gres/gpu:{asked}=4,gres/gpu=4|gres/gpu=4"
    (tmp_path / "sacct.txt").write_text(f"{SLURM}\n{row}\n", encoding="utf-8")
    labels = f", labels: {{nvidia.com/gpu.product: {label}}}" if label else ""
    file = (
        f"shapes: {{x: {{gpu: 4, count: 2{labels}}}}}\nqueues: {{all: {{quota: 8}}, ml: {{parent: all, quota: 8}}}}\n"
    )
    (tmp_path / "cluster.yaml").write_text(file, encoding="utf-8")
    scene = load(str(tmp_path / "sacct.txt"), str(tmp_path / "cluster.yaml")).scene
    assert [note for note in scene.notes if said and note.startswith(said)] == list(scene.notes)
    (job,) = result_of(run(scene)).jobs
    assert (job.start_seconds is not None) is started


def test_pods_of_one_job_may_ask_for_different_amounts(tmp_path: Path):
    (tmp_path / "sacct.txt").write_text(f"{SLURM}\n75|ml|5|5|60|2|cpu=2|cpu=2,gres/gpu=5\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text("shapes: {x: {gpu: 3, count: 2}}\n", encoding="utf-8")
    result = result_of(run(load(str(tmp_path / "sacct.txt"), str(tmp_path / "cluster.yaml")).scene))
    (job,) = result.jobs
    assert (job.name, job.pods, job.gpus, job.end_seconds) == ("75", 2, 5.0, 60.0)
    assert sorted(stay.gpus for stay in result.stays) == [2.0, 3.0]


def test_an_invalid_job_name_is_rewritten_for_its_path(tmp_path: Path):
    (tmp_path / "own.csv").write_text("arrival_s,duration_s,name\n0,60,my job/1\n", encoding="utf-8")
    (tmp_path / "cluster.yaml").write_text("shapes: {x: {gpu: 8}}\n", encoding="utf-8")
    (job,) = result_of(run(load(str(tmp_path / "own.csv"), str(tmp_path / "cluster.yaml")).scene)).jobs
    assert (job.name, job.owner) == ("my-job-1", "my job/1")
