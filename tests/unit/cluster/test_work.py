import asyncio
from itertools import pairwise

import anyio
import anyio.lowlevel
import attrs
import pytest
from structlog.testing import capture_logs

from kai.api.plans import Reason, Refusal
from kai.cluster.signals import WorkEnded
from kai.cluster.work import DONE, Alarm, Ended, QueueOptions, Workers, WorkQueue, ended_by
from tests.doubles.cluster import VirtualClock
from tests.doubles.outage import Outage


def queue(draw=lambda: 0.0, **options):
    return WorkQueue(QueueOptions(**options), draw)


def keys(looks):
    return [look.key for look in looks]


def test_a_key_wanted_repeatedly_waits_once():
    work = queue()
    for _ in range(3):
        work.want("a", 0.0)
    work.want("b", 0.0)
    assert keys(work.take(0.0)) == ["a", "b"]
    assert work.take(0.0) == ()


def test_a_key_wanted_during_a_look_is_repeated_once():
    work = queue()
    work.want("a", 0.0)
    work.take(0.0)
    work.want("a", 1.0)
    work.want("a", 2.0)
    assert work.take(3.0) == ()
    work.end("a", 3.0)
    (again,) = work.take(3.0)
    assert (again.key, again.since) == ("a", 1.0)
    work.end("a", 4.0)
    assert work.take(100.0) == ()
    assert work.next_due is None


def test_only_so_many_looks_are_under_way():
    work = queue(concurrency=2)
    for key in "abc":
        work.want(key, 0.0)
    assert keys(work.take(0.0)) == ["a", "b"]
    assert work.next_due is None
    work.end("b", 1.0)
    assert keys(work.take(1.0)) == ["c"]


def test_events_are_gathered_from_the_first_on():
    work = queue(gather=2.0)
    work.want("a", 0.0)
    work.want("a", 1.5)
    assert work.take(1.9) == ()
    assert work.next_due == 2.0
    (look,) = work.take(2.0)
    assert look.since == 1.5


def test_pauses_after_failures_double_up_to_the_longest():
    work = queue(longest_pause=5.0)
    now, pauses = 0.0, []
    work.want("a", now)
    for _ in range(5):
        work.take(now)
        work.end("a", now, Ended(failure="no"))
        pauses.append(work.next_due - now)
        now = work.next_due
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
    work.take(now)
    work.end("a", now)
    work.want("a", now)
    work.take(now)
    work.end("a", now, Ended(failure="no"))
    assert work.next_due == now + 1.0


def test_pauses_are_shortened_at_random():
    work = queue(draw=lambda: 0.5)
    work.want("a", 0.0)
    work.take(0.0)
    work.end("a", 0.0, Ended(failure="no"))
    assert work.next_due == pytest.approx(0.875)


def test_an_event_ends_the_backoff_but_no_requested_pause():
    work = queue()
    work.want("a", 0.0)
    work.take(0.0)
    work.end("a", 0.0, Ended(failure="no", after=30.0))
    assert work.next_due == 30.0
    work.want("a", 5.0)
    assert keys(work.take(5.0)) == ["a"]
    work.want("a", 6.0)
    work.end("a", 7.0, Ended(failure="busy", after=10.0))
    assert work.next_due == 17.0


def test_a_look_may_ask_for_another_one_later():
    work = queue()
    work.want("a", 0.0)
    work.take(0.0)
    work.end("a", 1.0, Ended(after=60.0))
    assert work.next_due == 61.0


@attrs.define
class Recorder:
    clock: VirtualClock
    seen: list = attrs.field(factory=list)
    facts: list = attrs.field(factory=list)

    async def look(self, look):
        self.seen.append((look.key, self.clock.time - 1000.0))
        if look.key == "bug" and len(self.seen) < 3:
            raise RuntimeError("a bug")
        await self.clock.sleep(5.0)
        return DONE


@pytest.mark.anyio
async def test_workers_look_at_due_keys_and_survive_bugs():
    clock = VirtualClock()
    recorder = Recorder(clock)
    workers = Workers("test", queue(concurrency=1), recorder.look, clock, recorder.facts.append)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run)
        workers.want("a")
        workers.want("bug")
        await clock.pass_time(5.0)
        assert recorder.seen == [("a", 0.0), ("bug", 5.0)]
        await clock.pass_time(20.0)
        tasks.cancel_scope.cancel()
    assert recorder.seen == [("a", 0.0), ("bug", 5.0), ("bug", 6.0)]
    assert recorder.facts == [
        WorkEnded(work="test", failed=False, seconds=5.0, waited=5.0),
        WorkEnded(work="test", failed=True, seconds=0.0, waited=5.0),
        WorkEnded(work="test", failed=False, seconds=5.0, waited=5.0),
    ]


