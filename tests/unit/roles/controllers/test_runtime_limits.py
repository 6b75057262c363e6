"""The limits of run times: counted, announced, kept and lifted, also by a process that dies at every write."""

import math
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import Job
from kai.api.plans import Patch, Reason, Refusal
from kai.api.values import instant, instant_text, seconds
from kai.cluster.requests import Evict
from kai.roles.controllers.runtime_limits import PERIOD, deadline_for
from kai.roles.controllers.runtime_service import RuntimeLimits
from tests.doubles.cluster import MemoryCluster

pytestmark = pytest.mark.anyio
GROUP = ("PodGroup", "g", "ns")
PAUSE = 20.0
"""Seconds between two runs of a pod."""


@asynccontextmanager
async def limits(cluster):
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(RuntimeLimits(cluster.port).run)
        await cluster.pass_time(0.0)
        yield
        tasks.cancel_scope.cancel()


def group(owner=None, minimum=1, queue="q", **annotations):
    owners = [] if owner is None else [{"apiVersion": "batch/v1", "kind": "Job", "name": owner, "uid": f"uid-{owner}"}]
    keys = {key.replace("_", "-"): value for key, value in annotations.items()}
    return {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {
            "name": "g",
            "namespace": "ns",
            "uid": "uid-g",
            "annotations": {f"kai.scheduler/{key}": value for key, value in keys.items()},
            "ownerReferences": owners,
        },
        "spec": {"queue": queue, "minMember": minimum},
    }


def pod(name, phase="Running", uid="", ready=None, made=None):
    conditions = [] if ready is None else [{"type": "ContainersReady", "status": "True", "lastTransitionTime": ready}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "ns",
            "uid": uid or f"uid-{name}",
            "creationTimestamp": made,
            "annotations": {"pod-group-name": "g"},
        },
        "spec": {"nodeName": "n", "schedulerName": "kai-scheduler"},
        "status": {"phase": phase, "conditions": conditions},
    }


def job(name, started, **spec):
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "ns", "uid": f"uid-{name}"},
        "spec": spec,
        "status": {"startTime": started},
    }


