"""Pods that get a place and lose it in one cycle: they leave the node that they are on, if they are on one."""

import numpy as np

from kai.answers.offline.run import simulate
from kai.answers.outcomes.gpu_slots import HELD, node_slots
from kai.answers.outcomes.job_lines import job_lines
from kai.answers.outcomes.node_occupancy import occupancy
from kai.answers.outcomes.overview import overview
from kai.answers.outcomes.plan import answer
from kai.lab.scenarios.scenario import read_short

ONE = {"gpu": 1}
PROMISES_LAPSE = {
    "cluster": {"nodes": {"n1": {"gpu": 4}, "n2": {"gpu": 4}}},
    "queues": {"q0": {"parent": "root", "quota": 1}, "q1": {"parent": "root", "quota": 4}},
    "groups": {
        "g1": {"queue": "q1", "each": ONE, "priority": 40},
        "g2": {"queue": "q0", "each": ONE},
        "g3": {"queue": "q1", "each": {"gpu": 3}},
        "g4": {"queue": "q1", "members": 3, "each": {"gpu": 3}, "priority": 60},
        "g5": {"queue": "q0", "each": {"gpu": 3}},
        "g6": {"queue": "q1", "each": {"gpu": 2}, "priority": 40},
        "g7": {"queue": "q0", "members": 2, "each": ONE, "minimum": 1},
    },
}
"""Reclaim promises g6 a place, and preempt gives it to g3."""
MOVES_LAPSE = {
    "cluster": {"nodes": {"n0": {"gpu": 4}, "n1": {"gpu": 4}, "n2": {"gpu": 4}}},
    "queues": {f"q{at}": {"parent": "root", "quota": quota} for at, quota in enumerate((2, 4, 1, 0))},
    "groups": {
        "g0": {"queue": "q0", "members": 3, "each": {"gpu": 2}, "priority": 60, "minimum": 1},
        "g1": {"queue": "q3", "each": ONE, "priority": 40},
        "g2": {"queue": "q2", "members": 3, "each": {"gpu": 2}, "minimum": 1},
        "g4": {"queue": "q3", "each": {"gpu": 4}},
        "g5": {"queue": "q0", "members": 3, "each": ONE, "priority": 40, "minimum": 1},
        "g6": {"queue": "q0", "members": 3, "each": ONE},
        "g8": {"queue": "q1", "members": 3, "each": {"gpu": 4}},
        "g12": {"queue": "q1", "each": {"gpu": 3}},
        "g15": {"queue": "q1", "each": ONE},
    },
    "parameters": {"victims": "as-peer"},
}
"""With the peer's victims a pod of g5 is bound to n2, evicted with a promise of n1, and loses that to g6."""


def decided(document):
    document = {**document, "queues": {"root": {"quota": 12}, **document["queues"]}}
    return simulate(read_short({"about": "x", **document, "run": ["allocate", "reclaim", "preempt"]}, "lost"))


def test_a_pod_that_lost_its_promise_waits_without_node():
    outcome = decided(PROMISES_LAPSE)
    ((pod, node),) = outcome.last.report.lapsed.items()
    assert outcome.last.snapshot.pods[pod].group == "g6"
    seen = overview(outcome)
    (job,) = [each for each in seen.jobs if each.name == "g6"]
    assert (job.state.value, job.waiting_reason.code) == ("Waits", "NoRoom")
    assert not [each for each in occupancy(outcome, seen, "n2").tenants if each.title == "g6"]
    # The peer has such a pod as leaving the node that it was promised.
    told = answer(outcome)["pods"][outcome.last.snapshot.pods[pod].name]
    assert (told["status"], told["node"]) == ("Releasing", outcome.last.snapshot.nodes[node].name)


def test_a_pod_whose_move_lapsed_leaves_its_present_node():
    outcome = decided(MOVES_LAPSE)
    cycle = outcome.last
    (pod,) = np.flatnonzero((cycle.places != cycle.report.node) & (cycle.report.node >= 0)).tolist()
    names = [node.name for node in cycle.snapshot.nodes]
    assert (names[cycle.places[pod]], names[cycle.report.node[pod]]) == ("n2", "n1")
    for each in node_slots(outcome):
        assert (each.over, len(each.slots)) == (0, 4)
        assert sum(user.state != HELD for slot in each.slots for user in slot.users) <= 4
    lines = {line.name: line for job in job_lines(outcome, overview(outcome)) for line in job.pods}
    assert lines[cycle.snapshot.pods[pod].name].node == "n2"
