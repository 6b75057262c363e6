import sys
from contextlib import asynccontextmanager

import anyio
import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Delete, Emit, List, Reason, Ref, Refusal
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.cluster.process.tracing import make_tracing
from kai.cluster.signals import BindEnded
from kai.roles.binder.outcome import BindVerdict
from kai.roles.binder.service import WATCHED, BinderService, make_binder
from tests.doubles.cluster import MemoryApi, MemoryCluster
from tests.unit.roles.binder.clusters import (
    BINDER,
    RESERVED,
    SETTINGS,
    bind_request,
    node,
    pod,
    reservation,
    sharing_pod,
    sharing_request,
)

pytestmark = pytest.mark.anyio


def cluster(*manifests):
    return MemoryCluster(*manifests, classes=WATCHED)


@asynccontextmanager
async def binding(memory, devices=None, binder=BINDER, **options):
    service = BinderService(memory.port, binder, **options)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(service.run)
        tasks.start_soon(devices or device_plugin, memory)
        await memory.pass_time()
        yield service
        tasks.cancel_scope.cancel()


async def device_plugin(memory):
    """Give reservation pods a GPU that is called after their group, half a second after they were made."""
    while True:
        await memory.clock.sleep(0.5)
        for kind, namespace, name in list(memory.server.objects):
            manifest = memory.server.objects[kind, namespace, name]
            if (kind, namespace) == ("Pod", RESERVED) and not manifest["metadata"]["annotations"].get(
                "run.ai/reserve_for_gpu_index"
            ):
                device = f"GPU-{manifest['metadata']['labels']['runai-gpu-group']}"
                patch = {"metadata": {"annotations": {"run.ai/reserve_for_gpu_index": device}}}
                memory.server.change("Pod", name, namespace, {**patch, "status": {"phase": "Running"}})


async def silent_plugin(_):
    """Give no GPU to anybody."""


def node_of(memory, name="p"):
    return memory.server.get("Pod", name, "ns")["spec"].get("nodeName")


def status(memory, name="p"):
    return memory.server.get("BindRequest", name, "ns")["status"]


def performed(memory, *kinds):
    return [request for request in memory.server.requests if isinstance(request, kinds)]


async def test_an_order_is_carried_out_once_it_is_seen():
    memory = cluster(node(), pod())
    facts = []
    async with binding(memory, observe=facts.append):
        memory.server.add(bind_request())
        await memory.pass_time()
        assert node_of(memory) == "n1"
        assert status(memory)["phase"] == "Succeeded"
    assert [fact.result for fact in facts if isinstance(fact, BindEnded)] == [BindVerdict.BOUND.value]


async def test_waiting_events_delay_no_bind_and_may_be_dropped(monkeypatch):
    """In a peak of load events stand back for seconds, and there are places for ten attempts at a time."""
    monkeypatch.setattr("kai.roles.binder.service._MOST_EVENTS", 25)
    pods = [f"p{number}" for number in range(30)]
    memory = cluster(node(cpu="64"), *(pod(name) for name in pods))
    perform = MemoryApi.perform

    async def slowly(api, request):
        if isinstance(request, Emit):
            await memory.clock.sleep(60.0)
        return await perform(api, request)

    monkeypatch.setattr(MemoryApi, "perform", slowly)
    async with binding(memory):
        for name in pods:
            memory.server.add(bind_request(name))
        await memory.pass_time(1.0)
        assert {node_of(memory, name) for name in pods} == {"n1"}
        assert {status(memory, name)["phase"] for name in pods} == {"Succeeded"}
        await memory.pass_time(61.0)
        assert len(performed(memory, Emit)) == 25


async def test_an_offered_order_binds_once_before_its_watch_event():
    memory = cluster(node(), pod())
    async with binding(memory) as service:
        memory.lagging = True
        memory.server.add(bind_request())
        written = memory.server.get("BindRequest", "p", "ns")
        memory.store.take_answer(BindRequest, written)
        service.offer(structure_as(BindRequest, written))
        await memory.pass_time()
        assert node_of(memory) == "n1"
        memory.lagging = False
        memory.catch_up()
        await memory.pass_time(10.0)
    assert len(performed(memory, Bind)) == 1


