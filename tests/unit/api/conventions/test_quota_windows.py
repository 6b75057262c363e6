import datetime as dt

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.conventions.quota_windows import (
    bad_entries,
    in_force,
    lower_quotas,
    never_opens,
    next_limit,
    next_user_limit,
    resolved,
    slices,
)
from kai.api.scheduling.queue import Queue, UserResource, UserResources

DAY, HOUR = 86_400.0, 3_600.0
MONDAY = dt.datetime(2026, 6, 1, tzinfo=dt.UTC).timestamp()
NIGHTS = {"name": "nights", "start": "0 22 * * *", "duration": "8h", "resources": {"gpu": {"quota": 24, "limit": 30}}}
WEEKEND = {"name": "weekend", "start": "0 0 * * 6", "duration": "2d", "resources": {"gpu": {"quota": 4}}}


def spec(*schedules, **gpu):
    resources = {"gpu": {"quota": 8, "limit": 16, "overQuotaWeight": 1, **gpu}}
    manifest = {"metadata": {"name": "q"}, "spec": {"resources": resources, "schedules": list(schedules)}}
    return structure_as(Queue, manifest).spec


def gpus(found):
    return None if found is None else (found.gpu.quota, found.gpu.limit, found.gpu.over_quota_weight)


def test_a_window_replaces_only_the_amounts_that_it_names():
    queue = spec(NIGHTS)
    assert gpus(in_force(queue, MONDAY + 12 * HOUR).resources) == (8, 16, 1)
    night = in_force(queue, MONDAY + 23 * HOUR)
    assert (gpus(night.resources), night.names, night.until) == ((24, 30, 1), ("nights",), MONDAY + 30 * HOUR)


def test_later_entries_win():
    saturday_night = MONDAY + 5 * DAY + 23 * HOUR
    assert gpus(in_force(spec(NIGHTS, WEEKEND), saturday_night).resources) == (4, 30, 1)
    assert gpus(in_force(spec(WEEKEND, NIGHTS), saturday_night).resources) == (24, 30, 1)


def users(found):
    return found.per_user and {part: getattr(found.per_user, part).limit for part in ("gpu", "cpu", "memory")}


def test_a_window_replaces_named_limits_of_users():
    night = {**NIGHTS, "resources": {"perUser": {"gpu": {"limit": 8}, "memory": {"limit": -1}}}}
    plain, limited = spec(night), spec(night)
    limited = attrs.evolve(
        limited, resources=attrs.evolve(limited.resources, per_user=UserResources(cpu=UserResource(limit=4)))
    )
    by_day, at_night = MONDAY + 12 * HOUR, MONDAY + 23 * HOUR
    assert users(in_force(plain, by_day).resources) is None
    assert users(in_force(plain, at_night).resources) == {"gpu": 8, "cpu": -1, "memory": -1}
    assert users(in_force(limited, by_day).resources) == {"gpu": -1, "cpu": 4, "memory": -1}
    assert users(in_force(limited, at_night).resources) == {"gpu": 8, "cpu": 4, "memory": -1}
    at, found = next_user_limit(limited, by_day)
    assert (at, users(found)["gpu"]) == (MONDAY + 22 * HOUR, 8)
    assert next_limit(limited, by_day) is None
    assert next_user_limit(spec(NIGHTS), by_day) is None


def test_an_edge_belongs_to_what_begins_with_it():
    queue = spec(NIGHTS)
    assert gpus(in_force(queue, MONDAY + 22 * HOUR).resources) == (24, 30, 1)
    assert gpus(in_force(queue, MONDAY + 30 * HOUR).resources) == (8, 16, 1)


def test_an_entry_that_cannot_be_read_counts_as_absent():
    queue = spec({**NIGHTS, "timeZone": "Mars/Olympus"})
    assert in_force(queue, MONDAY + 23 * HOUR) == in_force(spec(), MONDAY)


def test_how_a_closed_window_closed_is_known():
    drained = in_force(spec({**NIGHTS, "onClose": "drain"}), MONDAY + 12 * HOUR)
    assert [each.covers(MONDAY - HOUR) for each in drained.draining] == [True]
    evicted = in_force(spec({**NIGHTS, "onClose": "evict"}), MONDAY + 12 * HOUR)
    assert (evicted.ended_at, evicted.ended) == (MONDAY + 6 * HOUR, "nights")
    assert in_force(spec({**NIGHTS, "onClose": "evict"}), MONDAY + 23 * HOUR).ended_at is None


def test_lower_quotas_ahead_bind_an_endless_job():
    ahead = lower_quotas(spec(NIGHTS, WEEKEND), MONDAY + 23 * HOUR)
    assert [(at - MONDAY, quota.gpu.quota) for at, quota in ahead] == [(30 * HOUR, 8), (5 * DAY, 4)]
    assert lower_quotas(spec(NIGHTS), MONDAY + 12 * HOUR) == ()


