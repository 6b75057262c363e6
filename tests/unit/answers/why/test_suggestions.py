from pathlib import Path

import attrs
import pytest
import yaml

from kai.answers.offline.run import simulate
from kai.answers.outcomes.overview import overview
from kai.answers.why import suggestions
from kai.answers.why.explanation import Explainer, explained
from kai.answers.why.trials import ChangeTrials
from kai.intake.pods import PodReader
from kai.lab.scenarios.scenario import read_short
from kai.lab.sources.loading import read_case

LAB = Path(__file__).parents[4] / "examples" / "lab"
QUEUES = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 64}}
TWO = {"n1": {"gpu": 4}, "n2": {"gpu": 4}}
RACKS = {
    "topologies": {"default": ["rack"]},
    "nodes": {f"n{at}": {"gpu": 4, "labels": {"rack": f"r{(at + 1) // 2}"}} for at in range(1, 5)},
}


def explain(case):
    outcome = simulate(case)
    return explained(outcome, overview(outcome))


def scenario(groups, cluster=None, queues=None, run=("allocate", "consolidation", "reclaim", "preempt"), **more):
    document = {
        "about": "x",
        "cluster": cluster or {"nodes": TWO},
        "queues": queues or QUEUES,
        "groups": groups,
        "run": list(run),
        **more,
    }
    return read_short(document, "suggestions")


def told(groups, *args, of="g", **more):
    """Return what is suggested for a group, each change with what it leads to."""
    (each,) = [each for each in explain(scenario(groups, *args, **more)).jobs if each.job.name == of]
    return [sentence(trial) for trial in each.suggestions.changes]


def sentence(trial):
    where = f" on {' '.join(trial.nodes)}" if trial.nodes else ""
    reason = f" for {trial.reason.code}" if trial.reason else ""
    losses = "".join(f", {each.name} loses {each.pods}" for each in trial.losses)
    return f"{trial.change.text}: {trial.result}{where}{reason}{losses}"


# ------------------------------------------------------------------------------------------------------------- the lab


@pytest.fixture(scope="module")
def lab():
    return {each.job.name: each for each in explain(read_case(str(LAB))).jobs}


def test_the_labs_vit_xl_passes_its_limit_without_room(lab):
    assert [sentence(trial) for trial in lab["vit-xl"].suggestions.changes] == [
        "minMember 4 -> 3: waits for GangDoesNotFit",
        "6 GPUs a pod, not 8: waits for GangDoesNotFit",
        "limit of vision 40 -> 48: waits for GangDoesNotFit",
    ]


def test_equivalent_changes_that_lead_nowhere_are_not_searched(monkeypatch):
    tried = []
    run = ChangeTrials.run
    monkeypatch.setattr(
        ChangeTrials, "run", lambda self, site, change: tried.append(change.text) or run(self, site, change)
    )
    outcome = simulate(read_case(str(LAB)))
    seen = overview(outcome)
    (job,) = [each for each in seen.jobs if each.name == "vit-xl"]
    Explainer(outcome, seen).explain(job)
    assert [text for text in tried if "minMember" in text or "pod, not" in text or "pods, not" in text] == [
        "minMember 4 -> 1",
        "minMember 4 -> 2",
        "minMember 4 -> 3",
        "1 pod, not 4",
        *(text for text in tried if text.endswith("a pod, not 8")),
    ]
    assert len(tried) == 10


def test_in_the_lab_nothing_helps_eval_sweep(lab):
    assert lab["eval-sweep"].suggestions.changes == ()
    assert lab["eval-sweep"].suggestions.all_tried


def test_the_labs_pp_train_could_shrink_or_spread(lab):
    assert [trial.change.text for trial in lab["pp-train"].suggestions.changes] == [
        "topology.kubernetes.io/rack preferred, not required",
        "minMember 5 -> 4",
        "4 GPUs a pod, not 6",
    ]
    assert [str(trial.result) for trial in lab["pp-train"].suggestions.changes] == ["waits", "waits", "waits"]


def test_the_labs_rl_sim_could_tolerate_or_reselect(lab):
    first, second = lab["rl-sim"].suggestions.changes
    assert sentence(first) == "toleration for maintenance=disk:NoSchedule: starts on gpu-13, probe-b loses 1"
    assert second.change.text == "selector nvidia.com/gpu.product NVIDIA-A100-SXM4-40GB -> NVIDIA-H100-80GB-HBM3"
    assert (str(second.result), second.nodes) == ("held", ("gpu-02",))


