"""The publisher writes what changed, once, and is silent otherwise."""

import attrs
import pytest

from kai.api.plans import Emit, Patch, Reason, Refusal
from kai.api.scheduling.pod_group import PodGroup, UnschedulableReason
from kai.roles.scheduler.effects import NotExplained, Overlay, Send, WakeAt
from kai.roles.scheduler.publishing.conditions import GroupWrites
from kai.roles.scheduler.publishing.explanations import GroupAccount, Overall, PodAccount, Waiting
from kai.roles.scheduler.publishing.publisher import CycleOver, Silenced, TimePassed, Written
from tests.unit.intake import making
from tests.unit.roles.scheduler.stage import EVICTED, STAMPS, WHY, Stage, lost


def test_an_explanation_writes_conditions_and_events_on_both_objects():
    stage = Stage()
    stage.tell(stage.account())
    (condition,) = stage.world.server.get("Pod", "p", "default")["status"]["conditions"]
    keys = ("type", "status", "reason", "message")
    assert [condition[key] for key in keys] == ["PodScheduled", "False", "Unschedulable", "because"]
    (written,) = stage.group["status"]["schedulingConditions"]
    assert written["transitionID"] == "1"
    assert (written["type"], written["nodePool"]) == ("UnschedulableOnNodePool", "default")
    events = {(event.ref.name, event.type, event.reason, event.message) for event in stage.world.server.events}
    assert events == {("p", "Warning", "Unschedulable", "because"), ("g", "Normal", "Unschedulable", "because")}


def test_nothing_new_is_nothing_written_also_after_a_restart():
    stage = Stage()
    assert len(stage.tell(stage.account())) == 4
    assert stage.tell(stage.account()) == []
    stage.begin()
    assert stage.tell(stage.account()) == []


def test_figures_within_the_silence_are_written_at_its_end():
    stage = Stage()
    stage.tell(stage.account("3 nodes"))
    assert stage.tell(stage.account("2 nodes")) == []
    effects = stage.publisher.step(CycleOver(Overall(groups=(stage.account("1 nodes"),))), stage.time)
    assert effects == (WakeAt(10.0),)
    stage.time = 10.0
    assert len(stage.step(TimePassed())) == 4
    (condition,) = stage.world.server.get("Pod", "p", "default")["status"]["conditions"]
    assert condition["message"] == "1 nodes"
    assert stage.step(TimePassed()) == []


def test_messages_about_deleted_objects_only_are_forgotten():
    stage = Stage(making.group("other"), making.pod("other-0", group="other"))
    other = PodAccount(name="other-0", namespace="default", uid="uid-other-0", message="because")
    stage.tell(stage.account(), stage.account(name="other", uid="uid-other", pods=(other,)))
    stage.world.server.remove("Pod", "other-0", "default")
    stage.world.server.remove("PodGroup", "other", "default")
    stage.world.sync()
    stage.time = 700.0
    assert stage.tell(stage.account()) == []
    assert {uid for uid, _ in stage.publisher.outgoing.history._messages} == {"uid-p", "uid-g"}


def test_a_change_in_kind_does_not_wait():
    stage = Stage()
    stage.tell(stage.account())
    other = Waiting(message="else", reasons=(UnschedulableReason(reason="OverQuota", message="else"),))
    stage.tell(stage.account(condition=other, unschedulable="else"))
    (written,) = stage.group["status"]["schedulingConditions"]
    assert (written["message"], written["transitionID"]) == ("else", "2")


def test_waiting_for_a_turn_yields_to_a_better_reason():
    stage = Stage()
    later = stage.account("its turn", waits_for_turn=True)
    assert len(stage.tell(later)) == 4
    assert stage.tell(later) == []
    assert len(stage.tell(stage.account("no room"))) == 4  # at once: this is not another figure of the same
    assert stage.tell(later) == []
    assert stage.group["status"]["schedulingConditions"][-1]["message"] == "no room"


def test_conditions_of_other_pools_stay_before_ours():
    theirs = {"type": "UnschedulableOnNodePool", "nodePool": "west", "transitionID": "7"}
    stage = Stage(making.group("g", status={"schedulingConditions": [theirs]}))
    stage.tell(stage.account())
    pools = [(each["nodePool"], each["transitionID"]) for each in stage.group["status"]["schedulingConditions"]]
    assert pools == [("west", "7"), ("default", "8")]


