import random

import anyio
import anyio.lowlevel
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.api.kinds import declare
from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.node import Node, NodeResourceTopology
from kai.api.kubernetes.pod import Pod
from kai.api.kubernetes.storage import CsiNode
from kai.api.plans import Bind, Get, Patch, Ref
from kai.cluster.caching.store import Watched
from kai.cluster.requests import Evict
from kai.cluster.transport.calls import JSON, METADATA, METADATA_LIST, Answer, NoAnswer
from tests.doubles.http_server import Faults, HttpServer
from tests.doubles.own_kinds import declared_for_a_while
from tests.unit.cluster.assembled import in_virtual_time, port, running, versions

CONFIG_MAPS = (Watched(cls=ConfigMap),)


def filled(count=7, **options):
    server = HttpServer(**options)
    for number in range(count):
        server.put("configmaps", f"c{number}", "team", data={"n": str(number)})
    return server


@in_virtual_time
async def test_existing_objects_are_listed_and_changes_follow():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert server.count("GET", "configmaps") == 4  # three pages and a watch
        server.put("configmaps", "c1", "team", data={"n": "new"})
        server.remove("configmaps", "c2", "team")
        await anyio.sleep(0.1)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert cluster.problems() == ()


@in_virtual_time
async def test_a_metadata_only_kind_requests_and_keeps_only_metadata():
    server = filled()
    async with running(server, watched=(Watched(cls=ConfigMap, metadata_only=True),)) as cluster:
        await anyio.sleep(0.1)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert not any(each.data for each in cluster.store.all(ConfigMap))
        asked = {"watch" in dict(call.query): call.accept for call in server.calls}
        assert asked == {False: METADATA_LIST, True: METADATA}
        whole = await cluster.api.perform(Get(ref=Ref(ConfigMap, "c1", "team"), fresh=True))
        assert whole.data == {"n": "1"}


def lists_of(server, since=0):
    """Return in which form each page was asked for."""
    return [call.accept for call in server.calls[since:] if call.method == "GET" and "watch" not in dict(call.query)]


@in_virtual_time
async def test_a_refresh_of_known_objects_requests_only_metadata():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        before, kept, revision = len(server.calls), cluster.store.get(ConfigMap, "c3", "team"), cluster.store.revision
        await cluster.store.refresh(ConfigMap)
        assert lists_of(server, before) == [METADATA_LIST]  # a page has ten times as many names as whole objects
        assert cluster.store.get(ConfigMap, "c3", "team") is kept
        assert cluster.store.revision == revision


@in_virtual_time
async def test_a_page_with_something_new_is_read_whole():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        server.faults.is_silent = lambda: True
        server.put("configmaps", "c4", "team", data={"n": "new"})
        server.remove("configmaps", "c0", "team")
        server.put("configmaps", "c9", "team", data={"n": "9"})
        await anyio.sleep(1.0)
        before = len(server.calls)
        await cluster.store.refresh(ConfigMap)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert cluster.store.get(ConfigMap, "c4", "team").data == {"n": "new"}
        assert cluster.store.get(ConfigMap, "c9", "team").data == {"n": "9"}
        # The names show that there is news, so pages are as small from there on: c1 to c3, c4 to c6, c7 to c9.
        assert lists_of(server, before) == [METADATA_LIST, JSON] * 3
        server.faults.is_silent = lambda: False


@in_virtual_time
async def test_a_server_without_metadata_lists_sends_whole_objects():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        server.faults = Faults(before=lambda call: Answer(status=406) if call.accept == METADATA_LIST else None)
        server.put("configmaps", "c1", "team", data={"n": "new"})
        await cluster.store.refresh(ConfigMap)
        assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "new"}
        assert cluster.problems() == ()


@in_virtual_time
async def test_invalid_metadata_lists_are_replaced_by_whole_lists():
    server = filled()
    nonsense = Answer(status=200, body=b'{"metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": 5}}]}')
    async with running(server, watched=CONFIG_MAPS) as cluster:
        server.faults = Faults(before=lambda call: nonsense if call.accept == METADATA_LIST else None)
        server.put("configmaps", "c1", "team", data={"n": "new"})
        await cluster.store.refresh(ConfigMap)
        assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "new"}
        assert cluster.problems() == ()


