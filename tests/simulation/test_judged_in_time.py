"""What lands late is judged by what was so when it was sent or ordered; kai is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation.evictions import FUTILE, LATER_TERM
from tests.simulation.trial import Trial, trial
from tests.simulation.world import POD, RESERVED

if TYPE_CHECKING:
    from tests.doubles.rest_server.storage import Manifest

__all__ = ["trial"]  # the fixture


def _shared_gpu_that_lost_its_holder(trial: Trial, *, sent_before: bool) -> None:
    """Let a bind to a shared GPU land after the pod that held the GPU went."""
    shared = {"runai-gpu-group": "device"}
    sharer = trial.pod("a", gpus=0, annotations={"gpu-fraction": "0.5"}, labels=shared)
    holder = trial.pod("holder", namespace=RESERVED, labels=shared)
    if sent_before:
        trial.world.wire.sent = trial.world.loop.time()
    trial.pass_time(5.0)
    assert trial.world.delete("user", POD, holder, grace=0)
    trial.pass_time(1.0)
    if not sent_before:
        trial.world.wire.sent = trial.world.loop.time()
    trial.bind(sharer)


def test_a_bind_sent_before_the_holder_left_may_land(trial: Trial) -> None:
    trial.pass_time(20.0)
    _shared_gpu_that_lost_its_holder(trial, sent_before=True)
    assert not trial.broken


def test_a_bind_sent_after_the_holder_left_is_wrong(trial: Trial) -> None:
    trial.pass_time(20.0)
    _shared_gpu_that_lost_its_holder(trial, sent_before=False)
    assert trial.broken == {8}


def _cut_limit(trial: Trial) -> None:
    trial.life.changed_at["a1"] = trial.world.time
    trial.pass_time(30.0)


def _bind_beyond_the_limit(trial: Trial, pods: list[Manifest]) -> None:
    for number, each in enumerate(pods):
        trial.bind(each, f"node-{number // 2}")


def test_an_order_before_its_limit_fell_may_be_completed(trial: Trial) -> None:
    pods = [trial.pod(f"one-{number}") for number in range(4)]
    for each in pods:
        trial.order(each)
    trial.pass_time(1.0)
    _cut_limit(trial)
    _bind_beyond_the_limit(trial, pods)
    assert not trial.broken


def test_an_order_after_its_limit_fell_is_judged(trial: Trial) -> None:
    pods = [trial.pod(f"one-{number}") for number in range(4)]
    _cut_limit(trial)
    for each in pods:
        trial.order(each)
    _bind_beyond_the_limit(trial, pods)
    assert trial.broken == {9}


def test_a_later_term_may_serve_another_pod(trial: Trial) -> None:
    victim = trial.pod("a")
    trial.bind(victim)
    trial.pod("waits", queue="b1")
    trial.evict(victim)
    others = [trial.pod("b", queue="b1"), trial.pod("c", queue="b1")]
    trial.bind(others[0], "node-1")
    assert trial.watchers.evictions.became() == {FUTILE: 1}
    trial.world._epochs.append((trial.world.time, 2))
    trial.pass_time(20.0)
    trial.bind(others[1], "node-1")
    assert trial.watchers.evictions.became() == {LATER_TERM: 1}
