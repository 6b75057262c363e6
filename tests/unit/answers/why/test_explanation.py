import attrs
import pytest

from kai.answers.offline.run import simulate
from kai.answers.outcomes.overview import overview
from kai.answers.why.explanation import explained
from kai.lab.scenarios.scenario import read_short

QUEUES = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 64}}


def found(groups, nodes=None, queues=None, run=("allocate", "consolidation", "reclaim", "preempt"), **more):
    nodes = {"n1": {"gpu": 4}} if nodes is None else nodes
    document = {"about": "x", "cluster": {"nodes": nodes}, "queues": queues or QUEUES}
    outcome = simulate(read_short({**document, "groups": groups, "run": list(run), **more}, "explanation"))
    return explained(outcome, overview(outcome))


def one(*args, **more):
    """Return the explanation of the last job that waits."""
    return found(*args, **more).jobs[-1]


def proof(explanation):
    return {each.label: each.text for each in explanation.evidence}


def test_a_limit_is_proved_by_amounts_and_users():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 64, "limit": 3}}
    groups = {
        "runs": {"queue": "a", "each": {"gpu": 2}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 2}},
    }
    each = one(groups, queues=queues)
    assert each.summary == "g waits: queue a may not use more than 3 GPUs, and this job would make it 4 GPUs."
    assert (each.job.state, each.reason.code, each.wire_reason) == ("Waits", "OverLimit", "OverLimit")
    assert proof(each) == {"a": "limit 3   used 2   this job 2   over by 1", "used by": "runs 2"}
    assert each.waiting == "until a uses 1 GPU less (no end time is known)"


def test_a_quota_waits_for_what_counts_against_it():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 4}}
    groups = {
        "fixed": {"queue": "a", "preemptible": False, "each": {"gpu": 3}, "runs_on": "n1"},
        "other": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "g": {"queue": "a", "preemptible": False, "each": {"gpu": 2}},
    }
    each = one(groups, queues=queues)
    assert each.reason.code == "NonPreemptibleOverQuota"
    assert each.waiting == "until non-preemptible pods of a use 1 GPU less (no end time is known)"


def test_usage_at_the_try_and_later_is_shown():
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


def test_a_cluster_without_nodes_is_the_only_reason():
    each = one({"g": {"queue": "a", "each": {"gpu": 1}}}, {})
    assert (each.reason.code, each.waiting) == ("NoNodes", "does not help while there are no nodes")
    assert "NoNodeMatches" not in {reason.code for reason in each.also}


def test_a_quota_that_binds_only_what_stays_says_why():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 2}}
    each = one({"g": {"queue": "a", "preemptible": False, "each": {"gpu": 3}}}, queues=queues)
    assert proof(each) == {
        "a": "quota 2   non-preemptible used 0   this job 3   over by 1",
        "why so": "non-preemptible jobs start only within the quota",
    }


def test_a_gang_without_room_shows_needs_and_idle_gpus():
    each = one({"g": {"queue": "a", "members": 3, "each": {"gpu": 2}}}, {"n1": {"gpu": 4}, "n2": {"gpu": 1}})
    assert (each.job.state, each.reason.code) == ("Impossible", "ClusterTooSmall")
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
        "used by": "runs 3",
    }


def test_an_unequal_gangs_need_is_shown_by_part():
    parts = {"head": {"members": 1, "each": {"cpu": 1}}, "workers": {"members": 3, "each": {"gpu": 2}}}
    each = one({"g": {"queue": "a", "subgroups": parts}})
    assert proof(each)["needs"] == "head 1 core, 3 workers x 2 GPUs, 4 at once"


def test_an_unmatched_pod_shows_the_objection_of_each_node():
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4, "labels": {"type": "x"}, "taints": ["disk=bad"]}}
    each = one({"g": {"queue": "a", "each": {"gpu": 1}, "selector": {"type": "x"}}}, nodes)
    assert each.reason.code == "NoNodeMatches"
    objections = [(one.values["nodes"], one.values["idleGpus"]) for one in each.evidence[1:3]]
    assert objections == [(["n1"], 4.0), (["n2"], 4.0)]


