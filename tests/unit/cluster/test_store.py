"""The store of watched kinds: what it remembers of deleted objects does not grow with all that there ever were."""

from types import SimpleNamespace

from kai.api.core import ConfigMap
from kai.cluster.store import Watched, WatchedStore


def config(uid, version):
    return {"metadata": {"name": uid, "namespace": "team", "uid": uid, "resourceVersion": str(version)}}


def test_a_deleted_object_is_remembered_for_ten_minutes_and_not_for_ever():
    clock = SimpleNamespace(time=0.0, monotonic=lambda: clock.time)
    store = WatchedStore([Watched(cls=ConfigMap)], clock)
    cache = store.cache(ConfigMap)
    for number in range(100):
        clock.time += 60.0
        store.heard(ConfigMap)
        cache.see(config(f"u{number}", 2 * number))
        cache.remove(config(f"u{number}", 2 * number + 1))
        cache.see(config(f"u{max(0, number - 9)}", 0))
        assert len(cache) == 0
    assert len(cache._tombstones._young) + len(cache._tombstones._old) <= 20
