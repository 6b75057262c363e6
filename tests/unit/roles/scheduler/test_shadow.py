"""The shadow beside another scheduler: each act of the other is compared once, and nothing is written."""

import json
from types import SimpleNamespace

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from kai.cluster.election.leading import SoleLeadership
from kai.roles.scheduler.making import make_scheduler
from kai.roles.scheduler.reporting import cycle_recorder
from kai.roles.scheduler.reporting.shadow import BIND, EVICT, ShadowOutcome
from kai.roles.scheduler.settings import SchedulerSettings
from tests.doubles import virtual_time
from tests.doubles.cluster import MemoryCluster
from tests.doubles.cpu import InlineCpu
from tests.unit.intake import making

FREE = {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("cpu", "memory", "gpu")}
NARROW = {**FREE, "cpu": {"quota": 1000, "limit": 1000, "overQuotaWeight": 1}}
PATIENCE = 60.0
MARK = {"type": "DisruptionTarget", "status": "True"}


def job(name, pods=1, cpu="1", **spec):
    group = making.group(name, minMember=pods, **spec)
    return group, *(making.pod(f"{name}-{at}", group=name, requests={"cpu": cpu}) for at in range(pods))


@attrs.define
class Rig:
    """A shadow, its cluster, and the hand of the other scheduler."""

    memory: MemoryCluster
    scheduler: object

    @property
    def shadowing(self):
        return self.scheduler.shadowing

    @property
    def counts(self):
        return dict(self.shadowing.counts)

    def change(self, name, **fields):
        """Let the other change a pod: parts of its metadata, spec and status."""
        manifest = self.memory.server.get("Pod", name, "default")
        self.memory.server.add({**manifest, **{part: {**manifest[part], **new} for part, new in fields.items()}})

    def bind(self, name, node="n"):
        self.change(name, spec={"nodeName": node}, status={"phase": "Running"})

    def evict(self, name, *conditions):
        self.change(name, metadata={"deletionTimestamp": "2023-11-14T22:30:00Z"}, status={"conditions": conditions})

    def add(self, *manifests):
        for manifest in manifests:
            self.memory.server.add(manifest)

    async def looked(self, after=0.0):
        """Let time pass, and wait until a cycle has seen all."""
        await anyio.sleep(after)
        for _ in range(2):  # the first may end a cycle that began before
            before = self.scheduler.number
            self.add(making.node("seen", allocatable={}, labels={"at": str(before)}))
            with anyio.fail_after(100):
                while self.scheduler.number <= before:  # noqa: ASYNC110 - cycles have no event
                    await anyio.sleep(0.2)
            await anyio.sleep(0.01)


def shadow(play, *manifests, queue=FREE, nodes=("n",)):
    """Let a shadow look while a test plays, and return the cluster and what was logged."""
    shared = [making.queue("top", resources=FREE), making.queue("q", parent="top", resources=queue)]
    memory = MemoryCluster(*shared, *(making.node(name) for name in nodes), *manifests)

    async def led():
        port = attrs.evolve(memory.port, clock=virtual_time.VirtualClock(), cpu=InlineCpu())
        leadership = SoleLeadership("life", 1)
        settings = SchedulerSettings(
            dump_folder="/nonexistent", shadow=True, shadow_patience_seconds=PATIENCE, direct_binds=True
        )
        scheduler = make_scheduler(port, settings, leadership)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(scheduler.outbox.run)
            tasks.start_soon(scheduler._lead, leadership.term)
            await play(Rig(memory, scheduler))
            tasks.cancel_scope.cancel()

    with capture_logs() as logs:
        virtual_time.run(led)
    assert not memory.writes()
    assert not [each for each in memory.server.requests if type(each).__name__ not in {"Get", "List"}]
    return SimpleNamespace(memory=memory, logs=logs)


def difference(rig):
    (found,) = rig.shadowing.document()["differences"]
    return found


def test_an_equal_placement_is_counted_once():
    async def play(rig):
        await rig.looked()
        assert rig.counts == {}
        rig.bind("a-0")
        await rig.looked()
        await rig.looked(2 * PATIENCE)
        assert rig.counts == {(BIND, ShadowOutcome.EQUAL): 1}
        assert rig.shadowing.document()["summary"] == "1 of 1 decisions equal"

    shadow(play, *job("a"))


def test_a_bind_request_of_the_other_is_its_decision():
    async def play(rig):
        await rig.looked()
        rig.add(making.bind_request("a-0", "n"))
        await rig.looked()
        rig.bind("a-0")
        await rig.looked()
        assert rig.counts == {(BIND, ShadowOutcome.EQUAL): 1}

    shadow(play, *job("a"))