def test_a_promised_job_shows_who_leaves_and_why():
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
    assert (lost.pod, lost.job, lost.queue, lost.gpus) == ("default/runs-0", "default/runs", "b", 4000)
    assert (lost.cause, lost.beneficiary, lost.rule, lost.moved_to) == ("reclaim", "default/g", "fair share", "")
    assert lost.because == ("b used 4 GPUs, fair share 0", "a used 0 GPUs, fair share 4")


def test_pods_already_terminating_are_separate_from_evicted_ones():
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
    assert (lost.cause, lost.beneficiary, lost.rule) == ("preempt", "default/high", "priority")
    assert lost.because == ("high has priority 60, low 40",)


def test_who_moves_is_told_where_to():
    nodes = {"n1": {"gpu": 2}, "n2": {"gpu": 2}}
    groups = {
        "x": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "y": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n2"},
        "big": {"queue": "a", "each": {"gpu": 2}},
    }
    everything = found(groups, nodes)
    (lost,) = everything.evictions
    (moves,) = (each for each in everything.jobs if each.reason.code == "Moves")
    assert moves.waiting == "nothing to do: pods that move start again on their new nodes"
    assert (lost.cause, lost.beneficiary, lost.rule) == (
        "consolidation",
        "default/big",
        "every victim finds another place",
    )
    assert lost.moved_to == {"default/x": "n2", "default/y": "n1"}[lost.job]


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


def test_a_fair_share_that_is_not_exceeded_is_omitted():
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


def near(app):
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def test_waiting_cannot_help_a_job_unfit_even_alone():
    full = {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1"}
    each = one({"full": full, "g": {"queue": "a", "members": 2, "each": {"gpu": 1}, "spec": near("db")}})
    assert each.reason.code == "GangDoesNotFit"
    assert each.waiting == (
        "does not help: it would wait if all other jobs were gone, too: its 2 pods must start together, "
        "and none fits now: 1 node didn't match pod affinity rules (GangDoesNotFit)"
    )


def test_a_limit_hides_no_other_obstacle():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 8, "limit": 4}}
    full = {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1"}
    each = one({"full": full, "g": {"queue": "a", "each": {"gpu": 2}, "selector": {"x": "y"}}}, queues=queues)
    assert [each.reason.code, each.also[0].code] == ["OverLimit", "NoNodeMatches"]
    assert each.waiting == "does not help: it would wait if all other jobs were gone, too (NoNodeMatches)"


@pytest.mark.parametrize(
    ("quota", "waiting"),
    [
        (2, "until the delay is over, or running work ends"),
        (0, "until running work ends (no end time is known); it would wait without the delay, too"),
    ],
)
def test_waiting_for_the_delay_is_advised_where_it_helps(quota, waiting):
    queues = {
        "root": {"quota": 4},
        "a": {"parent": "root", "quota": quota},
        "b": {"parent": "root", "quota": 4 - quota},
    }
    groups = {
        "full": {"queue": "b", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 1}, "preemption_delay": "2h"},
    }
    each = one(groups, queues=queues)
    assert (each.reason.code, each.waiting) == ("PreemptionDelayNotElapsed", waiting)


def test_consequences_of_the_reason_are_not_listed_beside_it():
    each = one({"g": {"queue": "a", "members": 2, "each": {"gpu": 9}}})
    assert (each.reason.code, each.also) == ("NoNodeLargeEnough", ())


def test_idle_nodes_that_are_cordoned_are_told_apart():
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4, "cordoned": True}}
    full = {"queue": "a", "each": {"gpu": 3}, "runs_on": "n1"}
    each = one({"full": full, "g": {"queue": "a", "each": {"gpu": 2}}}, nodes)
    assert proof(each)["idle"] == "5 GPUs: 4 on n2 (cordoned); 1 on n1"
    assert proof(each)["cordoned"] == "n2"


def test_a_level_that_no_node_has_is_told_so():
    cluster = {"nodes": {"n1": {"gpu": 4}}, "topologies": {"default": ["rack"]}}
    each = one(
        {"g": {"queue": "a", "members": 2, "each": {"gpu": 1}, "topology": {"required": "rack"}}}, cluster=cluster
    )
    assert each.reason.text == "its 2 pods (2 GPUs) must fit in one rack, and no node has the label rack"
    assert list(proof(each)) == ["needs"]