def test_the_labs_serve_llm_could_shrink_or_be_preemptible(lab):
    assert [sentence(trial).partition(",")[0] for trial in lab["serve-llm"].suggestions.changes] == [
        "6 GPUs a pod",
        "kai.scheduler/preemptibility: preemptible: waits for AtFairShare",
        "quota of chat 12 -> 13: waits for AtFairShare",
    ]
    assert (str(lab["serve-llm"].suggestions.changes[0].result), lab["serve-llm"].suggestions.changes[0].nodes) == (
        "held",
        ("gpu-03",),
    )


def test_the_labs_promised_job_needs_no_change(lab):
    assert lab["vit-large"].suggestions.changes == ()
    assert (lab["vit-large"].job.state, lab["vit-large"].waiting) == (
        "Held",
        "nothing to do: it starts when they have left",
    )


def edited(tmp_path, kind, name, edit):
    """Return what becomes of the lab with one manifest written differently."""
    changed = 0
    for file in sorted(LAB.glob("*.yaml")):
        documents = [document for document in yaml.safe_load_all(file.read_text()) if document]
        for document in documents:
            if document["kind"] == kind and document["metadata"]["name"].startswith(name):
                edit(document)
                changed += 1
        (tmp_path / file.name).write_text(yaml.safe_dump_all(documents))
    assert changed
    return {job.name: job for job in overview(simulate(read_case(str(tmp_path)))).jobs}


def set_at(path, value):
    def edit(document):
        *steps, last = path
        for step in steps:
            document = document[step]
        document[last] = value

    return edit


def set_gpus(count):
    def edit(document):
        for amounts in document["spec"]["containers"][0]["resources"].values():
            if "nvidia.com/gpu" in amounts:
                amounts["nvidia.com/gpu"] = str(count)

    return edit


def tolerate(document):
    toleration = {"key": "maintenance", "operator": "Equal", "value": "disk", "effect": "NoSchedule"}
    document["spec"].setdefault("tolerations", []).append(toleration)


def prefer(document):
    constraint = document["spec"]["topologyConstraint"]
    constraint["preferredTopologyLevel"] = constraint.pop("requiredTopologyLevel")


MINIMUM = ("spec", "minMember")
VISION = ("spec", "resources", "gpu", "limit")
CHAT = ("spec", "resources", "gpu", "quota")
H100 = ("spec", "nodeSelector", "nvidia.com/gpu.product")


@pytest.mark.parametrize(
    ("job", "change", "kind", "name", "edit"),
    [
        ("vit-xl", 0, "PodGroup", "vit-xl", set_at(MINIMUM, 3)),
        ("vit-xl", 1, "Pod", "vit-xl-", set_gpus(6)),
        ("vit-xl", 2, "Queue", "vision", set_at(VISION, 48)),
        ("pp-train", 0, "PodGroup", "pp-train", prefer),
        ("pp-train", 1, "PodGroup", "pp-train", set_at(MINIMUM, 4)),
        ("pp-train", 2, "Pod", "pp-train-", set_gpus(4)),
        ("rl-sim", 0, "Pod", "rl-sim-", tolerate),
        ("rl-sim", 1, "Pod", "rl-sim-", set_at(H100, "NVIDIA-H100-80GB-HBM3")),
        ("serve-llm", 0, "Pod", "serve-llm-", set_gpus(6)),
        ("serve-llm", 1, "PodGroup", "serve-llm", set_at(("spec", "preemptibility"), "preemptible")),
        ("serve-llm", 2, "Queue", "chat", set_at(CHAT, 13)),
        ("search-1-burst", 0, "Pod", "search-1-burst-", tolerate),
    ],
)
def test_each_suggestion_of_the_lab_comes_true_when_applied(lab, tmp_path, job, change, kind, name, edit):
    trial = lab[job].suggestions.changes[change]
    found = edited(tmp_path, kind, name, edit)
    before = lab[job].job
    now = found[job]
    if trial.result == "waits":
        assert (now.placed + now.held, now.waiting_reason.code) == (before.placed, trial.reason.code)
        return
    assert set(now.nodes) == set(trial.nodes) | set(before.nodes)
    assert (now.held, now.placed) == (
        (trial.started, before.placed) if trial.result == "held" else (0, before.placed + trial.started)
    )
    for loss in trial.losses:
        assert found[loss.name].placed + found[loss.name].held < found[loss.name].wanted


