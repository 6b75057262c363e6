import json

import anyio
import anyio.lowlevel
import attrs
import pytest

from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import (
    Await,
    Bind,
    Create,
    Delete,
    Emit,
    Get,
    List,
    Lock,
    Now,
    Patch,
    Reason,
    Ref,
    Refusal,
)
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.caching.store import Watched
from kai.cluster.election.leading import SoleLeadership
from kai.cluster.port import Term
from kai.cluster.requests import Apply, BudgetExhausted, Evict, Fetch, FetchAll, Forbidden, NoSuchKind, NotLeading
from kai.cluster.transport.calls import Answer, NoAnswer
from tests.doubles.http_server import Faults, HttpServer
from tests.unit.cluster.assembled import in_virtual_time, running

POD = Ref(Pod, "p", "team")
MAP = Ref(ConfigMap, "m", "team")


def server_with_pod(**fields):
    server = HttpServer()
    server.put("pods", "p", "team", **fields)
    return server


def make(ref=MAP, **data):
    return Create(ref=ref, manifest={"data": data})


# --- Reading one's own writes --------------------------------------------------------------------------------------


@in_virtual_time
async def test_what_was_created_shows_before_the_reply():
    server = HttpServer(faults=Faults(is_silent=lambda: True))
    async with running(server) as cluster:
        made = await cluster.api.perform(make(a="1"))
        assert cluster.store.get(ConfigMap, "m", "team") is made
        assert await cluster.api.perform(Get(ref=MAP)) is made


@in_virtual_time
async def test_a_patch_is_answered_with_the_patched_object():
    server = HttpServer(faults=Faults(is_silent=lambda: True))
    async with running(server) as cluster:
        await cluster.api.perform(make(a="1"))
        patched = await cluster.api.perform(Patch(ref=MAP, patch={"data": {"b": "2"}}))
        assert patched.data == {"a": "1", "b": "2"}
        assert cluster.store.get(ConfigMap, "m", "team") is patched


@in_virtual_time
async def test_a_bound_pod_shows_its_node_until_confirmed():
    server = server_with_pod()
    async with running(server) as cluster:
        server.faults.is_silent = lambda: True
        pod = cluster.store.get(Pod, "p", "team")
        bind = Bind(ref=POD, node="n1", uid=pod.metadata.uid, annotations={"epoch": "3"})
        assert await cluster.api.perform(bind) is None
        shown = cluster.store.get(Pod, "p", "team")
        assert (shown.spec.node_name, shown.metadata.annotations) == ("n1", {"epoch": "3"})
        assert cluster.store.is_assumed(Pod, ("team", "p"))
        server.faults.is_silent = lambda: False
        await anyio.sleep(100)
        assert not cluster.store.is_assumed(Pod, ("team", "p"))
        assert cluster.store.get(Pod, "p", "team").spec.node_name == "n1"


@in_virtual_time
async def test_an_evicted_pod_shows_as_being_deleted():
    server = server_with_pod()
    async with running(server) as cluster:
        server.faults.is_silent = lambda: True
        uid = cluster.store.get(Pod, "p", "team").metadata.uid
        assert await cluster.api.perform(Evict(ref=POD, uid=uid)) is None
        assert cluster.store.get(Pod, "p", "team").metadata.deletion_timestamp is not None


@pytest.mark.parametrize(
    "request_of", [lambda uid: Evict(ref=POD, uid=uid), lambda uid: Bind(ref=POD, node="n1", uid=uid)]
)
@in_virtual_time
async def test_an_answer_about_a_deleted_pod_leaves_its_namesake(request_of):
    server = server_with_pod()
    async with running(server) as cluster, anyio.create_task_group() as tasks:
        server.faults.lateness = lambda call: 2.0 if call.method == "POST" else 0.0
        first = cluster.store.get(Pod, "p", "team").metadata.uid
        replies = []

        async def write():
            replies.append(await cluster.api.perform(request_of(first)))

        tasks.start_soon(write)
        await anyio.sleep(1)
        if ("pods", "team", "p") in server.objects:
            server.remove("pods", "p", "team")
        server.put("pods", "p", "team")
        await anyio.sleep(5)
        shown = cluster.store.get(Pod, "p", "team")
        assert replies == [None], "the write was done"
        assert shown.metadata.uid not in {"", first}
        assert (shown.metadata.deletion_timestamp, shown.spec.node_name) == (None, "")
        assert not cluster.store.is_assumed(Pod, ("team", "p"))


