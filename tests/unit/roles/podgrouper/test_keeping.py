"""Groups of bare pods that stay in memory, and when they are written."""

import anyio
import pytest
from structlog.testing import capture_logs

from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Reason, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.requests import Apply, Evict
from kai.roles.controllers.runtime_service import RuntimeLimits
from kai.roles.podgrouper import Settings
from kai.roles.podgrouper.keeping import FirstPass
from kai.roles.podgrouper.service import PodGrouper
from tests.doubles.cluster import MemoryCluster
from tests.unit.roles.podgrouper.memory import GROUPERS, JOB, group_of, grouping, pod, requests, shown_group

pytestmark = pytest.mark.anyio

KEEPING = Settings(link_delay_seconds=10.0, keeps_groups=True)
GRANT = '{"queue":"q","group":"pg-p-uid-p"}'
BOUND_AT = "2023-11-14T22:40:00Z"
WHY = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}


def waiting(name="p", **more):
    return pod(name, creationTimestamp="2023-11-14T22:13:20Z", **more)


def running(name="p", grant=GRANT):
    bound = waiting(name, annotations={"kai.scheduler/granted": grant} if grant else {})
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": BOUND_AT}
    return {
        **bound,
        "spec": {**bound["spec"], "nodeName": "n"},
        "status": {"phase": "Running", "conditions": [scheduled]},
    }


def shown(cluster, name="p"):
    return cluster.store.get(PodGroup, f"pg-{name}-uid-{name}", "ns")


def written(cluster, name="p"):
    return cluster.server.get("PodGroup", f"pg-{name}-uid-{name}", "ns")


def bind(cluster, name="p"):
    """Bind as the binder does while the group is kept: with the grant, without the link."""
    cluster.server.change("Pod", name, "ns", running(name))


async def test_a_bound_bare_pods_group_is_never_written():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        assert (shown(cluster).metadata.uid, shown(cluster).spec.min_member) == ("", 1)
        assert shown_group(cluster) == "pg-p-uid-p"
        bind(cluster)
        await cluster.pass_time(600.0)
        assert shown(cluster) is not None
        assert shown_group(cluster) == "pg-p-uid-p"
    assert requests(cluster, Apply, Patch) == []


async def test_only_groups_that_are_written_are_logged():
    levels = []
    for settings in ((KEEPING,), ()):
        with capture_logs() as logs:
            async with grouping(MemoryCluster(waiting()), *settings):
                pass
        levels.append([each["log_level"] for each in logs if each["event"] == "grouped"])
    assert levels == [["debug"], ["info"]]


async def test_what_is_kept_is_what_would_have_been_written():
    kept, always = MemoryCluster(waiting()), MemoryCluster(waiting())
    async with grouping(kept, KEEPING):
        seen = shown(kept)
    async with grouping(always):
        pass
    made = always.store.get(PodGroup, "pg-p-uid-p", "ns")
    assert (seen.spec, seen.metadata.labels) == (made.spec, made.metadata.labels)
    assert seen.metadata.annotations == made.metadata.annotations
    assert seen.metadata.owner_references == made.metadata.owner_references


async def test_a_late_bind_writes_the_group_then_the_link():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        await cluster.pass_time(15.0)
        assert written(cluster)["spec"]["minMember"] == 1
        assert group_of(cluster) == "pg-p-uid-p"
        assert not cluster.store.is_kept(PodGroup, ("ns", "pg-p-uid-p"))
    first, second = requests(cluster, Apply, Patch)
    assert (first.ref.cls, second.ref.cls) == (PodGroup, Pod)


async def test_a_pod_with_a_waiting_reason_gets_its_group():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        cluster.server.change("Pod", "p", "ns", {"status": {"conditions": [WHY]}})
        await cluster.pass_time(0.5)
        assert written(cluster) is not None
        assert group_of(cluster) is None  # a binding may still write the link


async def test_a_bind_during_the_write_gets_its_link():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        cluster.server.change("Pod", "p", "ns", {"status": {"conditions": [WHY]}})
        await cluster.pass_time(0.5)
        bind(cluster)
        await cluster.pass_time(0.5)
        assert group_of(cluster) == "pg-p-uid-p"


@pytest.mark.parametrize(
    "pending",
    [
        waiting(annotations={"gpu-fraction": "0.5"}),
        {**waiting(), "status": {"phase": "Pending", "conditions": [WHY]}},
        {**waiting(), "spec": {**waiting()["spec"], "schedulingGates": [{"name": "wait"}]}},
        {**waiting(), "spec": {**waiting()["spec"], "resourceClaims": [{"name": "c", "resourceClaimName": "c"}]}},
        running(grant=""),
    ],
    ids=["shares a GPU", "says why it waits", "is gated", "has a claim", "was bound by another"],
)
async def test_a_group_beyond_the_plain_form_is_written_immediately(pending):
    cluster = MemoryCluster(pending)
    async with grouping(cluster, KEEPING):
        await cluster.pass_time(0.5)
        assert written(cluster) is not None


