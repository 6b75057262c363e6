"""What queues share: what ready nodes have, less what others take there; and what they can lose at most."""

from pathlib import Path

import attrs
import numpy as np
import pytest

from kai.actions.search.solver import Search
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.model.axis import GPU_UNIT
from kai.framework.decisions import Recorder
from kai.plugins.proportion.plugin import without_rounding
from kai.testing import check_scenario
from tests.unit.plugins.stage import node, pod, snapshot_of

GPU_WORKER = "node-role.kubernetes.io/gpu-worker"
GPUS = {"nvidia.com/gpu": "4", "nvidia.com/mig-2g.10gb": "1", "cpu": "8"}
FOREIGN = {"schedulerName": "other", "requests": {"nvidia.com/gpu": "1", "cpu": "2"}}


def total(*objects, **parameters):
    """Return the cores and GPUs that queues share."""
    profile = default_profile()
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, **parameters))
    shares = Session(snapshot_of(*objects), profile, Recorder(), Silent()).policy.fair_shares
    return shares.total[0] / 1000, shares.total[2] / 1000


def test_restricted_scheduling_counts_gpus_only_of_labelled_workers():
    nodes = (node("a", allocatable=GPUS), node("b", {GPU_WORKER: ""}, allocatable=GPUS), node("c", {"mine": "1"}))
    assert total(*nodes) == (80, 12)
    assert total(*nodes, restrict_node_scheduling=True) == (80, 6)
    assert total(*nodes, restrict_node_scheduling=True, gpu_worker_label="mine") == (80, 0)


def test_foreign_pods_reduce_the_total_only_on_ready_nodes():
    ready, cordoned = node("a", allocatable=GPUS), node("b", allocatable=GPUS, unschedulable=True)
    assert total(ready, cordoned) == (8, 6)
    assert total(ready, cordoned, pod("theirs-0", on="b", **FOREIGN)) == (8, 6)
    assert total(ready, cordoned, pod("theirs-0", **FOREIGN)) == (8, 6)
    assert total(ready, cordoned, pod("theirs-0", on="a", **FOREIGN)) == (6, 5)


def test_there_is_never_less_than_nothing():
    """Pods may hold GPUs that have failed: an amount below 0 would be no bound for a queue of unlimited quota."""
    failed = node("a", allocatable={**GPUS, "nvidia.com/gpu": "1", "nvidia.com/mig-2g.10gb": "0"})
    theirs = (pod(f"theirs-{at}", on="a", **FOREIGN) for at in range(2))
    assert total(failed, *theirs) == (4, 0)


def test_scaling_pods_count_nothing_given_label_and_namespace():
    labelled = pod("scaling-0", on="a", labels={"app": "scaling-pod"}, **FOREIGN)
    assert total(node("a", allocatable=GPUS), labelled) == (6, 5)
    labelled["metadata"]["namespace"] = "kai-scale-adjust"
    assert total(node("a", allocatable=GPUS), labelled) == (8, 6)


@pytest.mark.parametrize("asked", [2010.0, 4060.0, GPU_UNIT * 513 / 16300])
def test_a_share_differing_only_by_rounding_is_the_request(asked):
    share = asked / GPU_UNIT * GPU_UNIT
    assert share < asked
    assert without_rounding(np.array([share]), np.array([asked])) == [asked]


def test_a_rounded_share_is_its_quota_in_both_units():
    found = without_rounding(np.array([2.01, 2.005, 2.0100001]) * GPU_UNIT, np.full(3, 9000.0))
    assert found.tolist() == [2010.0, 2005.0, 2010.0001]


SCENARIOS = Path(__file__).parents[2] / "scenarios" / "reclaim"


@pytest.mark.parametrize(
    ("scenario", "searches"),
    [("a-gang-that-may-not-take-enough-takes-nothing", 0), ("a-gang-that-may-take-just-enough-takes-it", 1)],
)
def test_a_gang_beyond_what_queues_can_lose_skips_searching(scenario, searches, monkeypatch):
    searched = []
    run = Search.run
    monkeypatch.setattr(Search, "run", lambda search: searched.append(search) or run(search))
    assert not check_scenario(SCENARIOS / f"{scenario}.yaml")
    assert len(searched) == searches