@in_virtual_time
async def test_a_late_event_does_not_restore_a_deleted_object():
    server = server_with_pod()
    async with running(server) as cluster:
        server.put("pods", "p", "team", metadata={"labels": {"late": "event"}})
        assert await cluster.api.perform(Delete(ref=POD)) is None
        assert cluster.store.get(Pod, "p", "team") is None
        await anyio.sleep(1)
        assert cluster.store.get(Pod, "p", "team") is None


@in_virtual_time
async def test_objects_outside_the_store_are_read_from_the_server():
    server = HttpServer()
    server.put("pods", "old", "team", status={"phase": "Failed"})
    watched = (Watched(cls=Pod, namespace="ours"), Watched(cls=Node))
    async with running(server, watched=watched) as cluster:
        assert cluster.store.all(Pod) == ()
        found = await cluster.api.perform(Get(ref=Ref(Pod, "old", "team")))
        assert found.status.phase == "Failed"
        missing = await cluster.api.perform(Get(ref=Ref(Node, "n9")))
        assert missing.reason is Reason.NOT_FOUND
        assert server.count("GET", "/nodes/n9") == 0, "all nodes are in the store"


@in_virtual_time
async def test_lists_are_selected_and_sorted_from_any_source():
    server = HttpServer()
    for name, namespace, node in (("b", "y", "n1"), ("a", "y", "n1"), ("c", "x", "n2")):
        server.put("pods", name, namespace, spec={"nodeName": node}, metadata={"labels": {"app": name}})
    async with running(server) as cluster:
        every = await cluster.api.perform(List(cls=Pod))
        assert [pod.metadata.name for pod in every] == ["c", "a", "b"]
        assert [pod.metadata.name for pod in await cluster.api.perform(List(cls=Pod, node="n1"))] == ["a", "b"]
        chosen = await cluster.api.perform(List(cls=Pod, namespace="y", labels={"app": "b"}))
        assert [pod.metadata.name for pod in chosen] == ["b"]
        fresh = await cluster.api.perform(List(cls=Pod, fresh=True))
        assert all(one is other for one, other in zip(fresh, every, strict=True))


# --- Refusals ------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_preconditions_that_fail_are_conflicts():
    server = server_with_pod()
    async with running(server) as cluster:
        for request in (
            Bind(ref=POD, node="n", uid="another"),
            Bind(ref=POD, node="n", resource_version="1"),
            Evict(ref=POD, uid="another"),
            Delete(ref=POD, uid="another"),
            Patch(ref=POD, patch={"metadata": {"uid": "another"}}),
        ):
            assert (await cluster.api.perform(request)).reason is Reason.CONFLICT
        assert (await cluster.api.perform(make())).metadata.name == "m"
        assert (await cluster.api.perform(make())).reason is Reason.ALREADY_EXISTS


@in_virtual_time
async def test_a_request_that_only_plans_understand_is_a_mistake():
    async with running(HttpServer()) as cluster:
        with pytest.raises(TypeError, match="lock k: found a plan's own request"):
            await cluster.api.perform(Lock(key="k"))
        assert await cluster.api.perform(Now()) > 1_700_000_000


# --- What the network does -----------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_write_without_answer_is_unknown_and_not_repeated():
    server = HttpServer(faults=Faults(is_silent=lambda: True))
    async with running(server) as cluster:
        server.faults.loses = lambda call: call.method == "POST"
        reply = await cluster.api.perform(make(a="1"))
        assert reply.reason is Reason.UNKNOWN
        assert server.count("POST", "configmaps") == 1, "it is not sent again"
        await anyio.sleep(1)
        assert cluster.store.get(ConfigMap, "m", "team").data == {"a": "1"}


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_a_server_error_leaves_a_writes_outcome_unknown(status):
    @in_virtual_time
    async def schedule():
        server = HttpServer()
        async with running(server) as cluster:
            server.faults.before = lambda call: Answer(status=status) if call.method == "POST" else None
            assert (await cluster.api.perform(make())).reason is Reason.UNKNOWN
            assert server.count("POST", "configmaps") == 1

    schedule()


@in_virtual_time
async def test_a_connection_that_never_came_about_is_tried_again():
    server = HttpServer()
    async with running(server) as cluster:
        answers = [NoAnswer(was_sent=False)] * 2
        server.faults.before = lambda call: answers.pop() if call.method == "POST" and answers else None
        assert (await cluster.api.perform(make())).metadata.name == "m"
        server.faults.before = lambda _: NoAnswer(was_sent=False, message="refused")
        reply = await cluster.api.perform(make(Ref(ConfigMap, "n", "team")))
        assert reply.reason is Reason.UNAVAILABLE
        assert reply.message.endswith("refused")


