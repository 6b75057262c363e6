from hypothesis import given
from hypothesis import strategies as st

from kai.answers.offline.run import simulate
from kai.framework.decisions import Evict, Nominate
from kai.lab.scenarios.scenario import read_scenario
from tests.victims import __main__ as command
from tests.victims.comparing import Table, answer_of, compare, draw
from tests.victims.drawing import MOST_NODES, MOST_VICTIMS
from tests.victims.oracle import best

SOME = range(1, 81)
"""A slice of what ``python -m tests.victims`` looks at."""


def test_evictions_are_no_more_than_the_best_set():
    table = Table().add_all(map(compare, SOME))
    assert table.solvable > len(SOME) / 3
    assert table.missed == []
    assert table.far == []
    assert table.unruly == []
    assert table.as_good >= 0.95 * table.solvable


def test_pods_with_anti_affinity_per_node_are_counted():
    table = Table().add_all(map(compare, (1016, 1100, 3088)))
    assert (table.as_good, table.worse) == (3, [])


def test_more_pods_with_fewer_gpu_hours_is_not_worse():
    table = Table().add_all([compare(3479)])
    assert (table.cheaper, table.worse, table.far) == ([3479], [], [])


def test_the_peer_takes_more_than_it_needs():
    table = Table().add_all(compare(seed, {"params": {"victims": "as-peer"}}) for seed in SOME)
    assert table.as_good < 0.8 * table.solvable


def test_clusters_stay_small_enough_to_try_every_set():
    for seed in SOME:
        drawn = draw(seed)
        assert len(drawn.nodes) <= MOST_NODES
        assert len(drawn.jobs) <= MOST_VICTIMS
        assert min(drawn.free()) >= 0


def test_the_oracles_set_is_cheaper_than_the_alternatives():
    found = [best(draw(seed)) for seed in SOME]
    assert any(each is not None and each[0].groups > 1 for each in found)
    assert any(each is not None and not each[0].groups and each[0].pods for each in found)


def test_a_cluster_is_decided_the_same_each_time():
    assert answer_of(draw(7)) == answer_of(draw(7))


def test_the_command_says_what_it_compared(capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["victims", "--seeds", "1..3"])
    assert command.main() == 0
    told = capsys.readouterr().out
    assert told.startswith("3 clusters: ")
    assert "does not start: 0 []" in told


@given(st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=4), min_size=1, max_size=3), st.integers(1, 3))
def test_whole_gpus_come_from_devices_with_fewest_pods(nodes, jobs):
    """Each number is that of the pods that fill a device: no device is idle, and no pod can move to another."""
    held = [(node, device, count) for node, row in enumerate(nodes) for device, count in enumerate(row)]
    running = {
        f"r-{node}-{device}-{at}": {
            "queue": "lent",
            "each": {"fraction": (0.9, 0.5, 0.33, 0.25)[count - 1]},
            "runs_on": f"n{node}",
            "labels": {"runai-gpu-group": f"{node}-{device}"},
        }
        for node, device, count in held
        for at in range(count)
    }
    document = {
        "cluster": {"nodes": {f"n{node}": {"gpu": len(row)} for node, row in enumerate(nodes)}},
        "queues": {"lent": {"quota": 0}, "owed": {"quota": len(held)}},
        "groups": running | {f"w{at}": {"queue": "owed", "each": {"gpu": 1}} for at in range(jobs)},
        "run": ["allocate", "reclaim"],
        "expect": {},
    }
    decisions = simulate(read_scenario(document, "devices")).last.decisions
    fewest = sorted(count for _, _, count in held)[:jobs]
    assert sum(isinstance(each, Nominate) for each in decisions) == len(fewest)
    assert sum(isinstance(each, Evict) for each in decisions) == sum(fewest)
