import datetime as dt
from contextlib import asynccontextmanager

import anyio
import pytest
from structlog.testing import capture_logs

from kai.api.codec.structuring import structure_as
from kai.api.plans import Create, Delete, Patch, Reason, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.signals import QueueCounted, QueueGone
from kai.roles.controllers.node_scale import ScaleSettings
from kai.roles.controllers.node_scale_service import NodeScaleAdjuster
from kai.roles.controllers.podgroup_service import PodGroupController
from kai.roles.controllers.queue_service import QueueController
from tests.doubles.cluster import MemoryCluster

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def running(cluster, controller, *settings, **options):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(controller(cluster.port, *settings, **options).run)
        await cluster.pass_time(5.0)
        yield
        tasks.cancel_scope.cancel()


def pod(name="p", group="g", phase="Pending", requests=None, annotations=None, namespace="ns", scheduled=None):
    conditions = []
    if scheduled is not None:
        reason = {} if scheduled == "True" else {"reason": "Unschedulable"}
        conditions = [{"type": "PodScheduled", "status": scheduled, **reason}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "annotations": {"pod-group-name": group, **(annotations or {})},
        },
        "spec": {
            "schedulerName": "kai-scheduler",
            "containers": [{"name": "main", "resources": {"requests": requests or {"cpu": "1"}}}],
        },
        "status": {"phase": phase, "conditions": conditions},
    }


def group(name="g", queue="q", status=None, **spec):
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"queue": queue, "minMember": 1, **spec},
        "status": status or {},
    }


def holding(allocated, requested=None):
    return {"resourcesStatus": {"allocated": allocated, "requested": requested or allocated}}


def queue(name, parent="", quota=0, **status):
    shares = {part: {"quota": quota, "limit": -1, "overQuotaWeight": 1} for part in ("gpu", "cpu", "memory")}
    spec = {"resources": shares, **({"parentQueue": parent} if parent else {})}
    return {
        "apiVersion": "scheduling.run.ai/v2",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }


def resources(cluster, name="g"):
    return cluster.server.get("PodGroup", name, "ns")["status"].get("resourcesStatus")


def status(cluster, name):
    return cluster.server.get("Queue", name)["status"]


def true_conditions(cluster, name):
    return [each["type"] for each in status(cluster, name).get("conditions", []) if each["status"] == "True"]


# --- Pod groups ----------------------------------------------------------------------------------------------------


async def test_a_group_reports_its_pods_requests_and_allocation():
    cluster = MemoryCluster(group(), pod(), pod("r", phase="Running"))
    async with running(cluster, PodGroupController):
        assert resources(cluster) == {"requested": {"cpu": "2"}, "allocated": {"cpu": "1"}}


async def test_a_gang_that_starts_together_costs_one_write():
    cluster = MemoryCluster(group(), *(pod(f"p{index}") for index in range(20)))
    async with running(cluster, PodGroupController):
        before = len(cluster.writes())
        for index in range(20):
            cluster.server.change("Pod", f"p{index}", "ns", {"status": {"phase": "Running"}})
            await cluster.pass_time(0.01)
        await cluster.pass_time(5.0)
        assert resources(cluster)["allocated"] == {"cpu": "20"}
        assert len(cluster.writes()) == before + 1


async def test_what_does_not_count_costs_no_write():
    cluster = MemoryCluster(group(), pod(phase="Running"))
    async with running(cluster, PodGroupController):
        before = len(cluster.writes())
        cluster.server.change("Pod", "p", "ns", {"metadata": {"labels": {"a": "b"}}})
        cluster.server.change("PodGroup", "g", "ns", {"status": {"schedulingConditions": []}})
        await cluster.pass_time(100.0)
        assert len(cluster.writes()) == before
    cluster.restart()
    async with running(cluster, PodGroupController):
        assert len(cluster.writes()) == before


async def test_a_new_priority_class_decides_anew_what_is_preemptible():
    cluster = MemoryCluster(group(priorityClassName="high"), pod(phase="Running"))
    async with running(cluster, PodGroupController):
        assert "allocatedNonPreemptible" not in resources(cluster)
        cluster.server.add(
            {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
            }
        )
        await cluster.pass_time(5.0)
        assert resources(cluster)["allocatedNonPreemptible"] == {"cpu": "1"}