@in_virtual_time
async def test_reads_are_repeated_while_the_server_is_in_trouble():
    server = server_with_pod()
    async with running(server) as cluster:
        answers = [Answer(status=500), NoAnswer(was_sent=True), Answer(status=503)]
        server.faults.before = lambda call: answers.pop() if answers and "/pods/" in call.path else None
        assert (await cluster.api.perform(Get(ref=POD, fresh=True))).metadata.name == "p"


@in_virtual_time
async def test_a_throttled_request_is_repeated_after_the_servers_pause():
    server = HttpServer()
    async with running(server) as cluster:
        times = []

        def throttle(call):
            if call.method != "POST":
                return None
            times.append(anyio.current_time())
            return Answer(status=429, retry_after="7") if len(times) == 1 else None

        server.faults.before = throttle
        assert (await cluster.api.perform(make())).metadata.name == "m"
        assert 7.0 <= times[1] - times[0] < 7.5


@in_virtual_time
async def test_patience_with_a_throttling_server_has_an_end():
    server = HttpServer()
    async with running(server) as cluster:
        server.faults.before = lambda call: Answer(status=429, retry_after="20") if call.method == "POST" else None
        reply = await cluster.api.perform(make())
        assert (reply.reason, reply.retry_after) == (Reason.UNAVAILABLE, 20.0)
        assert server.count("POST", "configmaps") <= 5


@in_virtual_time
async def test_a_disruption_budget_is_told_at_once():
    server = server_with_pod()
    async with running(server) as cluster:
        causes = [{"reason": "DisruptionBudget", "message": "the budget needs 3 pods"}]
        body = {"kind": "Status", "code": 429, "message": "cannot evict", "details": {"causes": causes}}
        answer = Answer(status=429, body=json.dumps(body).encode(), retry_after="10")
        server.faults.before = lambda call: answer if "eviction" in call.path else None
        reply = await cluster.api.perform(Evict(ref=POD, uid="u"))
        assert reply == BudgetExhausted(message="cannot evict", retry_after=10.0)
        assert server.count("POST", "eviction") == 1


@in_virtual_time
async def test_writes_to_one_object_keep_order_and_others_overlap():
    server = HttpServer()
    async with running(server) as cluster:
        for name in "ab":
            await cluster.api.perform(make(Ref(ConfigMap, name, "team")))
        delays = iter([5.0, 1.0, 0.1, 0.1, 0.1, 0.1])
        server.faults.delay = lambda call: next(delays) if call.method == "PATCH" else 0.0
        done = []

        async def write(name, number):
            patch = {"data": {"n": str(number)}}
            await cluster.api.perform(Patch(ref=Ref(ConfigMap, name, "team"), patch=patch))
            done.append((name, number))

        async with anyio.create_task_group() as tasks:
            for number in range(3):
                for name in "ab":
                    tasks.start_soon(write, name, number)
                    await anyio.lowlevel.checkpoint()
        assert [number for name, number in done if name == "a"] == [0, 1, 2]
        assert [number for name, number in done if name == "b"] == [0, 1, 2]
        assert done.index(("b", 2)) < done.index(("a", 1))
        assert cluster.store.get(ConfigMap, "a", "team").data == {"n": "2"}


@in_virtual_time
async def test_concurrent_requests_stay_within_the_window():
    server = HttpServer(faults=Faults(delay=lambda call: 0.02 if call.method == "POST" else 0.0))
    async with running(server) as cluster:
        async with anyio.create_task_group() as tasks:
            for number in range(400):
                tasks.start_soon(cluster.api.perform, make(Ref(ConfigMap, f"m{number}", "team")))
        assert len(cluster.store.all(ConfigMap)) == 400
        assert server.most_in_flight <= 64
        assert cluster.sender.sent["create", "configmaps", 201, ""] == 400
        assert cluster.sender.window.in_flight == cluster.sender.window.waiting == 0


@in_virtual_time
async def test_reports_are_written_after_urgent_writes_in_a_peak():
    server = HttpServer(faults=Faults(delay=lambda call: 0.02 if call.method != "GET" else 0.0))
    async with running(server) as cluster:
        done = []

        async def write(request):
            await cluster.api.perform(request)
            done.append(request.ref.cls)

        status = {"status": {"resourcesStatus": {}}}
        group = Apply(ref=Ref(PodGroup, "g", "team"), manifest={"spec": {}}, manager="kai", can_wait=True)
        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(write, make(Ref(ConfigMap, f"m{number}", "team")))
            await cluster.clock.sleep(0.05)
            tasks.start_soon(write, group)
            tasks.start_soon(write, Patch(ref=group.ref, patch=status, subresource="status"))
            tasks.start_soon(write, Patch(ref=Ref(Queue, "q"), patch=status, subresource="status"))
            tasks.start_soon(write, Emit(ref=POD, type="Normal", reason="Scheduled", message="so"))
            for number in range(200, 220):
                tasks.start_soon(write, make(Ref(ConfigMap, f"m{number}", "team")))
        assert set(done[:220]) == {ConfigMap}
        assert sorted(cls.__name__ for cls in done[220:]) == ["Pod", "PodGroup", "PodGroup", "Queue"]


