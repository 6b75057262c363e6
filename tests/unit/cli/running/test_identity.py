from contextlib import contextmanager

import pytest

from kai.basics.errors import ConfigError
from kai.cli.running.flags import FLAGS, ROLES, TOGETHER, read_flags
from kai.cli.running.identity import ProcessIdentity
from kai.cluster.election.lease import Election, ReadDone, Record, WakeAt, WriteLease

POD = {"POD_NAME": "kai-7", "POD_UID": "0b6e7f9a"}


@contextmanager
def living(environment=POD, roles=TOGETHER):
    life = ProcessIdentity.begin(environment, roles)
    yield life
    life.end()


def given(*words):
    return read_flags(words, FLAGS, ROLES, TOGETHER)


def first_step(life, holder):
    """Return what a life does about a lease that somebody holds."""
    machine = Election(life.lease(given(), "kai", "lock"), lambda: 0.0)
    return machine.step(ReadDone(Record(holder=holder, transitions=4, version="9")), 100.0)


def test_a_restarted_container_takes_over_its_own_lease():
    with living() as first:
        assert first.identity.startswith("kai-7/0b6e7f9a/all_")
    with living() as second:
        assert second.identity != first.identity
        effect = first_step(second, first.identity)
    assert isinstance(effect, WriteLease)
    assert effect.transitions == 5


def test_a_life_beside_one_that_still_lasts_waits():
    """A shell in the container has its environment, and a frozen process has not ended."""
    with living() as first, living() as second:
        assert isinstance(first_step(second, first.identity), WakeAt)


@pytest.mark.parametrize("environment", [{**POD, "POD_UID": "77"}, {"POD_NAME": "kai-7"}, {}])
def test_another_pod_waits(environment):
    with living() as first, living(environment) as other:
        assert isinstance(first_step(other, first.identity), WakeAt)


def test_containers_of_one_pod_with_different_roles_stay_strangers():
    with living(roles=("binder",)) as one, living(roles=("binder", "podgrouper")) as other:
        assert other.container
        assert isinstance(first_step(other, one.identity), WakeAt)


def test_without_a_pod_name_no_container_is_known():
    life = ProcessIdentity.begin({"POD_NAME": "kai-7"}, TOGETHER)
    assert (life.container, life.identity.partition("_")[0]) == ("", "kai-7")


def test_flags_set_the_times_of_a_lease():
    words = (
        "--leader-elect-lease-duration=6s",
        "--leader-elect-renew-deadline=4s",
        "--leader-elect-retry-period=500ms",
    )
    settings = ProcessIdentity.begin({}, TOGETHER).lease(given(*words), "kai", "lock")
    assert (settings.duration, settings.renew_within, settings.retry) == (6.0, 4.0, 0.5)
    shipped = ProcessIdentity.begin({}, TOGETHER).lease(given(), "kai", "lock")
    assert (shipped.duration, shipped.renew_within, shipped.retry) == (15.0, 10.0, 2.0)


def test_times_with_which_two_could_lead_are_refused():
    with pytest.raises(ConfigError, match="expected a duration greater than the renew deadline"):
        ProcessIdentity.begin({}, TOGETHER).lease(given("--leader-elect-lease-duration=5s"), "kai", "lock")
