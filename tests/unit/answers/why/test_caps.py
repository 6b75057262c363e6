"""Jobs that wait because a cap on evictions stopped the search for room."""

import pytest

from tests.unit.answers.why.test_explanation import one, proof

LENT = {"root": {}, "mine": {"parent": "root", "quota": 8}, "other": {"parent": "root"}}
FOUR = {f"n{at}": {"gpu": 4} for at in (1, 2, 3, 4)}


def lent(gpus, members=4, **more):
    each = {"gpu": gpus}
    return {"queue": "other", "members": members, "minimum": 1, "each": each, "runs_on": sorted(FOUR)[:members], **more}


def test_a_capped_gang_names_the_cap_first():
    groups = {"theirs": lent(4), "late": {"queue": "mine", "members": 2, "each": {"gpu": 4}}}
    each = one(groups, FOUR, LENT, parameters={"evicted_gpus_per_cycle": 7})
    assert each.reason.code == "EvictionsCapped"
    assert each.reason.text == (
        "no room could be made within a cap: 8 GPUs would be evicted in a cycle, and at most 7 may be "
        "(parameters.evicted_gpus_per_cycle in the configuration of the scheduler)"
    )
    assert proof(each)["cap"] == "parameters.evicted_gpus_per_cycle 7   for this job 8   over by 1"
    assert each.waiting.endswith("what would be evicted for it alone passes the cap")
    assert not each.also


def test_a_gang_over_a_cap_shows_its_whole_need():
    groups = {"theirs": lent(4), "late": {"queue": "mine", "members": 2, "each": {"gpu": 4}}}
    each = one(groups, FOUR, LENT, parameters={"queue_evicted_gpus_per_cycle": 3})
    assert "within a cap: 8 GPUs would be evicted from one queue in a cycle" in each.reason.text
    assert proof(each)["cap"] == (
        "parameters.queue_evicted_gpus_per_cycle 3   queue other   for this job 8   over by 5"
    )


def test_a_partial_gang_over_a_cap_shows_the_minimum():
    groups = {"theirs": lent(4), "late": {"queue": "mine", "members": 2, "each": {"gpu": 4}}}
    # The search ends with the part: a second look would go on and try the whole gang.
    each = one(groups, FOUR, LENT, parameters={"queue_evicted_gpus_per_cycle": 3, "victims": "as-peer"})
    assert "at least 4 GPUs would be evicted from one queue in a cycle" in each.reason.text
    assert proof(each)["cap"] == (
        "parameters.queue_evicted_gpus_per_cycle 3   queue other   for a part of this job 4   over by 1"
    )


@pytest.mark.parametrize(
    ("cap", "later"),
    [("evicted_gpus_per_hour", "within the hour counts no more"), ("evicted_gpus_per_cycle", "in this cycle counts")],
)
def test_a_cap_shows_earlier_evictions_and_the_excess(cap, later):
    groups = {
        "theirs": lent(4),
        "early": {"queue": "mine", "each": {"gpu": 4}},
        "late": {"queue": "mine", "each": {"gpu": 4}},
    }
    each = one(groups, FOUR, LENT, parameters={cap: 4})
    assert proof(each)["cap"] == f"parameters.{cap} 4   evicted before 4   for this job 4   over by 4"
    assert later in each.waiting
