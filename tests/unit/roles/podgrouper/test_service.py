from contextlib import asynccontextmanager

import anyio
import pytest

from kai.api.codec import structuring
from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Emit, Patch, Reason, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.values import instant_text
from kai.cluster.requests import Apply, Fetch, FetchAll, Forbidden
from kai.roles.binder.bind import bind_annotations
from kai.roles.podgrouper import Settings
from kai.roles.podgrouper.service import PodGrouper
from tests.doubles.cluster import MemoryCluster
from tests.unit.roles.podgrouper.memory import GROUPERS, JOB, LATE, bind, group_of, grouping, pod, requests, shown_group

pytestmark = pytest.mark.anyio


async def test_a_bare_pods_group_takes_two_writes_without_reads():
    cluster = MemoryCluster(pod())
    async with grouping(cluster):
        assert group_of(cluster) == "pg-p-uid-p"
        group = cluster.server.get("PodGroup", "pg-p-uid-p", "ns")
        assert group["spec"]["minMember"] == 1
        assert group["metadata"]["ownerReferences"][0]["uid"] == "uid-p"
    assert [type(request) for request in cluster.server.requests] == [Apply, Patch]


# --- Links that travel with the binding ----------------------------------------------------------------------------


async def test_a_link_is_shown_and_left_to_the_binding():
    cluster = MemoryCluster(pod(), pod("q", JOB), JOB)
    async with grouping(cluster, LATE):
        assert (shown_group(cluster), shown_group(cluster, "q")) == ("pg-p-uid-p", "pg-train-uid-job")
        assert not requests(cluster, Patch)
        for name, group in (("p", "pg-p-uid-p"), ("q", "pg-train-uid-job")):
            annotations = {"annotations": {"pod-group-name": group}}
            cluster.server.change("Pod", name, "ns", {"metadata": annotations, "spec": {"nodeName": "n"}})
        await cluster.pass_time(30.0)
        assert not requests(cluster, Patch)
        assert not cluster.store.is_overlaid(Pod, ("ns", "p"))


async def test_a_link_without_timely_binding_is_written():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        await cluster.pass_time(9.0)
        cluster.server.change("Pod", "p", "ns", {"status": {"reason": "waits"}})
        cluster.server.change("Pod", "p", "ns", {"metadata": {"labels": {"colour": "red"}}})
        await cluster.pass_time(0.5)
        assert (group_of(cluster), shown_group(cluster)) == (None, "pg-p-uid-p")
        await cluster.pass_time(1.0)
        assert group_of(cluster) == "pg-p-uid-p"
        assert not cluster.store.is_overlaid(Pod, ("ns", "p"))
        await cluster.pass_time(100.0)
    assert len(requests(cluster, Patch)) == 1


async def test_a_link_is_not_written_during_its_pods_bind():
    cluster = MemoryCluster(pod())
    order = structure_as(BindRequest, {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"podName": "p"}})
    async with grouping(cluster, LATE):
        cluster.store.assume(order, lambda _: False)
        await cluster.pass_time(30.0)
        assert not requests(cluster, Patch)
        cluster.store.forget(BindRequest, ("ns", "p"))
        await cluster.pass_time(5.0)
        assert group_of(cluster) == "pg-p-uid-p"


async def test_a_binding_is_no_reason_for_another_look():
    cluster, looks = MemoryCluster(pod()), []
    grouper = PodGrouper(cluster.port, LATE, GROUPERS, observe=looks.append)
    order = structure_as(BindRequest, {"metadata": {"name": "p", "namespace": "ns"}, "spec": {"podName": "p"}})
    fence = {"kai.scheduler/epoch": "7", "kai.scheduler/lease": "kai-scheduler"}
    written = {"pod-group-name": "pg-p-uid-p", **bind_annotations(order), **fence}
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(grouper.run)
        await cluster.pass_time(1.0)
        looked = [look.work for look in looks].count("podgrouper")
        cluster.server.change("Pod", "p", "ns", {"metadata": {"annotations": written}, "spec": {"nodeName": "n"}})
        await cluster.pass_time(1.0)
        assert [look.work for look in looks].count("podgrouper") == looked == 1
        tasks.cancel_scope.cancel()