async def test_a_departed_or_moved_pod_is_counted_correctly():
    cluster = MemoryCluster(group(), group("h"), pod(), pod("r"))
    async with running(cluster, PodGroupController):
        cluster.server.change("Pod", "p", "ns", {"metadata": {"annotations": {"pod-group-name": "h"}}})
        cluster.server.remove("Pod", "r", "ns")
        await cluster.pass_time(5.0)
        assert (resources(cluster), resources(cluster, "h")) == ({}, {"requested": {"cpu": "1"}})


async def test_an_uncountable_group_does_not_hinder_others():
    bad = pod("bad", annotations={"gpu-fraction": "much"})
    cluster = MemoryCluster(group(), group("h"), bad, pod("r", "h"))
    async with running(cluster, PodGroupController):
        assert resources(cluster) is None
        assert resources(cluster, "h") == {"requested": {"cpu": "1"}}
        cluster.server.change("Pod", "bad", "ns", {"metadata": {"annotations": {"gpu-fraction": "0.5"}}})
        await cluster.pass_time(5.0)
        assert resources(cluster)["requested"] == {"cpu": "1", "nvidia.com/gpu": "500m"}


async def test_each_reason_for_an_uncountable_group_is_logged_once():
    cluster = MemoryCluster(group(), pod("bad", annotations={"gpu-fraction": "much"}))
    with capture_logs() as logs:
        async with running(cluster, PodGroupController):
            for change in ({"labels": {"a": "1"}}, {"labels": {"a": "2"}}, {"annotations": {"gpu-fraction": "more"}}):
                cluster.server.change("Pod", "bad", "ns", {"metadata": change})
                await cluster.pass_time(5.0)
    said = [each["why"] for each in logs if each["event"] == "cannot be counted"]
    assert len(said) == 2
    assert "much" in said[0]
    assert "more" in said[1]


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.UNKNOWN, Reason.CONFLICT])
async def test_a_failed_status_write_is_repeated_later(reason):
    cluster = MemoryCluster(group(), pod())
    cluster.server.fault = lambda _: Refusal(reason=reason)
    async with running(cluster, PodGroupController):
        assert cluster.writes() == []
        assert len(cluster.server.requests) <= 3
        cluster.server.fault = lambda _: None
        await cluster.pass_time(10.0)
        assert resources(cluster) == {"requested": {"cpu": "1"}}


# --- Queues --------------------------------------------------------------------------------------------------------


async def test_totals_travel_up_the_tree():
    cluster = MemoryCluster(
        queue("top"),
        queue("middle", "top"),
        queue("leaf", "middle"),
        group(queue="leaf", status=holding({"cpu": "1"}, {"cpu": "2"})),
    )
    async with running(cluster, QueueController):
        assert status(cluster, "top") == {
            "allocated": {"cpu": "1"},
            "requested": {"cpu": "2"},
            "childQueues": ["middle"],
            "conditions": status(cluster, "top")["conditions"],
        }
        cluster.server.change("PodGroup", "g", "ns", {"status": holding({"cpu": "4"})})
        await cluster.pass_time(5.0)
        assert status(cluster, "top")["allocated"] == {"cpu": "4"}
        cluster.server.remove("PodGroup", "g", "ns")
        await cluster.pass_time(5.0)
        assert "allocated" not in status(cluster, "top")
        writes = len(cluster.writes())
        await cluster.pass_time(100.0)
        assert len(cluster.writes()) == writes


async def test_a_change_reaches_all_queues_above_at_once():
    paths = [queue("top"), queue("left", "top"), queue("right", "top"), queue("leaf", "left"), queue("other", "right")]
    groups = [group(queue="leaf", status=holding({"cpu": "1"})), group("h", "other", holding({"cpu": "2"}))]
    cluster = MemoryCluster(*paths, *groups)
    async with running(cluster, QueueController):
        writes = len(cluster.writes())
        cluster.server.change("PodGroup", "g", "ns", {"status": holding({"cpu": "4"})})
        await cluster.pass_time(0.5)
        cluster.server.change("PodGroup", "h", "ns", {"status": holding({"cpu": "8"})})
        await cluster.pass_time(0.51)
        assert [status(cluster, name)["allocated"]["cpu"] for name in ("leaf", "left", "top")] == ["4", "4", "12"]
        await cluster.pass_time(10.0)
        assert [status(cluster, name)["allocated"]["cpu"] for name in ("other", "right", "top")] == ["8", "8", "12"]
        assert len(cluster.writes()) == writes + 5


