"""Pods that were moved and have not come back: their places are kept, and none of them is counted as one that runs."""

import attrs
import pytest

from kai.answers.documents.document import as_json
from kai.answers.documents.jobs import JobItem
from kai.answers.offline.run import simulate
from kai.answers.outcomes.gpu_slots import node_slots
from kai.answers.outcomes.job_lines import job_lines
from kai.answers.outcomes.node_occupancy import occupancy
from kai.answers.outcomes.overview import overview
from kai.answers.why.explanation import explained
from kai.dashboard.access import Scope
from kai.dashboard.feed import EndedCycle
from kai.dashboard.look import WholeLook
from kai.dashboard.own import OwnLook
from kai.lab.scenarios.scenario import read_short
from kai.roles.scheduler.feedback.moved_pods import stand_in

DOCUMENT = {
    "about": "x",
    "cluster": {"nodes": {"n1": {"gpu": 4}, "n2": {"gpu": 4}}},
    "queues": {"root": {"quota": 8}, "a": {"parent": "root", "quota": 8}},
    "groups": {
        "g": {"queue": "a", "members": 2, "each": {"gpu": 1}, "runs_on": {"n1": 2}},
        "h": {"queue": "a", "each": {"gpu": 2}, "runs_on": "n1"},
    },
    "run": ["allocate"],
}


def moved(*names, gone=False):
    """Return the outcome of a cycle that keeps places on n2 for pods of g; old pods leave n1, unless they are gone."""
    case = read_short(DOCUMENT, "kept")
    pods = []
    for pod in case.objects.pods:
        if pod.metadata.name not in names:
            pods.append(pod)
            continue
        if not gone:
            leaving = attrs.evolve(pod.metadata, deletion_timestamp=case.objects.pods[0].metadata.creation_timestamp)
            pods.append(attrs.evolve(pod, metadata=leaving))
        pods.append(stand_in(pod, "n2", ()))
    return simulate(attrs.evolve(case, objects=attrs.evolve(case.objects, pods=tuple(pods))))


def line(outcome, name="g"):
    return next(each for each in job_lines(outcome, overview(outcome)) if each.job.name == name)


@pytest.mark.parametrize("gone", [False, True])
def test_a_job_with_all_pods_moved_runs_with_none(gone):
    outcome = moved("g-0", "g-1", gone=gone)
    found = line(outcome)
    assert (found.job.state, found.job.placed, found.job.held, found.job.wanted) == ("Moves", 0, 2, 2)
    assert (found.job.nodes, found.job.gpus, found.job.gpus_held) == (("n2",), 2000, 2000)
    assert found.job.reason == ("Moves", "2 pods start again on n2, where their places are kept")
    assert [(pod.name, pod.state, pod.node) for pod in found.pods] == [("g-0", "Moves", "n2"), ("g-1", "Moves", "n2")]
    assert as_json(JobItem.of(found))["pods"] == {"wanted": 2, "running": 0, "waiting": 2}
    root = overview(outcome).queues[0]
    assert (root.running, root.waiting) == (1, 1)


def test_a_moved_pod_is_listed_beside_running_ones():
    outcome = moved("g-1")
    found = line(outcome)
    assert (found.job.state, found.job.placed, found.job.wanted, found.job.nodes) == ("Moves", 1, 2, ("n1", "n2"))
    (each,) = explained(outcome, overview(outcome)).jobs
    assert each.summary == "g moves: 1 pod starts again on n2, where its place is kept."
    assert each.waiting == "nothing to do: pods that move start again on their new nodes"
    assert (each.since, each.suggestions.changes) == (None, ())


def test_a_move_holds_a_place_and_shows_the_leaver():
    outcome = moved("g-0")
    tenants = {
        name: [(each.title, each.state, each.pods) for each in occupancy(outcome, overview(outcome), name).tenants]
        for name in ("n1", "n2")
    }
    assert tenants == {"n1": [("h", "running", 1), ("g", "leaving", 1), ("g", "running", 1)], "n2": [("g", "held", 1)]}
    n2 = next(each for each in node_slots(outcome) if each.name == "n2")
    holders = [(user.pod, user.state) for slot in n2.slots for user in slot.users]
    assert holders == [("g-0", "held")]


def test_a_reader_without_nodes_is_told_of_no_node():
    scope = Scope(namespaces=frozenset({"default"}), queues=frozenset({"a"}), nodes=False)
    look = OwnLook.of(WholeLook.of(EndedCycle(outcome=moved("g-0", "g-1"), took=0.01)), scope)
    told = look.explain(look.find("default", "g"))
    assert told.summary == ("g moves: pods of the job move to other nodes, so that another job finds room.")
    assert "n1" not in str((told.evidence, told.waiting, told.job.nodes))


def test_a_moving_job_of_another_namespace_counts_waiting():
    whole = WholeLook.of(EndedCycle(outcome=moved("g-0", "g-1", gone=True), took=0.01))
    look = OwnLook.of(whole, Scope(namespaces=frozenset({"far"}), queues=frozenset({"root"}), nodes=False))
    (root,) = look.queues
    assert (root.running, root.waiting) == (1, 1)
    assert not look.lines
