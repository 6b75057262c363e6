"""What few schedules have, in small."""

from __future__ import annotations

import msgspec
import pytest

from kai.cluster.transport.calls import Call
from tests.simulation.aimed import BEFORE, DONE
from tests.simulation.episodes import EVERYWHERE, Episode
from tests.simulation.rare import RARE, order_once_more
from tests.simulation.trial import Trial, trial
from tests.simulation.world import HOME, ORDER, POD, path_of

__all__ = ["trial"]  # the fixture


def _spring(trial: Trial, path: str, when: int = DONE) -> None:
    for trap in tuple(trial.world.wire.traps):
        trap("kai-0", "POST", path, when)


@pytest.mark.parametrize(("portion", "orders"), [("0.5", []), ("0.75", [f"{HOME}/b"])])
def test_an_earlier_version_orders_only_shares_left_too_small(trial: Trial, portion: str, orders: list[str]) -> None:
    grant = msgspec.json.encode({"gpus": ["g"], "portion": 0.5}).decode()
    trial.bind(trial.pod("a", gpus=0, annotations={"gpu-fraction": "0.5", "kai.scheduler/granted": grant}))
    trial.pod("b", gpus=0, annotations={"gpu-fraction": portion})
    RARE.functions["elder"](trial.world, trial.life, Episode("elder", 0.0, 1.0, EVERYWHERE, 0.5))
    for _ in range(2):  # a pod that has an order gets no other
        _spring(trial, path_of(POD, HOME, "a", "binding"))
    found = trial.world.all(ORDER)
    assert [f"{HOME}/{each['spec']['podName']}" for each in found] == orders
    assert all(each["spec"]["selectedGPUGroups"] == ["g"] for each in found)


def test_the_last_pods_order_fails_for_a_while(trial: Trial) -> None:
    order_once_more(trial.world, trial.life)
    path = path_of(ORDER, HOME)
    assert trial.world.wire.failing == ""
    _spring(trial, path, BEFORE)
    assert trial.world.wire.failing in Call(method="POST", path=path).path
    assert trial.world.wire.failing