def test_an_unlimited_quota_is_more_than_any():
    ahead = lower_quotas(spec({**NIGHTS, "resources": {"gpu": {"quota": -1}}}), MONDAY + 23 * HOUR)
    assert [(at - MONDAY, quota.gpu.quota) for at, quota in ahead] == [(30 * HOUR, 8)]


def test_the_next_limit_is_the_first_other_one():
    at, found = next_limit(spec(NIGHTS), MONDAY + 12 * HOUR)
    assert (at, found.gpu.limit) == (MONDAY + 22 * HOUR, 30)
    assert next_limit(spec(WEEKEND), MONDAY) is None


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"start": "0 25 * * *"}, "spec.schedules[0].start: found '0 25 * * *'"),
        ({"timeZone": "Berlin"}, "spec.schedules[0].timeZone: found 'Berlin', expected an IANA time zone"),
        ({"duration": "0s"}, "spec.schedules[0].duration: found 0 s, expected more than 0 s"),
        ({"name": ""}, "spec.schedules[0].name: found '', expected a name"),
    ],
)
def test_each_part_that_cannot_be_used_is_named(change, wanted):
    (found,) = bad_entries(spec({**NIGHTS, **change}).schedules)
    assert str(found).startswith(wanted)


def test_a_name_that_comes_twice_is_named():
    (found,) = bad_entries(spec(NIGHTS, NIGHTS).schedules)
    assert str(found) == "spec.schedules[1].name: found 'nights', expected a name that no earlier entry has"


def test_a_window_that_never_opens_is_known():
    never, often = spec({**NIGHTS, "start": "0 0 31 2 *"}, WEEKEND).schedules
    assert never_opens(never, MONDAY)
    assert not never_opens(often, MONDAY)


def test_queues_without_schedules_are_returned_as_they_are():
    plain, clocked = Queue(spec=spec()), Queue(spec=spec(NIGHTS))
    found, until = resolved((plain, clocked), MONDAY + 23 * HOUR)
    assert found[0] is plain
    assert gpus(found[1].spec.resources) == (24, 30, 1)
    assert until == MONDAY + 30 * HOUR


entries = st.lists(
    st.builds(
        lambda hour, length, quota, zone: {
            "start": f"15 {hour} * * *",
            "duration": f"{length}m",
            "timeZone": zone,
            "resources": {"gpu": {"quota": quota}},
        },
        st.integers(0, 23),
        st.integers(1, 3_000),
        st.integers(-1, 40),
        st.sampled_from(("", "Europe/Berlin", "Asia/Kolkata")),
    ),
    max_size=3,
).map(lambda found: [{**each, "name": f"w{at}"} for at, each in enumerate(found)])
instants = st.integers(0, 366 * 24).map(lambda hours: MONDAY + hours * HOUR)


@given(entries, instants, st.floats(0, 0.999))
def test_what_is_in_force_holds_until_its_edge(entries, now, part):
    queue = spec(*entries)
    for at, found in slices(queue, now, now + 2 * DAY):
        end = min(found.until, now + 3 * DAY)
        again = in_force(queue, at + (end - at) * part)
        assert (again.resources, again.names) == (found.resources, found.names)
        assert again.until >= found.until  # windows without a gap are joined anew from each instant


@given(entries, instants)
def test_lower_quotas_ahead_reach_the_weeks_least_quota(entries, now):
    queue = spec(*entries)

    def unlimited_as_most(quota):
        return float("inf") if quota < 0 else quota

    quotas = [unlimited_as_most(found.resources.gpu.quota) for _, found in slices(queue, now, now + 7 * DAY)]
    ahead = [unlimited_as_most(quota.gpu.quota) for _, quota in lower_quotas(queue, now)]
    assert min(quotas, default=8) == min([*ahead, *quotas[:1]], default=8)
    assert ahead == sorted(ahead, reverse=True)


@given(entries, instants, st.integers(-2_000, 2_000))
def test_shifting_clock_and_schedule_together_changes_nothing(entries, now, weeks):
    queue = spec(*({**each, "timeZone": ""} for each in entries))
    moved = now + weeks * 7 * DAY
    one, other = in_force(queue, now), in_force(queue, moved)
    assert (one.resources, one.names) == (other.resources, other.names)
    assert one.until - now == other.until - moved
    assert [at - now for at, _ in lower_quotas(queue, now)] == [at - moved for at, _ in lower_quotas(queue, moved)]


@given(instants)
def test_without_entries_there_is_nothing_to_follow(now):
    plain = spec()
    found = in_force(plain, now)
    assert found.resources is plain.resources
    assert (found.until, found.names, lower_quotas(plain, now)) == (float("inf"), (), ())
    assert attrs.evolve(found, resources=None) == attrs.evolve(in_force(spec(), 0.0), resources=None)
