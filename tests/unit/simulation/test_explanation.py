import pytest

from kai.simulation.explanation import explained
from kai.simulation.overview import overview
from kai.simulation.run import simulate
from kai.simulation.scenario import read_short

QUEUES = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 64}}


def found(groups, nodes=None, queues=None, run=("allocate", "consolidation", "reclaim", "preempt"), **more):
    document = {"about": "x", "cluster": {"nodes": nodes or {"n1": {"gpu": 4}}}, "queues": queues or QUEUES}
    outcome = simulate(read_short({**document, "groups": groups, "run": list(run), **more}, "explanation"))
    return explained(outcome, overview(outcome))


def one(*args, **more):
    """Return the explanation of the last job that waits."""
    return found(*args, **more).jobs[-1]


def proof(explanation):
    return {each.label: each.text for each in explanation.evidence}


def test_a_limit_is_proved_with_the_amounts_and_with_who_uses_them():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 64, "limit": 3}}
    groups = {
        "runs": {"queue": "a", "each": {"gpu": 2}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 2}},
    }
    each = one(groups, queues=queues)
    assert each.summary == "g waits: queue a may not use more than 3 GPUs, and this job would make it 4 GPUs."
    assert (each.state, each.reason.code, each.wire_reason) == ("waiting", "OverLimit", "OverLimit")
    assert proof(each) == {"a": "limit 3   used 2   this job 2   over by 1", "used by": "runs 2"}
    assert each.waiting == "until a uses 1 GPU less; when that is cannot be known"


def test_what_was_used_later_in_the_cycle_is_told_beside_what_was_used_when_it_was_tried():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 8, "limit": 4}, "b": {"parent": "root"}}
    groups = {
        "other": {"queue": "b", "members": 2, "each": {"gpu": 4}, "runs_on": ["n1", "n2"]},
        "first": {"queue": "a", "priority": 60, "each": {"gpu": 3}},
        "g": {"queue": "a", "members": 5, "each": {"gpu": 1}},
    }
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4}}
    each = next(each for each in found(groups, nodes, queues).jobs if each.job.name == "g")
    assert proof(each)["a"] == "limit 4   used 0 when it was tried, 3 in the end   this job 5   over by 1"
    assert proof(each)["used by"] == "first 3 (promised)"
    assert each.waiting == "does not help: the job alone asks for more than 4 GPUs"


def test_a_quota_that_binds_only_what_stays_says_why():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 2}}
    each = one({"g": {"queue": "a", "preemptible": False, "each": {"gpu": 3}}}, queues=queues)
    assert proof(each) == {
        "a": "quota 2   non-preemptible used 0   this job 3   over by 1",
        "why so": "what cannot be taken back again is granted within quota only",
    }


def test_a_gang_without_room_is_proved_with_what_it_needs_and_what_is_idle():
    each = one({"g": {"queue": "a", "members": 3, "each": {"gpu": 2}}}, {"n1": {"gpu": 4}, "n2": {"gpu": 1}})
    assert (each.state, each.reason.code) == ("impossible", "ClusterTooSmall")
    groups = {
        "runs": {"queue": "a", "preemptible": False, "each": {"gpu": 3}, "runs_on": "n1"},
        "g": {"queue": "a", "members": 2, "each": {"gpu": 2}},
    }
    each = one(groups)
    assert each.reason.code == "GangDoesNotFit"
    assert proof(each) == {
        "needs": "2 pods x 2 GPUs, 2 at once",
        "idle": "1 GPU: 1 on n1",
        "1 node": "didn't have enough resources: GPUs",
    }


def test_a_pod_that_no_node_matches_is_proved_node_by_node():
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4, "labels": {"type": "x"}, "taints": ["disk=bad"]}}
    each = one({"g": {"queue": "a", "each": {"gpu": 1}, "selector": {"type": "x"}}}, nodes)
    assert each.reason.code == "NoNodeMatches"
    objections = [(one.values["nodes"], one.values["idleGpus"]) for one in each.evidence[1:]]
    assert objections == [(["n1"], 4.0), (["n2"], 4.0)]