def told(service, name="p", node_name="n1"):
    """Have an order carried out that is not written; return what is told about it."""
    manifest = bind_request(name)
    manifest["spec"]["selectedNode"] = node_name
    manifest["metadata"].pop("uid", None)
    failures = []
    assert service.carry_out(structure_as(BindRequest, manifest), lambda why, _: failures.append(why))
    return failures


async def test_after_an_outage_binds_wait_for_a_pod_listing():
    """The server may have been put back to a backup, in which pods that are known as gone hold their places again."""
    memory = cluster(node(), pod(), pod("q"))
    async with binding(memory) as service:
        memory.store.outlived(Pod, 2)
        memory.server.add(bind_request())
        failures = told(service, "q")
        await memory.pass_time(5.0)
        assert memory.server.writes == []
        memory.store.listed(Pod, 2)
        await memory.pass_time(1.0)
        assert failures == [""]
        assert {node_of(memory, name) for name in ("p", "q")} == {"n1"}


async def test_an_unwritten_order_takes_one_write():
    grouped = pod(annotations={"pod-group-name": "g"})
    memory = cluster(node(), grouped)
    async with binding(memory) as service:
        failures = told(service)
        await memory.pass_time()
        assert failures == [""]
        assert memory.server.get("Pod", "p", "ns")["metadata"]["annotations"] == {
            "pod-group-name": "g",
            "received-resource-type": "Regular",
            "kai.scheduler/granted": "{}",
        }
    assert [type(write) for write in memory.server.writes] == [Bind]
    assert memory.server.events == []


async def test_an_unwritten_order_is_logged_by_the_scheduler_alone():
    memory = cluster(node(), pod())
    with capture_logs() as logs:
        async with binding(memory) as service:
            refused, bound = told(service, node_name="gone"), told(service)
            await memory.pass_time()
    assert (len(refused), bound) == (1, [""])
    assert [each["event"] for each in logs if each["log_level"] != "debug"] == ["failed"]


async def test_the_link_to_a_local_group_is_not_written():
    memory = MemoryCluster(node(), pod(), classes=(*WATCHED, PodGroup))
    kept = structure_as(PodGroup, {"metadata": {"name": "g", "namespace": "ns"}, "spec": {}})
    memory.store.keep(kept)
    memory.store.overlay(Pod, ("ns", "p"), {"pod-group-name": "g"}, is_kept=True)
    async with binding(memory, binder=make_binder(memory.port, SETTINGS).binder) as service:
        failures = told(service)
        await memory.pass_time()
        assert failures == [""]
        assert "pod-group-name" not in memory.server.get("Pod", "p", "ns")["metadata"]["annotations"]


async def test_a_failing_unwritten_order_is_reported_to_the_pod():
    memory = cluster(node(), pod())
    async with binding(memory) as service:
        failures = told(service, node_name="n2")
        await memory.pass_time()
        assert failures == ["node n2 does not exist"]
    assert node_of(memory) is None
    assert [event.reason for event in memory.server.events] == ["BindingError"]


async def test_an_unwritten_order_waits_for_a_silent_api_server():
    memory = cluster(node(), pod())
    refusal = Refusal(reason=Reason.UNAVAILABLE)
    memory.server.fault = lambda request: refusal if isinstance(request, Bind) else None
    async with binding(memory) as service:
        failures = told(service)
        await memory.pass_time(0.5)
        assert failures == []
        memory.server.fault = lambda _: None
        await memory.pass_time(60.0)
        assert failures == [""]
    assert node_of(memory) == "n1"


