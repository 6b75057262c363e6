import pytest

from kai.answers.offline.run import simulate
from kai.answers.outcomes.overview import overview
from kai.lab.scenarios.scenario import read_short

QUEUES = {
    "root": {"quota": 8},
    "team": {"parent": "root", "quota": 8},
    "b": {"parent": "team"},
    "a": {"parent": "team", "quota": 8, "limit": 8},
}


def seen(groups, nodes=None, **more):
    document = {"about": "x", "cluster": {"nodes": nodes or {"n1": {"gpu": 4}}}, "queues": QUEUES, "groups": groups}
    return overview(
        simulate(read_short({**document, "run": ["allocate", "consolidation", "preempt"], **more}, "s.yaml"))
    )


def states(groups, **more):
    return {job.name: job.state for job in seen(groups, **more).jobs}


def test_states_say_what_becomes_of_a_job():
    groups = {
        "runs": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "starts": {"queue": "a", "each": {"gpu": 1}},
        "partial": {"queue": "a", "members": 3, "minimum": 1, "each": {"gpu": 1}, "runs_on": {"n1": 1}},
        "leaving": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1", "leaving": 1},
        "waits": {"queue": "a", "each": {"gpu": 4}},
        "impossible": {"queue": "a", "each": {"gpu": 5}},
        "empty": {"queue": "a", "members": 0},
    }
    assert states(groups, run=["allocate"]) == {
        "runs": "Running",
        "starts": "Starts",
        "partial": "Partial",
        "leaving": "Leaving",
        "waits": "Waits",
        "impossible": "Impossible",
        "empty": "Empty",
    }


def test_who_gives_way_is_told_for_whom():
    groups = {
        "low": {"queue": "a", "priority": 40, "each": {"gpu": 4}, "runs_on": "n1"},
        "high": {"queue": "a", "priority": 60, "each": {"gpu": 4}},
    }
    view = seen(groups)
    jobs = {job.name: job for job in view.jobs}
    assert (jobs["low"].state, jobs["high"].state) == ("Evicted", "Held")
    assert jobs["low"].lost_to == ("1 pod for high (preempt)",)
    assert view.evictions == (
        ("default/low-0", "Pod default/low-0 was preempted by higher priority workload default/high"),
    )


def test_who_moves_is_told():
    nodes = {"n1": {"gpu": 2}, "n2": {"gpu": 2}}
    groups = {
        "left": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
        "right": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n2"},
        "whole": {"queue": "a", "each": {"gpu": 2}},
    }
    assert states(groups, nodes=nodes) == {"left": "Running", "right": "Moves", "whole": "Held"}


def test_finished_jobs_are_told():
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "done-0", "namespace": "default", "annotations": {"pod-group-name": "done"}},
        "status": {"phase": "Succeeded"},
    }
    cluster = {"nodes": {"n1": {"gpu": 1}}, "objects": [pod]}
    assert states({"done": {"queue": "a", "members": 0}}, cluster=cluster) == {"done": "Finished"}


def test_jobs_are_listed_by_queue_and_priority():
    groups = {
        "z": {"queue": "a", "priority": 10},
        "y": {"queue": "a", "priority": 20},
        "x": {"queue": "b"},
        "w": {"queue": "a", "priority": 10},
    }
    assert [job.name for job in seen(groups).jobs] == ["y", "w", "z", "x"]


def test_queues_are_a_tree_with_numbers():
    view = seen({"g": {"queue": "a", "members": 6, "minimum": 0, "each": {"gpu": 1}}})
    lines = {queue.name: queue for queue in view.queues}
    assert [(queue.name, queue.depth, queue.last) for queue in view.queues] == [
        ("root", 0, ()),
        ("team", 1, (True,)),
        ("a", 2, (True, False)),
        ("b", 2, (True, True)),
    ]
    gpu = lines["a"].shares[2]
    assert (gpu.quota, gpu.limit, gpu.fair_share, gpu.used, gpu.wanted) == (8000, 8000, 6000, 4000, 6000)
    assert lines["team"].shares[2].limit is None
    assert (lines["team"].running, lines["team"].waiting, lines["b"].running) == (1, 1, 0)
    assert view.totals[2] == 4000


def test_what_conditions_would_say_is_there_too():
    (job,) = seen({"g": {"queue": "a", "each": {"gpu": 9}}}).jobs
    assert job.message.startswith("OverLimit: a quota has reached the allowable limit of GPUs.")
    assert [str(each) for each in job.explanations] == [job.message.removesuffix(".")]
    assert job.pod_messages == (("default/g-0", job.message),)


