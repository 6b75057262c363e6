from hypothesis import given
from hypothesis import strategies as st

from kai.facts.model.groups import Shares, next_change
from kai.facts.model.placement import Past
from kai.intake import Intake, take_snapshot
from tests.unit.intake.making import NOW, objects, queue, taken


def resources(**each):
    return {
        name: {"quota": quota, "limit": limit, "overQuotaWeight": weight}
        for name, (quota, limit, weight) in each.items()
    }


def tree(*queues, **settings) -> dict[str, str]:
    found = taken(*queues, **settings).queues
    return {each.name: found[each.parent].name if each.parent >= 0 else "" for each in found}


def test_shares_are_in_axis_units():
    made = queue("q", resources=resources(gpu=(2.5, 4, 1), cpu=(1000, 2000, 2), memory=(3, 5, 3)))
    found = taken(made).queues[0]
    assert found.quota == Shares(cpu=1000, memory=3_000_000, gpu=2500)
    assert found.limit == Shares(cpu=2000, memory=5_000_000, gpu=4000)
    assert found.weight == Shares(cpu=2, memory=3, gpu=1)


def test_unlimited_stays_unlimited_in_every_unit():
    found = taken(queue("q", resources=resources(gpu=(-1, -1, 0), cpu=(-1, -1, 0), memory=(-1, -1, 0)))).queues[0]
    assert found.quota == found.limit == Shares(cpu=-1, memory=-1, gpu=-1)


def test_a_fractional_gpu_quota_keeps_its_last_digit():
    assert taken(queue("q", resources=resources(gpu=(0.29, 0.57, 0)))).queues[0].quota.gpu == 290


def test_a_queue_without_resources_has_zero_shares():
    found = taken(queue("q")).queues[0]
    assert (found.quota, found.limit, found.weight) == (Shares(), Shares(), Shares())


def test_priority_names_times_and_runtimes():
    made = queue(
        "q",
        displayName="Team Q",
        priority=7,
        preemptMinRuntime="1m",
        reclaimMinRuntime="90s",
        metadata={"creationTimestamp": "1970-01-01T00:01:00Z"},
    )
    found = taken(made).queues[0]
    assert (found.title, found.priority, found.created) == ("Team Q", 7, 60)
    assert (found.preempt_min_runtime, found.reclaim_min_runtime) == (60, 90)
    assert taken(queue("p")).queues[0].priority == 100


def test_a_queue_without_its_parent_is_dropped_with_descendants():
    found = tree(queue("top"), queue("a", parent="top"), queue("lost", parent="gone"), queue("b", parent="lost"))
    assert found == {"a": "top", "top": ""}


def test_queues_in_a_cycle_are_dropped_with_their_descendants():
    cycle = [queue("x", parent="y"), queue("y", parent="z"), queue("z", parent="x")]
    assert tree(queue("top"), *cycle, queue("below", parent="x"), queue("self", parent="self")) == {"top": ""}


def test_a_parent_that_belongs_to_another_scheduler_is_missing():
    theirs = queue("top", metadata={"labels": {"kai.scheduler/node-pool": "theirs"}})
    assert tree(theirs, queue("a", parent="top")) == {}


def test_without_hierarchy_queues_share_one_unlimited_parent():
    made = [queue("top"), queue("mid", parent="top"), queue("leaf", parent="mid"), queue("lost", parent="gone")]
    snapshot = taken(*made, full_hierarchy_fairness=False)
    found = {each.name: each for each in snapshot.queues}
    assert {name: each.parent for name, each in found.items()} == {"default": -1, "leaf": 0, "lost": 0, "mid": 0}
    assert found["default"].quota == found["default"].limit == Shares(cpu=-1, memory=-1, gpu=-1)


def test_the_synthetic_parent_replaces_a_queue_of_its_name():
    made = [queue("top"), queue("default", parent="top"), queue("a", parent="top")]
    assert tree(*made, full_hierarchy_fairness=False) == {"a": "default", "default": ""}


def test_past_usage_is_by_queue_name():
    usage = {"q": Shares(gpu=0.5)}
    snapshot = take_snapshot(objects(queue("p"), queue("q")), NOW, past=Past(usage=usage))
    assert [each.usage for each in snapshot.queues] == [Shares(), Shares(gpu=0.5)]


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("abcdefgh-"), max_size=8))
def test_kept_queues_form_a_tree_with_all_its_descendants(parents):
    found = tree(*[queue(name, parent="" if parent == "-" else parent) for name, parent in parents.items()])
    for name, parent in parents.items():
        hangs = parent == "-" or parent in found
        assert (name in found) == hangs or (name not in found and parent not in found)
    for start in found:
        at, steps = start, 0
        while at and steps <= len(found):
            at, steps = found[at], steps + 1
        assert at == ""


def test_queues_nested_too_deep_are_dropped_and_others_stay():
    chain = [queue(f"q{at:03}", parent=f"q{at - 1:03}" if at else "") for at in range(600)]
    assert sorted(tree(*chain, queue("else"))) == ["else", *(f"q{at:03}" for at in range(32))]


NIGHTS = {"name": "nights", "start": "0 22 * * *", "duration": "8h", "resources": {"gpu": {"quota": 24}}}
AT_TEN = 1_780_351_200.0  # 2026-06-01 22:00 UTC


def clocked(**fields):
    made = resources(gpu=(8, -1, 1), cpu=(-1, -1, 1), memory=(-1, -1, 1))
    return objects(queue("a", resources=made, schedules=[{**NIGHTS, **fields}]), queue("b", resources=made))


def test_a_queue_has_the_quota_of_the_instant():
    intake, given_ = Intake(), clocked()
    for now, quota in ((AT_TEN - 0.5, 8_000), (AT_TEN, 24_000), (AT_TEN + 28_800, 8_000), (AT_TEN - 60, 8_000)):
        found = intake.take(given_, now)
        assert found.queues[0].quota.gpu == quota
        assert found.queues == take_snapshot(given_, now).queues


def test_a_snapshot_is_kept_until_the_quota_window_edge():
    intake, given_ = Intake(), clocked()
    before = intake.take(given_, AT_TEN - 3_600)
    assert intake.take(given_, AT_TEN - 1).queues is before.queues
    assert intake.take(given_, AT_TEN).queues is not before.queues
    assert next_change(before.queues) == AT_TEN


def test_a_queue_knows_which_quotas_come():
    night = take_snapshot(clocked(), AT_TEN).queues[0].windows
    assert night.lower_quotas == ((AT_TEN + 28_800, Shares(gpu=8_000, cpu=-1, memory=-1)),)
    assert take_snapshot(clocked(), AT_TEN).queues[1].windows is None


def test_an_edge_beyond_sight_is_looked_for_again():
    monthly = take_snapshot(clocked(start="0 22 20 * *"), AT_TEN).queues[0].windows
    assert (monthly.until, monthly.lower_quotas) == (AT_TEN + 86_400, ())