async def test_a_link_waits_for_other_binds_within_a_limit():
    cluster = MemoryCluster(pod(creationTimestamp=instant_text(1_700_000_000.0 + 1000.0)))
    async with grouping(cluster, LATE):
        for number in range(55):
            cluster.server.add(pod(f"q{number}"))
            await cluster.pass_time(0.5)
            bind(cluster, f"q{number}")
            await cluster.pass_time(0.5)
        assert group_of(cluster) is None
        for number in range(55, 65):
            cluster.server.add(pod(f"q{number}"))
            await cluster.pass_time(0.5)
            bind(cluster, f"q{number}")
            await cluster.pass_time(0.5)
        assert group_of(cluster) == "pg-p-uid-p"


async def test_a_share_pods_link_is_written_immediately():
    cluster = MemoryCluster(pod(annotations={"gpu-fraction": "0.5"}))
    async with grouping(cluster, LATE):
        assert group_of(cluster) == "pg-p-uid-p"


async def test_a_link_only_shown_is_restored_after_a_restart():
    cluster = MemoryCluster(pod())
    async with grouping(cluster, LATE):
        pass
    cluster.restart()
    async with grouping(cluster, LATE):
        assert shown_group(cluster) == "pg-p-uid-p"
        cluster.store.forget_all()
        await cluster.pass_time(1.0)
        assert shown_group(cluster) == "pg-p-uid-p"
        await cluster.pass_time(20.0)
        assert group_of(cluster) == "pg-p-uid-p"
    assert len(requests(cluster, Apply)) == 1


# --- What is looked at, read and written ---------------------------------------------------------------------------


async def test_codecs_are_compiled_before_the_first_pod(monkeypatch):
    decoders, readers = {}, {}
    monkeypatch.setattr(structuring, "_DECODERS", decoders)
    monkeypatch.setattr(structuring, "_READERS", readers)
    cluster = MemoryCluster()
    async with grouping(cluster, LATE):
        assert {Pod, PodGroup} <= decoders.keys() & readers.keys()
        assert not cluster.server.requests


async def test_a_restart_writes_and_reads_nothing_for_grouped_pods():
    cluster = MemoryCluster(pod(), pod("q", JOB), JOB)
    async with grouping(cluster):
        pass
    cluster.server.change("Pod", "p", "ns", {"spec": {"nodeName": "n"}})
    cluster.server.change("Pod", "q", "ns", {"spec": {"nodeName": "n"}})
    before = len(cluster.server.requests)
    cluster.restart()
    async with grouping(cluster):
        cluster.server.change("Pod", "p", "ns", {"status": {"phase": "Running"}})
        await cluster.pass_time(100.0)
    assert len(cluster.server.requests) == before


async def test_a_restart_groups_unbound_pods_again():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    async with grouping(cluster):
        pass
    cluster.server.change("Job", "train", "ns", {"metadata": {"annotations": {"kai.scheduler/batch-min-member": "3"}}})
    cluster.restart()
    async with grouping(cluster):
        assert cluster.server.get("PodGroup", "pg-train-uid-job", "ns")["spec"]["minMember"] == 3


async def test_pods_of_other_schedulers_are_left_alone():
    cluster = MemoryCluster(pod(scheduler="default-scheduler"))
    async with grouping(cluster):
        assert cluster.server.requests == []


async def test_a_workloads_pods_cost_one_owner_read_and_group():
    cluster = MemoryCluster(JOB)
    async with grouping(cluster):
        cluster.api.latency = 0.1
        for index in range(20):
            cluster.server.add(pod(f"p{index}", JOB))
        await cluster.pass_time(10.0)
    assert {group_of(cluster, f"p{index}") for index in range(20)} == {"pg-train-uid-job"}
    assert len(requests(cluster, Apply)) == 1
    assert [fetch.kind for fetch in requests(cluster, Fetch)] == ["Job", "PodGroup"]
    assert len(requests(cluster, Patch)) == 20


