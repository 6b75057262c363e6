import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from kai.cli.command import run
from kai.testing import load_scenario

RACK = Path(__file__).parents[3] / "examples" / "rack"
CLIQUE = "nvidia.com/gpu.clique"


@pytest.fixture(scope="module")
def nodes():
    return {node.metadata.name: node for node in load_scenario(RACK).objects.nodes}


@pytest.fixture
def racks(nodes, capsys):
    """The NVLink domains of each part of each job, with how many of its pods are there."""
    assert run(["simulate", str(RACK), "-o", "json"]) == 0
    out = defaultdict(Counter)
    for key, pod in json.loads(capsys.readouterr().out)["pods"].items():
        name = key.partition("/")[2]
        job, _, index = name.rpartition("-")
        part = f"{job} {int(index) // 8}" if job == "moe" else job
        out[part][nodes[pod["node"]].metadata.labels[CLIQUE] if pod["node"] else ""] += 1
    return out


def test_a_rack_is_eighteen_nodes_with_four_gpus(nodes):
    cliques = Counter(node.metadata.labels[CLIQUE] for node in nodes.values())
    assert cliques == {"rack-a1": 18, "rack-a2": 18, "rack-b1": 18, "rack-b2": 18}
    assert {str(node.status.allocatable["nvidia.com/gpu"]) for node in nodes.values()} == {"4"}


def test_a_job_requiring_a_domain_gets_one_rack(racks):
    assert racks["pretrain"] == {"rack-a2": 18}


def test_each_segment_stays_in_a_domain_within_one_zone(racks):
    assert [racks[f"moe {segment}"] for segment in range(4)] == [
        {"rack-b1": 8},
        {"rack-b1": 8},
        {"rack-b2": 8},
        {"rack-b2": 8},
    ]


def test_a_job_larger_than_a_domain_never_runs(racks):
    assert racks["wide"] == {"": 20}


def test_a_preferred_domain_is_used_but_not_required(racks):
    assert racks["finetune"] == {"rack-a1": 8}
    assert racks["grid"] == {"rack-a1": 7, "rack-b1": 1, "rack-b2": 2}