def test_jobs_that_only_run_count_like_any_other():
    groups = {
        "rests": {"queue": "a", "members": 2, "each": {"gpu": 1}, "runs_on": {"n1": 2}},
        "starts": {"queue": "b", "members": 2, "each": {"gpu": 1}},
        "low": {"queue": "a", "members": 2, "priority": 40, "each": {"gpu": 2}, "runs_on": {"n2": 2}},
        "high": {"queue": "a", "priority": 60, "each": {"gpu": 4}},
        "empty": {"queue": "a", "members": 0},
    }
    jobs = {job.name: job for job in seen(groups, nodes={"n1": {"gpu": 4}, "n2": {"gpu": 4}}).jobs}
    counts = {
        name: (job.state, job.wanted, job.placed, job.started, job.held, job.evicted, job.gpus, job.nodes)
        for name, job in jobs.items()
    }
    assert counts == {
        "rests": ("Running", 2, 2, 0, 0, 0, 2000, ("n1",)),
        "starts": ("Starts", 2, 2, 2, 0, 0, 2000, ("n1",)),
        "low": ("Evicted", 2, 0, 0, 0, 2, 4000, ()),
        "high": ("Held", 1, 0, 0, 1, 0, 4000, ("n2",)),
        "empty": ("Empty", 0, 0, 0, 0, 0, 0, ()),
    }


def test_queues_count_the_jobs_of_all_queues_below_them():
    view = seen(
        {
            "one": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
            "two": {"queue": "b", "each": {"gpu": 1}, "runs_on": "n1"},
            "waits": {"queue": "a", "each": {"gpu": 5}},
            "waits-too": {"queue": "b", "each": {"gpu": 5}},
        }
    )
    counts = {line.name: (line.running, line.waiting) for line in view.queues}
    assert counts == {"root": (2, 2), "team": (2, 2), "a": (1, 1), "b": (1, 1)}


def test_slices_of_gpus_are_counted_as_quota_does():
    slices = {"nvidia.com/mig-1g.5gb": 7, "nvidia.com/mig-3g.20gb": 2}
    groups = {
        "small": {"queue": "a", "members": 2, "each": {"nvidia.com/mig-1g.5gb": 1}},
        "large": {"queue": "a", "members": 2, "each": {"nvidia.com/mig-3g.20gb": 1}},
    }
    view = seen(groups, nodes={"n1": {"resources": slices}})
    assert view.totals[2] == 13_000
    assert {job.name: (job.state, job.gpus) for job in view.jobs} == {
        "small": ("Starts", 2000),
        "large": ("Starts", 6000),
    }
    assert {line.name: line.shares[2].used for line in view.queues}["a"] == 8000


GROUPS = {
    "runs": {"queue": "a", "each": {"gpu": 1}, "runs_on": "n1"},
    "starts": {"queue": "a", "each": {"gpu": 1}},
    "partial": {"queue": "a", "members": 3, "minimum": 1, "each": {"gpu": 1}, "runs_on": {"n1": 1}},
    "leaving": {"queue": "b", "each": {"gpu": 1}, "runs_on": "n1", "leaving": 1},
    "waits": {"queue": "b", "each": {"gpu": 4}},
    "impossible": {"queue": "b", "each": {"gpu": 5}},
    "empty": {"queue": "b", "members": 0},
}


@pytest.mark.parametrize("actions", [["allocate"], ["allocate", "consolidation", "reclaim", "preempt"]])
def test_queues_count_jobs_before_these_are_made(actions):
    view = seen(GROUPS, run=actions)
    counts = {line.name: (line.running, line.waiting) for line in view.queues}
    for queue in ("a", "b"):
        here = [job for job in view.jobs if job.queue == queue]
        assert counts[queue] == (
            sum(job.placed > 0 for job in here),
            sum(job.waiting_reason is not None for job in here),
        )


def test_waiting_and_named_jobs_are_some_of_all():
    view, all_jobs = seen(GROUPS), seen(GROUPS).jobs
    assert view.waiting == tuple(job for job in all_jobs if job.waiting_reason is not None)
    assert [view.named(name) for name in ("runs", "default/waits", "none")] == [
        tuple(job for job in all_jobs if name in {job.name, job.key}) for name in ("runs", "default/waits", "none")
    ]
