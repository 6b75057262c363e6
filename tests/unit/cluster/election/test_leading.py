import itertools

import anyio
from structlog.testing import capture_logs

from kai.api.kubernetes.pod import Pod
from kai.cluster.election.leading import SoleLeadership, fresh_identity
from kai.cluster.election.takeover import FENCE_DELAY, take_over
from kai.cluster.port import Term
from kai.cluster.transport.calls import Answer, NoAnswer
from tests.doubles.http_server import Faults, HttpServer
from tests.unit.cluster.assembled import in_virtual_time, port, running

LEASE = ("leases", "kai", "lock")


@in_virtual_time
async def test_the_second_leads_once_the_first_resigns():
    server = HttpServer()
    async with running(server, lease="a_1") as first:
        term = await first.leadership.begun()
        assert term == Term(1, "a_1")
        async with running(server, lease="b_1", seed=2) as second:
            await anyio.sleep(60)
            assert first.leadership.holds(term)
            assert second.leadership.term is None
            first.leadership.resign()
            assert first.leadership.term is None, "at once, before the lease is given back"
            with anyio.fail_after(5.0):
                assert await second.leadership.begun() == Term(2, "b_1")
            assert server.objects[LEASE]["spec"]["holderIdentity"] == "b_1"


@in_virtual_time
async def test_a_process_says_once_for_whose_lease_it_waits():
    """Ready and idle, it would leave an operator to guess that another program has the lease."""
    server = HttpServer()
    async with running(server, lease="a_1") as first:
        await first.leadership.begun()
        with capture_logs() as logs:
            async with running(server, lease="b_1", seed=2):
                await anyio.sleep(60)
    waiting = {"event": "waiting", "log_level": "info", "lease": "kai/lock", "holder": "a_1"}
    assert [each for each in logs if each["event"] == "waiting"] == [waiting]


@in_virtual_time
async def test_foreign_fields_of_a_lease_are_kept():
    server = HttpServer()
    labels, annotations = {"app.kubernetes.io/managed-by": "Helm"}, {"backup": "no"}
    server.put("leases", "lock", "kai", metadata={"labels": labels}, spec={"strategy": "OldestEmulationVersion"})
    async with running(server, lease="a_1") as cluster:
        await cluster.leadership.begun()
        await anyio.sleep(5)
        server.put("leases", "lock", "kai", metadata={"annotations": annotations})
        await anyio.sleep(5)
        await cluster.leadership.give_back()
    lease = server.objects[LEASE]
    assert (lease["metadata"]["labels"], lease["metadata"]["annotations"]) == (labels, annotations)
    assert lease["spec"]["strategy"] == "OldestEmulationVersion"
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("", 1)


async def _seconds_until_the_second_leads(first, second, after=61.3):
    await first.leadership.begun()
    await anyio.sleep(after)
    start = anyio.current_time()
    first.leadership.resign()
    await second.leadership.begun()
    return anyio.current_time() - start


@in_virtual_time
async def test_a_released_lease_is_taken_immediately():
    server = HttpServer(faults=Faults(delay=lambda _: 0.01))
    async with running(server, lease="a_1") as first, running(server, lease="b_1", seed=2) as second:
        assert await _seconds_until_the_second_leads(first, second) < 0.05


@in_virtual_time
async def test_a_lease_released_during_a_read_is_read_again():
    slow = Faults(lateness=lambda call: 0.2 if "leases" in call.path and call.method == "GET" else 0.0)
    for moment in range(12):
        server = HttpServer(faults=slow)
        async with running(server, lease="a_1") as first, running(server, lease="b_1", seed=2) as second:
            took = await _seconds_until_the_second_leads(first, second, after=60.0 + 0.06 * moment)
            assert took <= 0.41, "the rest of a look, and one more"


@in_virtual_time
async def test_an_unwatchable_lease_is_taken_at_the_next_look():
    refused = Answer(status=403, body=b'{"kind":"Status","code":403,"message":"leases is forbidden"}')

    def instead(call):
        return refused if ("watch", "true") in call.query and "leases" in call.path else None

    for faults in (Faults(before=instead), Faults(is_silent=lambda: True)):
        server = HttpServer()
        async with running(server, lease="a_1") as first, running(server, lease="b_1", seed=2) as second:
            server.faults = faults
            assert await _seconds_until_the_second_leads(first, second) < 0.7


@in_virtual_time
async def test_changes_of_other_leases_cause_no_more_reads():
    server = HttpServer()
    async with running(server, lease="a_1") as first, running(server, lease="b_1", seed=2):
        await first.leadership.begun()
        await anyio.sleep(10)
        looks = []
        for each in range(2):
            before = server.count("GET", "leases/lock")
            for number in range(100):
                await anyio.sleep(0.1)
                if each:
                    server.put("leases", f"other-{number % 3}", "kai", spec={"holderIdentity": ""})
            looks.append(server.count("GET", "leases/lock") - before)
        assert abs(looks[1] - looks[0]) <= 2