def test_conditions_go_once_the_group_is_settled():
    stage = Stage()
    stage.tell(stage.account())
    stage.tell(settled=[("default", "g")])
    assert not stage.group["status"].get("schedulingConditions")
    assert stage.tell(settled=[("default", "g")]) == []


def test_a_group_changed_since_reading_is_not_overwritten():
    stage = Stage()
    account = stage.account(pods=())
    effects = stage.publisher.step(CycleOver(Overall(groups=(account,))), 0.0)
    stage.world.server.change("PodGroup", "g", "default", {"metadata": {"labels": {"a": "b"}}})
    for effect in effects:
        stage.world.perform(effect.request)
    assert "schedulingConditions" not in stage.group.get("status", {})


def test_timestamps_are_written_and_removed():
    stage = Stage(making.group("g", metadata={"annotations": {"kai.scheduler/last-start-timestamp": "x"}}))
    stamps = {"kai.scheduler/last-start-timestamp": None, "kai.scheduler/last-eviction-timestamp": "y"}
    stage.tell(stage.account(stamps=stamps))
    assert stage.group["metadata"]["annotations"] == {"kai.scheduler/last-eviction-timestamp": "y"}


START, EVICTION = "kai.scheduler/last-start-timestamp", "kai.scheduler/last-eviction-timestamp"


def started(stage, **more):
    return stage.account(pods=(), condition=None, unschedulable="", stamps={START: "x", **more})


def test_a_groups_start_is_shown_before_it_is_written():
    """Else a cycle that follows at once evicts what a minimum runtime protects."""
    stage = Stage()
    shown, sent = stage.publisher.step(CycleOver(Overall(groups=(started(stage),))), 0.0)
    assert shown == Overlay(PodGroup, ("default", "g"), {START: "x"})
    assert sent.request.patch["metadata"]["annotations"] == {START: "x"}
    assert stage.publisher.step(CycleOver(Overall(groups=(started(stage),))), 0.0) == (), "it is on its way"
    reply = Refusal(reason=Reason.UNAVAILABLE)
    (undone,) = stage.publisher.step(Written(sent.topic, sent.request, reply), 0.0)
    assert undone == Overlay(PodGroup, ("default", "g"), {}), "the next cycle tells it anew"


def test_a_shown_start_is_part_of_the_replacing_patch(monkeypatch):
    stage = Stage(making.group("g", metadata={"annotations": {START: "x"}}))
    told = CycleOver(Overall(groups=(started(stage, **{EVICTION: "y"}),)))
    monkeypatch.setattr(stage.world, "is_overlaid", lambda cls, key: (cls, key) == (PodGroup, ("default", "g")))
    _, sent = stage.publisher.step(told, 0.0)
    assert sent.request.patch["metadata"]["annotations"] == {START: "x", EVICTION: "y"}


def test_a_placed_or_recreated_pod_gets_no_message():
    for change in ({"spec": {"nodeName": "n"}}, {"metadata": {"uid": "another"}}):
        stage = Stage()
        stage.world.server.change("Pod", "p", "default", change)
        stage.world.sync()
        assert [each.ref.name for each in stage.tell(stage.account())] == ["g", "g"]


def test_a_pod_of_an_unmarked_group_gets_only_events():
    stage = Stage()
    pod = attrs.evolve(stage.account().pods[0], on_pod=False)
    stage.tell(stage.account(pods=(pod,)))
    stage.tell(stage.account(pods=(pod,)))
    assert stage.world.server.get("Pod", "p", "default")["status"] == {"phase": "Pending"}
    assert [event.ref.name for event in stage.world.server.events] == ["p", "g"]


def test_not_ready_is_repeated_only_after_it_ended():
    stage = Stage()
    waiting = stage.account(not_ready="lacks pods", unschedulable="", condition=None, pods=())
    stage.tell(waiting)
    stage.tell(waiting)
    stage.tell(attrs.evolve(waiting, not_ready=""))
    stage.time = 20.0
    stage.tell(waiting)
    assert [event.reason for event in stage.world.server.events] == ["NotReady", "NotReady"]


