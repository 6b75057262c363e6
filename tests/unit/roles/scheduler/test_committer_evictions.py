"""Evictions by the committer: what they say, which of them are not sent, and what became of them."""

import pytest

from kai.api.kubernetes.pod import Pod
from kai.cluster.requests import Evict as EvictRequest
from kai.framework.decisions import Cause
from kai.intake import disruption_budgets
from kai.intake.disruption_budgets import MOST
from kai.roles.scheduler.effects import Send
from kai.roles.scheduler.settings import EvictBy, SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.test_committer import cluster


def test_an_eviction_carries_the_uid_and_is_announced_afterwards():
    world = cluster()
    effects = world.decide(world.evict("old"), world.promise("p0", "n2"))
    uid = world.get(Pod, "old", "default").metadata.uid
    assert EvictRequest(ref=world.wires[0].send.request.ref, uid=uid) in [e.request for e in effects if type(e) is Send]
    assert world.get(Pod, "old", "default").metadata.deletion_timestamp is not None
    assert world.said() == []
    assert world.committer.is_evicting
    world.settle()
    assert not world.committer.is_evicting
    assert world.server.get("Pod", "old", "default") is None
    assert ("other", "Evict") in world.said()
    assert ("p0", "Pipelined") in world.said()
    assert world.assumed == {}


def test_an_eviction_event_names_the_aggressor_and_the_action():
    world = cluster()
    group = [each.name for each in world.snapshot.groups].index("gang")
    world.decide(world.evict("old", Cause.PREEMPT, aggressor=group), world.promise("p0", "n2"))
    world.settle()
    (event,) = [event for event in world.server.events if event.reason == "Evict"]
    assert event.message == "Pod default/old was preempted by higher priority workload default/gang"
    assert dict(event.annotations) == {
        "num-evicted-pods": "1",
        "evictor-action-type": "preempt",
        "evictor-pod-group-name": "gang",
        "evictor-pod-group-namespace": "default",
    }


def test_an_eviction_unsent_for_five_seconds_is_given_up():
    world = cluster()
    world.decide(world.evict("old"))
    since = world.time
    while world.wires:
        world.deliver(fault="unavailable")
        assert world.committer.is_evicting == (world.get(Pod, "old", "default").metadata.deletion_timestamp is not None)
        if world.wake is not None:
            world.pass_time(max(0.0, world.wake - world.time) + 0.001)
    assert 1.0 < world.time - since <= 5.1
    assert not world.committer.is_evicting
    assert type(world.signals[-1]).__name__ == "WriteGivenUp"
    world.decide(world.evict("old"), cycle=2)
    world.settle()
    assert world.server.get("Pod", "old", "default") is None


def test_an_eviction_of_unknown_outcome_is_looked_up_first():
    """To send it again would evict for who may be gone; to give up before the look leaves the next one unread."""
    world = cluster()
    world.decide(world.evict("old"))
    world.deliver(fault="lost before")
    for _ in range(20):
        world.pass_time(max(0.0, world.wake - world.time) + 0.001)
        (look,) = world.wires
        assert type(look.send.request).__name__ == "Get"
        world.deliver(fault="unavailable")
        assert world.committer.is_evicting
    world.pass_time(max(0.0, world.wake - world.time) + 0.001)
    world.deliver()
    assert world.wires == []
    assert type(world.signals[-1]).__name__ == "WriteGivenUp"
    assert world.get(Pod, "old", "default").metadata.deletion_timestamp is None


def test_a_namesake_of_a_victim_survives():
    world = cluster()
    world.decide(world.evict("old"), world.promise("p0", "n2"))
    world.server.change("Pod", "old", "default", {"metadata": {"uid": "another"}})
    world.settle()
    assert world.server.get("Pod", "old", "default")["metadata"]["uid"] == "another"
    assert ("other", "Evict") not in world.said()


def test_nobody_is_evicted_for_a_pod_that_is_gone():
    world = cluster()
    world.server.remove("Pod", "p0", "default")
    world.sync()
    world.decide(world.evict("old"), world.promise("p0", "n2"))
    assert world.wires == []


def test_silent_watches_and_unfinished_binds_prevent_an_eviction():
    world = cluster()
    world.silence = 76.0
    world.decide(world.evict("old"))
    assert "a watch is silent" in world.signals[-1].why
    world.silence = 0.0
    world.decide(world.bind("p0", "n1"))
    world.decide(world.evict("p0"))
    assert "is being written" in world.signals[-1].why
    assert [type(wire.send.request).__name__ for wire in world.wires] == ["Create"]


def test_a_pod_is_evicted_only_after_its_bind_ended():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    world.settle()
    world.decide(world.evict("p0"), world.promise("p1", "n1"), cycle=2)
    assert world.signals[-1].why == "pod default/p0: may not be evicted while it is being bound"
    assert world.wires == []
    world.server.change("BindRequest", "p0", "default", {"status": {"phase": "Failed", "failedAttempts": 1}})
    world.sync()
    world.decide(world.evict("p0"), cycle=3)
    world.settle()
    assert world.server.get("Pod", "p0", "default") is None
    world.decide(world.bind("p1", "n1"), cycle=4)
    world.settle()
    world.carry_out()
    world.decide(world.evict("p1"), cycle=5)
    world.settle()
    assert world.server.get("Pod", "p1", "default") is None


def test_an_unbound_order_delays_eviction_ten_seconds():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    world.settle()
    ordered = world.time
    world.look()
    world.decide(world.evict("p0"), cycle=2)
    assert world.committer.feedback.recent_binds.is_awaited
    assert world.committer.feedback.recent_binds.next_due() == pytest.approx(ordered + 10.0, abs=0.1)
    world.pass_time(10.0)
    world.look()
    assert (world.committer.feedback.recent_binds.is_awaited, world.committer.feedback.recent_binds.next_due()) == (
        False,
        None,
    )
    world.decide(world.evict("p0"), cycle=3)
    world.settle()
    assert world.server.get("Pod", "p0", "default") is None