def queue(name, **spec):
    return {"apiVersion": "scheduling.run.ai/v2", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def status(cluster):
    return cluster.server.get(*GROUP).get("status", {})


def condition(cluster):
    found = [each for each in status(cluster).get("conditions", ()) if each["type"] == "TimeLimit"]
    return (found[0]["status"], found[0]["reason"]) if found else None


def evicted(cluster):
    return [each.ref.name for each in cluster.server.requests if isinstance(each, Evict)]


def now(cluster):
    return cluster.clock.now()


async def test_a_group_without_a_limit_is_left_alone():
    cluster = MemoryCluster(group(), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(10_000.0)
    assert cluster.writes() == []
    assert cluster.server.events == []


async def test_a_group_ends_after_its_maximum_runtime():
    cluster = MemoryCluster(group(max_runtime="100s"), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(99.0)
        assert evicted(cluster) == []
        await cluster.pass_time(1.5)
    assert evicted(cluster) == ["p"]
    assert condition(cluster) == ("True", "TimeLimit")


async def test_the_end_is_announced_before_it_comes():
    cluster = MemoryCluster(group(max_runtime="100s"), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(89.0)
        assert cluster.server.events == []
        await cluster.pass_time(2.0)
    assert [(each.reason, each.message) for each in cluster.server.events] == [
        ("TimeLimit", "ends in 10s: the limit is 1m40s (annotation kai.scheduler/max-runtime)")
    ]
    assert condition(cluster) == ("False", "Announced")


async def test_runtime_starts_when_the_gangs_minimum_runs():
    cluster = MemoryCluster(group(max_runtime="100s", minimum=2), pod("p"), pod("r", phase="Pending"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(1000.0)
        assert "runningSince" not in status(cluster)
        since = now(cluster)
        cluster.server.add(pod("r"))
        await cluster.pass_time(5.0)
        assert since <= instant(status(cluster)["runningSince"]) <= since + 1.0


async def test_runtime_starts_with_containers_that_were_seen_late():
    cluster = MemoryCluster(group(max_runtime="1h"), queue("q"))
    cluster.server.add(pod("p", ready=instant_text(now(cluster) - 60.0)))
    async with limits(cluster):
        await cluster.pass_time(1.0)
    assert instant(status(cluster)["runningSince"]) == now(cluster) - 1.0 - 60.0 + 1.0


async def test_run_time_adds_up_over_preemptions():
    cluster = MemoryCluster(group(max_runtime="100s"), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(60.0)
        cluster.server.remove("Pod", "p", "ns")
        await cluster.pass_time(500.0)
        counted = seconds(status(cluster)["consumedRuntime"])
        assert 60.0 - PERIOD <= counted <= 60.0
        cluster.server.add(pod("p", uid="second"))
        await cluster.pass_time(100.0 - counted + 1.0)
    assert evicted(cluster) == ["p"]


async def test_a_pause_that_no_process_saw_does_not_count():
    cluster = MemoryCluster(group(max_runtime="1h"), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(60.0)
    cluster.server.remove("Pod", "p", "ns")
    await cluster.pass_time(5000.0)
    cluster.server.add(pod("p", uid="second", made=instant_text(now(cluster))))
    cluster.restart()
    since = now(cluster)
    async with limits(cluster):
        await cluster.pass_time(60.0)
    assert evicted(cluster) == []
    assert instant(status(cluster)["runningSince"]) >= since


async def test_a_job_gets_its_deadline_before_pods_are_evicted():
    cluster = MemoryCluster(group("train", max_runtime="100s"), pod("p"), queue("q"))
    cluster.server.add(job("train", instant_text(now(cluster) - 7.0)))
    async with limits(cluster):
        await cluster.pass_time(101.0)
    assert cluster.server.get("Job", "train", "ns")["spec"]["activeDeadlineSeconds"] in {107, 108}
    order = [each for each in cluster.server.requests if isinstance(each, Evict) or each in cluster.writes(Patch)]
    assert [each.ref.cls.__name__ for each in order][-2:] == ["Job", "Pod"]


async def test_a_requeued_group_may_run_again_after_its_delay():
    cluster = MemoryCluster(
        group("train", max_runtime="100s", runtime_policy="requeue", requeue_delay="1m"), pod("p"), queue("q")
    )
    cluster.server.add(job("train", instant_text(now(cluster))))
    async with limits(cluster):
        await cluster.pass_time(101.0)
        assert evicted(cluster) == ["p"]
        await cluster.pass_time(50.0)
        assert condition(cluster) == ("True", "TimeLimit")
        await cluster.pass_time(20.0)
    assert condition(cluster) == ("False", "MayRunAgain")
    assert "consumedRuntime" not in status(cluster)
    assert cluster.server.get("Job", "train", "ns")["spec"] == {}


async def test_a_longer_limit_lets_an_ended_group_run_again():
    cluster = MemoryCluster(group(max_runtime="100s"), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(101.0)
        cluster.server.change(*GROUP, {"metadata": {"annotations": {"kai.scheduler/max-runtime": "10m"}}})
        await cluster.pass_time(1.0)
    assert condition(cluster) == ("False", "MayRunAgain")
    assert seconds(status(cluster)["consumedRuntime"]) >= 100.0


async def test_a_shorter_limit_ends_runs_after_half_its_notice():
    cluster = MemoryCluster(group(max_runtime="10h"), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(2000.0)
        cluster.server.change(*GROUP, {"metadata": {"annotations": {"kai.scheduler/max-runtime": "1000s"}}})
        await cluster.pass_time(45.0)
        assert evicted(cluster) == []
        await cluster.pass_time(10.0)
    assert evicted(cluster) == ["p"]


async def test_a_longer_limit_is_announced_anew():
    cluster = MemoryCluster(group(max_runtime="1000s"), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(950.0)
        cluster.server.change(*GROUP, {"metadata": {"annotations": {"kai.scheduler/max-runtime": "2000s"}}})
        await cluster.pass_time(900.0)
    assert [each.message.partition(":")[0] for each in cluster.server.events] == ["ends in 1m40s", "ends in 3m20s"]
    assert evicted(cluster) == []


async def test_the_limit_of_a_queue_above_holds():
    cluster = MemoryCluster(group(), pod("p"), queue("q", parentQueue="top"), queue("top", maxRuntime="100s"))
    async with limits(cluster):
        await cluster.pass_time(101.0)
    assert evicted(cluster) == ["p"]


async def test_a_later_queue_limit_applies_to_running_groups():
    cluster = MemoryCluster(group(), pod("p"), queue("q"))
    async with limits(cluster):
        await cluster.pass_time(50.0)
        cluster.server.change("Queue", "q", "", {"spec": {"maxRuntime": "100s"}})
        await cluster.pass_time(102.0)
    assert evicted(cluster) == ["p"]


async def test_a_budget_that_forbids_the_eviction_is_asked_again():
    cluster = MemoryCluster(group(max_runtime="100s"), pod("p"), queue("q"))
    forbidden = [Refusal(reason=Reason.CONFLICT, message="budget")] * 3
    cluster.server.fault = lambda request: forbidden.pop() if isinstance(request, Evict) and forbidden else None
    async with limits(cluster):
        await cluster.pass_time(100.0 + 3 * PERIOD)
    assert cluster.server.get("Pod", "p", "ns") is None


@pytest.mark.parametrize("conditions", [[], [{"type": "Suspended", "status": "True"}]])
def test_a_running_job_gets_a_deadline_in_the_past(conditions):
    each = {
        **job("j", "1970-01-01T00:00:10Z"),
        "status": {"startTime": "1970-01-01T00:00:10Z", "conditions": conditions},
    }
    assert deadline_for(structure_as(Job, each), 75.9) == 65


@pytest.mark.parametrize(
    ("spec", "conditions"),
    [({"activeDeadlineSeconds": 60}, []), ({}, [{"type": "Complete", "status": "True"}])],
    ids=["ends anyway", "has ended"],
)
def test_a_job_that_ends_by_itself_keeps_its_deadline(spec, conditions):
    each = job("j", "1970-01-01T00:00:10Z", **spec)
    each["status"]["conditions"] = conditions
    assert deadline_for(structure_as(Job, each), 75.9) is None


@given(
    limit=st.integers(20, 2000),
    runs=st.lists(st.floats(1.0, 300.0), max_size=4),
    kills=st.dictionaries(st.integers(1, 12), st.tuples(st.booleans(), st.floats(0.0, 60.0)), max_size=4),
)
@settings(deadline=None, max_examples=25)
def test_a_group_never_ends_early_nor_too_late(limit, runs, kills):
    """Runs and pauses, and a process that dies at some of its writes, before or after they are done."""
    anyio.run(_history, limit, runs, kills)


class _Process:
    """Keeps limits in a cluster; dies at the writes ``kills``, and is away for a while then."""

    def __init__(self, cluster, kills):
        self.cluster, self.kills, self.writes, self.away_until, self.away = cluster, kills, 0, None, 0.0
        self.stack = AsyncExitStack()
        cluster.server.fault = lambda request: self._at(request, is_done=False)
        cluster.server.lost = lambda request: self._at(request, is_done=True) is not None

    def _at(self, request, *, is_done):
        if not isinstance(request, (Patch, Evict)):
            return None
        self.writes += not is_done
        dies, away = self.kills.get(self.writes, (None, 0.0))
        if dies is not is_done:
            return None
        self.away_until = now(self.cluster) + away
        self.away += away
        return Refusal(reason=Reason.UNAVAILABLE, message="killed")

    async def live(self, seconds):
        """Let time pass until it is over or the pod is gone; return whether the process died meanwhile."""
        end, died = now(self.cluster) + seconds, False
        while now(self.cluster) < end and (seconds == PAUSE or self.cluster.server.get("Pod", "p", "ns")):
            if self.away_until is not None:
                died = True
                await self.stack.aclose()
                if now(self.cluster) >= self.away_until:
                    self.away_until = None
                    await self.begin()
            await self.cluster.pass_time(min(1.0, end - now(self.cluster)))
        return died

    async def begin(self):
        self.cluster.restart()
        await self.stack.enter_async_context(limits(self.cluster))


async def _history(limit, runs, kills):
    cluster = MemoryCluster(group(max_runtime=f"{limit}s"), queue("q"))
    process = _Process(cluster, kills)
    await process.begin()
    ran = forgotten = 0.0
    for number, length in enumerate([*runs, limit * 3.0 + 500.0]):
        began = instant_text(math.floor(now(cluster)))
        cluster.server.add(pod("p", uid=f"run-{number}", ready=began, made=began))
        began = now(cluster)
        died = await process.live(length)
        ran += now(cluster) - began
        if condition(cluster) == ("True", "TimeLimit"):
            break
        cluster.server.remove("Pod", "p", "ns")
        died |= await process.live(PAUSE)
        forgotten += length if died else PERIOD + 1.0
    await process.stack.aclose()
    assert limit <= ran <= limit * 1.05 + PERIOD + 3.0 + process.away + forgotten
