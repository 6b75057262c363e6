"""When a group last lost pods is written once and for all, whatever becomes of a single write."""

import pytest

from kai.api.plans import Patch, Reason, Refusal
from kai.roles.scheduler.effects import Send
from kai.roles.scheduler.publishing.explanations import Overall
from kai.roles.scheduler.publishing.publisher import CycleOver, Silenced, TimePassed, Written
from tests.unit.intake import making
from tests.unit.roles.scheduler.stage import EVICTED, STAMPS, Stage, lost

START, EVICTION = "kai.scheduler/last-start-timestamp", "kai.scheduler/last-eviction-timestamp"


def knowing_nothing_of_it(stage):
    """Return what a cycle tells of the group that began before it was written that the group lost pods."""
    return stage.account(stamps={**STAMPS, **dict.fromkeys(EVICTED)})


def annotations(stage):
    return stage.group["metadata"].get("annotations", {})


def test_an_older_cycle_does_not_undo_an_eviction_time():
    stage = Stage()
    stage.tell(stage.account(stamps={**STAMPS, **EVICTED}))
    stage.tell(knowing_nothing_of_it(stage))
    assert annotations(stage) == EVICTED
    later, earlier = ({EVICTION: f"2026-01-01T{hour}:00:00Z"} for hour in (13, 11))
    stage.tell(stage.account(stamps={**STAMPS, **later}))
    stage.tell(stage.account(stamps={**STAMPS, **earlier}))
    assert annotations(stage) == later


@pytest.mark.parametrize("is_told_again", [True, False])
def test_a_refused_loss_of_pods_is_written_again(is_told_again):
    stage = Stage()
    lost(stage, stage.account(stamps={**STAMPS, **EVICTED}), Patch)
    for stage.time in (1.0, 5.0, 10.0, 11.0):
        if is_told_again:
            stage.tell(knowing_nothing_of_it(stage))
        stage.step(TimePassed())
    assert annotations(stage) == EVICTED
    assert stage.publisher.outgoing.losses.next_due() is None


def test_a_loss_is_merged_into_the_replacing_write():
    stage = Stage(making.group("g", metadata={"annotations": {START: "x"}}))
    stage.publisher.step(CycleOver(Overall(groups=(stage.account(stamps={START: "x", **EVICTED}),))), 0.0)
    stage.tell(knowing_nothing_of_it(stage))  # of the writes about one topic only the last is sent
    assert annotations(stage) == EVICTED


def test_an_unwritten_eviction_time_survives_the_term():
    stage = Stage()
    stage.publisher.step(CycleOver(Overall(groups=(stage.account(stamps={**STAMPS, **EVICTED}),))), 0.0)
    stage.step(Silenced())
    assert stage.step(TimePassed()) == []
    stage.tell()
    assert annotations(stage) == EVICTED


@pytest.mark.parametrize("reason", [Reason.REJECTED, Reason.NOT_FOUND, Reason.CONFLICT])
def test_a_lasting_refusal_of_an_eviction_time_is_final(reason):
    stage = Stage()
    effects = stage.publisher.step(CycleOver(Overall(groups=(stage.account(stamps={**STAMPS, **EVICTED}),))), 0.0)
    for each in (each for each in effects if isinstance(each, Send)):
        stage.publisher.step(Written(each.topic, each.request, Refusal(reason=reason)), 0.0)
    assert stage.publisher.outgoing.losses.next_due() is None


def test_a_loss_is_not_written_on_a_namesake():
    stage = Stage()
    lost(stage, stage.account(stamps={**STAMPS, **EVICTED}), Patch)
    stage.world.server.get("PodGroup", "g", "default")["metadata"]["uid"] = "another"
    stage.world.sync()
    stage.time = 30.0
    stage.step(TimePassed())
    assert annotations(stage) == {}