async def test_a_later_pod_does_not_use_an_earlier_read():
    cluster = MemoryCluster(JOB)
    async with grouping(cluster):
        cluster.server.add(pod("p1", JOB))
        await cluster.pass_time(1.0)
        cluster.server.change(
            "Job", "train", "ns", {"metadata": {"annotations": {"kai.scheduler/batch-min-member": "2"}}}
        )
        cluster.server.add(pod("p2", JOB))
        await cluster.pass_time(1.0)
    assert cluster.server.get("PodGroup", "pg-train-uid-job", "ns")["spec"]["minMember"] == 2
    assert group_of(cluster, "p2") == "pg-train-uid-job"


async def test_a_group_that_somebody_made_unseen_keeps_its_queue():
    cluster = MemoryCluster(JOB)
    cluster.lagging = True
    cluster.server.add(
        {
            "apiVersion": "scheduling.run.ai/v2alpha2",
            "kind": "PodGroup",
            "metadata": {"name": "pg-train-uid-job", "namespace": "ns"},
            "spec": {"queue": "chosen", "minMember": 1},
        }
    )
    cluster.lagging = False
    async with grouping(cluster):
        cluster.server.add(pod("p1", JOB))
        await cluster.pass_time(1.0)
    assert cluster.server.get("PodGroup", "pg-train-uid-job", "ns")["spec"]["queue"] == "chosen"


async def test_a_deleted_group_is_made_again():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    async with grouping(cluster):
        cluster.server.remove("PodGroup", "pg-train-uid-job", "ns")
        await cluster.pass_time(1.0)
        assert cluster.server.get("PodGroup", "pg-train-uid-job", "ns") is not None
    assert len(requests(cluster, Patch)) == 1


async def test_a_group_deleted_during_its_first_link_is_recreated():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    path = ("PodGroup", "pg-train-uid-job", "ns")
    async with grouping_slowly(cluster, 1.0):
        while cluster.server.get(*path) is None:
            await cluster.pass_time(0.1)
        await cluster.pass_time(0.5)
        assert requests(cluster, Patch) == []  # it is on its way, so no pod names the group
        cluster.server.remove(*path)
        await cluster.pass_time(20.0)
        assert group_of(cluster, "q") == "pg-train-uid-job"
        assert cluster.server.get(*path) is not None


TRAINING = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "TFJob",
    "metadata": {"name": "train", "namespace": "ns", "uid": "uid-job"},
    "spec": {"tfReplicaSpecs": {"Worker": {"replicas": 4}}},
}


def minimum(cluster):
    return cluster.server.get("PodGroup", "pg-train-uid-job", "ns")["spec"]["minMember"]


async def test_a_job_cut_while_waiting_lowers_its_minimum():
    cluster = MemoryCluster(TRAINING, *(pod(f"p{index}", TRAINING) for index in range(4)))
    async with grouping(cluster):
        assert minimum(cluster) == 4
        cluster.server.change("TFJob", "train", "ns", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 2}}}})
        for name in ("p2", "p3"):
            cluster.server.remove("Pod", name, "ns")
        await cluster.pass_time(10.0)
        assert minimum(cluster) == 2
    assert requests(cluster, Emit) == []


async def test_an_owners_change_reaches_the_group_while_pods_wait():
    build = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "build"}, "value": 100}
    cluster = MemoryCluster(build, TRAINING, *(pod(f"p{index}", TRAINING) for index in range(4)))
    path = ("PodGroup", "pg-train-uid-job", "ns")
    async with grouping(cluster):
        assert cluster.server.get(*path)["spec"]["priorityClassName"] == "train"
        cluster.server.change("TFJob", "train", "ns", {"metadata": {"labels": {"priorityClassName": "build"}}})
        await cluster.pass_time(120.0)
        assert cluster.server.get(*path)["spec"]["priorityClassName"] == "build"
        for index in range(4):
            cluster.server.change("Pod", f"p{index}", "ns", {"spec": {"nodeName": "n"}})
        await cluster.pass_time(120.0)
        before = len(cluster.server.requests)
        await cluster.pass_time(600.0)
        assert len(cluster.server.requests) == before
    assert len(requests(cluster, Apply)) == 2


async def test_thousands_of_waiting_groups_cost_two_reads_a_second():
    owners = [{**TRAINING, "metadata": {"name": f"j{n}", "namespace": "ns", "uid": f"uid-j{n}"}} for n in range(600)]
    cluster = MemoryCluster(*owners, *(pod(f"p{n}", owner) for n, owner in enumerate(owners)))
    async with grouping(cluster):
        await cluster.pass_time(60.0)
        before = len(cluster.server.requests)
        await cluster.pass_time(300.0)
        assert 0 < len(cluster.server.requests) - before <= 700


