import pytest

from kai.cluster.caching.watch import (
    AskVersion,
    Ended,
    Failed,
    Heard,
    KeepReading,
    ListWatch,
    Opened,
    OpenStream,
    PageCame,
    Pause,
    ReadPage,
    RefreshWanted,
    Refused,
    Started,
    TimeCame,
    Vanish,
    VersionCame,
    WatchSettings,
)

SETTINGS = WatchSettings(page=2)


def machine(variants=1, draw=lambda: 0.5, *, is_dispensable=False):
    return ListWatch(SETTINGS, draw, variants, is_dispensable)


def streaming(version="10", now=0.0):
    watch = machine()
    watch.step(Started(), now)
    watch.step(PageCame(version=version), now)
    assert watch.step(Opened(), now) == (KeepReading(),)
    return watch


def test_a_paged_list_is_followed_by_a_watch():
    watch = machine()
    assert watch.step(Started(), 0.0) == (ReadPage(variant=0, limit=2),)
    assert watch.step(PageCame(version="7", rest="x"), 0.0) == (ReadPage(variant=0, limit=2, rest="x", is_first=False),)
    assert watch.completed == 0
    assert watch.step(PageCame(version="7"), 0.0) == (OpenStream(variant=0, version="7", seconds=450.0),)
    assert watch.completed == 1


def test_an_ended_stream_resumes_at_its_last_version():
    watch = streaming()
    watch.step(Heard(version="15"), 1.0)
    (again,) = watch.step(Ended(), 1.1)
    assert again.version == "15"


def test_a_cut_stream_reopens_once_the_server_is_current():
    watch = streaming()
    watch.step(Heard(version="15"), 2.0)
    assert watch.step(Ended(message="cut"), 2.0) == (AskVersion(variant=0),)
    (again,) = watch.step(VersionCame(version=15), 2.1)
    assert again.version == "15"
    watch.step(Opened(), 2.1)
    assert isinstance(watch.step(Ended(), 4.0)[0], OpenStream), "what is known to be current is not asked again"


def test_a_server_with_an_older_version_is_listed_again():
    watch = streaming()
    watch.step(Heard(version="15"), 2.0)
    watch.step(Ended(message="cut"), 2.0)
    watch.step(Refused(status=0, message="connection refused"), 2.0)
    assert watch.step(TimeCame(), 3.0) == (AskVersion(variant=0),)
    assert watch.step(VersionCame(version=14), 3.0) == (ReadPage(variant=0, limit=2),)


def test_a_bookmark_moves_the_version_on():
    watch = streaming()
    assert watch.step(Heard(version="99"), 60.0) == (KeepReading(),)
    assert watch.version == "99"
    assert watch.deadline() == 60.0 + SETTINGS.silence


@pytest.mark.parametrize("event", [Failed(code=410), Refused(status=410)], ids=["in the stream", "as a status"])
def test_an_expired_version_causes_an_immediate_list(event):
    watch = streaming()
    watch.step(Heard(version="15"), 2.0)
    assert watch.step(event, 2.0) == (ReadPage(variant=0, limit=2),)


@pytest.mark.parametrize("event", [Failed(code=410), Refused(status=410)], ids=["in the stream", "as a status"])
def test_an_earlier_outage_does_not_delay_the_expired_list(event):
    watch = streaming()
    watch.step(Heard(version="15"), 2.0)
    now = 60.0
    watch.step(Ended(message="cut"), now)
    for _ in range(8):
        (pause,) = watch.step(Refused(status=0, message="connection refused"), now)
        now = pause.until
        assert watch.step(TimeCame(), now) == (AskVersion(variant=0),)
    assert isinstance(watch.step(VersionCame(version=15), now)[0], OpenStream)
    if isinstance(event, Failed):
        watch.step(Opened(), now)
    assert watch.step(event, now) == (ReadPage(variant=0, limit=2),)


def test_pauses_without_any_answer_are_five_seconds_at_most():
    watch = machine(draw=lambda: 0.999)
    watch.step(Started(), 0.0)
    now, waits = 0.0, []
    for _ in range(12):
        (pause,) = watch.step(Refused(status=0, message="connection refused"), now)
        waits.append(pause.until - now)
        now = pause.until
        watch.step(TimeCame(), now)
    assert 4.9 < waits[-1] <= 5.0