async def test_binds_go_on_with_the_trace_of_their_decision():
    exporter = InMemorySpanExporter()
    tracing = await anyio.to_thread.run_sync(lambda: make_tracing("kai", exporter=exporter))
    parent = "00-" + "1" * 32 + "-" + "2" * 16 + "-01"
    orders = [bind_request("p"), bind_request("q")]
    for order in orders:
        order["metadata"]["annotations"] = {"kai.scheduler/traceparent": parent}
    memory = cluster(node(), pod("p"), pod("q"))
    async with binding(memory, traced=tracing.continued) as service:
        memory.server.add(orders[0])
        orders[1]["metadata"].pop("uid", None)
        assert service.carry_out(structure_as(BindRequest, orders[1]), lambda *_: None)
        await memory.pass_time(1.0)
    await anyio.to_thread.run_sync(tracing.close)
    spans = exporter.get_finished_spans()
    assert [(span.name, span.attributes["kai.outcome"]) for span in spans] == [("bind", "bound")] * 2
    assert {f"{span.parent.trace_id:x}" for span in spans} == {"1" * 32}


async def test_a_binder_that_does_not_run_takes_no_order():
    memory = cluster(node(), pod())
    service = BinderService(memory.port, BINDER)
    assert not service.carry_out(structure_as(BindRequest, bind_request()), lambda *_: None)


async def test_an_order_that_is_only_assumed_is_not_bound():
    memory = cluster(node(), pod())
    async with binding(memory):
        assumed = structure_as(BindRequest, bind_request())
        memory.store.assume(assumed, lambda real: real is not None)
        await memory.pass_time(5.0)
        assert not performed(memory, Bind)
        memory.server.add(bind_request())
        await memory.pass_time()
        assert node_of(memory) == "n1"


async def test_two_halves_share_a_gpu_and_a_third_fails():
    pods = [sharing_pod(name) for name in "abc"]
    memory = cluster(node(), *pods)
    async with binding(memory):
        for name in "abc":
            memory.server.add(sharing_request(name, limit=1))
        await memory.pass_time(5.0)
        bound = [name for name in "abc" if node_of(memory, name)]
        assert len(bound) == 2
        (left,) = set("abc") - set(bound)
        assert "would hold 1.50 of a GPU" in status(memory, left)["reason"]
        assert len([key for key in memory.server.objects if key[:2] == ("Pod", RESERVED)]) == 1


async def test_a_reservation_goes_with_its_last_user():
    memory = cluster(node(), sharing_pod())
    async with binding(memory):
        memory.server.add(sharing_request())
        await memory.pass_time(2.0)
        assert [key for key in memory.server.objects if key[:2] == ("Pod", RESERVED)]
        memory.server.change("Pod", "p", "ns", {"status": {"phase": "Succeeded"}})
        await memory.pass_time(2.0)
        assert not [key for key in memory.server.objects if key[:2] == ("Pod", RESERVED)]


async def test_leftover_reservations_are_swept_at_the_start():
    memory = cluster(node(), reservation("old"))
    async with binding(memory):
        await memory.pass_time(1.0)
        assert not [key for key in memory.server.objects if key[:2] == ("Pod", RESERVED)]
    running = sharing_pod(labels={"runai-gpu-group": "g1"}, phase="Running", nodeName="n1")
    memory = cluster(node(), running, reservation())
    async with binding(memory):
        await memory.pass_time(1.0)
        memory.server.remove("Pod", "gpu-reservation-g1", RESERVED)
        await memory.pass_time(61.0)
        assert memory.server.get("Pod", "p", "ns") is None


async def test_a_lost_grant_is_written_again_and_said_once():
    grant, key = '{"queue":"q"}', "kai.scheduler/granted"
    bound = pod("p", annotations={key: "nonsense"}, phase="Running", nodeName="n1")
    order = bind_request(status={"phase": "Succeeded"})
    order["metadata"]["annotations"] = {key: grant}
    unknown = pod("r", annotations={key: "nonsense"}, phase="Running", nodeName="n1")
    memory = cluster(node(), bound, order, unknown)
    with capture_logs() as logs:
        async with binding(memory):
            assert memory.server.get("Pod", "p", "ns")["metadata"]["annotations"][key] == grant
            await memory.pass_time(300.0)
    lines = [line for line in logs if line["event"] == "grant lost"]
    assert [(line["why"][:11], line["restored"]) for line in lines] == [("pod ns/p: m", True), ("pod ns/r: m", False)]