def test_who_is_promised_a_place_is_told_who_leaves_it_and_what_allows_that():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root"}}
    groups = {"runs": {"queue": "b", "each": {"gpu": 4}, "runs_on": "n1"}, "g": {"queue": "a", "each": {"gpu": 4}}}
    result = found(groups, queues=queues)
    (each,) = [each for each in result.jobs if each.job.name == "g"]
    assert each.summary == "g starts later: its place on n1 is being vacated by pods that are terminating."
    assert proof(each) == {
        "place": "n1 is held for 1 pod",
        "evicted": "1 pod: runs 1",
        "because": "a used 0 GPUs, fair share 4; b used 4 GPUs, fair share 0",
    }
    (lost,) = result.evictions
    assert (lost.pod, lost.job, lost.queue, lost.gpus) == ("default/runs-0", "runs", "b", 4000)
    assert (lost.cause, lost.beneficiary, lost.rule, lost.moved_to) == ("reclaim", "g", "fair share", "")
    assert lost.because == ("b used 4 GPUs, fair share 0", "a used 0 GPUs, fair share 4")


def test_pods_that_were_terminating_before_are_told_apart_from_those_evicted_now():
    groups = {
        "leaves": {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1", "leaving": 1},
        "g": {"queue": "a", "each": {"gpu": 4}},
    }
    assert proof(one(groups)) == {"place": "n1 is held for 1 pod", "leaving": "1 pod: leaves 1"}


def test_an_eviction_by_priority_names_both_priorities():
    groups = {
        "low": {"queue": "a", "priority": 40, "each": {"gpu": 4}, "runs_on": "n1"},
        "high": {"queue": "a", "priority": 60, "each": {"gpu": 4}},
    }
    (lost,) = found(groups).evictions
    assert (lost.cause, lost.beneficiary, lost.rule) == ("preempt", "high", "priority")
    assert lost.because == ("high has priority 60, low 40",)


def test_who_moves_is_told_where_to():
    nodes = {"n1": {"gpu": 2}, "n2": {"gpu": 2}}
    groups = {
        "x": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "y": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n2"},
        "big": {"queue": "a", "each": {"gpu": 2}},
    }
    (lost,) = found(groups, nodes).evictions
    assert (lost.cause, lost.beneficiary, lost.rule) == ("consolidation", "big", "everybody finds another place")
    assert lost.moved_to == {"x": "n2", "y": "n1"}[lost.job]


def test_a_gang_that_lost_members_is_evicted_for_nobody():
    groups = {"g": {"queue": "a", "members": 2, "each": {"gpu": 1}, "runs_on": {"n1": 1}}}
    groups["g"]["spec"] = {"nodeSelector": {"no": "such"}}
    result = found(groups, run=["stalegangeviction"], parameters={"default_staleness_grace_seconds": 0})
    (lost,) = result.evictions
    assert (lost.cause, lost.beneficiary, lost.rule) == ("stalegangeviction", "", "gang below its minimum")


def test_other_reasons_follow():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "limit": 3}, "b": {"parent": "root", "quota": 4}}
    groups = {
        "runs": {"queue": "b", "each": {"gpu": 4}, "runs_on": "n1"},
        "g": {"queue": "a", "members": 2, "each": {"gpu": 2}},
    }
    each = one(groups, queues=queues)
    assert (each.reason.code, [words.code for words in each.also]) == ("OverLimit", ["AtFairShare"])


def test_a_fair_share_that_the_job_would_not_pass_is_no_reason():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 2}}
    each = one({"g": {"queue": "a", "preemptible": False, "each": {"gpu": 3}}}, queues=queues)
    assert (each.reason.code, each.also) == ("NonPreemptibleOverQuota", ())


@pytest.mark.parametrize(
    ("group", "waiting"),
    [
        ({"queue": "b"}, "does not help while the queues and the job stay as they are"),
        ({"queue": "a", "minimum": 2}, "until the missing pods exist"),
        ({"queue": "a", "spec": {"schedulingGates": [{"name": "g"}]}}, "until the gates are removed"),
        ({"queue": "a", "each": {"gpu": 9}}, "does not help: these nodes could not hold it if they were empty"),
        (
            {"queue": "a", "selector": {"x": "y"}},
            "does not help while the nodes and the job stay as they are",
        ),
    ],
)
def test_what_waiting_leads_to_is_told_and_never_when(group, waiting):
    assert one({"g": group}).waiting == waiting
