"""The port against a real API server: what it relies on, tried where it can fail."""

import datetime as dt
import functools
import random
import ssl
import time
from contextlib import asynccontextmanager

import anyio
import attrs
import pytest

from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Bind, Create, Delete, Emit, Get, List, Patch, Reason, Ref, Refusal
from kai.api.scheduling.pod_group import PodGroup
from kai.api.scheduling.queue import Queue
from kai.cluster.caching.store import Watched
from kai.cluster.caching.watch import WatchSettings
from kai.cluster.clock import SystemClock
from kai.cluster.connect import Options, assemble, connect
from kai.cluster.election.leading import fresh_identity
from kai.cluster.election.lease import LeaseSettings
from kai.cluster.election.takeover import take_over
from kai.cluster.requests import Apply, BudgetExhausted, Evict, Fetch, FetchAll, Forbidden, JsonPatch, NoSuchKind
from kai.cluster.transport.client import Account, Client, user_agent
from kai.cluster.transport.credentials import Source
from tests.integration.client import PATIENCE
from tests.integration.etcd import back_up, compact, put_back

NAMESPACE = "port"
# Here all that happens in the namespace is a test's own doing.
CONTROLLERS = ()
WATCHED = (
    Watched(cls=Pod),
    Watched(cls=Node),
    Watched(cls=Queue),
    Watched(cls=PodGroup),
    Watched(cls=ConfigMap, namespace=NAMESPACE),
)


def asynchronous(test):
    """Run an async test on a loop of its own.

    The test's own client of the API server blocks that loop, and may. Programs are started from this thread, since they
    die with the thread that started them.
    """

    @functools.wraps(test)
    def wrapper(**fixtures):
        return anyio.run(functools.partial(test, **fixtures))

    return wrapper


@pytest.fixture
def plane(control_plane):
    api = control_plane.admin
    api.ensure({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    yield control_plane
    for kind, version in (
        ("Pod", "v1"),
        ("ConfigMap", "v1"),
        ("PodDisruptionBudget", "policy/v1"),
        ("PodGroup", "scheduling.run.ai/v2alpha2"),
        ("Lease", "coordination.k8s.io/v1"),
    ):
        api.request("DELETE", api.collection(version, kind, NAMESPACE), {"gracePeriodSeconds": 0})


def options(plane, **changed):
    source = Source(kubeconfig=str(plane.kubeconfig(plane.admin, "port")))
    return Options(**{"component": "port-test", "watched": WATCHED, "source": source, **changed})


@asynccontextmanager
async def connected(plane, **changed):
    async with connect(options(plane, **changed)) as cluster, anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.run)
        with anyio.fail_after(PATIENCE):
            await cluster.store.synced()
        yield cluster
        tasks.cancel_scope.cancel()


async def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come to pass in time"
        await anyio.sleep(0.02)


def pod_manifest(name, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "x"}},
        "spec": {"containers": [{"name": "main", "image": "none"}], "terminationGracePeriodSeconds": 5, **spec},
    }


def at(cls, name):
    return Ref(cls, name, NAMESPACE)


def versions(store, cls):
    return {
        each.metadata.name: each.metadata.resource_version
        for each in store.all(cls)
        if each.metadata.namespace == NAMESPACE
    }


def real_versions(plane, kind):
    found = plane.admin.list("v1", kind, NAMESPACE)
    return {each["metadata"]["name"]: each["metadata"]["resourceVersion"] for each in found}


async def made_pod(cluster, name="p", **spec):
    return await cluster.api.perform(Create(ref=at(Pod, name), manifest=pod_manifest(name, **spec)))


# --- Reading -------------------------------------------------------------------------------------------------------


@asynchronous
async def test_lists_come_in_pages_and_changes_follow(plane):
    for number in range(7):
        plane.admin.create(config_map(f"c{number}"))
    async with connected(plane, watch=WatchSettings(page=2)) as cluster:
        assert versions(cluster.store, ConfigMap) == real_versions(plane, "ConfigMap")
        plane.admin.patch(config_map("c1"), {"data": {"n": "1"}})
        plane.admin.delete(config_map("c2"))
        await until(lambda: versions(cluster.store, ConfigMap) == real_versions(plane, "ConfigMap"))
        await until(lambda: cluster.problems() == ())