async def test_nothing_is_deleted_because_the_store_lacks_it():
    running = sharing_pod(labels={"runai-gpu-group": "g1"}, phase="Running", nodeName="n1")
    memory = cluster(node(), running, reservation())
    memory.lagging = True
    memory._show(memory.server.get("Pod", "gpu-reservation-g1", RESERVED), is_gone=True)
    async with binding(memory):
        await memory.pass_time(200.0)
        assert not performed(memory, Delete)


async def test_a_failing_bind_is_retried_up_to_its_limit():
    memory = cluster(node(), sharing_pod())
    async with binding(memory):
        memory.server.fault = lambda request: Refusal(reason=Reason.CONFLICT) if isinstance(request, Create) else None
        memory.server.add(sharing_request(limit=3))
        await memory.pass_time(30.0)
        assert status(memory) | {"reason": ""} == {"phase": "Failed", "failedAttempts": 3, "reason": ""}
        assert node_of(memory) is None


@pytest.mark.parametrize("reason", [Reason.UNAVAILABLE, Reason.UNKNOWN])
async def test_an_outage_keeps_an_order_open_until_it_binds(reason):
    memory = cluster(node(), pod())
    memory.server.fault = lambda _: Refusal(reason=reason)
    async with binding(memory):
        memory.server.add(bind_request(limit=1))
        await memory.pass_time(10.0)
        assert status(memory) == {}
        memory.server.fault = lambda _: None
        await memory.pass_time(60.0)
        assert node_of(memory) == "n1"
        assert status(memory)["phase"] == "Succeeded"


@pytest.mark.parametrize("is_written", [False, True])
async def test_an_outage_fails_no_bind(is_written):
    memory = cluster(node(), *(pod(f"p{number}") for number in range(8)))

    def lose(_):
        memory.connectivity.begin()
        return Refusal(reason=Reason.UNAVAILABLE)

    memory.server.fault = lose
    with capture_logs() as logs:
        async with binding(memory) as service:
            told_of = []
            for number in range(8):
                if is_written:
                    memory.server.add(bind_request(f"p{number}"))
                else:
                    told_of.append(told(service, f"p{number}"))
            await memory.pass_time(3600.0)
            assert len(memory.server.requests) < 50, "no attempt begins during an outage"
            memory.server.fault = lambda _: None
            memory.connectivity.end()
            await memory.pass_time(1.0)
            assert [node_of(memory, f"p{number}") for number in range(8)] == ["n1"] * 8
    assert {line["event"] for line in logs if line["log_level"] != "debug"} <= {"bound"}
    assert memory.connectivity.listeners == []
    assert told_of in ([], [[""]] * 8)


async def test_an_interrupted_bind_resumes_once_the_outage_ends():
    memory = cluster(node(), pod())
    memory.server.fault = lambda _: Refusal(reason=Reason.UNAVAILABLE)
    async with binding(memory):
        memory.server.add(bind_request())
        await memory.pass_time(70.0)
        memory.server.fault = lambda _: None
        memory.connectivity.end()
        await memory.pass_time(1.0)
        assert node_of(memory) == "n1"


def faulty(memory, kind, name="a"):
    """Let requests of a kind about an object raise what no server can cause, and return how often they did."""
    raised = []

    def bug(request):
        if isinstance(request, kind) and request.ref.name == name:
            raised.append(memory.clock.monotonic())
            raise RuntimeError("a bug")

    memory.server.fault = bug
    return raised


async def test_a_bug_in_a_plan_costs_only_its_bind():
    memory = cluster(node(), pod("a"), pod("b"))
    raised = faulty(memory, Bind)
    async with binding(memory):
        memory.server.add(bind_request("a"))
        memory.server.add(bind_request("b"))
        await memory.pass_time(2.0)
        assert (node_of(memory, "a"), node_of(memory, "b")) == (None, "n1")
        assert len(raised) == 2
        memory.server.fault = lambda _: None
        await memory.pass_time(60.0)
        assert node_of(memory, "a") == "n1"


