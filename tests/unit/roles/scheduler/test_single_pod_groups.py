"""When groups of one pod started is not written down, and is known all the same."""

from types import SimpleNamespace

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup
from kai.roles.scheduler.effects import Overlay, Send
from kai.roles.scheduler.publishing.deferred import recalled_starts
from kai.roles.scheduler.publishing.explanations import GroupAccount, Overall, PodAccount
from kai.roles.scheduler.publishing.publisher import CycleOver, Publisher
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import WALL, World

LAST_START = "kai.scheduler/last-start-timestamp"
BOUND = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:07Z"}


def lone(pod="p", name=None, **annotations):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}"}
    group = making.group(name or f"pg-{pod}-uid-{pod}")
    group["metadata"] |= {"ownerReferences": [owner], "annotations": annotations}
    return group


def bound(name="p", **status):
    pod = making.pod(name, group=f"pg-{name}-uid-{name}", node="n1")
    pod["status"] |= status
    return pod


def starts(*manifests):
    world = World(making.queue("q"), making.node("n1"), *manifests)
    return list(recalled_starts(world, world.all(PodGroup)))


def test_a_single_pod_groups_start_is_its_bind():
    (start,) = starts(lone(), bound(conditions=[BOUND]))
    assert start == Overlay(PodGroup, ("default", "pg-p-uid-p"), {LAST_START: "2026-01-01T00:00:07Z"})


def test_nothing_is_restored_for_known_waiting_or_growing_groups():
    assert starts(lone(**{LAST_START: "2026-01-01T00:00:00Z"}), bound()) == []
    assert starts(lone(), making.pod("p", group="pg-p-uid-p")) == []
    assert starts(lone(name="spark-7"), bound()) == []
    assert starts(making.group("g"), making.pod("p", group="g", node="n1")) == []


def test_a_start_is_only_shown_with_direct_binds():
    world = World(making.queue("q"), lone(), making.group("gang"))
    account = GroupAccount(
        name="pg-p-uid-p",
        namespace="default",
        uid="uid-pg-p-uid-p",
        stamps={LAST_START: "2026-01-01T00:00:00Z", "kai.scheduler/stale-timestamp": None},
    )
    told = CycleOver(Overall(groups=(account,)))
    direct = Publisher(SchedulerSettings(direct_binds=True), world, lambda: WALL)
    (effect,) = direct.step(told, 0.0)
    assert effect == Overlay(PodGroup, ("default", "pg-p-uid-p"), {LAST_START: "2026-01-01T00:00:00Z"})
    as_the_peer = Publisher(SchedulerSettings(), world, lambda: WALL)
    shown, sent = as_the_peer.step(told, 0.0)
    assert shown == effect
    assert sent.request.patch["metadata"]["annotations"] == {LAST_START: "2026-01-01T00:00:00Z"}


def test_an_unwritten_group_starts_without_writes():
    shown = lone()
    del shown["metadata"]["uid"]
    stamps = {LAST_START: "2026-01-01T00:00:00Z", "kai.scheduler/last-eviction-timestamp": "y"}
    account = GroupAccount(
        name="pg-p-uid-p", namespace="default", uid="pg-p-uid-p", stamps=stamps, unschedulable="no", not_ready="no"
    )
    told = CycleOver(Overall(groups=(account,)))
    group = structure_as(PodGroup, shown)
    store = SimpleNamespace(get=lambda cls, *_: group if cls is PodGroup else None, find=lambda *_: ())
    publisher = Publisher(SchedulerSettings(direct_binds=True), store, lambda: WALL)
    start = Overlay(PodGroup, ("default", "pg-p-uid-p"), {LAST_START: "2026-01-01T00:00:00Z"})
    assert publisher.step(told, 0.0) == (start,)
    written = World(making.queue("q"), lone())
    overlaid, patch = Publisher(SchedulerSettings(direct_binds=True), written, lambda: WALL).step(told, 0.0)
    assert overlaid == start
    uid = written.get(PodGroup, "pg-p-uid-p", "default").metadata.uid
    evicted = {"kai.scheduler/last-eviction-timestamp": "y"}
    assert patch.request.patch["metadata"] == {"uid": uid, "annotations": evicted}


def test_an_unwritten_groups_reason_is_on_its_pod():
    group = structure_as(PodGroup, {**lone(), "metadata": {**lone()["metadata"], "uid": ""}})
    waiting = making.objects(making.pod("p", group="pg-p-uid-p")).pods[0]
    told = PodAccount(name="p", namespace="default", uid=waiting.metadata.uid, message="no room")
    account = GroupAccount(
        name="pg-p-uid-p", namespace="default", uid="pg-p-uid-p", stamps={}, pods=(told,), unschedulable="no"
    )
    store = SimpleNamespace(
        get=lambda cls, *_: {PodGroup: group, Pod: waiting}.get(cls),
        find=lambda *_: (),
        is_assumed=lambda *_: False,
        is_overlaid=lambda *_: False,
    )
    publisher = Publisher(SchedulerSettings(direct_binds=True), store, lambda: WALL)
    effects = publisher.step(CycleOver(Overall(groups=(account,))), 0.0)
    refs = [each.request.ref for each in effects if isinstance(each, Send)]
    assert {(ref.cls, ref.name) for ref in refs} == {(Pod, "p")}