@asynchronous
async def test_of_config_maps_the_metadata_are_enough(plane):
    plane.admin.create({**config_map("early"), "data": {"secret": "1"}})
    watched = (Watched(cls=ConfigMap, namespace=NAMESPACE, metadata_only=True),)
    async with connected(plane, watched=watched) as cluster:
        plane.admin.create({**config_map("late"), "data": {"secret": "2"}})
        await until(lambda: versions(cluster.store, ConfigMap) == real_versions(plane, "ConfigMap"))
        assert [dict(each.data) for each in cluster.store.all(ConfigMap)] == [{}, {}]
        whole = await cluster.api.perform(Get(ref=at(ConfigMap, "late"), fresh=True))
        assert whole.data == {"secret": "2"}


@asynchronous
async def test_a_compacted_history_in_the_stream_is_recovered(plane):
    """The API server is restarted, so that its cache is empty and only the compacted store can answer."""
    plane.admin.ensure(config_map("kept"))
    plane.admin.ensure(config_map("lost"))
    async with connected(plane) as cluster:
        kept = cluster.store.get(ConfigMap, "kept", NAMESPACE)
        plane.restart_apiserver(kill=True)
        plane.admin.delete(config_map("lost"))
        plane.admin.create(config_map("new"))
        compact(plane)
        await until(lambda: versions(cluster.store, ConfigMap) == real_versions(plane, "ConfigMap"))
        assert cluster.store.get(ConfigMap, "kept", NAMESPACE) is kept
        await until(lambda: cluster.problems() == ())


@asynchronous
async def test_a_watch_from_a_compacted_version_lists_again(plane):
    """A stream that was cut goes on at the version that was heard of last, and only one that is too old is listed."""
    plane.restart_apiserver(kill=True)  # so that its cache begins long after the first version
    async with connected(plane) as cluster:
        watcher = next(each for each in cluster.watchers if each.watched.cls is ConfigMap)
        before = watcher.machine.completed

        def is_cut_and_outdated():
            # One step, and only while the stream is open: one that is being opened asks for what was known before.
            is_cut = cut(watcher)
            if is_cut:
                watcher.machine.version = "1"
            return is_cut

        await until(is_cut_and_outdated)
        plane.admin.ensure(config_map("later"))
        await until(lambda: watcher.machine.completed > before)
        await until(lambda: cluster.store.get(ConfigMap, "later", NAMESPACE) is not None)


@pytest.mark.parametrize("is_moved_on", [False, True], ids=["versions go back", "versions go on"])
@asynchronous
async def test_a_store_restored_from_a_backup_is_shown(plane, tmp_path, is_moved_on):
    """Streams that go on from a version of the future are silent, and here nothing comes of their silence."""
    for name in ("kept", "changed", "gone"):
        plane.admin.ensure(config_map(name))
    async with connected(plane, watch=WatchSettings(silence=1e6)) as cluster:
        back_up(plane, tmp_path / "backup")
        kept = cluster.store.get(ConfigMap, "kept", NAMESPACE)
        plane.admin.patch(config_map("changed"), {"data": {"n": "1"}})
        plane.admin.delete(config_map("gone"))
        plane.admin.create(config_map("late"))
        await until(lambda: versions(cluster.store, ConfigMap) == real_versions(plane, "ConfigMap"))
        plane.apiserver.stop(kill=True)
        await until(lambda: any("cannot be reached" in each for each in cluster.problems()))
        put_back(plane, tmp_path / "backup", is_moved_on=is_moved_on)
        await until(lambda: versions(cluster.store, ConfigMap) == real_versions(plane, "ConfigMap"))
        assert {"kept", "changed", "gone"} <= real_versions(plane, "ConfigMap").keys()
        assert cluster.store.get(ConfigMap, "kept", NAMESPACE) is kept
        plane.admin.create(config_map("next"))
        await until(lambda: cluster.store.get(ConfigMap, "next", NAMESPACE) is not None)
        await until(lambda: cluster.problems() == ())


@asynchronous
async def test_a_cut_stream_continues_without_another_list(plane):
    async with connected(plane) as cluster:
        watcher = next(each for each in cluster.watchers if each.watched.cls is ConfigMap)
        lists = watcher.machine.completed
        for number in range(5):
            await until(lambda: cut(watcher))
            plane.admin.create(config_map(f"d{number}"))
            await until(lambda: versions(cluster.store, ConfigMap) == real_versions(plane, "ConfigMap"))
        assert watcher.machine.completed == lists, "without another list"


@asynchronous
async def test_a_barrier_shows_what_was_written_before_it(plane):
    async with connected(plane) as cluster:
        for number in range(5):
            plane.admin.create(pod_manifest(f"b{number}"))
            await cluster.store.refresh(Pod)
            assert cluster.store.get(Pod, f"b{number}", NAMESPACE) is not None