async def test_a_bind_with_repeated_bugs_fails_and_logs_once():
    memory = cluster(node(), pod("a"))
    facts, raised = [], faulty(memory, Bind)
    with capture_logs() as logs:
        async with binding(memory, observe=facts.append):
            memory.server.add(bind_request("a", limit=4))
            await memory.pass_time(3600.0)
    since = raised[0]
    assert [moment - since for moment in raised] == [0.0, 1.0, 3.0]
    why = "an error of kai: RuntimeError: a bug"
    assert status(memory, "a") == {"phase": "Failed", "reason": why, "failedAttempts": 4}
    (condition,) = memory.server.get("Pod", "a", "ns")["status"]["conditions"]
    assert why in condition["message"]
    assert [fact.result for fact in facts if isinstance(fact, BindEnded)] == ["bug"] * 3
    (named,) = [line for line in logs if line["log_level"] == "error"]
    assert (named["event"], named["why"]) == ("plan failed", "a bug")
    assert "a" in named["subject"]


async def test_a_bug_while_undoing_still_fails_the_order(monkeypatch):
    memory = cluster(node(), sharing_pod("a"), sharing_request("a"))
    faulty(memory, Bind)

    def broken(*_):
        raise ZeroDivisionError("another bug")
        yield

    monkeypatch.setattr(sys.modules["kai.roles.binder.attempt"], "undo", broken)
    with capture_logs() as logs:
        async with binding(memory):
            await memory.pass_time(60.0)
            assert status(memory, "a")["phase"] == "Failed"
            await memory.pass_time(60.0)
    assert [line["kind"] for line in logs if line["log_level"] == "error"] == ["RuntimeError", "ZeroDivisionError"]
    assert [line for line in logs if line["event"] == "could not be undone yet"]


async def test_a_bug_after_the_binding_takes_back_nothing(monkeypatch):
    memory = cluster(node(), pod("a"))

    def broken(*_):
        raise RuntimeError("a bug")

    monkeypatch.setattr(sys.modules["kai.roles.binder.attempt"], "_finish", broken)
    async with binding(memory):
        memory.server.add(bind_request("a"))
        await memory.pass_time(60.0)
        assert node_of(memory, "a") == "n1"
        assert status(memory, "a")["phase"] == "Succeeded"


async def test_a_process_ended_after_any_request_is_continued():
    whole = await carried_out_after(None)
    for count in range(1, len(whole.server.requests)):
        assert (await carried_out_after(count)).server.state() == whole.server.state(), f"ended after request {count}"


async def carried_out_after(count):
    """Return the cluster after an order for two shared GPUs, the first binder ending within request number `count`."""
    memory = cluster(node(), sharing_pod(devices=2), sharing_request(groups=("g1", "g2")))
    if count is not None:
        async with anyio.create_task_group() as tasks:

            def lost(_):
                if len(memory.server.requests) >= count:
                    tasks.cancel_scope.cancel()
                    return True
                return False

            memory.server.lost = lost
            tasks.start_soon(BinderService(memory.port, BINDER).run)
            tasks.start_soon(device_plugin, memory)
            await memory.pass_time(10.0)
        memory.server.lost = lambda _: False
        memory.restart()
    async with binding(memory):
        await memory.pass_time(10.0)
    assert node_of(memory) == "n1"
    return memory


async def test_binds_of_one_node_check_its_room_in_turn():
    memory = cluster(node(cpu="10"), *(pod(str(index), requests={"cpu": "4"}) for index in range(4)))
    async with binding(memory):
        memory.api.latency = 0.5
        for index in range(4):
            memory.server.add(bind_request(str(index)))
        await memory.pass_time(20.0)
    bound = [index for index in range(4) if node_of(memory, str(index))]
    assert len(bound) == 2


async def test_a_bind_does_not_wait_for_anothers_reservation():
    """Half a GPU waits for its reservation pod to tell which one it is; a pod without a GPU is bound meanwhile."""
    memory = cluster(node(), pod(), sharing_pod("half"))
    async with binding(memory, devices=silent_plugin):
        memory.server.add(sharing_request("half"))
        await memory.pass_time(1.0)
        assert [key for key in memory.server.objects if key[:2] == ("Pod", RESERVED)]
        memory.server.add(bind_request())
        await memory.pass_time(1.0)
        assert node_of(memory) == "n1"
        assert node_of(memory, "half") is None


