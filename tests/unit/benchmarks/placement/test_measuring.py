import pytest
from click.testing import CliRunner

from benchmarks.placement import command
from benchmarks.placement.command import placement, placement_table
from benchmarks.placement.measuring import AT_ONCE, IN_TURN, OFFERS, WITHOUT, Offered, offer
from benchmarks.placement.offering import Offering
from benchmarks.placement.trace import NODES as NODE_FILE
from benchmarks.placement.trace import NodeShape, PodShape, Trace
from kai.deciding.configuration.profile_reading import read_configuration
from kai.deciding.configuration.profiles import make_profile

NODES = (NodeShape("n-0", 16_000, 65_536, 4, "G2"), NodeShape("n-1", 16_000, 65_536, 4, "T4"))
PODS = (PodShape(1_000, 1_024, 1, 1000), PodShape(1_000, 1_024, 1, 500), PodShape(2_000, 1_024, 1, 1000, ("T4",)))


@pytest.mark.parametrize("document", [WITHOUT, IN_TURN])
def test_pods_offered_in_turn_are_counted_at_each_demand(document):
    shares, cycle_ms = offer(Trace("small", NODES, PODS), seed=0, document=document, step=3)
    assert len(shares) == 2
    assert 0 < shares[0] <= shares[1] <= 100
    assert cycle_ms > 0


def test_pods_offered_at_once_are_counted_once():
    large = PodShape(4_000, 4_096, 4, 1000)
    trace = Trace("small", NODES, (PodShape(1_000, 1_024, 1, 1000),) * 4 + (large,) * 2)
    shares, _ = offer(trace, seed=1, document=AT_ONCE, step=0)
    assert shares == (100.0,)


def test_placed_pods_run_with_their_devices_next_cycle():
    half = PodShape(1_000, 1_024, 1, 500)
    offering = Offering(Trace("small", NODES[:1], (half,)), make_profile(read_configuration(IN_TURN, "test")))
    for _ in range(9):
        offering.offer([half])
    assert offering.share == 100.0  # eight halves, of which two each share one of the four devices


def test_the_table_shows_mean_and_spread_and_cycle_costs():
    costs = {"without": 10.0, "in-turn": 20.0, "at-once-without": 30.0, "at-once": 60.0}
    found = [
        Offered("default", seed, name, 0, (share, share + 1), costs[name])
        for seed, share in ((0, 90.0), (1, 92.0))
        for name in OFFERS
        if seed == 0 or name != "without"
    ]
    _, line = placement_table(found).splitlines()
    assert line.split("  ")[0] == "default"
    assert "90.00 ± 0.00 / 91.00 ± 0.00" in line
    assert "91.00 ± 1.00 / 92.00 ± 1.00" in line
    assert "10.0 -> 20.0 (x2.00)" in line
    assert "30.0 -> 60.0 (x2.00)" in line


def test_what_was_not_measured_is_a_dash():
    _, line = placement_table([Offered("default", 0, "at-once", 0, (97.5,), 10.0)]).splitlines()
    assert line.split() == ["default", "1", "-", "-", "97.50", "±", "0.00", "-", "-"]


def test_an_interrupted_run_resumes_where_it_stopped(tmp_path, monkeypatch):
    asked = []

    def measured(trace, seed, name, step):
        asked.append(seed)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return Offered(trace.workload, seed, name, step, (90.0,), 1.0)

    monkeypatch.setattr(command, "measure", measured)
    monkeypatch.setattr(command, "warm", lambda: None)
    (tmp_path / NODE_FILE).write_text("sn,cpu_milli,memory_mib,gpu,model\nn-0,1,1,1,G2\n")
    (tmp_path / "openb_pod_list_default.csv").write_text("cpu_milli,memory_mib,num_gpu,gpu_milli\n1,1,1,1000\n")
    arguments = ["--traces", str(tmp_path), "--workload", "default", "--offer", "at-once", "--seeds", "3"]
    arguments += ["--resume", str(tmp_path / "found.jsonl")]
    assert CliRunner().invoke(placement, arguments).exit_code == 1
    result = CliRunner().invoke(placement, [*arguments, "--quiet"])
    assert result.exit_code == 0
    assert "90.00 ± 0.00" in result.stdout
    assert asked == [0, 1, 1, 2]


def test_a_folder_without_traces_is_told_in_one_line(tmp_path):
    result = CliRunner().invoke(placement, ["--traces", str(tmp_path), "--seeds", "1"])
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert "found no such file" in result.output