def test_what_failed_before_a_stream_that_lasted_is_forgotten():
    watch = machine(draw=lambda: 0.0)
    watch.step(Started(), 0.0)
    for _ in range(6):
        watch.step(Refused(status=500), 0.0)
    watch.step(PageCame(version="7"), 10.0)
    watch.step(Opened(), 10.0)
    (pause,) = watch.step(Failed(code=500), 60.0)
    assert pause.until - 60.0 <= 0.25


def test_repeated_expired_versions_cause_growing_pauses():
    watch = streaming()
    waits, now = [], 0.0
    for _ in range(5):
        effects = watch.step(Failed(code=410), now)
        if isinstance(effects[0], Pause):
            waits.append(effects[0].until - now)
            now = effects[0].until
            effects = watch.step(TimeCame(), now)
        assert isinstance(effects[0], ReadPage)
        watch.step(PageCame(version="20"), now)
        watch.step(Opened(), now)
    assert waits == sorted(waits)
    assert len(waits) == 4


def test_a_stream_that_ends_immediately_counts_as_failure():
    watch = streaming()
    waits, now = [], 0.0
    for _ in range(12):
        (pause,) = watch.step(Ended(), now + 0.1)
        waits.append(round(pause.until - now - 0.1, 6))
        now = pause.until
        assert isinstance(watch.step(TimeCame(), now)[0], OpenStream)
        watch.step(Opened(), now)
    assert waits == sorted(waits)
    assert SETTINGS.longest_pause / 2 <= waits[-1] <= SETTINGS.longest_pause


def test_a_silent_stream_is_given_up_for_a_list():
    watch = streaming()
    assert watch.step(TimeCame(), 74.0) == (KeepReading(),)
    assert watch.step(TimeCame(), 75.0) == (ReadPage(variant=0, limit=2),)
    assert "silent for 75 s" in watch.problem


def test_a_repeated_error_in_the_stream_causes_a_list():
    watch = streaming()
    kinds, now = [], 0.0
    for _ in range(3):
        (pause,) = watch.step(Failed(code=500, message="storage trouble"), now)
        now = pause.until
        effects = watch.step(TimeCame(), now)
        kinds.append(type(effects[0]))
        watch.step(Opened(), now)
    assert kinds == [OpenStream, OpenStream, ReadPage]


def test_the_servers_retry_after_is_waited_with_a_margin():
    watch = machine(draw=lambda: 0.0)
    watch.step(Started(), 0.0)
    (pause,) = watch.step(Refused(status=429, retry_after=7.0), 100.0)
    assert 107.0 < pause.until < 108.0


def test_waits_are_spread_by_what_is_drawn():
    untils = set()
    for drawn in (0.0, 0.3, 0.9):
        watch = machine(draw=lambda drawn=drawn: drawn)
        watch.step(Started(), 0.0)
        untils.add(watch.step(Refused(status=500), 0.0)[0].until)
    assert len(untils) == 3


def test_a_failed_list_restarts_at_its_first_page():
    watch = machine()
    watch.step(Started(), 0.0)
    watch.step(PageCame(version="7", rest="x"), 0.0)
    (pause,) = watch.step(Refused(status=0, message="cut"), 0.0)
    assert watch.problem == "cut"
    assert watch.step(TimeCame(), pause.until) == (ReadPage(variant=0, limit=2),)


def test_an_expired_continue_token_restarts_the_list():
    watch = machine()
    watch.step(Started(), 0.0)
    watch.step(PageCame(version="7", rest="x"), 0.0)
    assert watch.step(Refused(status=410), 0.0) == (ReadPage(variant=0, limit=2),)


def test_versions_of_a_kind_are_tried_in_turn():
    watch = machine(variants=3)
    watch.step(Started(), 0.0)
    assert watch.step(Refused(status=404), 0.0) == (ReadPage(variant=1, limit=2),)
    (stream,) = watch.step(PageCame(version="7"), 0.0)
    assert stream.variant == 1