@pytest.mark.anyio
async def test_a_look_begins_immediately_and_gathering_wakes_nothing(monkeypatch):
    clock, rings = VirtualClock(), []
    monkeypatch.setattr(Alarm, "ring", lambda _: rings.append(clock.time))
    begun = []

    async def look(each):
        begun.append(each.key)
        return DONE

    at_once, gathered = (Workers("test", queue(gather=pause), look, clock) for pause in (0.0, 1.0))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(at_once.run)
        tasks.start_soon(gathered.run)
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        for key in ("a", "b"):
            at_once.want(key)
            gathered.want(key)
        await anyio.lowlevel.checkpoint()
        assert (begun, rings) == (["a", "b"], [])
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
async def test_a_rush_of_keys_shares_tasks_and_loop():
    clock, carriers, beats = VirtualClock(), [], []

    async def look(_):
        carriers.append(asyncio.current_task())
        return DONE

    async def beat():
        while True:
            beats.append(len(carriers))
            await anyio.lowlevel.checkpoint()

    workers = Workers("test", queue(concurrency=4), look, clock)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(workers.run)
        tasks.start_soon(beat)
        await clock.pass_time(1.0)
        for key in range(100):
            workers.want(key)
        await clock.pass_time(1.0)
        tasks.cancel_scope.cancel()
    assert (len(carriers), len(set(carriers))) == (100, 4)
    assert max(after - before for before, after in pairwise(beats)) <= 4


@pytest.mark.anyio
@pytest.mark.parametrize("turns", range(12))
async def test_a_key_wanted_as_workers_end_leaves_no_task(turns):
    clock = VirtualClock()

    async def look(each):
        try:
            # A lock turns for ever where a group is cancelled and a task in it is not told.
            async with anyio.Lock():
                await clock.sleep(60.0)
        finally:
            with anyio.CancelScope(shield=True):
                for _ in range(5 if each.key == "a" else 0):
                    await anyio.lowlevel.checkpoint()
        return DONE

    others = asyncio.all_tasks()
    workers = Workers("test", queue(), look, clock)
    ending = asyncio.create_task(workers.run())
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    workers.want("a")
    for _ in range(3):
        await anyio.lowlevel.checkpoint()
    ending.cancel()
    for _ in range(turns):
        await asyncio.sleep(0)
    workers.want("b")
    for _ in range(50):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - others
    for each in left:
        each.cancel()  # so that a failure ends, too
    assert ending.done()
    assert not left


async def looked_at(fail, seconds, outage, clock):
    """Return when one key was looked at and what was logged; the look fails for so long, then the server returns."""
    seen = []

    async def look(_):
        seen.append(clock.time - 1000.0)
        return Ended(failure="no answer", unwritten="queue q") if fail() else DONE

    workers = Workers("test", queue(), look, clock, connectivity=outage)
    with capture_logs() as logs:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(workers.run)
            workers.want("a")
            await clock.pass_time(seconds)
            outage.end()
            await clock.pass_time(5.0)
            tasks.cancel_scope.cancel()
    assert outage.listeners == []
    return seen, logs


@pytest.mark.anyio
async def test_a_failed_key_is_retried_once_the_server_returns():
    outage, clock = Outage(), VirtualClock()
    seen, _ = await looked_at(lambda: clock.time < 1130.0, 130.0, outage, clock)
    assert seen == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 123.0, 130.0]


@pytest.mark.anyio
async def test_no_look_or_warning_happens_during_an_outage():
    outage, clock = Outage(), VirtualClock()

    def fail():
        outage.begin()
        return clock.time == 1000.0

    seen, logs = await looked_at(fail, 3600.0, outage, clock)
    assert seen == [0.0, 3600.0]
    assert {each["log_level"] for each in logs} <= {"debug"}


@pytest.mark.anyio
async def test_a_failed_write_outside_an_outage_is_logged():
    outage, clock = Outage(), VirtualClock()
    _, (line, *_) = await looked_at(lambda: clock.time == 1000.0, 1.0, outage, clock)
    assert (line["event"], line["subject"], line["why"]) == ("not written", "queue q", "no answer")


@pytest.mark.parametrize(
    ("reason", "unwritten"), [(Reason.CONFLICT, ""), (Reason.REJECTED, "queue q"), (Reason.UNAVAILABLE, "queue q")]
)
def test_a_conflict_is_retried_without_a_log_line(reason, unwritten):
    ended = ended_by(Refusal(reason=reason, message="no"), "queue q")
    assert (ended.failure, ended.unwritten) == ("no", unwritten)


# --- The alarm -----------------------------------------------------------------------------------------------------


def test_an_alarm_rings_at_each_set_time():
    clock, rung = VirtualClock(), []

    async def listen(alarm):
        while True:
            await alarm.wait()
            rung.append(clock.monotonic())

    async def scenario():
        begin = clock.monotonic()
        async with anyio.create_task_group() as tasks:
            alarm = Alarm(clock, tasks)
            tasks.start_soon(listen, alarm)
            for seconds in (5.0, 2.0, 7.0, 3.0):
                alarm.set_for(begin + seconds)
            alarm.set_for(None)
            await clock.pass_time(10.0)
            tasks.cancel_scope.cancel()
        return [at - begin for at in rung]

    # What is set for later than something else is asked for again by whoever is woken by that.
    assert anyio.run(scenario) == [2.0, 5.0]


def test_a_ring_before_the_wait_is_not_lost():
    async def scenario():
        async with anyio.create_task_group() as tasks:
            alarm = Alarm(VirtualClock(), tasks)
            alarm.ring()
            with anyio.fail_after(1):
                await alarm.wait()
            return True

    assert anyio.run(scenario)