@pytest.mark.parametrize(
    ("job", "kind", "name", "edit", "state"),
    [
        ("vit-xl", "Queue", "vision", set_at(VISION, 47), "OverLimit"),
        ("vit-xl", "Pod", "vit-xl-", set_gpus(7), "OverLimit"),
        ("pp-train", "Pod", "pp-train-", set_gpus(5), "DomainTooSmall"),
        ("serve-llm", "Queue", "chat", set_at(CHAT, 12.5), "NonPreemptibleOverQuota"),
    ],
)
def test_less_than_the_suggested_change_does_not_help(tmp_path, job, kind, name, edit, state):
    found = edited(tmp_path, kind, name, edit)[job]
    assert found.held == found.placed == 0
    assert found.waiting_reason.code == state


# ---------------------------------------------------------------------------------------------------------- scenarios


def test_a_gang_one_pod_too_large_could_shrink():
    assert told({"g": {"queue": "a", "members": 9, "each": {"gpu": 1}}}) == ["minimum 9 -> 8: starts on n1 n2"]


def test_a_gang_of_large_pods_could_request_less():
    assert told({"g": {"queue": "a", "members": 3, "each": {"gpu": 4}}}) == [
        "minimum 3 -> 2: starts on n1 n2",
        "2 GPUs a pod, not 4: starts on n1 n2",
    ]


def test_a_limit_is_raised_just_by_the_excess():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 64, "limit": 6}}
    assert told({"g": {"queue": "a", "members": 2, "each": {"gpu": 4}}}, queues=queues) == [
        "minimum 2 -> 1: starts on n1",
        "3 GPUs a pod, not 4: starts on n1 n2",
        "limit of a 6 -> 8: starts on n1 n2",
    ]


def test_a_parents_limit_still_blocks_after_raising_the_first():
    queues = {"root": {"quota": 64, "limit": 7}, "a": {"parent": "root", "quota": 64, "limit": 6}}
    found = told({"g": {"queue": "a", "members": 2, "minimum": 2, "each": {"gpu": 4}}}, queues=queues)
    assert found[-1] == "limit of a 6 -> 8: waits for OverLimit"


def test_a_non_preemptible_job_over_quota_could_become_preemptible():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "quota": 2}}
    group = {"queue": "a", "preemptible": False, "each": {"gpu": 3}}
    assert told({"g": group}, queues=queues) == [
        "preemptible: true: starts on n1",
        "2 GPUs a pod, not 3: starts on n1",
        "quota of a 2 -> 3: starts on n1",
    ]


def test_processors_are_lowered_to_what_a_limit_leaves():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "limit": {"cpu": 6}}}
    assert told({"g": {"queue": "a", "each": {"cpu": 8}}}, queues=queues) == [
        "6 cores a pod, not 8 cores: starts on n1",
        "limit of a 6 cores -> 8 cores: starts on n1",
    ]


def test_pods_with_smaller_requests_are_not_reduced():
    queues = {"root": {"quota": 64}, "a": {"parent": "root", "limit": {"cpu": 8}}}
    parts = {"small": {"members": 1, "each": {"cpu": 1}}, "large": {"members": 1, "each": {"cpu": 8}}}
    found = told({"g": {"queue": "a", "subgroups": parts}}, queues=queues)
    assert found[0] == "7 cores a pod, not 8 cores: starts on n1"
    parts = {"small": {"members": 1, "each": {"x.com/nic": 1}}, "large": {"members": 1, "each": {"x.com/nic": 4}}}
    found = told({"g": {"queue": "a", "subgroups": parts}}, {"nodes": {"n1": {"resources": {"x.com/nic": 4}}}})
    assert found[0] == "3 x.com/nic a pod, not 4: starts on n1"


def test_a_too_large_pod_could_match_the_largest_node():
    assert told({"g": {"queue": "a", "each": {"gpu": 8}}}) == ["4 GPUs a pod, not 8: starts on n1"]
    assert told({"g": {"queue": "a", "each": {"cpu": 2000}}}) == ["1000 cores a pod, not 2000 cores: starts on n1"]


def test_a_gang_for_one_rack_could_shrink_or_spread():
    group = {"queue": "a", "members": 3, "each": {"gpu": 4}, "topology": {"required": "rack"}}
    assert told({"g": group}, RACKS) == [
        "rack preferred, not required: starts on n1 n3 n4",
        "minimum 3 -> 2: starts on n1 n2",
        "2 GPUs a pod, not 4: starts on n1 n2",
    ]


