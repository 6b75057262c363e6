import pytest

from kai.deciding.explain.messages import eviction_message, pipelined_message
from kai.framework.decisions import Cause, Evict
from kai.testing import snapshot

GB = 10**9


@pytest.fixture(scope="module")
def two_groups():
    return snapshot({"n1": {"gpu": 2}}, {"gains": {"each": {"gpu": 1}}, "loses": {"each": {"gpu": 1}}})


def evicted(taken, cause, **facts):
    names = [pod.name for pod in taken.pods]
    groups = [group.name for group in taken.groups]
    return eviction_message(
        Evict(pod=names.index("loses-0"), cause=cause, aggressor=groups.index("gains"), facts=facts), taken
    )


def test_evictions_are_told_by_cause(two_groups):
    assert evicted(two_groups, Cause.PREEMPT) == (
        "Pod default/loses-0 was preempted by higher priority workload default/gains"
    )
    assert evicted(two_groups, Cause.CONSOLIDATE) == (
        "Pod default/loses-0 was preempted and rescheduled due to bin packing (resource consolidation) procedure"
    )
    assert evicted(two_groups, Cause.STALE, minimum=3, subgroup="default") == (
        "Workload doesn't meet the minimum required number of pods (3), evicting remaining pod: default/loses-0"
    )
    assert evicted(two_groups, Cause.STALE, minimum=3, subgroup="w") == (
        "Workload doesn't meet the minimum required number of pods (3) in sub-group w, "
        "evicting remaining pod: default/loses-0"
    )


def test_a_reclaim_tells_the_numbers_of_both_queues(two_groups):
    def queue(title, used):
        numbers = {"used": (1000.0, GB, used), "quota": (-1.0, -1.0, 2000.0), "fair_share": (0.0, 0.0, 2500.0)}
        return {"title": title, "priority": 100, **numbers}

    told = evicted(two_groups, Cause.RECLAIM, victim=queue("a", 3000.0), aggressor=queue("b", 0.0))
    shares = (
        "with a quota of <GPU: 2, CPU: Unlimited (cores), memory: Unlimited (GB)>, "
        "fair-share of <GPU: 2.5, CPU: 0 (cores), memory: 0 (GB)> and queue priority of <100>."
    )
    assert told.splitlines() == [
        "Pod default/loses-0 was preempted by workload default/gains.",
        f"a uses <GPU: 3, CPU: 1 (cores), memory: 1 (GB)> {shares}",
        f"b uses <GPU: 0, CPU: 1 (cores), memory: 1 (GB)> {shares}",
    ]


def test_a_reclaim_by_model_names_the_model(two_groups):
    queues = {side: {"title": side, "priority": 1} for side in ("victim", "aggressor")}
    model = {"name": "h100", "victim": (3000, 0), "aggressor": (500, 2000)}
    reason = evicted(two_groups, Cause.RECLAIM, model=model, **queues).splitlines()[-1]
    assert reason == (
        "The quota of h100 GPUs allowed it: victim used 3 and is owed 0, aggressor used 0.5 and is owed 2."
    )
    pod = [pod.name for pod in two_groups.pods].index("loses-0")
    hidden = Evict(pod=pod, cause=Cause.RECLAIM, aggressor=0, facts={**queues, "model": model})
    assert eviction_message(hidden, two_groups, is_hidden=True).splitlines()[-1] == (
        "The quota of h100 GPUs of the other queue allowed it: victim used 3 and is owed 0."
    )


def test_a_hidden_aggressor_shows_its_uid_but_no_queue(two_groups):
    at = [group.name for group in two_groups.groups].index("gains")
    pod = [pod.name for pod in two_groups.pods].index("loses-0")
    queues = {side: {"title": side, "priority": 1} for side in ("victim", "aggressor")}
    for cause in (Cause.PREEMPT, Cause.RECLAIM):
        evict = Evict(pod=pod, cause=cause, aggressor=at, facts=queues)
        told = eviction_message(evict, two_groups, is_hidden=True)
        assert f"workload {two_groups.groups[at].uid} of another namespace" in told
        assert "default/gains" not in told
        assert "aggressor uses" not in told


def test_a_promise_is_told():
    assert pipelined_message("ns/p", "n1") == "Pod ns/p was pipelined to node n1"


OVERDUE = Cause("evict-overdue", rule="it ran too long", event="Pod {pod} is gone, as {rule}")


@pytest.mark.parametrize(
    ("cause", "rule", "told"),
    [
        (OVERDUE, "it ran too long", "Pod default/loses-0 is gone, as it ran too long"),
        (Cause("evict-overdue"), "", "Pod default/loses-0 was evicted by evict-overdue: its scheduler gave no reason"),
        (Cause("odd", event="{nobody} {0}"), "no", "Pod default/loses-0 was evicted by odd: no"),
    ],
)
def test_an_eviction_by_a_foreign_action_uses_its_rule(two_groups, cause, rule, told):
    pod = [each.name for each in two_groups.pods].index("loses-0")
    assert eviction_message(Evict(pod=pod, cause=cause, rule=rule), two_groups) == told
