from kai.answers.documents.nodes import occupied
from kai.answers.offline.run import simulate
from kai.answers.outcomes.node_occupancy import occupancy
from kai.answers.outcomes.overview import overview
from kai.lab.scenarios.scenario import read_short

QUEUES = {"root": {"quota": 16}, "a": {"parent": "root", "quota": 16}, "tight": {"parent": "root", "limit": 1}}


def look(groups, node="n1", nodes=None):
    document = {"about": "x", "cluster": {"nodes": nodes or {"n1": {"gpu": 4}}}, "queues": QUEUES, "groups": groups}
    outcome = simulate(read_short({**document, "run": ["allocate", "preempt"]}, "occupancy"))
    return occupancy(outcome, overview(outcome), node)


def test_tenants_are_listed_with_their_gpus_the_largest_first():
    groups = {
        "small": {"queue": "a", "members": 1, "each": {"gpu": 1}, "runs_on": "n1"},
        "large": {"queue": "a", "members": 2, "each": {"gpu": 1}, "runs_on": "n1"},
    }
    found = look(groups)
    assert [(each.title, each.pods, each.gpus, each.state) for each in found.tenants] == [
        ("large", 2, 2000, "running"),
        ("small", 1, 1000, "running"),
    ]
    assert (found.gpus, found.idle) == (4000, 1000)


def test_held_places_and_leaving_pods_are_separate():
    groups = {
        "low": {"queue": "a", "priority": 40, "each": {"gpu": 4}, "runs_on": "n1"},
        "high": {"queue": "a", "priority": 60, "each": {"gpu": 4}},
    }
    assert {(each.title, each.state) for each in look(groups).tenants} == {("low", "leaving"), ("high", "held")}


def test_what_keeps_waiting_jobs_away_is_told_and_counted():
    nodes = {"n1": {"gpu": 2}, "n2": {"gpu": 8, "labels": {"type": "x"}}}
    groups = {
        "runs": {"queue": "a", "preemptible": False, "each": {"gpu": 8}, "runs_on": "n2"},
        "large": {"queue": "a", "each": {"gpu": 4}},
        "larger": {"queue": "a", "each": {"gpu": 4}},
        "picky": {"queue": "a", "each": {"gpu": 1}, "selector": {"type": "x"}},
        "limited": {"queue": "tight", "each": {"gpu": 2}},
    }
    assert look(groups, nodes=nodes).kept_away == (
        ("a pod asks for 4 GPUs, 2 GPUs idle here", ("large", "larger")),
        ("didn't match Pod's node affinity/selector", ("picky",)),
        ("waits for its queue or its pods first (OverLimit)", ("limited",)),
    )


def test_a_tainted_node_says_so():
    found = look({}, nodes={"n1": {"gpu": 4, "taints": ["disk=bad"]}})
    assert (found.taints, found.ready) == (("disk=bad:NoSchedule",), True)


def test_gpu_memory_counts_as_its_part_of_devices():
    part = {"queue": "a", "members": 2, "each": {"gpu_memory": 30000}, "runs_on": "n1"}
    found = look({"part": part}, nodes={"n1": {"gpu": 4, "gpu_memory": 40000}})
    assert [(each.title, each.gpus) for each in found.tenants] == [("part", 1500)]


def test_the_rest_of_shared_gpus_explains_refused_shares():
    groups = {
        "runs": {"queue": "a", "each": {"gpu_memory": 30000}, "runs_on": "n1"},
        "most": {"queue": "a", "each": {"gpu_memory": 20000}},
        "half": {"queue": "a", "each": {"fraction": 0.5}},
        "both": {"queue": "a", "each": {"fraction": 0.2, "devices": 2}},
        "whole": {"queue": "a", "each": {"gpu": 1}},
    }
    found = look(
        groups, nodes={"n1": {"gpu": 1, "gpu_memory": 40000}, "n2": {"gpu": 2, "gpu_memory": 40000, "cordoned": True}}
    )
    assert found.kept_away == (
        ("a pod asks for 0.2 of each of 2 GPUs, at most 0.25 of one idle here", ("both",)),
        ("a pod asks for 0.5 of a GPU, at most 0.25 of one idle here", ("half",)),
        ("a pod asks for 1 GPU, 0 GPUs idle here", ("whole",)),
        ("a pod asks for 20000 MiB of a GPU, at most 0.25 of one idle here", ("most",)),
    )
    assert occupied(found) == "n1 has 0.25 GPUs idle in GPUs that pods share: of 1 GPU 0.75 used."


def test_idle_gpus_and_parts_of_shared_are_separate():
    part = {"queue": "a", "each": {"fraction": 0.5}, "runs_on": "n1"}
    assert occupied(look({"part": part})) == "n1 has 3 GPUs idle and 0.5 in GPUs that pods share: of 4 GPUs 0.5 used."