def test_another_node_is_a_difference_that_names_both():
    async def play(rig):
        await rig.looked()
        ours = next(iter(rig.shadowing.shadow._starts.values())).node
        other = {"n", "m"} - {ours}
        rig.bind("a-0", *other)
        await rig.looked()
        assert rig.counts == {(BIND, ShadowOutcome.OTHER_NODE): 1}
        found = difference(rig)
        assert (found["job"], found["queue"], found["outcome"]) == ("default/a", "q", "other-node")
        assert found["ours"] == {"does": f"starts on {ours}", "because": "it fits, within the share of its queue"}
        assert found["theirs"] == {"does": f"starts on {min(other)}", "because": None}

    result = shadow(play, *job("a"), nodes=("n", "m"))
    (told,) = [each for each in result.logs if each["event"] == "decides otherwise"]
    assert (told["job"], told["pods"], told["outcome"]) == ("default/a", 1, "other-node")
    last = result.logs[-1]
    assert last["event"] == "shadow: since the start"
    assert last["agreement"] == "0 of 1 decisions equal; 1 differ: 1 other-node"


def test_pods_of_one_job_and_shape_may_change_places():
    async def play(rig):
        await rig.looked()
        nodes = {each.subject.pod: each.node for each in rig.shadowing.shadow._starts.values()}
        assert set(nodes.values()) == {"n", "m"}
        rig.bind("a-0", nodes["a-1"])
        rig.bind("a-1", nodes["a-0"])
        await rig.looked()
        assert rig.counts == {(BIND, ShadowOutcome.EQUAL): 2}

    shadow(play, *job("a", pods=2, cpu="6"), nodes=("n", "m"))


def test_a_pod_left_waiting_differs_after_patience_ends():
    async def play(rig):
        await rig.looked(PATIENCE / 2)
        assert rig.counts == {}
        await rig.looked(PATIENCE)
        await rig.looked(PATIENCE)
        assert rig.counts == {(BIND, ShadowOutcome.WAITS_THERE): 1}
        assert difference(rig)["theirs"] == {"does": "waits", "because": "no nodes with enough"}
        rig.bind("a-0")
        await rig.looked()
        assert rig.counts == {(BIND, ShadowOutcome.WAITS_THERE): 1}

    group, pod = job("a")
    words = {"type": "UnschedulableOnNodePool", "status": "True", "message": "no nodes with enough"}
    shadow(play, {**group, "status": {"schedulingConditions": [words]}}, pod)


def test_a_start_there_while_waiting_here_is_a_difference():
    async def play(rig):
        await rig.looked()
        rig.bind("a-0")
        await rig.looked()
        assert rig.counts == {(BIND, ShadowOutcome.STARTS_THERE): 1}
        found = difference(rig)
        assert found["ours"]["does"] == "waits"
        assert "q" in found["ours"]["because"]
        assert found["theirs"]["does"] == "starts on n"

    shadow(play, *job("a", cpu="2"), queue=NARROW)


def test_a_start_after_an_unseen_departure_is_not_compared():
    async def play(rig):
        await rig.looked()
        rig.memory.server.remove("Pod", "a-0", "default")
        rig.bind("b-0")
        await rig.looked()
        assert rig.counts == {(BIND, ShadowOutcome.UNSEEN): 1}
        assert rig.shadowing.document()["decided"] == 0

    group, pod = job("a", cpu="6")
    runs = {**pod, "spec": {**pod["spec"], "nodeName": "n"}, "status": {"phase": "Running"}}
    shadow(play, group, runs, *job("b", cpu="6"))


def test_earlier_and_foreign_pods_are_not_compared():
    async def play(rig):
        await rig.looked()
        rig.add(making.pod("other", spec={"schedulerName": "default-scheduler", "nodeName": "n"}))
        await rig.looked()
        assert rig.counts == {}

    group, pod = job("a")
    shadow(play, group, {**pod, "spec": {**pod["spec"], "nodeName": "n"}, "status": {"phase": "Running"}})


def reclaiming(*, unschedulable=False):
    """Return a full node of a borrower, and a job of a queue that is entitled to it."""
    half = {**FREE, "cpu": {"quota": 4000, "limit": -1, "overQuotaWeight": 1}}
    group, *pods = job("greedy", pods=2, cpu="4")
    group["spec"] |= {"minMember": 1, "queue": "borrows"}
    running = [{**pod, "spec": {**pod["spec"], "nodeName": "n"}, "status": {"phase": "Running"}} for pod in pods]
    entitled = job("entitled", cpu="4", queue="lends")
    queues = [making.queue(name, parent="top", resources=half) for name in ("borrows", "lends")]
    nodes = [making.node("n", spec={"unschedulable": True})] if unschedulable else []
    return [*queues, group, *running, *entitled, *nodes]