async def test_an_uncountable_queue_counts_as_before_in_its_parent():
    groups = [group(queue="bad", status=holding({"cpu": "1"})), group("h", "good", holding({"cpu": "2"}))]
    cluster = MemoryCluster(queue("top"), queue("bad", "top"), queue("good", "top"), *groups)
    async with running(cluster, QueueController):
        cluster.server.change("PodGroup", "g", "ns", {"status": holding({"cpu": "much"})})
        cluster.server.change("PodGroup", "h", "ns", {"status": holding({"cpu": "4"})})
        await cluster.pass_time(5.0)
        assert status(cluster, "top")["allocated"] == {"cpu": "5"}


async def test_a_queue_that_moves_counts_above_its_new_place():
    cluster = MemoryCluster(
        *(queue("a"), queue("b"), queue("middle", "a"), queue("leaf", "middle")),
        group(queue="leaf", status=holding({"cpu": "1"})),
    )
    async with running(cluster, QueueController):
        cluster.server.change("Queue", "middle", "", {"spec": {"parentQueue": "b"}})
        await cluster.pass_time(5.0)
        assert status(cluster, "b")["allocated"] == {"cpu": "1"}
        assert "allocated" not in status(cluster, "a")


async def test_a_queue_count_reads_only_the_changed_groups(monkeypatch):
    groups = [group(f"g{number}", "q", holding({"cpu": "1"})) for number in range(20)]
    cluster = MemoryCluster(queue("q"), *groups)
    async with running(cluster, QueueController):
        read, get, find = [], cluster.store.get, cluster.store.find

        def recorded(cls, name, namespace=""):
            read.append((cls, name))
            return get(cls, name, namespace)

        def found(index, key):
            objects = find(index, key)
            read.extend((type(each), each.metadata.name) for each in objects)
            return objects

        monkeypatch.setattr(cluster.store, "get", recorded)
        monkeypatch.setattr(cluster.store, "find", found)
        cluster.server.change("PodGroup", "g7", "ns", {"status": holding({"cpu": "3"})})
        await cluster.pass_time(5.0)
        assert status(cluster, "q")["allocated"] == {"cpu": "22"}
        assert {name for cls, name in read if cls is PodGroup} == {"g7"}


async def test_a_moved_group_leaves_one_queue_and_enters_another():
    cluster = MemoryCluster(queue("a"), queue("b"), group(queue="a", status=holding({"cpu": "1"})))
    async with running(cluster, QueueController):
        cluster.server.change("PodGroup", "g", "ns", {"spec": {"queue": "b"}})
        await cluster.pass_time(5.0)
        assert "allocated" not in status(cluster, "a")
        assert status(cluster, "b")["allocated"] == {"cpu": "1"}


def granted(name, queue, number=0, phase="Running", requests=None):
    """Make a pod that was bound on the account of a queue."""
    made = pod(name, phase=phase, requests=requests, annotations={"kai.scheduler/granted": f'{{"queue":"{queue}"}}'})
    made["spec"]["nodeName"] = "n"
    when = f"2026-01-01T00:00:{number:02}Z"
    made["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": when}]
    return made


async def test_a_moved_group_with_running_pods_keeps_its_account():
    cluster = MemoryCluster(
        queue("a"), queue("b"), group(queue="a", status=holding({"cpu": "1"})), granted("p", "a"), granted("r", "b", 1)
    )
    async with running(cluster, QueueController):
        cluster.server.change("PodGroup", "g", "ns", {"spec": {"queue": "b"}})
        await cluster.pass_time(5.0)
        assert status(cluster, "a")["allocated"] == {"cpu": "1"}
        assert "allocated" not in status(cluster, "b")
        cluster.server.change("PodGroup", "g", "ns", {"status": holding({"cpu": "2"})})
        await cluster.pass_time(5.0)
        assert status(cluster, "a")["allocated"] == {"cpu": "2"}
        cluster.server.remove("Pod", "p", "ns")
        await cluster.pass_time(5.0)
        assert "allocated" not in status(cluster, "a")
        assert status(cluster, "b")["allocated"] == {"cpu": "2"}


