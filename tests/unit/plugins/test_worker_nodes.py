from kai.framework.parameters import Parameters
from kai.plugins.node_filters import WorkerNodes
from tests.unit.plugins.stage import Stage, node, pod, snapshot_of

RESTRICTED = Parameters(restrict_node_scheduling=True)
GPUS = {"nvidia.com/gpu": "4"}
NODES = (
    node("c", {"node-role.kubernetes.io/cpu-worker": ""}),
    node("g", {"node-role.kubernetes.io/gpu-worker": ""}, allocatable=GPUS),
    node("n", allocatable=GPUS),
)
PODS = (
    pod("cpu-0"),
    pod("gpu-0", requests={"nvidia.com/gpu": "1"}),
    pod("half-0", metadata={"annotations": {"pod-group-name": "half", "gpu-fraction": "0.5"}}),
    pod("mig-0", requests={"nvidia.com/mig-1g.10gb": "1"}),
)


def test_each_kind_of_pod_goes_to_its_own_workers():
    stage = Stage.of(WorkerNodes(), snapshot_of(*NODES, *PODS), RESTRICTED)
    assert stage.accepting("cpu-0") == ["c"]
    assert [stage.accepting(name) for name in ("gpu-0", "half-0", "mig-0")] == [["g"]] * 3


def test_refusals_name_the_kind():
    stage = Stage.of(WorkerNodes(), snapshot_of(*NODES, *PODS), RESTRICTED)
    assert set(stage.reasons("cpu-0")) == {"cpu pods can't run on non cpu nodes"}
    assert set(stage.reasons("gpu-0")) == {"gpu pods can't run on non gpu nodes"}


def test_the_labels_are_options():
    plugin = WorkerNodes(cpu_label="kubernetes.io/hostname", gpu_label="none")
    stage = Stage.of(plugin, snapshot_of(*NODES, *PODS), RESTRICTED)
    assert (stage.accepting("cpu-0"), stage.accepting("gpu-0")) == (["c", "g", "n"], [])


def test_nothing_is_asked_unless_scheduling_is_restricted():
    assert Stage.of(WorkerNodes(), snapshot_of(*NODES, *PODS)).is_silent