@in_virtual_time
async def test_an_idle_hour_costs_no_list():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        before = server.count("GET", "configmaps")
        revision = cluster.store.revision
        await anyio.sleep(3600)
        server.compact()  # bookmarks kept the watch young enough
        await anyio.sleep(700)
        lists = [call for call in server.calls if "/configmaps" in call.path and "watch" not in dict(call.query)]
        assert len(lists) == 3
        assert server.count("GET", "configmaps") - before < 16
        assert cluster.store.revision == revision


@in_virtual_time
async def test_an_expired_version_is_listed_and_deletions_are_noticed():
    server = filled(bookmark_seconds=1e9)
    async with running(server, watched=CONFIG_MAPS) as cluster:
        await anyio.sleep(0.1)
        kept = cluster.store.get(ConfigMap, "c3", "team")
        server.faults = Faults(before=lambda _: NoAnswer(was_sent=False), piece=lambda _: None)
        server.put("configmaps", "c0", "team", data={"n": "cut off"})
        await anyio.sleep(0.1)
        server.remove("configmaps", "c1", "team")
        server.put("configmaps", "c9", "team")
        server.compact()
        server.faults = Faults()
        await anyio.sleep(1.0)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert cluster.store.get(ConfigMap, "c3", "team") is kept, "what did not change stays the same object"


@in_virtual_time
async def test_a_silent_stream_is_noticed_within_75_seconds():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        await anyio.sleep(1)
        silent = [True]
        server.faults.is_silent = lambda: silent[0]
        server.put("configmaps", "new", "team")
        await anyio.sleep(60)
        assert cluster.store.get(ConfigMap, "new", "team") is None
        await anyio.sleep(20)
        assert cluster.store.get(ConfigMap, "new", "team") is not None
        silent[0] = False


@in_virtual_time
async def test_a_restored_backup_replaces_the_store():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        backup, at = dict(server.objects), server.version
        server.remove("configmaps", "c0", "team")
        server.put("configmaps", "c1", "team", data={"n": "later"})
        await anyio.sleep(1)
        server.faults.is_silent = lambda: True  # as a real server is, asked to watch from the future
        server.restore(backup, at)
        await anyio.sleep(80)
        server.faults.is_silent = lambda: False
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "1"}
        await anyio.sleep(100)
        server.put("configmaps", "c2", "team", data={"n": "after"})
        await anyio.sleep(1)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")


@in_virtual_time
async def test_a_backup_restored_during_an_outage_is_noticed():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        backup, at = dict(server.objects), server.version
        server.remove("configmaps", "c0", "team")
        server.put("configmaps", "c1", "team", data={"n": "later"})
        await anyio.sleep(1)
        server.faults = Faults(before=lambda _: NoAnswer(was_sent=False), piece=lambda _: None)
        server.put("configmaps", "c2", "team", data={"n": "cut off"})
        await anyio.sleep(0.1)
        server.restore(backup, at)
        await anyio.sleep(3)
        server.faults = Faults(is_silent=lambda: True)  # as a real server is, asked to watch from the future
        await anyio.sleep(5)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "1"}


@in_virtual_time
async def test_a_backup_restored_between_probes_is_noticed():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        backup, at = dict(server.objects), server.version
        server.remove("configmaps", "c0", "team")
        server.put("configmaps", "c1", "team", data={"n": "later"})
        await anyio.sleep(1)
        server.faults = Faults(piece=lambda _: None)  # streams are cut, and every question is answered
        server.put("configmaps", "c2", "team", data={"n": "cut off"})
        await anyio.lowlevel.checkpoint()
        server.restore(backup, at)
        server.faults = Faults()
        await anyio.sleep(5)
        for number in range(5):
            server.put("configmaps", "c3", "team", data={"n": f"after {number}"})
        await anyio.sleep(1)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert cluster.store.get(ConfigMap, "c0", "team") is not None


