import attrs
import pytest

from kai.deciding.explain.messages import fit_message
from kai.plugins.pool_maximum import PoolMaximum, plain
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of

NODES = (
    node("n1", allocatable={"nvidia.com/gpu": "2", "cpu": "4500m", "memory": "8G"}),
    node("n2", allocatable={"nvidia.com/gpu": "4", "cpu": "2", "memory": "16G", "example.com/nic": "2"}),
)


def refusal(**requests):
    amounts = {name.replace("__", "/").replace("_", "."): amount for name, amount in requests.items()}
    return Stage.of(PoolMaximum(), snapshot_of(*NODES, pod("a-0", requests=amounts))).refusal("a-0")


def test_a_pod_that_some_node_could_hold_is_admitted():
    amounts = {"nvidia.com/gpu": "4", "cpu": "2", "memory": "16G"}
    assert Stage.of(PoolMaximum(), snapshot_of(*NODES, pod("a-0", requests=amounts))).is_silent


def test_each_resource_is_compared_by_itself():
    # No single node has both, but the peer does not look at nodes here.
    assert refusal(nvidia_com__gpu="4", cpu="4500m") == ""


@pytest.mark.parametrize(
    ("amounts", "wanted", "maximum"),
    [
        ({"nvidia.com/gpu": "5"}, "GPU: 5, CPU: 1 (cores), memory: 0 (GB)", "Max GPU {in_one} 4"),
        ({"cpu": "5"}, "GPU: 0, CPU: 5 (cores), memory: 0 (GB)", "Max CPU {in_one} 4.5 cores"),
        ({"memory": "17G"}, "GPU: 0, CPU: 1 (cores), memory: 17 (GB)", "Max memory {in_one} 16 GB"),
        (
            {"example.com/disk": "3"},
            "GPU: 0, CPU: 1 (cores), memory: 0 (GB), example.com/disk: 3",
            "No node in the default node-pool has example.com/disk resources",
        ),
        (
            {"example.com/nic": "3"},
            "GPU: 0, CPU: 1 (cores), memory: 0 (GB), example.com/nic: 3",
            "Max example.com/nic {in_one} 2",
        ),
        (
            {"ephemeral-storage": "5G"},
            "GPU: 0, CPU: 1 (cores), memory: 0 (GB), ephemeral-storage: 5 (GB)",
            "No node in the default node-pool has ephemeral-storage resources",
        ),
        (
            {"hugepages-2Mi": "4G"},
            "GPU: 0, CPU: 1 (cores), memory: 0 (GB), hugepages-2Mi: 4 (GB)",
            "No node in the default node-pool has hugepages-2Mi resources",
        ),
        (
            {"nvidia.com/mig-1g.10gb": "2"},
            "GPU: 2, CPU: 1 (cores), memory: 0 (GB), mig nvidia.com/mig-1g.10gb: 2",
            "No node in the default node-pool has nvidia.com/mig-1g.10gb resources",
        ),
    ],
)
def test_the_refusal_names_the_request_and_the_nodes_maximum(amounts, wanted, maximum):
    in_one = "resources available in a single node in the default node-pool is topped at"
    expected = f"The pod default/a-0 requires {wanted}. {maximum.format(in_one=in_one)}"
    assert Stage.of(PoolMaximum(), snapshot_of(*NODES, pod("a-0", requests=amounts))).refusal("a-0") == expected


def test_gpus_are_looked_at_before_anything_else():
    assert "Max GPU resources" in refusal(nvidia_com__gpu="5", cpu="9", memory="99G")


def test_the_node_pool_of_the_group_is_named():
    snapshot = snapshot_of(*NODES, pod("a-0", requests={"cpu": "9"}))
    snapshot = attrs.evolve(snapshot, groups=tuple(attrs.evolve(each, node_pool="blue") for each in snapshot.groups))
    assert "in the blue node-pool" in Stage.of(PoolMaximum(), snapshot).refusal("a-0")


def test_only_pods_that_are_too_large_are_asked_about():
    stage = Stage.of(PoolMaximum(), snapshot_of(*NODES, pod("a-0", requests={"cpu": "9"}), pod("b-0")))
    assert (stage.is_concerned("a-0"), stage.is_concerned("b-0")) == (True, False)


@pytest.mark.parametrize(
    ("amount", "text"), [(0, "0"), (4.5, "4.5"), (100, "100"), (0.12345, "0.123"), (1.9999, "1.999"), (12.0, "12")]
)
def test_numbers_are_cut_after_three_decimals(amount, text):
    assert plain(amount) == text


def test_a_cycle_says_so_instead_of_counting_nodes():
    played = play(PoolMaximum(), snapshot_of(*NODES, pod("a-0", requests={"cpu": "9"}), pod("b-0")))
    assert played.bound == {"b-0": "n1"}
    text = fit_message(played.session.records[0].reasons[0].facts)
    assert text.startswith("Scheduling conditions were not met for pod default/a-0:\nMaxNodePoolResources: The pod ")