def test_a_jobs_own_usage_never_becomes_free_for_it():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 2}}
    group = {"queue": "a", "members": 4, "minimum": 1, "preemptible": False, "each": {"gpu": 1}, "runs_on": {"n1": 2}}
    each = one({"g": group}, queues=queues)
    assert each.reason.code == "NonPreemptibleOverQuota"
    assert each.waiting == "does not help: the job alone asks for more than 2 GPUs"


def test_a_selected_label_is_counted_on_the_nodes():
    nodes = {"n1": {"gpu": 4, "labels": {"gpu": "a100"}}, "n2": {"gpu": 4, "labels": {"gpu": "h100"}}, "n3": {"gpu": 4}}
    each = one({"g": {"queue": "a", "each": {"gpu": 1}, "selector": {"gpu": "b200"}}}, nodes)
    assert proof(each)["selector"] == "gpu=b200 is on none of 3 nodes; others have a100 or h100"
    each = one({"g": {"queue": "a", "each": {"gpu": 1}, "selector": {"zone": "z"}}}, nodes)
    assert proof(each)["selector"] == "zone=z is on none of 3 nodes; no node has this label"


def test_memory_of_gpus_counts_where_it_is_held():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 4}, "lent": {"parent": "root"}}
    part = {"queue": "lent", "members": 4, "minimum": 0, "each": {"gpu_memory": 30000}, "runs_on": "n1"}
    result = found(
        {"part": part, "g": {"queue": "a", "each": {"gpu": 4}}}, {"n1": {"gpu": 4, "gpu_memory": 40000}}, queues
    )
    assert [each.gpus for each in result.evictions] == [750] * 4
    assert result.evictions[0].because == (
        "lent used 3 GPUs, fair share 0",
        "a used 0 GPUs, fair share 4",
        "3 smaller sets were tried; none is enough",
    )
    assert result.unused == ()


def test_holders_of_gpu_memory_count_among_the_users():
    part = {"queue": "a", "members": 4, "each": {"gpu_memory": 30000}, "runs_on": "n1"}
    groups = {"part": part, "g": {"queue": "a", "each": {"gpu": 4}}}
    each = one(groups, {"n1": {"gpu": 4, "gpu_memory": 40000}}, run=["allocate"])
    assert proof(each)["used by"] == "part 3"


def test_reclaim_for_cpu_shows_numbers_of_cpu():
    queues = {
        "root": {"quota": {"cpu": 8}},
        "a": {"parent": "root", "quota": {"cpu": 8}},
        "lent": {"parent": "root", "quota": {"cpu": 0}},
    }
    theirs = {"queue": "lent", "members": 8, "minimum": 0, "each": {"cpu": 1}, "runs_on": "n1"}
    result = found({"theirs": theirs, "g": {"queue": "a", "each": {"cpu": 8}}}, {"n1": {"cpu": 8}}, queues)
    assert result.evictions[0].because == (
        "lent used 8 cores, fair share 0 cores",
        "a used 0 cores, fair share 8 cores",
        "1 smaller set was tried; it is not enough",
    )


# -------------------------------------------------------------------------------------- who takes, who moves, who holds


def test_an_eviction_names_the_queue_of_its_victim():
    queues = {
        "root": {"quota": 4},
        "team": {"parent": "root", "quota": 4},
        "a": {"parent": "team", "quota": 4},
        "lent": {"parent": "root", "quota": 0},
    }
    groups = {
        "theirs": {"queue": "lent", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 4}},
    }
    lost = found(groups, queues=queues).evictions
    assert [(each.queue, each.gpus) for each in lost] == [("lent", 1000)] * 4
    assert lost[0].because == (
        "lent used 4 GPUs, fair share 0",
        "team (with a) used 0 GPUs, fair share 4",
        "3 smaller sets were tried; none is enough",
    )