def test_suggestion_texts_follow_the_form_and_fields_the_objects():
    group = {"queue": "a", "members": 9, "each": {"gpu": 1}}
    short = scenario({"g": group})
    for case, text in ((short, "minimum 9 -> 8"), (attrs.evolve(short, short_groups=frozenset()), "minMember 9 -> 8")):
        (job,) = explain(case).jobs
        (trial,) = job.suggestions.changes
        assert (trial.change.text, trial.change.field) == (text, "minMember")


def test_the_subgroup_without_room_is_reduced():
    parts = {"big": {"members": 3, "minimum": 3, "each": {"gpu": 4}}, "small": {"members": 1, "minimum": 1}}
    assert told({"g": {"queue": "a", "subgroups": parts}})[0] == "minimum of big 3 -> 2: starts on n1 n2"


def test_the_one_taint_in_the_way_could_be_tolerated():
    nodes = {"n1": {"gpu": 4, "taints": ["disk=bad"]}}
    assert told({"g": {"queue": "a", "each": {"gpu": 1}}}, {"nodes": nodes}) == [
        "toleration for disk=bad:NoSchedule: starts on n1"
    ]


def test_one_toleration_does_not_cure_two_taints():
    nodes = {"n1": {"gpu": 4, "taints": ["disk=bad", "team=b"]}}
    assert told({"g": {"queue": "a", "each": {"gpu": 1}}}, {"nodes": nodes}) == []


def test_a_selector_could_name_what_exists():
    nodes = {"n1": {"gpu": 4, "labels": {"type": "x"}}}
    assert told({"g": {"queue": "a", "each": {"gpu": 1}, "selector": {"type": "y"}}}, {"nodes": nodes}) == [
        "selector type y -> x: starts on n1"
    ]


def test_a_selector_matching_no_node_could_be_dropped():
    assert told({"g": {"queue": "a", "each": {"gpu": 1}, "selector": {"type": "y"}}}) == [
        "no selector for type: starts on n1"
    ]


def test_what_affinity_requires_could_be_dropped():
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    group = {"queue": "a", "each": {"gpu": 1}, "spec": {"affinity": {"nodeAffinity": required}}}
    assert told({"g": group}) == ["no required node affinity: starts on n1"]


def test_gates_could_be_opened():
    group = {"queue": "a", "each": {"gpu": 1}, "spec": {"schedulingGates": [{"name": "wait"}]}}
    assert told({"g": group}) == ["open the gate wait: starts on n1"]


def test_a_gang_lacking_pods_could_start_with_existing_ones():
    group = {"queue": "a", "members": 2, "minimum": 3, "each": {"gpu": 1}}
    assert told({"g": group}) == ["minimum 3 -> 2: starts on n1"]


def test_a_queue_that_is_spelled_wrongly_is_named():
    queues = {"root": {"quota": 8}, "research": {"parent": "root", "quota": 8}}
    assert told({"g": {"queue": "reserach"}}, queues=queues) == ["queue reserach -> research: starts on n1"]


def test_leaf_queues_below_a_parent_queue_are_suggested():
    assert told({"g": {"queue": "root"}}) == ["queue root -> a: starts on n1"]


def test_a_fraction_could_shrink_to_a_devices_free_part():
    groups = {
        "runs": {"queue": "a", "each": {"fraction": 0.4}},
        "g": {"queue": "a", "each": {"fraction": 0.8}},
    }
    assert told(groups, {"nodes": {"n1": {"gpu": 1}}}, run=["allocate"]) == ["fraction 0.8 -> 0.6: starts on n1"]


def test_gpu_memory_could_shrink_to_a_devices_free_part():
    groups = {
        "runs": {"queue": "a", "each": {"gpu_memory": 30000}},
        "g": {"queue": "a", "each": {"gpu_memory": 25000}},
    }
    nodes = {"n1": {"gpu": 1, "gpu_memory": 40000}}
    assert told(groups, {"nodes": nodes}, run=["allocate"]) == ["gpu_memory 25000 -> 10000: starts on n1"]


def test_who_would_not_start_then_is_told():
    queues = {**QUEUES, "b": {"parent": "root"}}
    groups = {
        "g": {"queue": "a", "each": {"gpu": 4}, "selector": {"type": "y"}},
        "other": {"queue": "b", "each": {"gpu": 4}},
    }
    assert told(groups, {"nodes": {"n1": {"gpu": 4}}}, queues=queues, run=["allocate"]) == [
        "no selector for type: starts on n1, other loses 1"
    ]