@asynchronous
async def test_objects_of_any_kind_are_found_by_discovery(plane):
    plane.admin.ensure(config_map("c"))
    async with connected(plane) as cluster:
        found = await cluster.api.perform(
            Fetch(api_version="v1", kind="ConfigMap", name="c", namespace=NAMESPACE),
        )
        assert found["metadata"]["name"] == "c"
        many = await cluster.api.perform(FetchAll(api_version="v1", kind="ConfigMap", namespace=NAMESPACE))
        assert [(each["kind"], each["metadata"]["name"]) for each in many] == [("ConfigMap", "c")]
        missing = Fetch(api_version="v1", kind="ConfigMap", name="none", namespace=NAMESPACE)
        assert (await cluster.api.perform(missing)).reason is Reason.NOT_FOUND
        unknown = Fetch(api_version="kubeflow.org/v1", kind="PyTorchJob", name="j", namespace=NAMESPACE)
        assert isinstance(await cluster.api.perform(unknown), NoSuchKind)


# --- Writing -------------------------------------------------------------------------------------------------------


@asynchronous
async def test_a_binding_applies_once_to_the_intended_pod_only(plane):
    async with connected(plane) as cluster:
        pod = await made_pod(cluster)
        bind = Bind(ref=at(Pod, "p"), node="n1", uid=pod.metadata.uid, resource_version=pod.metadata.resource_version)
        for stale in (attrs.evolve(bind, uid="another"), attrs.evolve(bind, resource_version="1")):
            assert (await cluster.api.perform(stale)).reason is Reason.CONFLICT
        stamped = attrs.evolve(bind, annotations={"kai.scheduler/epoch": "7"})
        assert await cluster.api.perform(stamped) is None
        assert cluster.store.get(Pod, "p", NAMESPACE).spec.node_name == "n1"
        await until(lambda: not cluster.store.is_assumed(Pod, (NAMESPACE, "p")))
        shown = cluster.store.get(Pod, "p", NAMESPACE)
        assert (shown.spec.node_name, shown.metadata.annotations["kai.scheduler/epoch"]) == ("n1", "7")
        assert (await cluster.api.perform(attrs.evolve(bind, resource_version=""))).reason is Reason.CONFLICT