async def test_pods_of_deleted_groups_still_count_in_their_queue():
    lost = granted("lost", "q", requests={"cpu": "4"})
    lost["spec"]["resourceClaims"] = [{"name": "c", "resourceClaimName": "gone"}]
    cluster = MemoryCluster(queue("top"), queue("q", "top"), group(queue="q"), granted("p", "q"), pod("never"), lost)
    async with running(cluster, QueueController):
        assert "allocated" not in status(cluster, "q")
        cluster.server.remove("PodGroup", "g", "ns")
        await cluster.pass_time(5.0)
        assert status(cluster, "q")["allocated"] == status(cluster, "top")["allocated"] == {"cpu": "5"}
        cluster.server.change("Pod", "p", "ns", {"status": {"phase": "Succeeded"}})
        await cluster.pass_time(5.0)
        assert status(cluster, "q")["allocated"] == {"cpu": "4"}
        cluster.server.remove("Pod", "lost", "ns")
        await cluster.pass_time(5.0)
        assert "allocated" not in status(cluster, "q")


async def test_faults_of_the_tree_become_conditions_and_end():
    cluster = MemoryCluster(queue("lost", "nowhere"), queue("below", "lost"), queue("a", "b"), queue("b", "a"))
    async with running(cluster, QueueController):
        assert true_conditions(cluster, "lost") == ["Orphan"]
        assert true_conditions(cluster, "below") == []
        assert true_conditions(cluster, "a") == true_conditions(cluster, "b") == ["Cycle"]
        cluster.server.add(queue("nowhere"))
        cluster.server.change("Queue", "b", "", {"spec": {"parentQueue": None}})
        await cluster.pass_time(5.0)
        assert true_conditions(cluster, "lost") == true_conditions(cluster, "a") == true_conditions(cluster, "b") == []
        assert status(cluster, "nowhere")["childQueues"] == ["lost"]
        cluster.server.remove("Queue", "nowhere")
        await cluster.pass_time(5.0)
        assert true_conditions(cluster, "lost") == ["Orphan"]


async def test_a_quota_excess_is_written_together_with_the_total():
    cluster = MemoryCluster(queue("q", quota=1000), group(status=holding({"cpu": "2"})))
    async with running(cluster, QueueController):
        assert true_conditions(cluster, "q") == ["OverQuota"]
        assert len(cluster.writes()) == 1


async def test_conditions_of_others_not_yet_seen_are_kept():
    cluster = MemoryCluster(queue("q", quota=1000), group())
    async with running(cluster, QueueController):
        cluster.lagging = True
        foreign = {"type": "Foreign", "status": "True"}
        cluster.server.change("Queue", "q", "", {"status": {"conditions": [foreign]}})
        cluster.lagging = False
        cluster.server.change("PodGroup", "g", "ns", {"status": holding({"cpu": "2"})})
        await cluster.pass_time(1.0)
        assert true_conditions(cluster, "q") == ["Foreign"]
        cluster.catch_up()
        await cluster.pass_time(5.0)
        assert true_conditions(cluster, "q") == ["Foreign", "OverQuota"]


async def test_an_empty_cluster_gets_two_queues_despite_early_failures():
    cluster = MemoryCluster()
    cluster.server.fault = lambda _: Refusal(reason=Reason.UNAVAILABLE)
    async with running(cluster, QueueController):
        cluster.server.fault = lambda _: None
        await cluster.pass_time(10.0)
        assert cluster.server.names("Queue") == ["default-parent-queue", "default-queue"]
        assert status(cluster, "default-parent-queue")["childQueues"] == ["default-queue"]