def test_an_unserved_kind_is_empty_and_asked_periodically():
    watch = machine(variants=2)
    watch.step(Started(), 0.0)
    watch.step(Refused(status=404), 0.0)
    assert watch.step(Refused(status=404), 0.0) == (Vanish(), Pause(until=30.0))
    assert (watch.completed, watch.is_absent, watch.problem) == (2, True, "")
    assert watch.step(TimeCame(), 30.0) == (ReadPage(variant=0, limit=2),)
    watch.step(PageCame(version="9"), 30.0)
    assert not watch.is_absent


def test_a_known_kind_vanishes_only_after_repeated_absence():
    watch = streaming()
    watch.step(Refused(status=404), 0.0)
    watch.step(TimeCame(), 1.0)
    (pause,) = watch.step(Refused(status=404), 1.0)
    assert isinstance(pause, Pause)
    for now in (2.0, 15.0, 29.9):
        watch.step(TimeCame(), now)
        (pause,) = watch.step(Refused(status=404), now)
        assert isinstance(pause, Pause), "it may only lack its definition for a moment"
    watch.step(TimeCame(), 30.0)
    assert watch.step(Refused(status=404), 30.0)[0] == Vanish()


@pytest.mark.parametrize("others", [403, 404])
def test_a_dispensable_forbidden_kind_is_empty_until_permitted(others):
    watch = machine(variants=2, is_dispensable=True)
    watch.step(Started(), 0.0)
    for now in (0.0, 1.0, 15.0, 29.9):
        assert watch.step(Refused(status=403, message="no"), now) == (ReadPage(variant=1, limit=2),)
        (pause,) = watch.step(Refused(status=others, message="no"), now)
        assert isinstance(pause, Pause), "the server may not have read its roles yet"
        assert (watch.completed, watch.problem) == (0, "no")
        watch.step(TimeCame(), now)
    watch.step(Refused(status=403), 30.0)
    assert watch.step(Refused(status=others), 30.0) == (Vanish(), Pause(until=60.0))
    assert (watch.completed, watch.is_absent, watch.problem) == (watch.started, True, "")
    watch.step(TimeCame(), 60.0)
    watch.step(PageCame(version="9"), 60.0)
    assert not watch.is_absent


def test_a_dispensable_kind_forbidden_later_keeps_its_objects():
    watch = machine(is_dispensable=True)
    watch.step(Started(), 0.0)
    watch.step(PageCame(version="9"), 0.0)
    for now in (0.0, 1.0, 40.0, 100.0):
        assert isinstance(watch.step(Refused(status=403), now)[0], Pause)
        watch.step(TimeCame(), now)
    assert not watch.is_absent


def test_a_forbidden_kind_is_waited_for():
    watch = machine()
    watch.step(Started(), 0.0)
    for now in (0.0, 1.0, 40.0, 100.0):
        assert isinstance(watch.step(Refused(status=403), now)[0], Pause)
        watch.step(TimeCame(), now)
    assert watch.completed == 0


def test_a_repeated_absence_counts_from_its_own_start():
    watch = streaming()
    watch.step(Refused(status=404), 0.0)
    watch.step(TimeCame(), 1.0)
    watch.step(PageCame(version="9"), 1.0)
    for now in (40.0, 41.0, 42.0, 69.0):
        assert isinstance(watch.step(Refused(status=404), now)[0], Pause)
        watch.step(TimeCame(), now)
    assert watch.step(Refused(status=404), 70.0)[0] == Vanish()


def test_a_wanted_refresh_begins_a_new_list():
    watch = streaming()
    assert watch.started == 1
    assert watch.step(RefreshWanted(), 1.0) == ()
    assert watch.step(Heard(version="11"), 1.0) == (ReadPage(variant=0, limit=2),)
    assert watch.started == 2


def test_a_refresh_wanted_during_a_list_causes_another():
    watch = machine()
    watch.step(Started(), 0.0)
    watch.step(RefreshWanted(), 0.0)
    assert watch.step(PageCame(version="7"), 0.0) == (ReadPage(variant=0, limit=2),)
    assert (watch.started, watch.completed) == (2, 1)