@in_virtual_time
async def test_an_ending_leader_waits_for_slow_lease_release():
    server = HttpServer()
    async with running(server, lease="a_1") as cluster:
        await cluster.leadership.begun()
        server.faults = Faults(delay=lambda call: 2.0 if "leases" in call.path else 0.0)
        with capture_logs() as logs:
            await cluster.leadership.give_back()
        assert server.objects[LEASE]["spec"]["holderIdentity"] == ""
        assert not logs


@in_virtual_time
async def test_an_unreachable_server_leaves_the_lease_to_expire():
    server = HttpServer()
    async with running(server, lease="a_1") as cluster:
        await cluster.leadership.begun()
        server.faults = Faults(delay=lambda _: 1000.0)
        start = anyio.current_time()
        with capture_logs() as logs:
            await cluster.leadership.give_back()
        assert anyio.current_time() - start <= 15.0, "as long as others would wait for it"
        (told,) = [each for each in logs if each["event"] == "lease not given back"]
        assert told["lease"] == "kai/lock"
        assert server.objects[LEASE]["spec"]["holderIdentity"] == "a_1"


@in_virtual_time
async def test_whoever_does_not_lead_has_nothing_to_give_back():
    server = HttpServer()
    async with running(server, lease="a_1") as first, running(server, lease="b_1", seed=2) as second:
        await first.leadership.begun()
        with capture_logs() as logs:
            await second.leadership.give_back()
        assert server.objects[LEASE]["spec"]["holderIdentity"] == "a_1"
        assert not logs


@in_virtual_time
async def test_a_leader_that_dies_is_followed_after_the_duration():
    server = HttpServer()
    async with running(server, lease="a_1") as first:
        await first.leadership.begun()
    start = anyio.current_time()
    async with running(server, lease="b_1") as second:
        await second.leadership.begun()
        assert 15.0 <= anyio.current_time() - start <= 20.0


@in_virtual_time
async def test_a_leader_losing_every_other_renewal_keeps_its_term():
    """An answer is given up after 5 of the 10 seconds that a term has left; the next try has to come at once."""
    server, writes = HttpServer(), itertools.count()
    slow = Faults(delay=lambda call: 60.0 if call.method == "PUT" and next(writes) % 2 else 1.0)
    async with running(server, lease="a_1") as cluster:
        term = await cluster.leadership.begun()
        server.faults = Faults(delay=lambda call: slow.delay(call) if "leases" in call.path else 0.0)
        await anyio.sleep(300)
        assert cluster.leadership.holds(term)
        assert next(writes) > 50


@in_virtual_time
async def test_renewals_with_lost_answers_keep_the_term():
    server, writes = HttpServer(), itertools.count()
    async with running(server, lease="a_1") as cluster:
        term = await cluster.leadership.begun()
        server.faults = Faults(
            delay=lambda call: 1.0 if "leases" in call.path else 0.0,
            loses=lambda call: call.method == "PUT" and "leases" in call.path and bool(next(writes) % 2),
        )
        await anyio.sleep(300)
        assert cluster.leadership.holds(term)


@in_virtual_time
async def test_failing_renewals_are_not_sent_more_often():
    server = HttpServer()
    async with running(server, lease="a_1") as cluster:
        await cluster.leadership.begun()
        for fault in (Answer(status=500, body=b"{}"), NoAnswer(was_sent=True, message="cut")):
            server.faults = Faults(before=lambda call, fault=fault: fault if call.method == "PUT" else None)
            before = len(server.calls)
            await anyio.sleep(8)
            assert len([call for call in server.calls[before:] if "leases" in call.path]) <= 2 * 8 / 2.0 + 2
            server.faults = Faults()
            await anyio.sleep(20)


@in_virtual_time
async def test_an_unreachable_leader_ends_its_own_term():
    server = HttpServer()
    async with running(server, lease="a_1") as cluster:
        term = await cluster.leadership.begun()
        await anyio.sleep(30)
        start = anyio.current_time()
        server.faults = Faults(before=lambda _: NoAnswer(was_sent=False, message="unreachable"))
        await cluster.leadership.ended(term)
        assert 7.0 <= anyio.current_time() - start <= 10.1
        assert "lease kai/lock: unreachable" in cluster.leadership.problem
        server.faults = Faults()
        following = await cluster.leadership.begun()
        assert following.epoch == term.epoch + 1


@in_virtual_time
async def test_slow_answers_do_not_cost_the_lease():
    server = HttpServer(faults=Faults(delay=lambda call: 4.5 if "leases" in call.path else 0.0))
    async with running(server, lease="a_1") as cluster:
        term = await cluster.leadership.begun()
        for _ in range(60):
            await anyio.sleep(1)
            assert cluster.leadership.holds(term)