def test_partial_writes_ask_for_another_cycle():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    world.settle()
    world.look()
    world.decide(world.evict("p0"), cycle=2)
    world.decide(world.bind("p1", "n1"), cycle=2)
    assert not world.committer.feedback.recent_binds.is_awaited


def test_an_order_of_another_process_prevents_no_eviction():
    """It may be as old as it likes, and its binder gone."""
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    world.settle()
    world.lose()
    world.lead()
    world.decide(world.evict("p0"), cycle=2)
    world.settle()
    assert world.server.get("Pod", "p0", "default") is None


def test_an_old_pods_order_does_not_block_an_eviction():
    world = cluster()
    world.server._put(making.bind_request("p0", "n1", metadata={"ownerReferences": [{"kind": "Pod", "uid": "past"}]}))
    world.sync()
    world.decide(world.evict("p0"))
    world.settle()
    assert world.server.get("Pod", "p0", "default") is None


def budget(allowed, name="pdb", apps=()):
    selector = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["none", *apps]}]}
    spec, status = {"selector": selector}, {"disruptionsAllowed": allowed}
    return making.other("PodDisruptionBudget", "policy/v1", name, namespace="default", spec=spec, status=status)


def test_a_budget_that_allows_nothing_saves_the_whole_statement():
    world = cluster(budget(0))
    world.decide(world.evict("old"), world.promise("p0", "n2"))
    assert world.signals[-1].why == "poddisruptionbudget default/pdb allows 0 disruptions, 1 are needed"
    assert world.wires == []


def test_victims_of_an_exhausted_budget_are_protected_ten_seconds():
    world = cluster(budget(0))
    world.decide(world.evict("old"), world.promise("p0", "n2"))
    found = [world.committer.feedback.protected_pods.current(world.time + seconds) for seconds in (9.0, 10.0)]
    assert found == [("uid-old",), ()]


def test_a_pod_covered_by_two_budgets_is_not_evicted():
    """The API server would answer with 500, whatever they allow, on and on, and no other victim would be looked for."""
    world = cluster(budget(1, "one"), budget(1, "two"))
    world.decide(world.evict("old"), world.promise("p0", "n2"))
    covered = "is covered by poddisruptionbudget default/one and poddisruptionbudget default/two"
    assert world.signals[-1].why == f"pod default/old {covered}: the API server evicts no pod of two"
    assert world.wires == []
    assert world.committer.feedback.protected_pods.current(world.time + 9.0) == ("uid-old",)


@pytest.mark.parametrize(("by", "kind"), [(EvictBy.EVICTION, "Evict"), (EvictBy.BUDGET, "Evict")])
def test_the_server_is_asked_where_budgets_exceed_the_cap(by, kind):
    apps = [f"a{at}" for at in range(MOST // 2)]
    world = cluster(*(budget(0, each, apps) for each in ("one", "two")), settings=SchedulerSettings(evict_by=by))
    world.decide(world.evict("old"))
    assert [type(wire.send.request).__name__ for wire in world.wires] == [kind]


def test_a_refusing_budget_is_not_asked_for_a_minute():
    world = cluster(budget(1))
    world.protected.add("old")
    world.decide(world.evict("old"))
    world.settle()
    assert world.assumed == {}
    assert world.committer.feedback.protected_pods.current(world.time + 59.0) == ("uid-old",)
    world.decide(world.evict("old"), cycle=2)
    assert world.wires == []
    world.pass_time(61.0)
    world.decide(world.evict("old"), cycle=3)
    assert len(world.wires) == 1


@pytest.mark.parametrize(
    ("by", "covered", "kind"),
    [
        (EvictBy.EVICTION, False, "Evict"),
        (EvictBy.BUDGET, True, "Evict"),
        (EvictBy.BUDGET, False, "Delete"),
        (EvictBy.DELETE, True, "Delete"),
    ],
)
def test_how_pods_are_evicted_can_be_chosen(by, covered, kind):
    world = cluster(*([budget(1)] if covered else []), settings=SchedulerSettings(evict_by=by))
    world.decide(world.evict("old"))
    assert [type(wire.send.request).__name__ for wire in world.wires] == [kind]


def test_a_victim_may_be_told_first():
    world = cluster(settings=SchedulerSettings(mark_victims=True))
    world.decide(world.evict("old"))
    first, second = (wire.send.request for wire in world.wires)
    (condition,) = first.patch["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("DisruptionTarget", "PreemptionByScheduler")
    assert isinstance(second, EvictRequest)


def test_budgets_are_sorted_once_for_all_evictions(monkeypatch):
    sorted_ = []
    monkeypatch.setattr(disruption_budgets, "_size", lambda selector: sorted_.append(selector) or 1)
    more = [making.pod(f"old{at}", group="other", phase="Running", node="n2") for at in range(5)]
    world = cluster(budget(9), *more, settings=SchedulerSettings(evict_by=EvictBy.BUDGET))
    world.decide(*(world.evict(f"old{at}") for at in range(5)))
    assert [type(wire.send.request).__name__ for wire in world.wires] == ["Evict"] * 5
    assert len(sorted_) == 1


def test_a_budget_that_changed_counts_as_it_is_now():
    world = cluster(budget(0))
    world.decide(world.evict("old"))
    assert world.wires == []
    world.server._put(budget(1))
    world.sync()
    world.pass_time(11.0)
    world.decide(world.evict("old"), cycle=2)
    assert len(world.wires) == 1
