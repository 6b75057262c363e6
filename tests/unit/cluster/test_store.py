"""The store of watched kinds: what it remembers of deleted objects does not grow with all that there ever were."""

from functools import partial
from itertools import islice, permutations
from types import SimpleNamespace

import anyio

from kai.api.bindrequest import BindRequest
from kai.api.core import ConfigMap
from kai.api.node import Node
from kai.api.pod import Pod
from kai.api.podgroup import PodGroup
from kai.api.queue import Queue
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


def test_lists_are_asked_for_in_the_order_in_which_kinds_are_named():
    kinds = (Queue, Pod, ConfigMap, Node, PodGroup, BindRequest)
    store = WatchedStore([Watched(cls=cls) for cls in kinds[1:]], SimpleNamespace(monotonic=lambda: 0.0))
    asked = []
    for cls in kinds[1:]:
        store.on_refresh(cls, partial(ask, asked, cls))
    for order in islice(permutations(kinds), 0, None, 60):
        asked.clear()
        anyio.run(store.refresh, *order)
        assert asked == [cls for cls in order if cls is not Queue]


def ask(asked, cls):
    """Note which kind was asked for; there is nothing to wait for."""
    asked.append(cls)
    return 0
