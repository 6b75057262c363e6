"""The store of watched kinds: what it remembers of deleted objects does not grow with all that there ever were."""

from functools import partial
from itertools import islice, permutations
from types import SimpleNamespace

import anyio
import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.caching.store import Watched, WatchedStore


def config(uid, version):
    return {"metadata": {"name": uid, "namespace": "team", "uid": uid, "resourceVersion": str(version)}}


def test_a_deletion_is_remembered_for_about_ten_minutes():
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


def test_lists_are_requested_in_the_order_of_the_arguments():
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


def group(version, *, uid="u", **more):
    """Return the manifest of a group at a version."""
    metadata = {
        "name": "g",
        "namespace": "team",
        "uid": uid,
        "resourceVersion": str(version),
        **more.pop("metadata", {}),
    }
    return {"metadata": metadata, "spec": {"queue": "q", "minMember": 1, **more.pop("spec", {})}, **more}


COUNTED = {"resourcesStatus": {"allocated": {"cpu": "1"}}}
GIVEN_UP = {"schedulingConditions": [{"type": "UnschedulableOnNodePool", "transitionID": "1"}]}


@pytest.mark.parametrize(
    ("after", "is_substantial"),
    [
        (group(2, status=COUNTED), False),
        (group(2, metadata={"managedFields": [{"manager": "kai"}]}), False),
        (group(2, status=GIVEN_UP), True),
        (group(2, spec={"minMember": 2}, status=COUNTED), True),
        (group(2, metadata={"annotations": {"a": "b"}}), True),
        (group(2, metadata={"labels": {"a": "b"}}), True),
        (group(2, metadata={"deletionTimestamp": "2026-01-01T12:00:00Z"}), True),
        (group(2, uid="another"), True),
    ],
)
def test_a_groups_counts_and_field_managers_are_no_substance(after, is_substantial):
    store = WatchedStore([Watched(cls=PodGroup)], SimpleNamespace(monotonic=lambda: 0.0))
    store.take_answer(PodGroup, group(1))
    revision, substance = store.revision, store.substance
    store.take_answer(PodGroup, after)
    assert store.revision > revision
    assert (store.substance > substance) is is_substantial


def test_what_is_passed_over_is_a_change_without_substance():
    store = WatchedStore([Watched(cls=PodGroup)], SimpleNamespace(monotonic=lambda: 0.0))
    store.pass_over(lambda change: change.after.spec.queue == "theirs")
    for version, queue in enumerate(("theirs", "ours", "theirs"), start=1):
        seen = store.revision, store.substance
        store.take_answer(PodGroup, group(version, spec={"queue": queue}))
        assert (store.revision, store.substance) == (seen[0] + 1, seen[1] + (queue == "ours"))
    seen = store.substance
    store.take_answer(PodGroup, group(4, spec={"queue": "ours"}, status=COUNTED))
    store.take_answer(PodGroup, group(5, spec={"queue": "ours"}))
    assert store.substance == seen + 1, "what only tells people more adds none either way"


def test_a_shown_groups_own_write_is_no_substance():
    store = WatchedStore([Watched(cls=PodGroup)], SimpleNamespace(monotonic=lambda: 0.0))
    store.assume(structure_as(PodGroup, group("", uid="")), lambda found: found is not None)
    revision, substance = store.revision, store.substance
    store.take_answer(PodGroup, group(1))
    assert (store.revision, store.substance) == (revision + 1, substance)


def test_a_queues_count_is_no_substance_its_deletion_is():
    store = WatchedStore([Watched(cls=Queue)], SimpleNamespace(monotonic=lambda: 0.0))
    metadata = {"name": "q", "uid": "u"}
    store.take_answer(Queue, {"metadata": {**metadata, "resourceVersion": "1"}})
    seen = store.substance
    status = {"allocated": {"cpu": "3"}}
    store.take_answer(Queue, {"metadata": {**metadata, "resourceVersion": "2"}, "status": status})
    assert (store.revision, store.substance) == (2, seen)
    store.take_end(Queue, ("", "q"), "u")
    assert store.substance == seen + 1


def test_subscriptions_start_equal_and_take_later_changes_independently():
    store = WatchedStore([Watched(cls=ConfigMap)], SimpleNamespace(monotonic=lambda: 0.0))
    cache = store.cache(ConfigMap)
    cache.see(config("a", 1))

    async def batches():
        with store.changes(ConfigMap) as first, store.changes(ConfigMap) as second:
            begun = await anext(first)
            cache.see(config("b", 2))
            later, both = await anext(first), await anext(second)
            with store.changes(ConfigMap) as third:
                return begun, later, both, await anext(third)

    found = [[change.after.metadata.uid for change in batch] for batch in anyio.run(batches)]
    assert found == [["a"], ["b"], ["a", "b"], ["a", "b"]]