async def test_a_later_runtime_limit_has_the_kept_group_written():
    queue = {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": "q"}, "spec": {}}
    pod_of_q = running()
    pod_of_q["metadata"]["labels"] = {"kai.scheduler/queue": "q"}
    cluster = MemoryCluster(pod_of_q, queue)
    async with grouping(cluster, KEEPING), anyio.create_task_group() as tasks:
        tasks.start_soon(RuntimeLimits(cluster.port).run)
        await cluster.pass_time(10.0)
        assert written(cluster) is None
        cluster.server.change("Queue", "q", "", {"spec": {"maxRuntime": "100s"}})
        await cluster.pass_time(10.0)
        assert written(cluster)["status"]["runningSince"]
        assert group_of(cluster) == "pg-p-uid-p"
        await cluster.pass_time(110.0)
        assert [each.ref.name for each in requests(cluster, Evict)] == ["p"]
        tasks.cancel_scope.cancel()


async def test_a_group_of_an_owner_is_written():
    cluster = MemoryCluster(pod(owner=JOB), JOB)
    async with grouping(cluster, KEEPING):
        assert cluster.server.get("PodGroup", "pg-train-uid-job", "ns") is not None


async def test_a_kept_group_goes_with_its_pod():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        bind(cluster)
        await cluster.pass_time()
        cluster.server.remove("Pod", "p", "ns")
        await cluster.pass_time()
        assert cluster.store.all(PodGroup) == ()


async def test_a_later_namesake_has_a_group_of_its_own():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        cluster.server.remove("Pod", "p", "ns")
        cluster.server.add(waiting(uid="second"))
        await cluster.pass_time()
        assert [group.metadata.name for group in cluster.store.all(PodGroup)] == ["pg-p-second"]


async def test_a_restart_shows_running_pods_groups_with_their_start():
    cluster = MemoryCluster(running())
    async with grouping(cluster, KEEPING):
        assert shown(cluster).metadata.annotations["kai.scheduler/last-start-timestamp"] == BOUND_AT
        assert shown_group(cluster) == "pg-p-uid-p"
    assert requests(cluster, Apply, Patch) == []


async def test_a_takeover_leaves_kept_groups_and_their_links():
    cluster = MemoryCluster(running())
    async with grouping(cluster, KEEPING):
        before = shown(cluster)
        cluster.store.forget_all()
        assert shown(cluster) is before
        assert shown_group(cluster) == "pg-p-uid-p"


async def test_the_end_of_a_term_takes_kept_groups_away():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        assert shown(cluster) is not None
    assert shown(cluster) is None
    assert shown_group(cluster) is None


async def test_a_list_that_lacks_a_kept_group_leaves_it():
    cluster = MemoryCluster(running())
    async with grouping(cluster, KEEPING):
        await cluster.store.refresh(PodGroup)
        assert shown(cluster) is not None


async def test_another_clients_group_replaces_the_kept_one():
    cluster = MemoryCluster(running())
    async with grouping(cluster, KEEPING):
        made = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "spec": {"queue": "other"}}
        cluster.server.add({**made, "metadata": {"name": "pg-p-uid-p", "namespace": "ns", "uid": "theirs"}})
        await cluster.pass_time()
        assert shown(cluster).spec.queue == "other"
        assert group_of(cluster) == "pg-p-uid-p"


@pytest.mark.parametrize("settings", [KEEPING, Settings()], ids=["kept", "written"])
async def test_a_change_of_a_bare_pod_keeps_its_group(settings):
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, settings):
        before = shown(cluster)
        cluster.server.change("Pod", "p", "ns", {"metadata": {"labels": {"x": "y"}}})
        await cluster.pass_time()
        assert shown(cluster) is before


async def test_a_waiting_pod_that_requests_a_share_is_grouped():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        cluster.server.change("Pod", "p", "ns", {"metadata": {"annotations": {"gpu-fraction": "0.5"}}})
        await cluster.pass_time()
        assert written(cluster) is not None
        assert group_of(cluster) == "pg-p-uid-p"


async def test_after_a_refusal_the_namespaces_groups_are_written_first():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        cluster.server.fault = lambda request: (
            Refusal(reason=Reason.REJECTED, message="no") if isinstance(request, Apply) else None
        )
        await cluster.pass_time(15.0)
        assert shown(cluster) is None
        assert [event.ref.name for event in requests(cluster, Emit)] == ["p"]
        cluster.server.add(waiting("q"))
        await cluster.pass_time()
        assert shown(cluster, "q") is None
        cluster.server.fault = lambda _: None
        await cluster.pass_time(60.0)
        assert written(cluster)
        assert written(cluster, "q")


async def test_an_outage_keeps_a_group_until_it_is_written():
    cluster = MemoryCluster(waiting())
    async with grouping(cluster, KEEPING):
        cluster.server.fault = lambda request: (
            Refusal(reason=Reason.UNAVAILABLE, message="away") if isinstance(request, Apply) else None
        )
        await cluster.pass_time(15.0)
        assert shown(cluster) is not None
        cluster.server.fault = lambda _: None
        await cluster.pass_time(60.0)
        assert written(cluster)


async def test_the_first_pass_ends_after_all_earlier_running_pods():
    cluster = MemoryCluster(running(), waiting("q"))
    first_pass = FirstPass()
    async with anyio.create_task_group() as tasks:
        with anyio.move_on_after(0) as early:
            await first_pass.ended()
        assert early.cancelled_caught
        tasks.start_soon(PodGrouper(cluster.port, KEEPING, GROUPERS, first_pass=first_pass).run)
        await cluster.pass_time()
        await first_pass.ended()
        assert shown(cluster) is not None
        tasks.cancel_scope.cancel()
    with anyio.move_on_after(0) as late:
        await first_pass.ended()
    assert late.cancelled_caught