def test_reclaim_by_model_shows_what_is_owed_of_it():
    queues = {
        "root": {},
        "a": {"parent": "root", "quota": 2, "models": {"h100": {"quota": 2}}},
        "b": {"parent": "root", "quota": 4},
    }
    nodes = {"n1": {"gpu": 2, "model": "h100", "labels": {"kind": "fast"}}, "n2": {"gpu": 2, "model": "a100"}}
    groups = {
        "theirs": {"queue": "b", "each": {"gpu": 2}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 2}, "selector": {"kind": "fast"}},
    }
    (lost,) = found(groups, nodes, queues, run=("allocate", "reclaim")).evictions
    assert lost.rule == "quota of a GPU model"
    assert lost.because == ("b used 2 of h100, and is owed 0", "a used 0 of h100, and is owed 2")


def test_reclaim_up_to_a_quota_shows_the_quotas():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root", "quota": 0}}
    theirs = {"queue": "b", "members": 6, "minimum": 0, "each": {"gpu": 1}, "runs_on": {"n1": 3, "n2": 3}}
    groups = {"theirs": theirs, "g": {"queue": "a", "each": {"gpu": 2}}}
    lost = found(groups, {"n1": {"gpu": 4}, "n2": {"gpu": 4}}, queues, run=("allocate", "reclaim")).evictions
    assert lost[0].because == ("b used 6 GPUs, quota 0, fair share 6", "a used 0 GPUs, quota 4, fair share 2")


def test_vacated_gpus_promised_to_no_job_are_listed():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 4}, "lent": {"parent": "root", "quota": 0}}
    groups = {
        "gang": {"queue": "lent", "members": 2, "minimum": 2, "each": {"gpu": 4}, "runs_on": ["n1", "n2"]},
        "g": {"queue": "a", "each": {"gpu": 4}},
    }
    (text,) = found(groups, {"n1": {"gpu": 4}, "n2": {"gpu": 4}}, queues).unused
    assert text.startswith("4 GPUs more than is promised to jobs: 4 on n")
    assert text.endswith("gang loses all its pods, because its minimum must run together")


def test_a_job_whose_pods_are_moved_moves():
    nodes = {f"n{at}": {"gpu": 2} for at in range(1, 5)}
    frag = {"queue": "a", "members": 4, "minimum": 0, "each": {"gpu": 1}, "runs_on": dict.fromkeys(nodes, 1)}
    result = found({"frag": frag, "two": {"queue": "a", "each": {"gpu": 2}}}, nodes)
    each = {one.job.name: one for one in result.jobs}["frag"]
    assert (each.job.state, each.job.moved, each.reason.code) == ("Moves", 1, "Moves")
    assert each.summary == "frag moves: 1 pod moves from n4 to n1, which makes room for two."


def test_a_pod_moved_after_its_bind_leaves_that_node():
    nodes = {"tainted": {"gpu": 4, "taints": ["x=1"]}, "n2": {"gpu": 4}, "n3": {"gpu": 4}, "last": {"cpu": 1}}
    part = {"queue": "a", "each": {"fraction": 0.5}, "tolerates": ["x=1"]}
    groups = {
        "large": {"queue": "a", "members": 4, "minimum": 1, "each": {"gpu": 2}},
        "p1": part,
        "p2": part,
        "p3": part,
    }
    result = found(groups, nodes, {"root": {"quota": 24}, "a": {"parent": "root"}})
    texts = {each.job.name: each.reason.text for each in result.jobs}
    assert texts["p1"] == "1 pod moves from n2 to tainted, which makes room for large"
    assert {(each.node, each.moved_to) for each in result.evictions} == {("n2", "tainted")}