@in_virtual_time
async def test_a_lost_answer_does_not_cost_the_lease():
    server = HttpServer()
    async with running(server, lease="a_1") as cluster:
        term = await cluster.leadership.begun()
        count = [0]

        def loses(call):
            count[0] += call.method == "PUT"
            return call.method == "PUT" and count[0] % 2 == 0

        server.faults.loses = loses
        for _ in range(60):
            await anyio.sleep(1)
            assert cluster.leadership.holds(term)


@in_virtual_time
async def test_a_forbidden_lease_is_not_requested_in_bursts():
    body = b'{"kind":"Status","code":403,"message":"leases is forbidden"}'
    forbid = Faults(before=lambda call: Answer(status=403, body=body) if call.method == "POST" else None)
    server = HttpServer(faults=forbid)
    async with running(server, lease="a_1") as cluster:
        await anyio.sleep(60)
        assert cluster.leadership.term is None
        assert cluster.leadership.problem == "lease kai/lock: leases is forbidden"
        assert server.count("POST", "leases") <= 31


@in_virtual_time
async def test_takeover_refreshes_the_store_and_drops_assumptions():
    server = HttpServer()
    server.put("pods", "p", "team")
    async with running(server, lease="a_1") as cluster:
        pod = cluster.store.get(Pod, "p", "team")
        server.faults.is_silent = lambda: True
        server.put("pods", "unseen", "team")
        cluster.store.assume(pod, lambda now: now is None)
        start = anyio.current_time()
        term = await take_over(cluster.store, cluster.leadership, cluster.clock)
        assert cluster.leadership.holds(term)
        assert FENCE_DELAY <= anyio.current_time() - start < 1.0
        assert cluster.store.get(Pod, "unseen", "team") is not None
        assert not cluster.store.is_assumed(Pod, ("team", "p"))


def ordered(server, name, epoch, lease="lock"):
    annotations = {"kai.scheduler/epoch": str(epoch), "kai.scheduler/lease": lease}
    server.put("bindrequests", name, "team", metadata={"annotations": annotations})


@in_virtual_time
async def test_a_deleted_lease_continues_with_the_next_epoch():
    server = HttpServer()
    async with running(server, lease="a_1") as first, running(server, lease="b_1", seed=2) as second:
        term = await first.leadership.begun()
        await anyio.sleep(5)
        server.remove("leases", "lock", "kai")
        await first.leadership.ended(term)
        await anyio.sleep(5)
        terms = [each.leadership.term for each in (first, second)]
        assert [each.epoch for each in terms if each is not None] == [term.epoch + 1]


@in_virtual_time
async def test_a_new_leaders_epoch_exceeds_all_orders():
    server = HttpServer()
    ordered(server, "old", 57)
    ordered(server, "of-another", 900, lease="other")
    async with running(server, lease="a_1") as cluster:
        term = await take_over(cluster.store, cluster.leadership, cluster.clock)
        assert term.epoch == 58
        assert cluster.leadership.holds(term)
        assert server.objects[LEASE]["spec"]["leaseTransitions"] == 58
        await anyio.sleep(60)
        assert cluster.leadership.holds(term)


@in_virtual_time
async def test_an_order_with_a_nonsensical_epoch_prevents_no_leader():
    server = HttpServer()
    ordered(server, "odd", (1 << 31) - 1)
    async with running(server, lease="a_1") as cluster:
        with anyio.fail_after(10.0):
            assert (await take_over(cluster.store, cluster.leadership, cluster.clock)).epoch == 1


@in_virtual_time
async def test_a_sole_leader_decides_once_everything_is_listed():
    server = HttpServer()
    async with running(server) as cluster:
        await cluster.store.synced()
        start, lists = anyio.current_time(), server.count("GET", "pods")
        await take_over(cluster.store, SoleLeadership("me"), cluster.clock)
        assert (anyio.current_time(), server.count("GET", "pods")) == (start, lists)


@in_virtual_time
async def test_a_process_is_unready_until_the_lease_is_read():
    server = HttpServer(faults=Faults(before=lambda call: Answer(status=500) if "leases" in call.path else None))
    async with running(server, lease="a_1") as cluster:
        await anyio.sleep(1)
        assert cluster.problems() == ("lease kai/lock: HTTP status 500",)


@in_virtual_time
async def test_whoever_is_alone_leads_for_ever():
    leadership = SoleLeadership("me")
    term = await leadership.begun()
    assert leadership.holds(term)
    with anyio.move_on_after(1000) as scope:
        await leadership.ended(term)
    assert scope.cancelled_caught
    await leadership.ended(Term(7, "another"))


def test_each_life_has_another_name():
    assert fresh_identity("pod") != fresh_identity("pod")
    assert fresh_identity("pod").startswith("pod_")


def test_a_port_without_a_lease_has_nobody_to_ask():
    assert port(HttpServer()).leadership is None
