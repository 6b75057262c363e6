"""Groups that are shown before they are written."""

import pytest

from kai.api.plans import Emit, Reason, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.requests import Apply
from kai.roles.podgrouper import links
from tests.doubles.cluster import MemoryCluster
from tests.unit.roles.podgrouper.memory import JOB, LATE, bind, group_of, grouping, pod, requests, shown_group

pytestmark = pytest.mark.anyio


def named(name):
    return pod(name, creationTimestamp="2023-11-14T22:30:00Z")


def shown(cluster, name):
    return cluster.store.get(PodGroup, f"pg-{name}-uid-{name}", "ns")


def refuse_groups(cluster, reason=Reason.REJECTED):
    cluster.server.fault = lambda request: (
        Refusal(reason=reason, message="no") if isinstance(request, Apply) and request.ref.cls is PodGroup else None
    )


async def test_groups_after_a_namespaces_first_are_shown_before_writing():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        refuse_groups(cluster, Reason.UNAVAILABLE)
        cluster.server.add(named("q"))
        await cluster.pass_time()
        assert cluster.server.get("PodGroup", "pg-q-uid-q", "ns") is None
        assert (shown(cluster, "q").metadata.uid, shown(cluster, "q").spec.min_member) == ("", 1)
        assert shown_group(cluster, "q") == "pg-q-uid-q"
        cluster.server.fault = lambda _: None
        await cluster.pass_time(2.0)
        assert shown(cluster, "q").metadata.uid
        assert not cluster.store.is_assumed(PodGroup, ("ns", "pg-q-uid-q"))
        await cluster.pass_time(100.0)
    first, *_, last = requests(cluster, Apply)
    assert (first.can_wait, last.can_wait) == (False, True)


async def test_a_shown_group_is_written_after_its_bind():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        cluster.server.add(named("q"))
        await cluster.pass_time(0.04)
        assert shown_group(cluster, "q") == "pg-q-uid-q"
        assert len(requests(cluster, Apply)) == 1
        bind(cluster, "q")
        await cluster.pass_time(0.02)
        assert cluster.server.get("PodGroup", "pg-q-uid-q", "ns")["metadata"]["ownerReferences"][0]["name"] == "q"


async def test_a_multi_pod_group_is_never_shown_before_writing():
    cluster = MemoryCluster(pod(), JOB)
    async with grouping(cluster, LATE):
        refuse_groups(cluster)
        cluster.server.add(pod("r", JOB))
        await cluster.pass_time()
        assert cluster.store.get(PodGroup, "pg-train-uid-job", "ns") is None


async def test_a_refusal_ends_showing_groups_of_its_namespace():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        refuse_groups(cluster)
        cluster.server.add(named("q"))
        await cluster.pass_time(0.1)
        assert shown(cluster, "q") is None
        assert [event.ref.name for event in requests(cluster, Emit)] == ["q"]
        cluster.server.add(named("r"))
        await cluster.pass_time()
        assert shown(cluster, "r") is None
        cluster.server.fault = lambda _: None
        await cluster.pass_time(60.0)
        assert shown(cluster, "q").metadata.uid
        assert shown(cluster, "r").metadata.uid


async def test_a_group_of_a_deleted_pod_is_not_written():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        refuse_groups(cluster, Reason.UNAVAILABLE)
        cluster.server.add(named("q"))
        await cluster.pass_time()
        cluster.server.remove("Pod", "q", "ns")
        cluster.server.fault = lambda _: None
        await cluster.pass_time(100.0)
        assert shown(cluster, "q") is None
        assert cluster.server.get("PodGroup", "pg-q-uid-q", "ns") is None


async def test_the_next_process_makes_an_unwritten_group():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        refuse_groups(cluster, Reason.UNAVAILABLE)
        cluster.server.add(named("q"))
        await cluster.pass_time()
        bind(cluster, "q")
        await cluster.pass_time()
    cluster.restart()
    cluster.server.fault = lambda _: None
    async with grouping(cluster, LATE):
        assert cluster.server.get("PodGroup", "pg-q-uid-q", "ns")["spec"]["minMember"] == 1
        assert group_of(cluster, "q") == "pg-q-uid-q"


async def test_a_shown_group_forgotten_at_takeover_is_shown_again():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        refuse_groups(cluster, Reason.UNAVAILABLE)
        cluster.server.add(named("q"))
        await cluster.pass_time()
        cluster.store.forget_all()
        await cluster.pass_time()
        assert shown(cluster, "q") is not None
        assert shown_group(cluster, "q") == "pg-q-uid-q"
        cluster.server.fault = lambda _: None
        await cluster.pass_time(10.0)
        assert shown(cluster, "q").metadata.uid


async def test_the_oldest_of_many_namespaces_writes_before_showing(monkeypatch):
    monkeypatch.setattr(links, "_MOST_OPEN", 2)
    behind = links.WriteBehind(MemoryCluster().port, "manager", lambda _: None)
    for space in ("a", "b", "a", "c"):
        behind.note(space, refused=False)
    assert [space for space in "abc" if behind.may_show(space)] == ["a", "c"]
    behind.note("c", refused=True)
    assert not behind.may_show("c")