def test_fair_shares_are_written_on_change_with_pauses():
    stage = Stage()
    assert len(stage.tell(shares={"q": {"cpu": "1"}})) == 1
    assert stage.world.server.get("Queue", "q")["status"] == {"fairShare": {"cpu": "1"}}
    assert stage.tell(shares={"q": {"cpu": "1000m"}}) == []
    assert stage.tell(shares={"q": {"cpu": "2"}}) == []
    stage.time = 11.0
    assert len(stage.step(TimePassed())) == 1
    assert stage.world.server.get("Queue", "q")["status"] == {"fairShare": {"cpu": "2"}}
    stage.time = 22.0
    assert len(stage.tell(shares={"q": {"nvidia.com/gpu": "2"}})) == 1
    assert stage.world.server.get("Queue", "q")["status"] == {"fairShare": {"nvidia.com/gpu": "2"}}


def test_what_is_held_back_is_dropped_with_the_term():
    stage = Stage()
    stage.tell(stage.account("3 nodes"))
    stage.tell(stage.account("2 nodes"))
    assert stage.step(Silenced()) == []
    stage.time = 100.0
    assert stage.step(TimePassed()) == []


# --- Writes without an answer --------------------------------------------------------------------------------------


def patches(stage, *accounts, settled=()):
    told = CycleOver(Overall(groups=accounts, settled=frozenset(settled)))
    effects = stage.publisher.step(told, stage.time)
    return [each for each in effects if isinstance(each, Send) and isinstance(each.request, Patch)]


def test_five_equal_accounts_without_echo_write_once():
    stage = Stage(making.group("g", metadata={"annotations": {"kai.scheduler/last-start-timestamp": "x"}}))
    counts = [len(patches(stage, stage.account(pods=()))) for _ in range(5)]
    assert counts == [2, 0, 0, 0, 0], "the stamps and the condition, once each"


def test_a_condition_is_removed_once_until_its_echo():
    stage = Stage()
    stage.tell(stage.account())
    assert [len(patches(stage, settled=[("default", "g")])) for _ in range(5)] == [1, 0, 0, 0, 0]


@pytest.mark.parametrize("reason", [Reason.CONFLICT, Reason.NOT_FOUND])
def test_a_version_conflict_waits_for_another_version(reason):
    stage = Stage()
    account = stage.account(pods=(), stamps={})
    (send,) = patches(stage, account)
    stage.publisher.step(Written(send.topic, send.request, Refusal(reason=reason)), 0.0)
    stage.time = 30.0
    assert patches(stage, account) == []
    stage.world.server.change("PodGroup", "g", "default", {"metadata": {"labels": {"a": "b"}}})
    stage.world.sync()
    (again,) = patches(stage, account)
    assert again.request.patch["metadata"]["resourceVersion"] == stage.group["metadata"]["resourceVersion"]


def test_other_failed_writes_are_repeated_after_a_pause():
    stage = Stage()
    account = stage.account(pods=(), stamps={})
    (send,) = patches(stage, account)
    stage.publisher.step(Written(send.topic, send.request, Refusal(reason=Reason.UNAVAILABLE)), 0.0)
    assert patches(stage, account) == []
    stage.time = 11.0
    assert len(patches(stage, account)) == 1


def test_an_answer_to_a_replaced_write_is_ignored():
    stage = Stage()
    (first,) = patches(stage, stage.account(pods=(), stamps={}))
    other = Waiting(message="else", reasons=(UnschedulableReason(reason="OverQuota", message="else"),))
    account = stage.account(pods=(), stamps={}, condition=other, unschedulable="else")
    (second,) = patches(stage, account)
    assert first.topic == second.topic
    stage.publisher.step(Written(first.topic, first.request, Refusal(reason=Reason.CONFLICT)), 0.0)
    assert patches(stage, account) == [], "the second is still on its way"


def test_a_broken_account_does_not_affect_others(monkeypatch):
    stage = Stage(making.group("h"))
    broken = attrs.evolve(stage.account(), name="h", uid="uid-h")
    condition = GroupWrites._condition

    def failing(self, group, account, now):
        if account.name == "h":
            raise ValueError("broken")
        return condition(self, group, account, now)

    monkeypatch.setattr(GroupWrites, "_condition", failing)
    effects = stage.publisher.step(CycleOver(Overall(groups=(broken, stage.account()))), 0.0)
    assert NotExplained(group="default/h", kind="ValueError", why="broken") in effects
    assert any(isinstance(each, Send) for each in effects)


# --- Events that were not written ----------------------------------------------------------------------------------


def events(requests):
    return sorted((each.ref.name, each.reason) for each in requests if isinstance(each, Emit))