@in_virtual_time
async def test_a_backup_restored_with_higher_versions_is_noticed():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        backup = dict(server.objects)
        server.remove("configmaps", "c0", "team")
        server.put("configmaps", "c1", "team", data={"n": "later"})
        await anyio.sleep(1)
        server.faults = Faults(before=lambda _: NoAnswer(was_sent=False), piece=lambda _: None)
        server.put("configmaps", "c2", "team", data={"n": "cut off"})
        await anyio.sleep(0.1)
        server.restore(backup, server.version + 1000)
        server.compact()
        await anyio.sleep(3)
        server.faults = Faults()
        await anyio.sleep(5)
        assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
        assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "1"}


@in_virtual_time
async def test_caught_up_waits_for_a_list_after_an_outage():
    server = filled()
    async with running(server, watched=(*CONFIG_MAPS, Watched(cls=Pod))) as cluster:
        with anyio.fail_after(0.1):
            await cluster.store.caught_up(ConfigMap, Pod, Node)  # nodes are not watched here
        server.faults = Faults(before=lambda _: NoAnswer(was_sent=False), piece=lambda _: None)
        server.put("configmaps", "c2", "team", data={"n": "cut off"})
        await anyio.sleep(3)
        server.remove("configmaps", "c0", "team")
        server.faults = Faults(
            before=lambda call: NoAnswer(was_sent=False) if "/configmaps" in call.path and not cluster_is_open else None
        )
        cluster_is_open = False
        await anyio.sleep(10)
        with anyio.move_on_after(1.0) as scope:
            await cluster.store.caught_up(Pod)
        assert not scope.cancelled_caught
        with anyio.move_on_after(1.0) as scope:
            await cluster.store.caught_up(ConfigMap)
        assert scope.cancelled_caught
        cluster_is_open = True
        with anyio.fail_after(20.0):
            await cluster.store.caught_up(ConfigMap)
        assert cluster.store.get(ConfigMap, "c0", "team") is None


@in_virtual_time
async def test_a_write_lost_to_a_backup_is_not_shown():
    server = HttpServer()
    server.put("pods", "p", "team", spec={"containers": []})
    server.put("pods", "q", "team", spec={"containers": []})
    async with running(server, watched=(Watched(cls=Pod),)) as cluster:
        backup, at = dict(server.objects), server.version
        p, q = (cluster.store.get(Pod, name, "team").metadata.uid for name in "pq")
        server.faults = Faults(is_silent=lambda: True)  # the news is on its way
        assert await cluster.api.perform(Bind(ref=Ref(Pod, "p", "team"), node="n", uid=p)) is None
        assert await cluster.api.perform(Evict(ref=Ref(Pod, "q", "team"), uid=q)) is None
        shown = (cluster.store.get(Pod, name, "team") for name in "pq")
        assert [(each.spec.node_name, each.metadata.deletion_timestamp is None) for each in shown] == [
            ("n", True),
            ("", False),
        ]
        server.faults = Faults(piece=lambda _: None, is_silent=lambda: True)
        server.restore(backup, at)
        await anyio.sleep(1)
        server.faults = Faults()
        await anyio.sleep(90)
        shown = (cluster.store.get(Pod, name, "team") for name in "pq")
        assert [(each.spec.node_name, each.metadata.deletion_timestamp) for each in shown] == [("", None), ("", None)]


@in_virtual_time
async def test_an_unserved_kind_is_empty_until_served():
    server = filled(unserved={"scheduling.run.ai/v1alpha2"})
    server.put("bindrequests", "b", "team", spec={"podName": "p", "selectedNode": "n"})
    async with running(server) as cluster:
        assert cluster.problems() == ()
        assert cluster.store.cluster_objects().bind_requests == ()
        server.unserved.clear()
        await anyio.sleep(50)
        assert len(cluster.store.cluster_objects().bind_requests) == 1


@in_virtual_time
async def test_a_reason_that_all_kinds_share_is_told_once():
    server = filled()
    server.faults.before = lambda _: Answer(status=500)
    cluster = port(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.run)
        await anyio.sleep(30)
        assert cluster.problems()[0] == "pods, nodes, configmaps and 1 more: HTTP status 500"
        tasks.cancel_scope.cancel()