async def test_the_second_default_queue_waits_for_the_first():
    cluster = MemoryCluster()

    def fault(request):
        is_parent = isinstance(request, Create) and request.ref.name == "default-parent-queue"
        return Refusal(reason=Reason.UNAVAILABLE) if is_parent else None

    cluster.server.fault = fault
    async with running(cluster, QueueController):
        assert cluster.server.names("Queue") == []
        cluster.server.fault = lambda _: None
        await cluster.pass_time(10.0)
        assert cluster.server.names("Queue") == ["default-parent-queue", "default-queue"]


async def test_no_queue_is_made_where_the_store_only_lags():
    cluster = MemoryCluster()
    cluster.lagging = True
    cluster.server.add(queue("mine"))
    async with running(cluster, QueueController):
        assert cluster.server.names("Queue") == ["mine"]


async def test_metrics_learn_of_every_queue_and_of_its_end():
    cluster = MemoryCluster(queue("q"), group(status=holding({"cpu": "2"})))
    facts = []
    async with running(cluster, QueueController, observe=facts.append):
        (counted,) = [fact for fact in facts if isinstance(fact, QueueCounted)][-1:]
        assert counted.queue.status.allocated == {"cpu": "2"}
        cluster.server.remove("Queue", "q")
        await cluster.pass_time(1.0)
        assert [fact.queue.metadata.name for fact in facts if isinstance(fact, QueueGone)] == ["q"]


async def test_a_controller_that_ends_removes_queues_from_the_metrics():
    """Another replica shows them from then on, and would not take away here what is deleted meanwhile."""
    cluster = MemoryCluster(queue("q"), queue("r"))
    facts = []
    async with running(cluster, QueueController, observe=facts.append):
        pass
    last = {fact.queue.metadata.name: type(fact) for fact in facts if isinstance(fact, QueueCounted | QueueGone)}
    assert last == {"q": QueueGone, "r": QueueGone}


# --- Scaling pods --------------------------------------------------------------------------------------------------

SCALE = ScaleSettings(image="scale:1")


def wanting(name="p", fraction="0.5"):
    return pod(name, annotations={"gpu-fraction": fraction}, scheduled="False")


def ordered(name):
    return {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}"}],
        },
        "spec": {"podName": name, "selectedNode": "n"},
    }


def scaling_pods(cluster):
    return [name for kind, namespace, name in sorted(cluster.server.objects) if namespace == "kai-scale-adjust"]


async def test_unschedulable_shares_get_one_marked_scaling_pod():
    cluster = MemoryCluster(wanting(), wanting("q"))
    async with running(cluster, NodeScaleAdjuster, SCALE):
        (name,) = scaling_pods(cluster)
        made = cluster.server.get("Pod", name, "kai-scale-adjust")
        assert made["status"]["conditions"][0]["reason"] == "Unschedulable"
        assert made["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": "1"}


async def test_scaling_passes_read_only_pods_that_share_gpus(monkeypatch):
    cluster = MemoryCluster(*(pod(f"plain{number}") for number in range(20)))
    read, look_for_all, find = [], cluster.store.all, cluster.store.find
    monkeypatch.setattr(cluster.store, "all", lambda cls: [*_noted(read, look_for_all(cls))])
    monkeypatch.setattr(cluster.store, "find", lambda index, key: tuple(_noted(read, find(index, key))))
    async with running(cluster, NodeScaleAdjuster, SCALE):
        cluster.server.add(wanting("p"))
        await cluster.pass_time(5.0)
        assert len(scaling_pods(cluster)) == 1
        assert not [name for name in read if name.startswith("plain")]


def _noted(names, objects):
    for each in objects:
        names.append(each.metadata.name)
        yield each


async def test_a_scaling_pods_deletion_delays_the_next_by_cooldown():
    cluster = MemoryCluster(wanting())
    async with running(cluster, NodeScaleAdjuster, SCALE):
        cluster.server.remove("Pod", "p", "ns")
        await cluster.pass_time(2.0)
        assert scaling_pods(cluster) == []
        cluster.server.add(wanting("late"))
        await cluster.pass_time(30.0)
        assert scaling_pods(cluster) == []
        await cluster.pass_time(40.0)
        assert scaling_pods(cluster) == ["ns-late"]