def refused(stage, reason, *accounts):
    """Tell accounts while the server takes patches and refuses events; return the events."""
    effects = stage.publisher.step(CycleOver(Overall(groups=accounts)), stage.time)
    sent = [each for each in effects if isinstance(each, Send)]
    for each in sent:
        reply = Refusal(reason=reason) if isinstance(each.request, Emit) else stage.world.perform(each.request)
        stage.publisher.step(Written(each.topic, each.request, reply), stage.time)
    stage.world.sync()
    return events(each.request for each in sent)


BOTH = [("g", "Unschedulable"), ("p", "Unschedulable")]


def with_events_only(stage):
    return stage.account(pods=(attrs.evolve(stage.account().pods[0], on_pod=False),), condition=None)


def test_an_unsent_event_is_sent_in_the_next_term():
    stage = Stage()
    told = CycleOver(Overall(groups=(with_events_only(stage),)))
    lost = stage.publisher.step(told, stage.time)
    assert events(each.request for each in lost if isinstance(each, Send)) == BOTH
    stage.step(Silenced())
    assert events(stage.tell(with_events_only(stage))) == BOTH
    assert stage.tell(with_events_only(stage)) == []


def test_existing_conditions_are_not_announced_in_the_next_term():
    stage = Stage()
    stage.tell(stage.account())
    stage.step(Silenced())
    assert stage.tell(stage.account()) == []
    stage.time = 30.0
    assert stage.tell(stage.account()) == []


@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.UNAVAILABLE])
@pytest.mark.parametrize("account_of", [Stage.account, with_events_only])
def test_a_refused_event_is_sent_again_after_a_pause(account_of, reason):
    stage = Stage()
    assert refused(stage, reason, account_of(stage)) == BOTH
    assert refused(stage, reason, account_of(stage)) == [], "not in each cycle"
    stage.time = 11.0
    assert refused(stage, reason, account_of(stage)) == BOTH
    assert stage.tell(account_of(stage)) == []
    stage.time = 22.0
    assert events(stage.step(TimePassed())) == BOTH
    assert events(stage.world.server.events) == BOTH
    stage.time = 33.0
    assert stage.tell(account_of(stage)) == []


def test_an_obsolete_or_existing_event_is_not_sent_again():
    stage = Stage()
    waiting = stage.account(not_ready="lacks pods", unschedulable="", condition=None, pods=())
    sent = stage.publisher.step(CycleOver(Overall(groups=(waiting,))), 0.0)
    (send,) = (each for each in sent if isinstance(each, Send) and isinstance(each.request, Emit))
    stage.tell(attrs.evolve(waiting, not_ready=""))
    stage.publisher.step(Written(send.topic, send.request, Refusal(reason=Reason.REJECTED)), 0.0)
    stage.time = 20.0
    assert events(stage.tell(waiting)) == [("g", "NotReady")]
    stage.publisher.step(Written(send.topic, send.request, Refusal(reason=Reason.ALREADY_EXISTS)), 0.0)
    stage.time = 40.0
    assert stage.tell(waiting) == []
    assert events(stage.world.server.events) == [("g", "NotReady")]


# --- Turns ---------------------------------------------------------------------------------------------------------


def conditions(stage):
    pod = stage.world.server.get("Pod", "p", "default")["status"].get("conditions", [])
    group = stage.group.get("status", {}).get("schedulingConditions", [])
    return [each["message"] for each in (*pod, *group)]


@pytest.mark.parametrize("wanted", [Emit, Patch])
@pytest.mark.parametrize("message", ["its turn", "no room"])
def test_a_lost_message_is_sent_before_the_groups_turn(wanted, message):
    stage = Stage()
    lost(stage, stage.account(message, waits_for_turn=message == "its turn"), wanted)
    assert stage.tell() == [], "not at once"
    stage.time = 10.0
    stage.step(TimePassed())
    assert events(stage.world.server.events) == BOTH
    assert conditions(stage) == [message, message]
    for stage.time in (20.0, 30.0, 40.0):
        assert stage.step(TimePassed()) == []
        assert stage.tell() == []


def test_a_retry_after_delays_the_repetition():
    stage = Stage()
    effects = stage.publisher.step(CycleOver(Overall(groups=(stage.account(),))), 0.0)
    patient = Refusal(reason=Reason.UNAVAILABLE, retry_after=60.0)
    for each in (each for each in effects if isinstance(each, Send)):
        stage.publisher.step(Written(each.topic, each.request, patient), 0.0)
    assert stage.publisher.step(CycleOver(Overall()), 1.0) == (WakeAt(60.0),)
    stage.time = 59.0
    assert [each for each in stage.step(TimePassed()) if isinstance(each, Patch)] == []
    stage.time = 60.0
    assert len(stage.step(TimePassed())) == 4