@in_virtual_time
async def test_a_forbidden_list_prevents_the_store_from_syncing():
    server = filled()
    body = b'{"kind":"Status","code":403,"message":"nodes is forbidden"}'
    server.faults.before = lambda call: Answer(status=403, body=body) if "/nodes" in call.path else None
    cluster = port(server)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.run)
        await anyio.sleep(100)
        assert not cluster.store.is_synced
        assert cluster.problems() == ("nodes: nodes is forbidden", "not listed yet: nodes")
        assert server.count("GET", "/nodes") < 15
        server.faults = Faults()
        await cluster.store.synced()
        assert cluster.problems() == ()
        tasks.cancel_scope.cancel()


@in_virtual_time
async def test_a_forbidden_dispensable_kind_does_not_prevent_syncing():
    server = filled()
    server.put("csinodes", "n")
    body = b'{"kind":"Status","code":403,"message":"csinodes is forbidden"}'
    server.faults.before = lambda call: Answer(status=403, body=body) if "/csinodes" in call.path else None
    cluster = port(server, watched=(Watched(cls=CsiNode),))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(cluster.run)
        await anyio.sleep(20)
        assert cluster.problems() == ("csinodes: csinodes is forbidden", "not listed yet: csinodes")
        await anyio.sleep(80)
        assert cluster.store.is_synced
        assert cluster.problems() == ()
        server.faults = Faults()
        await anyio.sleep(50)
        assert len(cluster.store.cluster_objects().csi_nodes) == 1
        tasks.cancel_scope.cancel()


@in_virtual_time
async def test_a_refresh_waits_for_a_later_list():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        server.faults.is_silent = lambda: True
        server.put("configmaps", "hidden", "team")
        await anyio.sleep(0.1)
        start = anyio.current_time()
        await cluster.store.refresh(ConfigMap)
        assert cluster.store.get(ConfigMap, "hidden", "team") is not None
        assert anyio.current_time() - start < 1.0


@in_virtual_time
async def test_a_list_under_way_undoes_no_answered_write():
    server = filled()
    async with running(server, watched=CONFIG_MAPS) as cluster:
        server.faults.is_silent = lambda: True  # so that only lists and answers tell anything
        server.faults.lateness = lambda call: float(call.method == "GET")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.store.refresh, ConfigMap)
            await anyio.sleep(0.5)
            await cluster.api.perform(Patch(ref=Ref(ConfigMap, "c1", "team"), patch={"data": {"n": "new"}}))
            assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "new"}
        assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "new"}


@in_virtual_time
async def test_changes_come_in_batches_that_join_what_nobody_took():
    server = filled(2)
    async with running(server, watched=CONFIG_MAPS) as cluster:
        with cluster.store.changes(ConfigMap) as changes:
            first = await changes.__anext__()
            assert [(change.before, change.after.metadata.name) for change in first] == [(None, "c0"), (None, "c1")]
            for number in range(5):
                server.put("configmaps", "c0", "team", data={"n": str(number)})
            server.put("configmaps", "brief", "team")
            await anyio.sleep(0.1)
            server.remove("configmaps", "brief", "team")
            await anyio.sleep(0.1)
            (change,) = await changes.__anext__()
            assert (change.before.data, change.after.data) == ({"n": "0"}, {"n": "4"})


@in_virtual_time
async def test_kinds_that_did_not_change_keep_their_tuple():
    server = filled()
    server.put("nodes", "n1")
    async with running(server) as cluster:
        before = cluster.store.cluster_objects()
        assert cluster.store.cluster_objects() is before
        server.put("nodes", "n2")
        await anyio.sleep(0.1)
        after = cluster.store.cluster_objects()
        assert after.config_maps is before.config_maps
        assert [node.metadata.name for node in after.nodes] == ["n1", "n2"]
        assert after.nodes[0] is before.nodes[0]