def test_a_start_that_needs_evictions_is_called_held():
    queues = {"root": {"quota": 4}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root"}}
    groups = {
        "runs": {"queue": "b", "each": {"gpu": 4}, "runs_on": "n1"},
        "g": {"queue": "a", "each": {"gpu": 4}, "selector": {"type": "y"}},
    }
    assert told(groups, {"nodes": {"n1": {"gpu": 4}}}, queues=queues) == [
        "no selector for type: held on n1, runs loses 1"
    ]


def test_a_stale_gang_is_suggested_a_lower_minimum():
    group = {"queue": "a", "members": 3, "each": {"gpu": 4}, "runs_on": {"n1": 1, "n2": 1}}
    parameters = {"default_staleness_grace_seconds": 0}
    assert told({"g": group}, run=["allocate", "stalegangeviction"], parameters=parameters) == ["minimum 3 -> 2: kept"]


def test_nothing_is_suggested_where_nothing_helps():
    groups = {
        "runs": {"queue": "a", "preemptible": False, "each": {"gpu": 4}, "runs_on": "n1"},
        "g": {"queue": "a", "members": 2, "each": {"gpu": 2}},
    }
    assert told(groups, {"nodes": {"n1": {"gpu": 4}}}) == []


def test_equivalent_suggestions_are_listed_once():
    found = told({"g": {"queue": "a", "members": 3, "each": {"gpu": 4}}})
    assert not any("pods, not" in text for text in found)


def test_at_most_four_changes_are_told():
    term = {"matchExpressions": [{"key": "y", "operator": "In", "values": ["1"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    nodes = {
        "n1": {"gpu": 4, "labels": {"x": "1", "y": "1"}},
        "n2": {"gpu": 4, "labels": {"x": "1", "y": "1"}, "taints": ["t=1"]},
        "n3": {"gpu": 4, "labels": {"y": "1"}},
        "n4": {"gpu": 4, "labels": {"x": "1"}},
    }
    group = {"queue": "a", "members": 2, "each": {"gpu": 4}, "selector": {"x": "1"}}
    every = [
        "minimum 2 -> 1: starts on n1",
        "2 GPUs a pod, not 4: starts on n1",
        "toleration for t=1:NoSchedule: starts on n1 n2",
        "no selector for x: starts on n1 n3",
        "no required node affinity: starts on n1 n4",
    ]
    found = told({"g": {**group, "spec": {"affinity": {"nodeAffinity": required}}}}, {"nodes": nodes})
    assert found == every[: suggestions.MOST_CHANGES]


# ----------------------------------------------------------------------------------------------------------- how


def test_the_order_of_objects_does_not_matter():
    case = scenario({"g": {"queue": "a", "members": 3, "each": {"gpu": 4}}})
    objects = case.objects
    turned = attrs.evolve(
        objects, nodes=objects.nodes[::-1], pods=objects.pods[::-1], pod_groups=objects.pod_groups[::-1]
    )
    first, second = (explain(attrs.evolve(case, objects=each)).jobs[0] for each in (objects, turned))
    assert [sentence(each) for each in first.suggestions.changes] == [
        sentence(each) for each in second.suggestions.changes
    ]


def test_the_last_of_several_cycles_is_decided_again():
    groups = {"first": {"queue": "a", "each": {"gpu": 4}}, "g": {"queue": "a", "members": 2, "each": {"gpu": 4}}}
    assert told(groups, {"nodes": TWO}, run=["allocate"], cycles=2) == [
        "minimum 2 -> 1: starts on n2",
        "2 GPUs a pod, not 4: starts on n2",
    ]


def test_too_many_changes_are_noted_and_none_unproved_suggested(monkeypatch):
    monkeypatch.setattr(suggestions, "LEAST_FOR_ONE", 1)
    monkeypatch.setattr(suggestions, "MOST_FOR_ONE", 1)
    (each,) = explain(scenario({"g": {"queue": "a", "members": 9, "each": {"gpu": 1}}})).jobs
    assert not each.suggestions.all_tried
    assert each.suggestions.changes == ()


def test_many_groups_share_one_allowance():
    assert suggestions.allowance(1) == suggestions.MOST_FOR_ONE
    assert suggestions.allowance(1000) == suggestions.LEAST_FOR_ONE


# ------------------------------------------------------------------------------------------------ the smallest change


def test_a_smaller_change_is_suggested_even_with_evictions():
    queues = {"root": {"quota": 12}, "a": {"parent": "root", "quota": 8}, "b": {"parent": "root", "quota": 0}}
    groups = {
        "lent": {"queue": "b", "members": 8, "minimum": 0, "each": {"gpu": 1}, "runs_on": {"n1": 4, "n2": 4}},
        "g": {"queue": "a", "members": 3, "minimum": 3, "each": {"gpu": 4}},
    }
    nodes = {"n1": {"gpu": 4}, "n2": {"gpu": 4}, "n3": {"gpu": 4}}
    found = told(groups, {"nodes": nodes}, queues, ("allocate", "reclaim"))
    assert "2 pods, not 3: held on n2 n3, lent loses 4" in found


def test_a_suggested_quota_covers_unequal_pods():
    queues = {"root": {"quota": 12}, "a": {"parent": "root", "quota": 4}, "b": {"parent": "root", "quota": 4}}
    parts = {"actors": {"members": 4, "each": {"gpu": 1}}, "learner": {"members": 1, "each": {"gpu": 4}}}
    groups = {
        "lent": {"queue": "b", "members": 12, "minimum": 0, "each": {"gpu": 1}, "runs_on": {"n1": 4, "n2": 4, "n3": 4}},
        "g": {"queue": "a", "subgroups": parts},
    }
    nodes = {f"n{at}": {"gpu": 4} for at in range(1, 4)}
    found = told(groups, {"nodes": nodes}, queues, ("allocate", "reclaim"))
    assert [text for text in found if text.startswith("quota")] == [
        "quota of a 4 -> 7: held on n1 n2 n3, lent loses 8",
    ]


def test_unequal_pods_are_named_by_their_requests():
    parts = {"actors": {"members": 2, "each": {"gpu": 1}}, "learner": {"members": 1, "each": {"gpu": 4}}}
    groups = {
        "full": {"queue": "a", "preemptible": False, "members": 1, "each": {"gpu": 2}, "runs_on": "n1"},
        "more": {"queue": "a", "preemptible": False, "members": 1, "each": {"gpu": 1}, "runs_on": "n2"},
        "g": {"queue": "a", "subgroups": parts},
    }
    found = told(groups)
    assert any(text.startswith("3 GPUs for pods that ask for 4: starts") for text in found)


def test_an_impossible_job_gets_the_least_change_towards_possible():
    groups = {"full": {"queue": "a", "preemptible": False, "members": 2, "each": {"gpu": 4}, "runs_on": ["n1", "n2"]}}
    groups["g"] = {"queue": "a", "each": {"gpu": 16}}
    assert told(groups) == ["4 GPUs a pod, not 16: waits for NoRoom"]


# -------------------------------------------------------------------------------------------------- what is read again


def test_changes_tried_on_kept_records_give_the_same_answers(monkeypatch):
    read: list[str] = []
    reader = PodReader.read
    monkeypatch.setattr(PodReader, "read", lambda self, pod: read.append(pod.metadata.name) or reader(self, pod))
    outcome = simulate(read_case(str(LAB)))
    seen = overview(outcome)
    once = sorted(read)
    assert len(once) == len(outcome.last.snapshot.pods)
    read.clear()
    found = explained(outcome, seen)
    again = len(read)
    read.clear()
    alone = explained(attrs.evolve(outcome, intake=None), seen)
    # Alone, everything is read once more before anything is tried.
    assert again == len(read) - len(once)
    assert found == alone


def test_few_queues_are_all_suggested_without_a_similar_name():
    assert told({"g": {"queue": "production"}}) == ["queue production -> a: starts on n1"]
    queues = {"root": {"quota": 8}, **{name: {"parent": "root", "quota": 2} for name in "abcd"}}
    assert told({"g": {"queue": "production"}}, queues=queues) == []


def test_a_model_limit_is_raised_by_the_excess():
    cluster = {"nodes": {"n1": {"gpu": 4, "model": "h100"}}}
    queues = {"root": {}, "a": {"parent": "root", "models": {"h100": 2}}}
    found = told({"g": {"queue": "a", "members": 3, "each": {"gpu": 1}}}, cluster, queues)
    assert "limit of a for h100 2 -> 3: starts on n1" in found