@in_virtual_time
async def test_whoever_is_cancelled_leaves_the_window():
    server = HttpServer()
    async with running(server) as cluster:
        server.faults.delay = lambda call: 20.0 if call.method == "POST" else 0.0
        with anyio.move_on_after(1.0):
            await cluster.api.perform(make())
        assert cluster.sender.window.in_flight == 0


# --- Terms ---------------------------------------------------------------------------------------------------------


@in_virtual_time
async def test_a_write_of_an_earlier_term_is_not_sent():
    server = server_with_pod()
    async with running(server) as cluster:
        api = attrs.evolve(cluster.api, leadership=SoleLeadership("me", epoch=2))
        present, past = api.fenced(Term(2, "me")), api.fenced(Term(1, "me"))
        assert isinstance(await past.perform(make()), NotLeading)
        assert server.count("POST", "configmaps") == 0
        assert (await past.perform(Get(ref=POD))).metadata.name == "p"
        assert (await present.perform(make())).metadata.name == "m"
        assert isinstance(await present.fenced(Term(1, "me")).perform(make()), NotLeading)


@in_virtual_time
async def test_a_write_waiting_at_its_terms_end_is_withheld():
    server = HttpServer()
    async with running(server) as cluster:
        terms = [Term(2, "me")]
        leadership = SoleLeadership("me", epoch=2)

        class Ending:
            identity = "me"

            def holds(self, term):
                return leadership.holds(term) and bool(terms)

        api = attrs.evolve(cluster.api, leadership=Ending()).fenced(Term(2, "me"))
        server.faults.before = lambda call: Answer(status=429, retry_after="5") if call.method == "POST" else None
        replies = []
        async with anyio.create_task_group() as tasks:

            async def write():
                replies.append(await api.perform(make()))

            tasks.start_soon(write)
            await anyio.sleep(1)
            terms.clear()
        assert isinstance(replies[0], NotLeading)
        assert server.count("POST", "configmaps") == 1


@pytest.mark.parametrize(
    ("becomes", "expected"),
    [
        (None, 1),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, 1),
        ({"metadata": {"uid": "another"}}, 1),
        ({"metadata": {"labels": {"a": "b"}}}, 2),
    ],
)
@in_virtual_time
async def test_a_waiting_binding_is_dropped_once_its_pod_goes(becomes, expected):
    server = server_with_pod()
    async with running(server) as cluster:
        server.faults.before = lambda call: Answer(status=429, retry_after="5") if call.method == "POST" else None
        replies = []
        async with anyio.create_task_group() as tasks:

            async def write():
                replies.append(await cluster.api.perform(Bind(ref=POD, node="n1", uid="uid-1")))

            tasks.start_soon(write)
            await anyio.sleep(1)
            server.faults.before = lambda _: None
            if becomes is None:
                server.remove("pods", "p", "team")
            else:
                server.put("pods", "p", "team", **becomes)
        assert server.count("POST", "pods/p/binding") == expected
        assert (isinstance(replies[0], Refusal) and replies[0].reason is Reason.CONFLICT) == (expected == 1)


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        (Bind(ref=POD, node="n1", uid="uid-1"), "pods/p/binding"),
        (Create(ref=Ref(Pod, "r", "team"), manifest={"spec": {"nodeName": "n1"}}, node="n1"), "team/pods"),
    ],
    ids=["binding", "pod"],
)
@pytest.mark.parametrize(("gpus", "expected"), [("8", 2), ("0", 1), (None, 1)])
@in_virtual_time
async def test_a_waiting_write_needs_its_node_to_fit(gpus, expected, request_, path):
    server = server_with_pod()
    server.put("nodes", "n1", status={"allocatable": {"gpu": "4"}})
    async with running(server) as cluster:
        server.faults.before = lambda call: Answer(status=429, retry_after="5") if call.method == "POST" else None
        replies = []

        def fits(node, _):
            return node is not None and node.status.allocatable["gpu"] != "0"

        async with anyio.create_task_group() as tasks:

            async def write():
                replies.append(await cluster.api.perform(attrs.evolve(request_, fits=fits)))

            tasks.start_soon(write)
            await anyio.sleep(1)
            server.faults.before = lambda _: None
            if gpus is None:
                server.remove("nodes", "n1")
            else:
                server.put("nodes", "n1", status={"allocatable": {"gpu": gpus}})
        assert server.count("POST", path) == expected
        assert (isinstance(replies[0], Refusal) and replies[0].reason is Reason.CONFLICT) == (expected == 1)