def test_the_publisher_wakes_for_a_lost_write():
    stage = Stage()
    lost(stage, stage.account("its turn", waits_for_turn=True), Emit)
    assert stage.publisher.step(CycleOver(Overall()), 1.0) == (WakeAt(10.0),)


def test_a_lost_message_is_dropped_once_it_is_outdated():
    for later in ({"settled": [("default", "g")]}, {"told": "no room"}):
        stage = Stage()
        lost(stage, stage.account("its turn", waits_for_turn=True), Emit | Patch)
        stage.time = 10.0
        if "told" in later:
            stage.tell(stage.account(later["told"]))
        else:
            stage.tell(**later)
        stage.time = 30.0
        stage.step(TimePassed())
        assert "its turn" not in {each.message for each in stage.world.server.events}


def test_a_pod_being_bound_does_not_report_its_turn():
    stage = Stage()
    lost(stage, stage.account("its turn", waits_for_turn=True), Emit)
    stage.world.server._put(making.bind_request("p", "n"))
    stage.world.sync()
    stage.time = 10.0
    assert events(stage.step(TimePassed())) == [("g", "Unschedulable")]


def test_unheard_turns_are_published_in_the_next_term():
    stage = Stage()
    account = stage.account("its turn", waits_for_turn=True)
    stage.publisher.step(CycleOver(Overall(groups=(account,))), 0.0)
    stage.step(Silenced())
    stage.time = 100.0
    assert events(stage.tell()) == BOTH
    assert conditions(stage) == ["its turn", "its turn"]


def test_waiting_figures_survive_a_wait_for_a_turn():
    stage = Stage()
    stage.tell(stage.account("3 nodes"))
    assert stage.tell(stage.account("2 nodes")) == []
    assert stage.tell() == []
    stage.time = 10.0
    stage.step(TimePassed())
    assert conditions(stage) == ["2 nodes", "2 nodes"]


# --- Many groups ---------------------------------------------------------------------------------------------------


def many(count):
    """Return a stage with so many groups of one pod, and their accounts."""
    numbers = range(count)
    stage = Stage(*(making.group(f"g{n}") for n in numbers), *(making.pod(f"p{n}", group=f"g{n}") for n in numbers))
    pod = stage.account().pods[0]
    accounts = [
        stage.account(name=f"g{n}", uid=f"uid-g{n}", pods=(attrs.evolve(pod, name=f"p{n}", uid=f"uid-p{n}"),))
        for n in numbers
    ]
    return stage, accounts


def steps_until_silent(stage, event):
    """Return how many writes each step brought, until there is nothing more to do at once."""
    counts = []
    while True:
        effects = stage.publisher.step(event, stage.time)
        sent = [each for each in effects if isinstance(each, Send)]
        counts.append(len(sent))
        for each in sent:
            stage.publisher.step(Written(each.topic, each.request, stage.world.perform(each.request)), stage.time)
        if WakeAt(stage.time) not in effects:
            stage.world.sync()
            return counts
        event = TimePassed()


def test_many_accounts_are_told_in_steps():
    stage, accounts = many(300)
    counts = steps_until_silent(stage, CycleOver(Overall(groups=tuple(accounts))))
    assert sum(counts) == 4 * 300
    assert max(counts) <= 4 * 64
    assert sum(steps_until_silent(stage, CycleOver(Overall(groups=tuple(accounts))))) == 0
    settled = frozenset(("default", account.name) for account in accounts)
    assert sum(steps_until_silent(stage, CycleOver(Overall(settled=settled)))) == 300
    assert not any(
        stage.world.server.get("PodGroup", f"g{n}", "default")["status"].get("schedulingConditions") for n in range(300)
    )


def test_an_unhandled_account_is_replaced_by_the_next_cycles():
    stage, accounts = many(300)
    stage.publisher.step(CycleOver(Overall(groups=tuple(accounts))), 0.0)
    later = tuple(
        attrs.evolve(each, unschedulable="else", condition=attrs.evolve(WHY, message="else")) for each in accounts
    )
    assert sum(
        steps_until_silent(stage, CycleOver(Overall(groups=later[200:], settled=frozenset([("default", "g199")]))))
    )
    told = {event.ref.name: event.message for event in stage.world.server.events if event.ref.cls is PodGroup}
    assert (told["g150"], told["g250"], "g199" in told) == ("because", "else", False)