async def test_a_job_with_a_failed_index_needs_fewer_pods():
    gang = {**JOB, "metadata": {**JOB["metadata"], "annotations": {"kai.scheduler/batch-min-member": "3"}}}
    gang["spec"] = {"parallelism": 3, "completions": 3}
    cluster = MemoryCluster(gang, *(pod(f"p{index}", gang) for index in range(3)))
    async with grouping(cluster):
        assert minimum(cluster) == 3
        cluster.server.change("Pod", "p1", "ns", {"status": {"phase": "Failed"}})
        await cluster.pass_time(1.0)
        cluster.server.change("Job", "train", "ns", {"status": {"failedIndexes": "1"}})
        await cluster.pass_time(10.0)
        assert minimum(cluster) == 2
    assert requests(cluster, Emit) == []


async def test_pods_that_go_with_their_job_raise_no_alarm():
    cluster = MemoryCluster(TRAINING, *(pod(f"p{index}", TRAINING) for index in range(4)))
    async with grouping(cluster):
        cluster.server.remove("TFJob", "train", "ns")
        cluster.server.remove("Pod", "p3", "ns")
        await cluster.pass_time(10.0)
        assert requests(cluster, Emit) == []
        cluster.server.add(TRAINING)
        cluster.server.change("TFJob", "train", "ns", {"spec": {"tfReplicaSpecs": {"Worker": {"replicas": 3}}}})
        await cluster.pass_time(60.0)
        assert minimum(cluster) == 3


async def test_label_changes_reach_the_group_and_links_are_restored():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    async with grouping(cluster):
        cluster.server.change("Pod", "q", "ns", {"metadata": {"labels": {"user": "ada"}}})
        await cluster.pass_time(1.0)
        assert cluster.server.get("PodGroup", "pg-train-uid-job", "ns")["metadata"]["labels"]["user"] == "ada"
        cluster.server.change("Pod", "q", "ns", {"metadata": {"annotations": {"pod-group-name": "mine"}}})
        await cluster.pass_time(1.0)
        assert group_of(cluster, "q") == "pg-train-uid-job"


async def test_a_failure_is_reported_once_and_retried_with_backoff():
    cluster = MemoryCluster(pod("q", JOB), kinds=["Job"])
    async with grouping(cluster):
        await cluster.pass_time(20.0)
        (event,) = requests(cluster, Emit)
        assert (event.type, event.reason, event.uid) == ("Warning", "PodGrouperWarning", "uid-q")
        assert "train" in event.message
        assert len(requests(cluster, Fetch)) == 5  # after 0, 1, 3, 7 and 15 seconds
        cluster.server.add(JOB)
        await cluster.pass_time(60.0)
        assert group_of(cluster, "q") == "pg-train-uid-job"


async def test_a_deleted_pods_failure_is_not_remembered():
    cluster = MemoryCluster(pod("q", JOB), kinds=["Job"])
    grouper = PodGrouper(cluster.port, Settings(), GROUPERS)
    cluster.api.latency = 1.0
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(grouper.run)
        await cluster.pass_time(1.5)  # the owner is not found after one second, and saying so takes another
        assert requests(cluster, Fetch)
        cluster.server.remove("Pod", "q", "ns")
        await cluster.pass_time(100.0)
        assert requests(cluster, Emit)
        assert not grouper._said
        tasks.cancel_scope.cancel()


async def test_an_unserved_kind_is_requested_once_a_minute():
    owner = {
        "apiVersion": "example.com/v1",
        "kind": "Odd",
        "metadata": {"name": "o", "uid": "uid-o", "namespace": "ns"},
    }
    cluster = MemoryCluster(owner)
    async with grouping(cluster):
        for index in range(3):
            cluster.server.add(pod(f"p{index}", owner))
            await cluster.pass_time(10.0)
        assert len([each for each in requests(cluster, FetchAll) if each.kind == "Karta"]) == 1
        assert group_of(cluster, "p2") == "pg-o-uid-o"
        await cluster.pass_time(60.0)
        cluster.server.add(pod("p9", owner))
        await cluster.pass_time(1.0)
        assert len([each for each in requests(cluster, FetchAll) if each.kind == "Karta"]) == 2