def test_equally_named_jobs_are_titled_with_their_namespace():
    groups = {"runs": {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1"}, "g": {"queue": "a", "each": {"gpu": 4}}}
    case = read_short(
        {
            "about": "x",
            "cluster": {"nodes": {"n1": {"gpu": 4}}},
            "queues": QUEUES,
            "groups": groups,
            "run": ["allocate"],
        },
        "explanation",
    )
    twin = next(each for each in case.objects.pod_groups if each.metadata.name == "runs")
    other = attrs.evolve(twin, metadata=attrs.evolve(twin.metadata, name="g", namespace="other"))
    case = attrs.evolve(case, objects=attrs.evolve(case.objects, pod_groups=(*case.objects.pod_groups, other)))
    outcome = simulate(case)
    titles = {job.title for job in overview(outcome).jobs}
    assert titles == {"runs", "default/g", "other/g"}


def test_jobs_that_differ_in_name_only_are_explained_once():
    groups = {"runs": {"queue": "a", "preemptible": False, "each": {"gpu": 4}, "runs_on": "n1"}}
    groups |= {f"g{at}": {"queue": "a", "each": {"gpu": 1}} for at in range(3)}
    (fold,) = found(groups).folds
    assert (fold.explanation.job.name, [job.name for job in fold.alike]) == ("g0", ["g1", "g2"])
    assert fold.explanation.position == 1


def test_a_missing_resource_stands_beside_the_gpus():
    each = one({"g": {"queue": "a", "each": {"gpu": 1, "cpu": 2000}}}, {"n1": {"gpu": 4, "cpu": 100}})
    assert proof(each)["needs"] == "1 pod x 1 GPU and 2000 cores"
    assert "PodRefused" not in [words.code for words in each.also]


def test_a_refused_pod_waits_until_it_is_accepted():
    volume = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}
    each = one({"g": {"queue": "a", "each": {"gpu": 1}, "spec": volume}})
    assert (each.reason.code, each.waiting) == ("PodRefused", "does not help while its pod is refused")


def test_the_start_is_told_where_grace_periods_say_it():
    groups = {
        "leaves": {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1", "leaving": 1},
        "g": {"queue": "a", "each": {"gpu": 4}},
    }
    each = one(groups)
    assert (each.reason.code, each.waited) == ("HeldForLeaving", 3540.0)
    assert each.eta is None or each.eta.assumptions


def test_config_maps_are_assumed_where_the_input_holds_none():
    container = {"name": "main", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    volume = {"containers": [container], "volumes": [{"name": "v", "configMap": {"name": "settings"}}]}
    result = found({"g": {"queue": "a", "each": {"gpu": 1}, "spec": volume}})
    assert result.assumptions == (
        "config maps exist that pods need, because the input holds no config map: default/settings",
    )


def test_a_gang_with_held_places_lacks_other_reasons():
    nodes = {f"n{at}": {"gpu": 4, "labels": {"rack": f"r{at}"}} for at in (1, 2)}
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root"}}
    groups = {
        "low": {"queue": "b", "members": 8, "minimum": 1, "each": {"gpu": 1}, "runs_on": {"n1": 4, "n2": 4}},
        "gang": {
            "queue": "a",
            "members": 3,
            "minimum": 2,
            "each": {"gpu": 2},
            "topology": {"topology": "t", "required": "rack"},
        },
    }
    cluster = {"nodes": nodes, "topologies": {"t": ["rack"]}}
    (each,) = (each for each in found(groups, queues=queues, cluster=cluster).jobs if each.job.name == "gang")
    assert (each.reason.code, [words.code for words in each.also]) == ("HeldForLeaving", [])


@pytest.mark.parametrize(
    ("labels", "spec", "said"),
    [
        ({"priorityClassName": "trian"}, {}, "50, that of class priority-50: class trian does not exist"),
        ({}, {"priorityClassName": "trian"}, "50, the default: class trian does not exist"),
        ({"priorityClassName": "priority-50"}, {}, None),
        ({"priorityClassName": "system-node-critical"}, {}, None),
    ],
)
def test_a_missing_priority_class_shows_the_priority_in_effect(labels, spec, said):
    document = {"about": "x", "cluster": {"nodes": {"n1": {"gpu": 4}}}, "queues": QUEUES, "run": ["allocate"]}
    case = read_short({**document, "groups": {"g": {"queue": "a", "each": {"gpu": 8}}}}, "explanation")
    (group,) = case.objects.pod_groups
    metadata = attrs.evolve(group.metadata, labels={**group.metadata.labels, **labels})
    more = {"priority_class_name": spec["priorityClassName"]} if spec else {}
    group = attrs.evolve(group, metadata=metadata, spec=attrs.evolve(group.spec, **more))
    outcome = simulate(attrs.evolve(case, objects=attrs.evolve(case.objects, pod_groups=(group,))))
    (each,) = explained(outcome, overview(outcome)).jobs
    assert proof(each).get("priority") == said


def test_a_passed_job_shows_how_many_passed_and_why():
    queues = {"root": {"quota": 8}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root", "quota": 1}}
    small = {"each": {"gpu": 1}, "runs_on": "n1"}
    groups = {
        "before": {"queue": "b", **small},
        "gang": {"queue": "a", "members": 2, "each": {"gpu": 4}},
        "mine": {"queue": "a", "priority": 60, **small},
        "other": {"queue": "b", **small},
        "third": {"queue": "b", **small},
    }
    each = one(groups, {"n1": {"gpu": 4}, "n2": {"gpu": 4}}, queues)
    assert proof(each)["passed by"] == (
        "3 jobs that came later run: 2 of b (above its quota), 1 of a (1 of higher priority); "
        "no idle GPUs are held back for a job that waits"
    )
    assert each.waiting == "until running work ends (no end time is known); jobs that need less may pass it again"


def test_a_job_that_none_passed_does_not_mention_it():
    groups = {"runs": {"queue": "a", "each": {"gpu": 3}, "runs_on": "n1"}, "g": {"queue": "a", "each": {"gpu": 4}}}
    assert "passed by" not in proof(one(groups))


def test_a_job_without_queue_does_not_mention_passing():
    groups = {"g": {"queue": "ghost", "each": {"gpu": 4}}, "runs": {"queue": "a", "each": {"gpu": 3}, "runs_on": "n1"}}
    assert "passed by" not in proof(one(groups))


@pytest.mark.parametrize(
    ("annotations", "text"),
    [
        ({"kai.scheduler/max-runtime": "1h"}, "50m: default/runs, annotation kai.scheduler/max-runtime"),
        (
            {"kai.scheduler/owner-deadline": "30m spec.limit"},
            "20m: default/runs, spec.limit",
        ),
    ],
)
def test_the_first_end_that_is_known_is_said(annotations, text):
    groups = {
        "runs": {"queue": "a", "each": {"gpu": 4}, "runs_on": "n1", "annotations": annotations},
        "other": {"queue": "a", "each": {"gpu": 4}, "runs_on": "n2"},
        "g": {"queue": "a", "each": {"gpu": 4}},
    }
    each = one(groups, queues={"a": {"quota": 8}}, nodes={"n1": {"gpu": 4}, "n2": {"gpu": 4}})
    assert each.waiting == f"until running work ends (at the latest in {text})"


def test_a_model_limit_is_proved_by_amounts_and_users():
    nodes = {"n1": {"gpu": 4, "model": "h100", "labels": {"kind": "fast"}}, "n2": {"gpu": 1, "model": "a100"}}
    queues = {"root": {"quota": 64, "models": {"h100": 2}}, "a": {"parent": "root", "quota": 64}}
    groups = {
        "fast": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "slow": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n2"},
        "g": {"queue": "a", "members": 2, "each": {"gpu": 1}, "selector": {"kind": "fast"}},
    }
    each = one(groups, nodes, queues, run=("allocate", "reclaim", "preempt"))
    assert (each.job.state, each.reason.code) == ("Waits", "OverModelLimit")
    assert each.reason.text == "queue root may not use more than 2 h100 GPUs, and this job would make it 3 GPUs"
    assert proof(each) == {
        "root": "limit of h100 2   used 1   this job 2   over by 1",
        "used by": "fast 1",
    }


def test_a_model_limit_is_the_reason_on_full_nodes():
    nodes = {"n1": {"gpu": 2, "model": "h100"}}
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "models": {"h100": 1}}, "b": {"parent": "root"}}
    groups = {
        "mine": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "other": {"queue": "b", "each": {"gpu": 1}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 1}},
    }
    assert one(groups, nodes, queues, run=("allocate",)).reason.code == "OverModelLimit"