async def test_a_scaling_pod_goes_once_a_bind_is_ordered():
    cluster = MemoryCluster(wanting())
    async with running(cluster, NodeScaleAdjuster, SCALE):
        assert scaling_pods(cluster) == ["ns-p"]
        cluster.server.add(ordered("p"))
        await cluster.pass_time(2.0)
        assert scaling_pods(cluster) == []


async def test_absence_in_the_store_deletes_no_scaling_pod():
    cluster = MemoryCluster(wanting())
    async with running(cluster, NodeScaleAdjuster, SCALE):
        cluster.lagging = True
        gone = cluster.server.get("Pod", "p", "ns")
        cluster._show(gone, is_gone=True)
        await cluster.pass_time(10.0)
        assert scaling_pods(cluster) == ["ns-p"]
        assert cluster.writes(Delete) == []


async def test_a_refused_creation_is_tried_again_and_made_once():
    cluster = MemoryCluster(wanting())
    cluster.server.fault = lambda request: Refusal(reason=Reason.REJECTED) if isinstance(request, Create) else None
    async with running(cluster, NodeScaleAdjuster, SCALE):
        cluster.server.fault = lambda _: None
        await cluster.pass_time(30.0)
        assert scaling_pods(cluster) == ["ns-p"]
        assert len(cluster.writes(Create)) == 1
        assert len(cluster.writes(Patch)) == 1


async def test_a_new_group_is_counted_once_and_soon():
    cluster = MemoryCluster()
    async with running(cluster, PodGroupController):
        made = dt.datetime.fromtimestamp(cluster.clock.now(), tz=dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name in ("quick", "slow"):
            manifest = group(name)
            manifest["metadata"]["creationTimestamp"] = made
            cluster.server.add(manifest)
            cluster.server.add(pod(f"p-{name}", group=name))
        await cluster.pass_time(2.0)
        assert cluster.server.writes == []
        cluster.server.add(pod("p-quick", group="quick", scheduled="True"))
        await cluster.pass_time(2.0)
        assert [write.ref.name for write in cluster.server.writes] == ["quick"]
        await cluster.pass_time(3.0)
        assert [write.ref.name for write in cluster.server.writes] == ["quick", "slow"]


async def test_a_kept_group_counts_in_its_queue_without_writes():
    held = pod(phase="Running", requests={"cpu": "2"})
    held["spec"]["nodeName"] = "n"
    held["metadata"]["annotations"]["kai.scheduler/granted"] = '{"queue":"q","group":"g"}'
    cluster = MemoryCluster(held, queue("q"))
    kept = {key: part for key, part in group().items() if key not in {"apiVersion", "kind"}}
    cluster.store.keep(structure_as(PodGroup, kept))
    async with running(cluster, PodGroupController), running(cluster, QueueController):
        await cluster.pass_time(5.0)
        status = cluster.server.get("Queue", "q", "")["status"]
        assert (status["allocated"], status["requested"]) == ({"cpu": "2"}, {"cpu": "2"})
        cluster.server.remove("Pod", "p", "ns")
        cluster.store.forget(PodGroup, ("ns", "g"))
        await cluster.pass_time(5.0)
        assert not cluster.server.get("Queue", "q", "")["status"].get("allocated")
    assert [each for each in cluster.server.requests if isinstance(each, Patch) and each.ref.cls is PodGroup] == []


async def test_a_kept_group_is_counted_without_gathering():
    cluster = MemoryCluster(queue("q"), group("written"), pod("w", "written"), pod())
    kept = {key: part for key, part in group().items() if key not in {"apiVersion", "kind"}}
    cluster.store.keep(structure_as(PodGroup, kept))
    async with running(cluster, PodGroupController):
        for name in ("p", "w"):
            cluster.server.change("Pod", name, "ns", {"status": {"phase": "Running"}})
        await cluster.pass_time(0.0)
        assert cluster.store.get(PodGroup, "g", "ns").status.resources_status.allocated == {"cpu": "1"}
        assert "allocated" not in resources(cluster, "written")
        cluster.store.keep(structure_as(PodGroup, kept))  # as the pod grouper shows it anew, without a count
        await cluster.pass_time(0.0)
        assert cluster.store.get(PodGroup, "g", "ns").status.resources_status.allocated == {"cpu": "1"}
