"""A group that waits for its turn is told so once, and is told it if nothing was said about it before."""

import pytest

from kai.deciding.configuration.profiles import default_profile
from kai.intake import IntakeSettings
from kai.roles.scheduler.cycle.cycling import Cycles
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.test_cycling import cycle
from tests.unit.roles.scheduler.test_leading_metrics import watched

START = "kai.scheduler/last-start-timestamp"
FREE = {key: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for key in ("cpu", "memory", "gpu")}
CROWD = tuple(f"g{number}" for number in range(6))


def crowd(*more):
    """Return groups of which a cycle considers two, and that all wait, with other objects beside."""
    waiting = ((making.group(name), making.pod(name, group=name, requests={"cpu": "100"})) for name in CROWD)
    queues = (making.queue("root", resources=FREE), making.queue("q", parent="root", resources=FREE))
    return making.objects(*queues, making.node("n"), *(each for pair in waiting for each in pair), *more)


def cycles():
    return Cycles(SchedulerSettings(intake=IntakeSettings(namespace_pods=2)), default_profile(), lambda: 0.0)


def told(outcome):
    return {account.name: account.waits_for_turn for account in outcome.overall.groups}


def stamps(outcome):
    """Return the timestamps that the group ``lost`` is told."""
    found = next((account for account in outcome.overall.groups if account.name == "lost"), None)
    return {} if found is None else {key: text for key, text in found.stamps.items() if text is not None}


def test_that_it_waits_for_its_turn_is_told_once():
    taker, objects = cycles(), crowd()
    assert sorted(told(cycle(taker, objects, 1))) == sorted(CROWD)
    again = told(cycle(taker, objects, 2))
    assert len(again) == 2
    assert not any(again.values())


@pytest.mark.parametrize("number", range(6))
def test_a_group_that_lost_its_pods_reports_its_turn(number):
    """That it had started was told before, and says nothing about why it waits."""
    taker, lost = cycles(), making.group("lost")
    fits = crowd(lost, making.pod("p", group="lost", requests={"cpu": "1"}))
    starts = next(each for each in range(6) if START in stamps(cycle(taker, fits, each)))
    waits = crowd(lost, making.pod("p", group="lost", requests={"cpu": "100"}, metadata={"uid": "another"}))
    assert "lost" in told(cycle(taker, waits, starts + number))


def test_a_new_term_repeats_what_an_earlier_one_reported():
    taker, objects = cycles(), crowd()
    for number in (1, 2):
        cycle(taker, objects, number)
    taker.begin_term()
    assert sorted(told(cycle(taker, objects, 2))) == sorted(CROWD)


def test_cycles_know_when_a_term_begins(monkeypatch):
    begun = []
    monkeypatch.setattr(Cycles, "begin_term", lambda _: begun.append(True))
    watched(False, True, False, True)
    assert len(begun) == 2
