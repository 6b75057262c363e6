from kai.cluster.caching.watch import WatchSettings
from kai.roles.scheduler.settings import SchedulerSettings

# What the API server calls bookmarkFrequency, and by how much its timers may be late.
BOOKMARKS_APART = 60.0 + 1.25


def test_bookmarks_alone_keep_a_watch_from_being_silent():
    assert SchedulerSettings().stale_store_seconds > BOOKMARKS_APART + 5
    assert WatchSettings().silence > BOOKMARKS_APART + 5