async def test_binds_read_nothing_afresh_about_gpus_being_reserved():
    """Each quorum read under the key of a group would hold up all binds of the node, and they would get ever more."""
    halves = [sharing_pod(f"half-{index}") for index in range(4)]
    memory = cluster(node(gpus=8), *halves, *(pod(f"p{index}") for index in range(8)))
    async with binding(memory, devices=silent_plugin):
        for index in range(4):
            memory.server.add(sharing_request(f"half-{index}", groups=(f"g{index}",)))
        await memory.pass_time(1.0)
        before = len(performed(memory, List))
        memory.api.latency = 0.5
        for index in range(8):
            memory.server.add(bind_request(f"p{index}"))
        await memory.pass_time(10.0)
        assert all(node_of(memory, f"p{index}") for index in range(8))
        assert not any(request.fresh for request in performed(memory, List)[before:])


async def test_pods_with_missing_volumes_hold_up_no_other_bind():
    """A tenant chooses the class of its volumes, and 30 of its pods would take the ten places for two minutes each."""
    classes = {"metadata": {"name": "nowhere"}, "provisioner": "nobody", "volumeBindingMode": "WaitForFirstConsumer"}
    memory = cluster(node(cpu="64"), pod(), {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", **classes})
    async with binding(memory):
        for number in range(30):
            name = f"stuck{number}"
            claim = {"metadata": {"name": name, "namespace": "ns"}, "spec": {"storageClassName": "nowhere"}}
            memory.server.add({"apiVersion": "v1", "kind": "PersistentVolumeClaim", **claim})
            memory.server.add(pod(name, volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": name}}]))
            memory.server.add(bind_request(name))
        await memory.pass_time(1.0)
        memory.server.add(bind_request())
        await memory.pass_time(1.0)
        assert (node_of(memory), node_of(memory, "stuck29")) == ("n1", None)


async def test_pods_waiting_for_one_gpu_hold_up_no_others():
    memory = cluster(node(gpus="1"), pod(), *(sharing_pod(f"s{number}", fraction="0.01") for number in range(30)))
    async with binding(memory, silent_plugin):
        for number in range(30):
            memory.server.add(sharing_request(f"s{number}", portion="0.01"))
        await memory.pass_time(1.0)
        memory.server.add(bind_request())
        await memory.pass_time(1.0)
        assert node_of(memory) == "n1"


async def test_the_pod_is_told_what_became_of_its_bind():
    memory = cluster(node(), pod("a"), pod("b"))
    async with binding(memory):
        memory.server.add(bind_request("a"))
        memory.server.add(bind_request("b", node_name="gone"))
        await memory.pass_time(5.0)
    told = {emit.ref: emit.reason for emit in performed(memory, Emit)}
    assert {ref.name: reason for ref, reason in told.items()} == {"a": "Bound", "b": "BindingError"}
    assert Ref(BindRequest, "a", "ns") not in told


async def test_a_late_order_of_an_earlier_leader_is_refused():
    def order(name, epoch, created):
        found = bind_request(name)
        found["metadata"] |= {
            "annotations": {"kai.scheduler/epoch": epoch, "kai.scheduler/lease": "kai-scheduler"},
            "creationTimestamp": created,
        }
        return found

    memory = cluster(
        node(),
        *(pod(name) for name in ("old", "new", "late")),
        order("old", "5", "2026-01-01T00:00:00Z"),
        order("new", "6", "2026-01-01T00:00:05Z"),
        order("late", "5", "2026-01-01T00:00:06Z"),
    )
    async with binding(memory):
        await memory.pass_time(1.0)
    assert [node_of(memory, name) for name in ("old", "new", "late")] == ["n1", "n1", None]
    assert status(memory, "late")["phase"] == "Failed"
    assert "came after epoch 6 began" in status(memory, "late")["reason"]
