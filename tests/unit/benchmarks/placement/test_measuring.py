import pytest
from click.testing import CliRunner

from benchmarks.placement.command import placement, placement_table
from benchmarks.placement.measuring import AT_ONCE, IN_TURN, WITHOUT, Measured, Offered, offer
from benchmarks.placement.trace import NodeShape, PodShape, Trace

NODES = (NodeShape("n-0", 16_000, 65_536, 4, "G2"), NodeShape("n-1", 16_000, 65_536, 4, "T4"))
PODS = (PodShape(1_000, 1_024, 1, 1000), PodShape(1_000, 1_024, 1, 500), PodShape(2_000, 1_024, 1, 1000, ("T4",)))


@pytest.mark.parametrize("document", [WITHOUT, IN_TURN])
def test_what_comes_one_after_the_other_is_counted_at_each_demand(document):
    found = offer(Trace("small", NODES, PODS), seed=0, document=document, step=3)
    assert len(found.shares) == 2
    assert 0 < found.shares[0] <= found.shares[1] <= 100
    assert found.cycle_ms > 0


def test_what_comes_at_once_is_counted_once_and_large_pods_find_their_nodes():
    large = PodShape(4_000, 4_096, 4, 1000)
    trace = Trace("small", NODES, (PodShape(1_000, 1_024, 1, 1000),) * 4 + (large,) * 2)
    found = offer(trace, seed=1, document=AT_ONCE, step=0)
    assert found.shares == (100.0,)


def test_the_table_has_mean_and_spread_of_shares_and_what_cycles_cost():
    def measured(seed, share):
        return Measured("default", seed, *(Offered((share, share + 1), 10.0 * at) for at in (1, 2, 3, 6)))

    _, line = placement_table([measured(0, 90.0), measured(1, 92.0)]).splitlines()
    assert line.split("  ")[0] == "default"
    assert "91.0 ± 1.00 / 92.0 ± 1.00" in line
    assert "10.0 -> 20.0 (x2.00)" in line
    assert "30.0 -> 60.0 (x2.00)" in line


def test_a_folder_without_traces_is_told_in_one_line(tmp_path):
    result = CliRunner().invoke(placement, ["--traces", str(tmp_path), "--seeds", "1"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert "No such file" in result.output
