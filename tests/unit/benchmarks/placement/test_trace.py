import pytest

from benchmarks.placement.trace import NODES, NodeShape, PodShape, Trace, UnreadableTraceError

NODE_LINES = "sn,cpu_milli,memory_mib,gpu,model\nn-0,64000,262144,2,P100\nn-1,96000,393216,8,G2\n"
POD_LINES = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n"
    "p-0,12000,16384,1,1000,\np-1,6000,12288,1,460,V100M16|V100M32\np-2,8000,1024,0,0,\n"
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / NODES).write_text(NODE_LINES)
    (tmp_path / "openb_pod_list_default.csv").write_text(POD_LINES)
    return tmp_path


def test_nodes_and_pods_are_read_as_they_are_written(folder):
    trace = Trace.read(folder, "default")
    assert trace.nodes == (NodeShape("n-0", 64000, 262144, 2, "P100"), NodeShape("n-1", 96000, 393216, 8, "G2"))
    assert trace.pods == (
        PodShape(12000, 16384, 1, 1000),
        PodShape(6000, 12288, 1, 460, ("V100M16", "V100M32")),
        PodShape(8000, 1024, 0, 0),
    )
    assert trace.capacity == 10_000


def test_a_workload_without_models_is_read_too(folder):
    (folder / "openb_pod_list_default.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,2,8,1000\n")
    assert Trace.read(folder, "default").pods == (PodShape(1, 2, 8, 1000),)


def test_published_files_give_the_same_pods_as_reduced_ones(folder):
    (folder / "openb_pod_list_default.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "p-0,12000,16384,1,1000,,LS,Running,90,12537496,90\n"
        "p-1,6000,12288,1,460,V100M16|V100M32,BE,Pending,7,50,\n"  # never placed there, and it came first
        "p-2,8000,1024,0,0,,Burstable,Failed,8,9,8\n"
    )
    assert Trace.read(folder, "default").pods == (
        PodShape(12000, 16384, 1, 1000),
        PodShape(6000, 12288, 1, 460, ("V100M16", "V100M32")),
        PodShape(8000, 1024, 0, 0),
    )


def test_each_gpu_part_is_read_to_the_thousandth(folder):
    lines = "".join(f"{milli},1,{min(milli, 1)},{milli}\n" for milli in range(1001))
    (folder / "openb_pod_list_default.csv").write_text(f"cpu_milli,memory_mib,num_gpu,gpu_milli\n{lines}")
    pods = Trace.read(folder, "default").pods
    assert pods == tuple(PodShape(milli, 1, min(milli, 1), milli) for milli in range(1001))


def test_arrivals_shuffle_all_pods_and_then_repeat(folder):
    trace = Trace.read(folder, "default")
    pods = trace.arrivals(3, 1.3)
    assert sorted(map(repr, pods[:3])) == sorted(map(repr, trace.pods))
    assert sum(pod.demand for pod in pods) >= 13_000 > sum(pod.demand for pod in pods[:-1])
    assert pods == trace.arrivals(3, 1.3)
    assert pods != trace.arrivals(4, 1.3)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (NODES, "sn,cpu_milli\nn-0,1\n", "expected nodes"),
        ("openb_pod_list_default.csv", "cpu_milli,memory_mib,num_gpu,gpu_milli\nx,2,8,1000\n", "expected a pod"),
    ],
)
def test_an_unreadable_trace_line_is_named(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(UnreadableTraceError, match=message):
        Trace.read(folder, "default")


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(UnreadableTraceError, match=r"openb_node_list_gpu_node\.csv: found no such file"):
        Trace.read(tmp_path, "default")