async def test_an_unreadable_owner_leaves_the_pod_its_own_group():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    cluster.server.fault = lambda request: Forbidden(message="no") if isinstance(request, Fetch) else None
    async with grouping(cluster):
        assert group_of(cluster, "q") == "pg-q-uid-q"


async def test_an_unreadable_kind_of_tenants_is_requested_rarely():
    cluster = MemoryCluster()
    cluster.server.fault = lambda request: Forbidden(message="no") if isinstance(request, Fetch) else None
    async with grouping(cluster):
        for index in range(4):
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": f"s{index}", "uid": f"uid-s{index}"}}
            cluster.server.add(pod(f"p{index}", secret))
            cluster.server.add(pod(f"q{index}", JOB))
            await cluster.pass_time(2.0)
        assert group_of(cluster, "p3") == "pg-p3-uid-p3"
        secrets = [each for each in requests(cluster, Fetch) if each.kind == "Secret"]
        assert [each.is_foreign for each in secrets] == [True]
        jobs = [each for each in requests(cluster, Fetch) if each.kind == "Job"]
        assert len(jobs) == 4, "a right that kai should have may come at any time"
        assert not any(each.is_foreign for each in jobs)
        await cluster.pass_time(60.0)
        cluster.server.add(pod("p9", secret))
        await cluster.pass_time(1.0)
        assert len([each for each in requests(cluster, Fetch) if each.kind == "Secret"]) == 2


async def test_a_conflict_is_decided_anew_without_a_word():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    async with grouping(cluster):
        refused = []

        def once(request):
            if isinstance(request, Apply) and not refused:
                refused.append(request)
                return Refusal(reason=Reason.CONFLICT, message="modified")
            return None

        cluster.server.fault = once
        cluster.server.change(
            "Job", "train", "ns", {"metadata": {"annotations": {"kai.scheduler/batch-min-member": "2"}}}
        )
        cluster.server.add(pod("r", JOB))
        await cluster.pass_time(5.0)
        assert cluster.server.get("PodGroup", "pg-train-uid-job", "ns")["spec"]["minMember"] == 2
        assert group_of(cluster, "r") == "pg-train-uid-job"
    assert refused
    assert not requests(cluster, Emit)


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.UNKNOWN])
async def test_an_outage_ends_in_the_same_state_without_events(reason):
    cluster = MemoryCluster(pod("q", JOB), pod(), JOB)
    cluster.server.fault = lambda _: Refusal(reason=reason, retry_after=5.0)
    async with grouping(cluster):
        await cluster.pass_time(30.0)
        assert cluster.writes() == []
        cluster.server.fault = lambda _: None
        await cluster.pass_time(60.0)
        assert (group_of(cluster), group_of(cluster, "q")) == ("pg-p-uid-p", "pg-train-uid-job")
    assert not [
        request for request in cluster.server.requests if isinstance(request, Emit) and request in cluster.server.events
    ]


async def test_a_process_ended_after_any_request_is_continued():
    whole = MemoryCluster(pod("q", JOB), pod(), JOB)
    async with grouping(whole):
        pass
    for count in range(1, len(whole.server.requests) + 1):
        cluster = MemoryCluster(pod("q", JOB), pod(), JOB)
        await group_until(cluster, count)
        cluster.restart()
        async with grouping(cluster):
            pass
        assert cluster.server.state() == whole.server.state(), f"ended after request {count}"


async def group_until(cluster, count):
    """Group pods until the process ends, and the answer to request number `count` is lost with it."""
    async with anyio.create_task_group() as tasks:

        def lost(_):
            if len(cluster.server.requests) >= count:
                tasks.cancel_scope.cancel()
                return True
            return False

        cluster.server.lost = lost
        tasks.start_soon(PodGrouper(cluster.port, Settings(), GROUPERS).run)
        await cluster.pass_time(1.0)
    cluster.server.lost = lambda _: False