@in_virtual_time
async def test_a_poisonous_object_costs_the_others_nothing():
    server = filled(3)
    server.put("configmaps", "poison", "team", data=[1, 2])
    async with running(server, watched=CONFIG_MAPS) as cluster:
        assert len(cluster.store.all(ConfigMap)) == 3
        (rejected,) = cluster.store.rejected
        assert rejected.key == ("team", "poison")
        server.put("configmaps", "c0", "team", data=7)
        server.put("configmaps", "c1", "team", data={"n": "fine"})
        await anyio.sleep(0.1)
        assert cluster.store.get(ConfigMap, "c1", "team").data == {"n": "fine"}
        assert len(cluster.store.rejected) == 2


def test_reading_an_unwatched_kind_raises_a_clear_error():
    store = port(HttpServer(), watched=CONFIG_MAPS).store
    try:
        store.all(NodeResourceTopology)
    except LookupError as error:
        assert "found no watch of noderesourcetopologies" in str(error)  # noqa: PT017 - the message is the point
    else:
        raise AssertionError("expected LookupError")


# --- Whatever goes wrong -------------------------------------------------------------------------------------------


def swarm(seed, server, active):
    """Let calls and streams fail at random, each seed with weights of its own, while `active` says so."""
    draw = random.Random(seed)
    weights = {name: draw.choice([0, 0, 0.1, 0.3]) for name in ("refuse", "cut", "garble", "twice", "silent", "slow")}

    def happens(name):
        return active() and draw.random() < weights[name]

    def before(call):
        if not happens("refuse"):
            return None
        status = draw.choice([0, 410, 429, 500, 503])
        return Answer(status=status, retry_after="1") if status else NoAnswer(was_sent=True, message="cut")

    def piece(data):
        if happens("cut"):
            return None
        if happens("garble"):
            return (data[: draw.randrange(len(data))], b"garbage\n")
        if happens("twice"):
            return (data, data)
        middle = draw.randrange(len(data) + 1)
        return (data[:middle], data[middle:])

    server.faults = Faults(
        before=before,
        piece=piece,
        is_silent=lambda: happens("silent"),
        delay=lambda _: draw.uniform(0.1, 20.0) if happens("slow") else 0.0,
    )
    return draw


@settings(max_examples=60)
@given(st.integers(0, 1 << 32))
def test_the_store_equals_the_server_after_any_faults(seed):
    @in_virtual_time
    async def schedule():
        server = filled(5)
        is_on = [True]
        draw = swarm(seed, server, lambda: is_on[0])
        cluster = port(server, seed=seed)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(cluster.run)
            for number in range(60):
                await anyio.sleep(draw.uniform(0, 4))
                name = f"c{draw.randrange(8)}"
                if draw.random() < 0.3 and ("configmaps", "team", name) in server.objects:
                    server.remove("configmaps", name, "team")
                else:
                    server.put("configmaps", name, "team", data={"n": str(number)})
                if draw.random() < 0.05:
                    server.compact()
            is_on[0] = False
            await anyio.sleep(110)  # the silence of a stream that was struck last, a pause, and a list
            assert versions(cluster.store, ConfigMap) == server.versions("configmaps")
            assert versions(cluster.store, Node) == versions(cluster.store, Pod) == {}
            assert cluster.problems() == ()
            tasks.cancel_scope.cancel()

    schedule()


@in_virtual_time
async def test_objects_of_a_plugins_kind_are_watched():
    server = HttpServer()
    server.put("rackpowercaps", "a", spec={"watts": 700})
    with declared_for_a_while():
        cap = declare("power.example.com/v1", "RackPowerCap", "rackpowercaps", namespaced=False)
        async with running(server, watched=(Watched(cls=cap), Watched(cls=ConfigMap))) as cluster:
            before = cluster.store.cluster_objects().foreign
            assert [each.spec for each in before] == [{"watts": 700}]
            server.put("configmaps", "c", "team")
            await anyio.sleep(0.1)
            assert cluster.store.cluster_objects().foreign is before
            server.put("rackpowercaps", "a", spec={"watts": 900})
            await anyio.sleep(0.1)
            assert [each.spec for each in cluster.store.cluster_objects().foreign] == [{"watts": 900}]