@asynchronous
async def test_an_eviction_respects_the_pods_uid_and_budgets(plane):
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "all", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}},
    }
    async with connected(plane) as cluster:
        pod = await made_pod(cluster)
        evict = Evict(ref=at(Pod, "p"), uid=pod.metadata.uid, annotations={"kai.scheduler/epoch": "7"})
        assert (await cluster.api.perform(attrs.evolve(evict, uid="another"))).reason is Reason.CONFLICT
        assert await cluster.api.perform(Bind(ref=at(Pod, "p"), node="n1")) is None
        plane.admin.patch(
            pod_manifest("p"),
            {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
            subresource="status",
        )
        plane.admin.create(budget)
        status = {"observedGeneration": 1, "disruptionsAllowed": 0, "expectedPods": 1}
        plane.admin.patch(
            budget, {"status": {**status, "currentHealthy": 1, "desiredHealthy": 1}}, subresource="status"
        )
        refusal = await cluster.api.perform(evict)
        assert isinstance(refusal, BudgetExhausted)
        plane.admin.delete(budget)
        assert await cluster.api.perform(evict) is None
        assert cluster.store.get(Pod, "p", NAMESPACE).metadata.deletion_timestamp is not None
        await until(lambda: not cluster.store.is_assumed(Pod, (NAMESPACE, "p")))
        assert await cluster.api.perform(Delete(ref=at(Pod, "p"), uid=pod.metadata.uid, grace_seconds=0)) is None
        assert cluster.store.get(Pod, "p", NAMESPACE) is None
        again = await cluster.api.perform(Delete(ref=at(Pod, "p"), uid=pod.metadata.uid))
        assert again.reason is Reason.NOT_FOUND


@asynchronous
async def test_deleting_a_running_pod_shows_it_as_terminating(plane):
    async with connected(plane) as cluster:
        await made_pod(cluster)
        made = cluster.store.get(Pod, "p", NAMESPACE).metadata.resource_version
        assert await cluster.api.perform(Bind(ref=at(Pod, "p"), node="n1")) is None
        # An API server under load may delete by its cache, and a pod that is on no node there goes at once.
        with anyio.fail_after(30.0):
            while cluster.store.get(Pod, "p", NAMESPACE).metadata.resource_version == made:
                await cluster.store.changed(Pod, (NAMESPACE, "p"))
        assert await cluster.api.perform(Delete(ref=at(Pod, "p"))) is None
        assert cluster.store.get(Pod, "p", NAMESPACE).metadata.deletion_timestamp is not None


@asynchronous
async def test_all_patch_forms_and_status_patches_are_accepted(plane):
    async with connected(plane) as cluster:
        await made_pod(cluster)
        ref = at(Pod, "p")
        pod = await cluster.api.perform(Patch(ref=ref, patch={"metadata": {"labels": {"a": "1"}}}))
        assert pod.metadata.labels["a"] == "1"
        conditions = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        strategic = Patch(ref=ref, patch={"status": {"conditions": conditions}}, form="strategic", subresource="status")
        assert [each.reason for each in (await cluster.api.perform(strategic)).status.conditions] == ["Unschedulable"]
        operations = (
            {"op": "test", "path": "/metadata/labels/a", "value": "1"},
            {"op": "replace", "path": "/metadata/labels/a", "value": "2"},
        )
        pod = await cluster.api.perform(JsonPatch(ref=ref, operations=operations))
        assert pod.metadata.labels["a"] == "2"
        refusal = await cluster.api.perform(JsonPatch(ref=ref, operations=operations))
        assert refusal.reason is Reason.REJECTED
        stale = Patch(ref=ref, patch={"metadata": {"resourceVersion": "1", "labels": {"a": "3"}}})
        assert (await cluster.api.perform(stale)).reason is Reason.CONFLICT
        recreated = Patch(ref=ref, patch={"metadata": {"uid": "another", "labels": {"a": "3"}}})
        assert (await cluster.api.perform(recreated)).reason is Reason.CONFLICT


@asynchronous
async def test_apply_creates_changes_and_removes_its_own_fields(plane):
    ref = at(PodGroup, "g")
    async with connected(plane) as cluster:

        def wanted(**spec):
            manifest = {"metadata": {"labels": {"by": "kai"}}, "spec": {"queue": "default-queue", **spec}}
            return Apply(ref=ref, manifest=manifest, manager="kai-test")

        made = await cluster.api.perform(wanted(minMember=3, priorityClassName="train"))
        assert (made.spec.min_member, made.spec.priority_class_name) == (3, "train")
        changed = await cluster.api.perform(wanted(minMember=4))
        assert (changed.spec.min_member, changed.spec.priority_class_name) == (4, "")
        same = await cluster.api.perform(wanted(minMember=4))
        assert same is changed, "what does not change is not even a new version"
        status = Patch(ref=ref, patch={"status": {"phase": "Pending"}}, subresource="status")
        assert (await cluster.api.perform(status)).metadata.name == "g"


@asynchronous
async def test_events_are_recorded_on_namespaced_and_cluster_objects(plane):
    async with connected(plane) as cluster:
        pod = await made_pod(cluster)
        for ref, uid in ((at(Pod, "p"), pod.metadata.uid), (Ref(Queue, "default-queue"), "")):
            emit = Emit(ref=ref, type="Warning", reason="Unschedulable", message="no room", uid=uid)
            assert await cluster.api.perform(emit) is None
        events = plane.admin.list("v1", "Event", NAMESPACE)
        assert [(each["involvedObject"]["name"], each["reason"]) for each in events] == [("p", "Unschedulable")]


@asynchronous
async def test_what_rights_do_not_allow_is_told_apart(plane):
    account = plane.account("kai-scheduler", "queue-controller")
    source = Source(kubeconfig=str(plane.kubeconfig(account, "poor")))
    async with connect(options(plane, source=source, watched=())) as cluster:
        refusal = await cluster.api.perform(Create(ref=at(Pod, "p"), manifest=pod_manifest("p")))
        assert isinstance(refusal, Forbidden)
        assert "cannot create resource" in refusal.message


@asynchronous
async def test_many_writes_at_once_all_arrive_and_show(plane):
    async with connected(plane) as cluster:
        replies = []

        async def make(number):
            manifest = config_map(f"m{number:03}")
            replies.append(await cluster.api.perform(Create(ref=at(ConfigMap, f"m{number:03}"), manifest=manifest)))

        async with anyio.create_task_group() as tasks:
            for number in range(200):
                tasks.start_soon(make, number)
        assert {type(reply) for reply in replies} == {ConfigMap}
        listed = await cluster.api.perform(List(cls=ConfigMap, namespace=NAMESPACE))
        assert [each.metadata.name for each in listed] == [f"m{number:03}" for number in range(200)]
        fresh = await cluster.api.perform(List(cls=ConfigMap, namespace=NAMESPACE, fresh=True))
        assert all(one is other for one, other in zip(listed, fresh, strict=True))


# --- The connection ------------------------------------------------------------------------------------------------


@asynchronous
async def test_requests_and_watches_survive_a_server_restart(plane):
    async with connected(plane) as cluster:
        plane.restart_apiserver(kill=True)
        # The event loop stood still meanwhile: first it has to see that idle connections were closed.
        await anyio.sleep(0.1)
        made = await cluster.api.perform(Create(ref=at(ConfigMap, "after"), manifest=config_map("after")))
        assert not isinstance(made, Refusal), made
        assert made.metadata.name == "after"
        plane.admin.create(config_map("other"))
        await until(lambda: cluster.store.get(ConfigMap, "other", NAMESPACE) is not None)
        await until(lambda: cluster.problems() == ())


@asynchronous
async def test_a_token_that_is_replaced_under_way_costs_nothing(plane):
    old = plane.account("kai-scheduler", "scheduler")
    path = plane.kubeconfig(old, "rotating")
    account = await Account.open(Source(kubeconfig=str(path)), SystemClock())
    async with Client(account, user_agent=user_agent("port-test", "0")) as client:
        clock = SystemClock()
        cluster = assemble(
            options(plane, watched=()), clock, random.random, requests=client, watches=client, lease=client
        )
        assert await cluster.api.perform(Get(ref=Ref(Node, "none"), fresh=True)) is not None
        account.credentials = attrs.evolve(account.credentials, authorization="Bearer expired")
        reply = await cluster.api.perform(Get(ref=Ref(Node, "none"), fresh=True))
        assert reply.reason is Reason.NOT_FOUND
        assert account.refused_since is None


@asynchronous
async def test_a_server_with_another_certificate_is_not_talked_to(plane):
    source = Source(kubeconfig=str(plane.kubeconfig(plane.admin, "port")))
    account = await Account.open(source, SystemClock())
    account.credentials = attrs.evolve(account.credentials, authority=stranger())
    async with Client(account, user_agent=user_agent("port-test", "0")) as client:
        cluster = assemble(
            options(plane, watched=()), SystemClock(), random.random, requests=client, watches=client, lease=client
        )
        reply = await cluster.api.perform(Create(ref=at(ConfigMap, "x"), manifest=config_map("x")))
        assert (reply.reason, "CERTIFICATE_VERIFY_FAILED" in reply.message) == (Reason.UNAVAILABLE, True)


# --- Leading -------------------------------------------------------------------------------------------------------


@asynchronous
async def test_leadership_is_handed_over_with_increasing_epochs(plane):
    def lease():
        times = {"duration": 10.0, "renew_within": 7.5, "retry": 0.3}
        return LeaseSettings(namespace=NAMESPACE, name="lock", identity=fresh_identity("test"), **times)

    async with connected(plane, lease=lease()) as first:
        with anyio.fail_after(PATIENCE):
            one = await first.leadership.begun()
        begun = renewed(plane)
        async with connected(plane, lease=lease()) as second:
            # Longer than a lease lasts by itself.
            await until(lambda: renewed(plane) >= begun + dt.timedelta(seconds=11))
            assert first.leadership.holds(one)
            assert second.leadership.term is None
            first.leadership.resign()
            with anyio.fail_after(PATIENCE):
                two = await take_over(second.store, second.leadership, second.clock)
            assert two.epoch == one.epoch + 1
            fenced = first.api.fenced(one)
            refusal = await fenced.perform(Create(ref=at(ConfigMap, "x"), manifest=config_map("x")))
            assert refusal.message == "the term in which this was decided is over"
        third = lease()
    start = time.monotonic()
    async with connected(plane, lease=third) as successor:
        with anyio.fail_after(PATIENCE):
            three = await successor.leadership.begun()
        assert three.epoch == two.epoch + 1
        assert time.monotonic() - start >= 7.5, "a leader that died is waited for"


def cut(watcher):
    """Cut all streams that are open, if the stream of this watcher is; return whether that was so.

    Between two streams there is nothing to cut.
    """
    if not watcher._is_streaming:
        return False
    client = watcher.transport.inner
    open_ = [each.transport for each in client._made[-1][1]._session.connector._acquired if each.transport is not None]
    for transport in open_:
        transport.abort()
    return bool(open_)


def config_map(name):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": NAMESPACE}}


def renewed(plane):
    """Return when the lease was renewed last."""
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "lock", "namespace": NAMESPACE},
    }
    return dt.datetime.fromisoformat(plane.admin.get(lease)["spec"]["renewTime"])


def stranger():
    """Return a certificate that signed nothing here."""
    context = ssl.create_default_context()
    (first, *_) = context.get_ca_certs(binary_form=True)
    return ssl.DER_cert_to_PEM_cert(first)