async def test_a_final_rejection_is_reported_on_the_pod():
    cluster = MemoryCluster(pod())
    cluster.server.fault = lambda request: (
        Refusal(reason=Reason.REJECTED, message="denied by a webhook") if isinstance(request, Apply) else None
    )
    async with grouping(cluster):
        await cluster.pass_time(700.0)
        assert [event.message for event in requests(cluster, Emit)] == ["denied by a webhook"] * 2
        cluster.server.fault = lambda _: None
        await cluster.pass_time(61.0)
        assert group_of(cluster) == "pg-p-uid-p"


async def test_a_namesake_created_during_grouping_gets_its_own_link():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    async with grouping_slowly(cluster, 1.0):
        await cluster.pass_time(0.5)
        cluster.server.remove("Pod", "q", "ns")
        cluster.server.add({**pod("q", JOB), "metadata": {**pod("q", JOB)["metadata"], "uid": "uid-new"}})
        await cluster.pass_time(20.0)
    assert group_of(cluster, "q") == "pg-train-uid-job"
    assert [patch.patch["metadata"]["uid"] for patch in cluster.writes(Patch)] == ["uid-new"]


async def test_a_new_namesakes_link_is_written_without_a_binding():
    cluster = MemoryCluster(pod("q", JOB), JOB)
    async with grouping_slowly(cluster, 1.0, LATE):
        await cluster.pass_time(0.5)
        cluster.server.remove("Pod", "q", "ns")
        cluster.server.add({**pod("q", JOB), "metadata": {**pod("q", JOB)["metadata"], "uid": "uid-new"}})
        await cluster.pass_time(20.0)
    assert group_of(cluster, "q") == "pg-train-uid-job"


async def test_pods_of_unselected_namespaces_are_left_alone():
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}}
    settings = Settings(namespace_labels={"team": "a"})
    cluster = MemoryCluster(pod(), space)
    async with grouping(cluster, settings):
        assert group_of(cluster) is None
        cluster.server.change("Namespace", "ns", "", {"metadata": {"labels": {"team": "a"}}})
        cluster.server.change("Pod", "p", "ns", {"metadata": {"labels": {"a": "b"}}})
        await cluster.pass_time(1.0)
        assert group_of(cluster) == "pg-p-uid-p"


async def test_other_pods_of_a_workload_come_from_the_store():
    replicas = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "MPIJob",
        "metadata": {"name": "mpi", "namespace": "ns", "uid": "uid-mpi"},
        "spec": {"launcherCreationPolicy": "WaitForWorkersReady", "mpiReplicaSpecs": replicas},
    }
    labels = {"training.kubeflow.org/job-name": "mpi"}
    cluster = MemoryCluster(job, pod("w", job, labels={**labels, "training.kubeflow.org/job-role": "worker"}))
    async with grouping(cluster):
        assert cluster.server.get("PodGroup", "pg-mpi-uid-mpi", "ns")["spec"]["minMember"] == 2
        cluster.server.add(pod("l", job, labels={**labels, "training.kubeflow.org/job-role": "launcher"}))
        await cluster.pass_time(1.0)
        assert cluster.server.get("PodGroup", "pg-mpi-uid-mpi", "ns")["spec"]["minMember"] == 3
    assert not requests(cluster, FetchAll)


async def test_groups_of_earlier_releases_are_found_in_the_store():
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "set", "namespace": "ns", "uid": "uid-set"},
        "spec": {"replicatedJobs": [{"name": "w"}]},
    }
    labels = {"jobset.sigs.k8s.io/replicatedjob-name": "w", "jobset.sigs.k8s.io/job-index": "0"}
    flat = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "pg-set-uid-set", "namespace": "ns"},
        "spec": {"queue": "default-queue", "minMember": 1},
    }
    cluster = MemoryCluster(job_set, flat, pod("a", job_set, labels=labels), pod("b", job_set, labels=labels))
    async with grouping(cluster):
        assert group_of(cluster, "a") == group_of(cluster, "b") == "pg-set-uid-set"
        assert "subGroups" not in cluster.server.get("PodGroup", "pg-set-uid-set", "ns")["spec"]
    assert not requests(cluster, FetchAll)


@asynccontextmanager
async def grouping_slowly(cluster, seconds, settings=None):
    cluster.api.latency = seconds
    async with grouping(cluster, settings):
        yield