def test_an_eviction_that_both_decide_is_equal():
    async def play(rig):
        await rig.looked()
        (victim,) = rig.shadowing.shadow._departures.values()
        rig.evict(victim.subject.pod)
        await rig.looked()
        assert rig.counts == {(EVICT, ShadowOutcome.EQUAL): 1}

    shadow(play, *reclaiming())


def test_a_shared_eviction_is_equal_once_the_pod_left():
    async def play(rig):
        await rig.looked()
        (victim,) = rig.shadowing.shadow._departures.values()
        rig.memory.server.remove("Pod", victim.subject.pod, "default")
        await rig.looked()
        assert rig.counts == {(EVICT, ShadowOutcome.EQUAL): 1}

    shadow(play, *reclaiming())


def test_a_pod_that_leaves_unlike_the_victim_counts_nothing():
    async def play(rig):
        await rig.looked()
        (victim,) = (each.subject.pod for each in rig.shadowing.shadow._departures.values())
        (other,) = {"greedy-0", "greedy-1"} - {victim}
        rig.memory.server.remove("Pod", other, "default")
        await rig.looked()
        assert rig.counts == {}

    shadow(play, *reclaiming())


def test_an_unmatched_eviction_is_a_difference_after_patience():
    async def play(rig):
        await rig.looked(2 * PATIENCE)
        await rig.looked(2 * PATIENCE)
        assert rig.counts == {(EVICT, ShadowOutcome.STAYS_THERE): 1}
        found = difference(rig)
        assert found["ours"]["does"] == "is evicted"
        assert found["ours"]["because"].startswith("reclaim for default/entitled")

    shadow(play, *reclaiming())


@pytest.mark.parametrize(
    ("condition", "differs"),
    [
        ({**MARK, "reason": "PreemptionByScheduler", "message": "preempted for b"}, True),
        ({**MARK, "reason": "EvictionByEvictionAPI"}, True),
        ({**MARK, "reason": "TerminationByKubelet"}, False),
        (None, False),
    ],
)
def test_only_an_eviction_by_a_scheduler_is_a_difference(condition, differs):
    async def play(rig):
        await rig.looked()
        rig.evict("a-0", *([condition] if condition else []))
        await rig.looked()
        assert rig.counts == ({(EVICT, ShadowOutcome.EVICTED_THERE): 1} if differs else {})
        if differs:
            assert difference(rig)["theirs"]["because"] == condition.get("message", condition["reason"])

    group, pod = job("a")
    shadow(play, group, {**pod, "spec": {**pod["spec"], "nodeName": "n"}, "status": {"phase": "Running"}})


def test_the_first_evicted_pod_gives_its_jobs_reason():
    async def play(rig):
        await rig.looked()
        for at in reversed(range(9)):
            rig.evict(f"a-{at}", {**MARK, "reason": "PreemptionByScheduler", "message": f"for {at}"})
        await rig.looked()
        assert difference(rig)["theirs"]["because"] == "for 0"

    group, *pods = job("a", pods=9, cpu="10m")
    runs = {"status": {"phase": "Running"}}
    shadow(play, group, *({**pod, "spec": {**pod["spec"], "nodeName": "n"}, **runs} for pod in pods))


def test_the_document_and_the_hourly_line_agree():
    answers = []

    async def play(rig):
        await rig.looked()
        rig.bind("a-0")
        await rig.looked()
        answers.append(await rig.scheduler.routes()[cycle_recorder.SHADOW_PATH].answer())
        await anyio.sleep(2 * 3600.0)

    result = shadow(play, *job("a"))
    document = json.loads(answers[0].body)
    assert (document["decided"], document["equal"], document["unseen"]) == (1, 1, 0)
    assert document["counts"] == [{"decision": "bind", "outcome": "equal", "pods": 1}]
    lines = [each["agreement"] for each in result.logs if each["event"] == "shadow: last hour"]
    assert lines == ["1 of 1 decisions equal", "0 of 0 decisions equal"]


def test_a_finished_bind_request_is_left_to_the_peer():
    async def play(rig):
        await rig.looked()
        assert rig.memory.server.get("BindRequest", "gone", "default")

    over = making.bind_request("gone", "n", status={"phase": "Succeeded"})
    shadow(play, *job("a"), over)