@in_virtual_time
async def test_an_unanswered_write_is_cut_at_its_terms_end():
    """What the server has not begun it will not do; what it did is read."""
    server = server_with_pod()
    async with running(server, lease="me") as cluster:
        term = await cluster.leadership.begun()
        server.faults.delay = lambda call: 29.0 if call.method == "POST" or "leases" in call.path else 0.0
        reply = await cluster.api.fenced(term).perform(make())
        assert (reply.reason, reply.message) == (Reason.UNKNOWN, "the term ended before the answer came")
        assert not cluster.leadership.holds(term)
        assert server.count("POST", "configmaps") == 1
        assert not [key for key in server.objects if key[0] == "configmaps"]
        assert cluster.sender.window.in_flight == 0


# --- Waiting, telling, reading anything ----------------------------------------------------------------------------


@in_virtual_time
async def test_awaiting_ends_once_the_condition_holds_or_times_out():
    server = server_with_pod()
    async with running(server) as cluster:
        replies = []

        async def wait(until, seconds):
            replies.append(await cluster.api.perform(Await(ref=POD, until=until, seconds=seconds)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait, lambda pod: "x" in pod.metadata.labels, 60)
            tasks.start_soon(wait, lambda pod: "never" in pod.metadata.labels, 30)
            await anyio.sleep(5)
            server.put("pods", "p", "team", metadata={"labels": {"y": ""}})
            await anyio.sleep(5)
            server.put("pods", "p", "team", metadata={"labels": {"x": ""}})
        assert replies[0].metadata.labels == {"y": "", "x": ""}
        assert replies[1].reason is Reason.TIMED_OUT


@in_virtual_time
async def test_awaiting_ends_once_the_object_is_gone():
    server = server_with_pod()
    async with running(server) as cluster:
        start = anyio.current_time()
        replies = []

        async def wait():
            replies.append(await cluster.api.perform(Await(ref=POD, until=lambda _: False, seconds=60)))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            await anyio.sleep(5)
            server.remove("pods", "p", "team")
        assert replies[0].reason is Reason.NOT_FOUND
        assert anyio.current_time() - start < 6


@in_virtual_time
async def test_objects_of_any_kind_can_be_read():
    server = server_with_pod()
    resources = {"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}, {"name": "pods/status"}]}

    def discovery(call):
        if call.path == "/api/v1":
            return Answer(status=200, body=json.dumps(resources).encode())
        if call.path.startswith("/apis/kubeflow.org"):
            return Answer(status=404, body=b"404 page not found")
        return Answer(status=403, body=b'{"code":403,"message":"no"}') if call.path == "/apis/ray.io/v1" else None

    server.faults.before = discovery
    async with running(server) as cluster:
        found = await cluster.api.perform(Fetch(api_version="v1", kind="Pod", name="p", namespace="team"))
        assert found["metadata"]["name"] == "p"
        missing = await cluster.api.perform(Fetch(api_version="v1", kind="Pod", name="q", namespace="team"))
        assert type(missing) is Refusal
        assert missing.reason is Reason.NOT_FOUND
        (one,) = await cluster.api.perform(FetchAll(api_version="v1", kind="Pod"))
        assert (one["apiVersion"], one["kind"]) == ("v1", "Pod")
        for _ in range(3):
            unknown = await cluster.api.perform(Fetch(api_version="kubeflow.org/v1", kind="PyTorchJob", name="j"))
            assert isinstance(unknown, NoSuchKind)
        assert server.count("GET", "kubeflow.org") == 1
        denied = await cluster.api.perform(Fetch(api_version="ray.io/v1", kind="RayCluster", name="r"))
        assert isinstance(denied, Forbidden)


@in_virtual_time
async def test_what_is_assumed_counts_for_snapshots():
    async with running(HttpServer()) as cluster:
        before = cluster.store.revision
        request = BindRequest()
        request = attrs.evolve(request, metadata=attrs.evolve(request.metadata, name="b", namespace="team"))
        cluster.store.assume(request, lambda now: now is not None)
        assert cluster.store.revision > before
        assert cluster.store.cluster_objects().bind_requests == (request,)
        cluster.store.forget(BindRequest, ("team", "b"))
        assert cluster.store.cluster_objects().bind_requests == ()