def test_a_settled_groups_loss_of_pods_is_written():
    stage = Stage()
    account = GroupAccount(name="g", namespace="default", uid="uid-g", stamps=EVICTED)
    (written,) = stage.tell(account, settled=[("default", "g")])
    assert written.patch["metadata"]["annotations"] == EVICTED


@pytest.mark.parametrize("settled", [True, False], ids=["settled", "told of again"])
def test_a_deferred_accounts_loss_of_pods_is_written(settled):
    stage, accounts = many(300)
    lost = attrs.evolve(accounts[-1], stamps={**STAMPS, **EVICTED})
    stage.publisher.step(CycleOver(Overall(groups=(*accounts[:-1], lost))), stage.time)
    again = () if settled else (attrs.evolve(lost, stamps={**STAMPS, **dict.fromkeys(EVICTED)}),)
    steps_until_silent(stage, CycleOver(Overall(groups=again, settled=frozenset([("default", "g299")] * settled))))
    group = stage.world.server.get("PodGroup", "g299", "default")
    assert EVICTED.items() <= group["metadata"]["annotations"].items()
    assert not (settled and group["status"].get("schedulingConditions"))


def test_messages_about_many_deleted_objects_are_forgotten_in_steps():
    stage, accounts = many(300)
    steps_until_silent(stage, CycleOver(Overall(groups=tuple(accounts))))
    for number in range(300):
        stage.world.server.remove("Pod", f"p{number}", "default")
        stage.world.server.remove("PodGroup", f"g{number}", "default")
    stage.world.sync()
    stage.time = 700.0
    stage.publisher.step(CycleOver(Overall()), stage.time)
    assert len(stage.publisher.outgoing.history._refs) == 600 - 256
    steps_until_silent(stage, TimePassed())
    assert not stage.publisher.outgoing.history._refs
    assert not stage.publisher.outgoing.history


def test_held_shares_of_queues_are_written_when_due():
    stage = Stage(making.queue("a"), making.queue("b"))
    for gpus in (1, 2):
        shares = {name: {"nvidia.com/gpu": str(gpus)} for name in "ab"}
        stage.tell(shares=shares)
    assert stage.publisher.step(TimePassed(), 1.0) == (WakeAt(10.0),)
    stage.time = 10.0
    assert len(stage.step(TimePassed())) == 2
    assert stage.publisher.step(TimePassed(), 10.0) == ()


def why_of(stage):
    """Return reason and message of the condition of the pod, and of that of the group."""
    conditions = stage.world.server.get("Pod", "p", "default")["status"].get("conditions", [])
    said = [(each["reason"], each["message"]) for each in conditions]
    return said, [each["message"] for each in stage.group["status"].get("schedulingConditions", [])]


def refused_bind(stage, times):
    text = f"refused {times} times"
    (pod,) = stage.account(text).pods
    told = attrs.evolve(pod, reason="BindRefused", is_announced=False, is_figured=True)
    why = Waiting(message=text, is_figured=True)
    return stage.account(text, unschedulable="", condition=why, pods=(told,))


def test_a_repeated_bind_refusal_is_written_without_events():
    stage = Stage()
    stage.tell(stage.account("no room"))
    sent = len(stage.world.server.events)
    for times in (1, 2, 3):
        stage.time += 1.0
        assert len(stage.tell(refused_bind(stage, times))) == 2
        assert why_of(stage) == ([("BindRefused", f"refused {times} times")], [f"refused {times} times"])
        assert stage.tell(refused_bind(stage, times)) == []
    assert len(stage.world.server.events) == sent
    stage.time += 1.0
    stage.tell(stage.account("no room"))
    assert why_of(stage) == ([("Unschedulable", "no room")], ["no room"]), "it was said before, and is true again"


def test_a_replacing_reason_needs_one_to_replace():
    stage = Stage()
    (pod,) = stage.account("too few").pods
    told = attrs.evolve(pod, reason="NotReady", is_announced=False, only_instead=True)
    why = Waiting(message="too few", only_instead=True)
    lacking = stage.account("", unschedulable="", not_ready="too few", condition=why, pods=(told,))
    stage.tell(lacking)
    assert why_of(stage) == ([], [])
    stage.tell(stage.account("no room"))
    stage.tell(lacking)
    assert why_of(stage) == ([("NotReady", "too few")], ["too few"])
