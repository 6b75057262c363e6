"""The loop of the scheduler, in virtual time: what a cycle fails at holds up nothing else, and is told once."""

import gc
from collections import Counter
from itertools import count, pairwise
from math import inf
from types import SimpleNamespace

import anyio
import attrs
import pytest
from structlog.testing import capture_logs

from kai.actions import allocate
from kai.answers.offline.run import simulate
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.port import Term
from kai.cluster.process.decisions import read_decisions
from kai.deciding.engine import fast_path
from kai.facts.state.snapshot import Snapshot
from kai.framework.decisions import Bind
from kai.framework.hooks import NodeFilter, PluginUse
from kai.intake.aside import Suspect
from kai.lab.sources.archive import read_archive
from kai.roles.scheduler import kernel_warmup, service
from kai.roles.scheduler.committing.committer import Committer
from kai.roles.scheduler.cycle.cycling import Done, Failure
from kai.roles.scheduler.cycle.dump import archive
from kai.roles.scheduler.cycle.stream import Stream
from kai.roles.scheduler.effects import Decided, Tick
from kai.roles.scheduler.making import make_scheduler
from kai.roles.scheduler.reporting.decision_log import DecisionLog
from kai.roles.scheduler.settings import SchedulerSettings
from tests.doubles import virtual_time
from tests.doubles.cluster import MemoryCluster
from tests.doubles.cpu import InlineCpu
from tests.unit.intake import making

TERM = Term(1, "life")
FREE = {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("cpu", "memory", "gpu")}


@attrs.frozen
class Touchy:
    """A plugin that fails where it opens, or at groups whose names begin so."""

    at: str
    opens: bool = True

    def open(self, session):
        if not self.opens:
            raise RuntimeError("cannot open")
        snapshot = session.snapshot

        def filter_nodes(pod, nodes):
            name = snapshot.pods[pod].name
            if name.startswith(self.at):
                raise RuntimeError(f"cannot bear {name}")
            return nodes >= 0

        return [NodeFilter(filter_nodes)]


def job(name):
    """Return a group of one pod."""
    return making.group(name, minMember=1), making.pod(f"{name}-0", group=name, requests={"cpu": "10m"})


def cluster_of(*jobs):
    shared = (making.queue("top", resources=FREE), making.queue("q", parent="top", resources=FREE), making.node("n"))
    return MemoryCluster(*shared, *(each for name in jobs for each in job(name)))


@attrs.define
class Rig:
    """A scheduler that leads, its cluster, and when each of its cycles ended with what."""

    memory: MemoryCluster
    scheduler: service.Scheduler
    cycles: list = attrs.field(factory=list)

    def names(self, *kinds):
        return [type(outcome).__name__ for _, outcome in self.cycles if not kinds or isinstance(outcome, kinds)]

    def inputs(self):
        """Return what the last cycle was given, and what another would be given now."""
        return self.scheduler.cycles.last, self.scheduler._given()

    def bound(self):
        store = self.memory.store
        return sorted(each.spec.pod_name for each in store.all(BindRequest))

    async def until(self, condition, seconds=60.0):
        """Let time pass until something is so."""
        with anyio.fail_after(seconds):
            while not condition():  # noqa: ASYNC110 - what is waited for is of many kinds
                await anyio.sleep(0.01)

    async def touch(self):
        """Let something change that matters to no group, and wait for the cycle that follows."""
        before = len(self.cycles)
        self.memory.server.add(making.node("n", labels={"touched": str(before)}))
        await self.until(lambda: len(self.cycles) > before)


def lead(memory, play, *plugins):
    """Let a scheduler lead in virtual time while a test plays, and return what it logged."""

    async def led():
        clock = virtual_time.VirtualClock()
        port = attrs.evolve(memory.port, clock=clock, cpu=InlineCpu())
        leadership = SimpleNamespace(holds=lambda _: True)
        scheduler = make_scheduler(port, SchedulerSettings(dump_folder="/nonexistent"), leadership)
        profile = scheduler.cycles.profile
        uses = tuple(PluginUse(name=f"touchy-{number}", plugin=each) for number, each in enumerate(plugins))
        scheduler.cycles.profile = attrs.evolve(profile, plugins=profile.plugins + uses)
        rig = Rig(memory, scheduler)
        once = scheduler._decide_once

        async def noted(term):
            outcome = await once(term)
            rig.cycles.append((anyio.current_time(), outcome))
            return outcome

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(service.Scheduler, "_decide_once", lambda _, term: noted(term))
            async with anyio.create_task_group() as tasks:
                scheduler.outbox.begin(TERM)
                tasks.start_soon(scheduler.outbox.run)
                tasks.start_soon(scheduler.rests.run)
                tasks.start_soon(scheduler._decide_on, TERM)
                await play(rig)
                tasks.cancel_scope.cancel()

    with capture_logs() as logs:
        virtual_time.run(led)
    return logs


@pytest.fixture
def collector_off():
    """Keep the collector from freeing what is in cycles; what other tests left in some is gone before."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def events(logs, what):
    return [each for each in logs if each["event"] == what]


@pytest.mark.parametrize(("least", "seconds"), [(1, 0.0), (2, 0.05)])
def test_only_independent_pods_are_decided_without_gathering(least, seconds):
    async def play(rig):
        await anyio.sleep(10.0)
        before, came = len(rig.cycles), anyio.current_time()
        rig.memory.server.add(making.group("new", minMember=least))
        rig.memory.server.add(making.pod("new-0", group="new", requests={"cpu": "10m"}))
        await rig.until(lambda: len(rig.cycles) > before)
        assert rig.cycles[before][0] - came == pytest.approx(seconds)

    lead(cluster_of(), play)


def test_immediate_cycles_are_limited_under_many_pods():
    async def play(rig):
        await anyio.sleep(10.0)
        before, came = len(rig.cycles), anyio.current_time()
        for number in range(100):
            for each in job(f"new-{number}"):
                rig.memory.server.add(each)
            await anyio.sleep(0.01)
        await rig.until(lambda: len(rig.bound()) == 100)
        assert [round(at - came, 3) for at, _ in rig.cycles[before : before + 4]] == [0.0, 0.01, 0.02, 0.03]
        assert len(rig.cycles) - before < 30

    lead(cluster_of(), play)


def counted(number):
    return {"status": {"resourcesStatus": {"allocated": {"cpu": f"{number}"}}}}


def test_status_changes_cost_few_cycles_and_delay_no_pod():
    async def play(rig):
        server = rig.memory.server
        server.add(making.group("told", minMember=1))
        await anyio.sleep(10.0)
        before, began = len(rig.cycles), anyio.current_time()
        for number in range(150):
            server.change("PodGroup", "told", "default", counted(number))
            await anyio.sleep(0.01)
        assert [round(at - began, 2) for at, _ in rig.cycles[before:]] == [1.05]
        came = anyio.current_time()
        for each in job("new"):
            server.add(each)
        await rig.until(lambda: rig.bound() == ["new-0"])
        assert anyio.current_time() - came == pytest.approx(0.0, abs=0.02)

    lead(cluster_of(), play)


def test_a_cycle_failing_at_one_group_is_repeated_immediately():
    async def play(rig):
        await rig.until(lambda: rig.bound() == ["good-0"])
        (first, failure), (second, done), *_ = rig.cycles
        assert (type(failure), failure.again, type(done)) == (Failure, True, Done)
        assert first == second
        assert rig.scheduler._failures == 0
        for manifest in job("later"):
            rig.memory.server.add(manifest)
        since = anyio.current_time()
        await rig.until(lambda: rig.bound() == ["good-0", "later-0"])
        assert anyio.current_time() - since < 1.0
        assert len(rig.names(Failure)) == 1

    lead(cluster_of("good", "poison"), play, Touchy("poison"))


def test_a_group_set_aside_is_logged_once():
    async def play(rig):
        for _ in range(5):
            await rig.touch()

    logs = lead(cluster_of("good", "poison"), play, Touchy("poison"))
    (told,) = events(logs, "set aside")
    assert told["what"] == "podgroup default/poison"
    assert "cannot bear poison-0 (at filter_nodes in tests.unit.roles.scheduler.test_service, line " in told["why"]
    assert told["log_level"] == "error"
    assert not events(logs, "one error at most groups")


def test_a_statement_failing_at_commit_sets_its_group_aside(monkeypatch):
    step = Committer.step

    def failing(self, event, now):
        if isinstance(event, Decided):
            names = {event.snapshot.pods[each.pod].name for each in event.decisions}
            if "poison-0" in names:
                raise LookupError("no order")
        return step(self, event, now)

    monkeypatch.setattr(Committer, "step", failing)

    async def play(rig):
        poison = Suspect("PodGroup", "default", "poison")
        await rig.until(lambda: rig.bound() == ["good-0", "well-0"])
        await rig.until(lambda: list(rig.scheduler.cycles.inquiry.records) == [poison])
        await rig.touch()
        assert not rig.names(Failure)
        assert not rig.scheduler.problem().startswith("cycles fail")

    logs = lead(cluster_of("good", "poison", "well"), play)
    (told,) = events(logs, "set aside")
    assert (told["kind"], told["what"]) == ("LookupError", "podgroup default/poison")


def test_an_endless_cycle_is_a_note_then_a_problem():
    async def play(rig):
        scheduler = rig.scheduler
        await rig.until(lambda: rig.bound() == ["good-0"])
        told = 'a cycle has not ended for {} s: see "computing for long" in the log'
        for lasts, problem, note in ((59, "", ""), (60, "", told), (600, told, told)):
            scheduler.metrics.cycle_lasts = lambda lasts=lasts: lasts
            assert (scheduler.problem(), scheduler.note()) == (problem.format(lasts), note.format(lasts))

    lead(cluster_of("good"), play)


def test_no_cycle_runs_during_an_outage():
    async def play(rig):
        await rig.until(lambda: rig.bound() == ["good-0"])
        rig.memory.connectivity.begin()
        await anyio.sleep(10.0)
        during = len(rig.cycles)
        for manifest in job("later"):
            rig.memory.server.add(manifest)
        await anyio.sleep(3600.0)
        assert len(rig.cycles) - during <= 1  # one may have been about to begin
        rig.memory.connectivity.end()
        await rig.until(lambda: rig.bound() == ["good-0", "later-0"], seconds=1.0)

    lead(cluster_of("good"), play)


def test_changes_in_other_pools_cause_rare_cycles():
    """Each of several schedulers would decide as often as all of them together, and mostly about nothing."""
    theirs = {"kai.scheduler/node-pool": "theirs"}

    async def play(rig):
        server = rig.memory.server
        server.add(making.node("n-theirs", labels=theirs))
        server.add(making.group("g-theirs", metadata={"labels": theirs}))
        await rig.until(lambda: rig.bound() == ["good-0"])
        await anyio.sleep(30.0)
        before = len(rig.cycles)
        for number in range(200):
            server.add(making.pod(f"p-{number}", group="g-theirs", node="n-theirs" if number % 2 else ""))
            await anyio.sleep(0.05)
        assert len(rig.cycles) - before <= 11
        for manifest in job("later"):
            server.add(manifest)
        await rig.until(lambda: rig.bound() == ["good-0", "later-0"], seconds=0.5)

    lead(cluster_of("good"), play)


@pytest.mark.parametrize(("list_comes_after", "cycle_comes_after"), [(5.0, 5.0), (inf, 30.0)])
def test_after_an_outage_cycles_wait_for_a_pod_listing(list_comes_after, cycle_comes_after):
    """The server may have been put back to a backup, in which pods that are known as gone hold their places again."""

    async def play(rig):
        store = rig.memory.store
        await rig.until(lambda: rig.bound() == ["good-0"])
        rig.memory.connectivity.begin()
        await anyio.sleep(10.0)
        store.outlived(Pod, 2)
        for manifest in job("later"):
            rig.memory.server.add(manifest)
        await anyio.sleep(10.0)
        during, since = len(rig.cycles), anyio.current_time()
        rig.memory.connectivity.end()
        await anyio.sleep(min(cycle_comes_after, list_comes_after) - 0.1)
        assert len(rig.cycles) == during
        if list_comes_after < inf:
            store.listed(Pod, 2)
        await rig.until(lambda: rig.bound() == ["good-0", "later-0"], seconds=1.0)
        assert rig.cycles[during][0] >= since + cycle_comes_after - 0.1

    lead(cluster_of("good"), play)


def test_a_cycle_waits_a_second_at_most_for_evictions():
    async def play(rig):
        await rig.until(lambda: rig.bound() == ["good-0"])
        committer = rig.scheduler.outbox.committer
        for answered, longest in ((None, 1.5), (0.5, 0.9)):
            await anyio.sleep(10.0)
            committer._evictions.begin(("team", "victim"), "team", 0)
            before, since = len(rig.cycles), anyio.current_time()
            rig.memory.server.add(making.node("n", labels={"touched": str(longest)}))
            await anyio.sleep(answered or 0.9)
            assert len(rig.cycles) == before
            if answered:
                committer._evictions.clear()
                rig.scheduler.outbox.commit(Tick())
            await rig.until(lambda seen=before: len(rig.cycles) > seen)
            assert anyio.current_time() - since < longest
            committer._evictions.clear()

    lead(cluster_of("good"), play)


def test_a_cycles_input_is_freed_without_the_collector(collector_off):
    del collector_off
    kept = {}
    others = Counter(map(type, gc.get_objects()))

    async def play(rig):
        await rig.until(lambda: rig.bound() == ["good-0"])
        for _ in range(8):
            await rig.touch()
        rig.cycles.clear()
        alive = Counter(map(type, gc.get_objects()))
        kept.update({cls: alive[cls] - others[cls] for cls in (Stream, Snapshot)})

    lead(cluster_of("good"), play)
    assert kept[Stream] <= 1
    assert kept[Snapshot] <= 2


def test_a_plugin_failing_at_open_makes_cycles_rare():
    async def play(rig):
        await rig.until(lambda: rig.scheduler._failures == 8, seconds=3600)
        ended = [time for time, outcome in rig.cycles if not outcome.again]
        pauses = [after - before for before, after in pairwise(ended)]
        assert pauses == sorted(pauses)
        assert pauses[-1] == pytest.approx(60.0, abs=1.0)
        assert rig.scheduler.problem() == 'cycles fail: plugin "touchy-0", open: raised RuntimeError: cannot open'
        assert rig.scheduler.note() == ""
        assert not rig.scheduler.cycles.inquiry.left_out

    logs = lead(cluster_of("good", "well"), play, Touchy("", opens=False))
    told = events(logs, "cycle abandoned")
    assert len(told) == 8
    assert all("cannot open (at open in tests.unit.roles.scheduler.test_service, line " in each["why"] for each in told)
    assert not events(logs, "set aside")
    (fails,) = events(logs, "plugin fails")
    assert (fails["plugin"], fails["hook"], fails["groups"], fails["then"]) == ("touchy-0", "open", 0, "stop")


def test_an_error_at_most_groups_is_told_as_one(monkeypatch):
    poisoned = [f"poison-{number:02}" for number in range(30)]
    place = allocate.place_waiting_group

    def failing(session, statement, portion, nodes):
        if session.snapshot.groups[portion.group].name.startswith("poison"):
            raise LookupError("a bug")
        return place(session, statement, portion, nodes)

    monkeypatch.setattr(allocate, "place_waiting_group", failing)

    async def play(rig):
        rig.scheduler.cycles.profile = attrs.evolve(
            rig.scheduler.cycles.profile,
            parameters=attrs.evolve(rig.scheduler.cycles.profile.parameters, shortcuts=False),
        )
        await rig.until(lambda: rig.bound() == ["good-0"])
        for _ in range(3):
            await rig.touch()

    logs = lead(cluster_of("good", *poisoned), play)
    assert Counter(each["event"] for each in logs)["set aside"] == len(poisoned)
    (told,) = events(logs, "one error at most groups")
    assert (told["groups"], told["waiting"], told["kind"]) == (30, 30, "LookupError")


def test_a_plugin_failing_at_many_groups_is_named_once():
    many = [f"poison-{number:03}" for number in range(200)]
    name = "touchy-0"

    async def play(rig):
        scheduler = rig.scheduler
        await rig.until(lambda: rig.bound() == ["good-0"])
        assert len(rig.names(Failure)) <= 10
        for _ in range(3):
            await rig.touch()
        assert len(rig.names(Failure)) <= 10
        assert not scheduler.cycles.inquiry.left_out
        assert scheduler.problem() == ""
        assert "NodeFilter.filter: raised RuntimeError: cannot bear poison-" in scheduler.note()
        assert scheduler.metrics._failing.labels(name, "NodeFilter.filter", "refuse")._value.get() == 1
        assert scheduler.metrics._plugin_failures.labels(name, "NodeFilter.filter")._value.get() >= 200
        for group in many:
            rig.memory.server.remove("Pod", f"{group}-0", "default")
        await rig.until(lambda: not scheduler.cycles.faults.known, seconds=200)
        assert scheduler.note() == ""

    logs = lead(cluster_of("good", *many), play, Touchy("poison"))
    (told,) = events(logs, "plugin fails")
    assert (told["log_level"], told["plugin"], told["hook"]) == ("error", name, "NodeFilter.filter")
    assert (told["groups"], told["then"]) == (3, "refuse")
    (over,) = events(logs, "plugin works again")
    assert over["plugin"] == name
    assert not events(logs, "set aside")


def test_decisions_are_counted_hourly_and_logged(tmp_path):
    path = str(tmp_path / "decisions.jsonl")
    heard = []

    async def play(rig):
        log = DecisionLog.to(path, 1, 1, heard.append)
        log.start()
        rig.scheduler.decisions = log
        rig.memory.server.add(making.group("late", minMember=1))
        rig.memory.server.add(making.pod("late-0", group="late", requests={"cpu": "10m"}))
        await rig.until(lambda: "late-0" in rig.bound())
        await rig.touch()
        rig.scheduler.hourly.log_line()
        log.close()

    logs = lead(cluster_of("a"), play)
    (hour,) = [line for line in logs if line["event"] == "last hour"]
    assert hour["binds"] == 2
    assert hour["cycles"] >= 2
    found = [(each.kind, each.subject.name, each.action) for each in read_decisions(path)]
    assert ("bind", "late-0", "allocate") in found
    assert heard == []


def test_a_large_cluster_is_bound_partially_while_kernels_compile(monkeypatch):
    monkeypatch.setattr(kernel_warmup, "is_plain", lambda: True)
    monkeypatch.setattr(kernel_warmup, "work_of", lambda *_counts: kernel_warmup.MOST_PLAIN + 1)
    monkeypatch.setattr(fast_path, "BATCH", 1)
    names = [f"job-{at}" for at in range(8)]
    told = {}

    async def play(rig):
        kernels, ticks = rig.scheduler.kernels, count()
        kernels.missing = 90
        kernels._assessed.set()
        # Each look at the clock takes a part of the time that a cycle has for groups.
        rig.scheduler.cycles.clock = lambda: next(ticks) * kernel_warmup.PART_SECONDS / 3
        await rig.until(lambda: len(rig.bound()) == len(names))
        told["note"] = rig.scheduler.note()
        told["cycles"] = [outcome for _, outcome in rig.cycles if isinstance(outcome, Done) and outcome.decisions]

    lead(cluster_of(*names), play)
    of_cycles = [[each.pod for each in outcome.decided] for outcome in told["cycles"]]
    assert all(0 < len(pods) < len(names) for pods in of_cycles)
    assert sum(map(len, of_cycles)) == len(names)
    first = told["cycles"][0]
    left = {each.name: each for each in first.overall.groups if each.waits_for_turn}
    assert set(left) == {first.snapshot.groups[row].name for row in first.report.left.tolist()}
    assert all("this one waits for its turn" in each.unschedulable for each in left.values())
    assert told["note"].startswith("compiling kernels, 0 of 90; cycles decide a part")


def test_an_earlier_leaders_order_counts_for_its_group():
    """The link of a pod may be written with its binding, so the next leader finds the order and a pod without link."""
    granted = {"annotations": {"kai.scheduler/granted": '{"queue":"narrow","group":"ordered"}'}}
    firm = {"queue": "narrow", "preemptibility": "non-preemptible"}
    memory = cluster_of()
    for each in (
        making.node("m", allocatable={"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}),
        making.queue("narrow", parent="top", resources={**FREE, "gpu": {"quota": 1, "limit": -1}}),
        *(making.group(name, **firm) for name in ("ordered", "next")),
        making.pod("ordered-0", requests={"nvidia.com/gpu": "1"}),
        making.bind_request("ordered-0", "m", metadata=granted),
        making.pod("next-0", group="next", requests={"nvidia.com/gpu": "1"}),
    ):
        memory.server.add(each)

    async def play(rig):
        await rig.touch()
        assert rig.bound() == ["ordered-0"]
        memory.server.remove("BindRequest", "ordered-0", "default")
        await rig.until(lambda: rig.bound() == ["next-0"])

    lead(memory, play)


def replayed(given, settings, path):
    """Return which pods are bound when an archive of what a cycle was given is decided again."""
    path.write_bytes(archive(given, settings))
    (cycle,) = simulate(attrs.evolve(read_archive(path, "snapshot"), cycles=1)).cycles
    return [cycle.snapshot.pods[each.pod].name for each in cycle.decisions if isinstance(each, Bind)]


def test_resting_pods_are_gated_in_the_served_snapshot():
    async def play(rig):
        await rig.until(lambda: rig.bound() == ["a-0"])
        committer, clock = rig.scheduler.outbox.committer, rig.scheduler.cluster.clock
        committer.feedback.bind_backoff.failed("uid-b-0", "no", clock.monotonic(), clock.now())
        for each in job("b"):
            rig.memory.server.add(each)
        await rig.touch()
        gated = [[len(pod.spec.scheduling_gates) for pod in given.objects.pods] for given in rig.inputs()]
        assert gated == [[0, 1], [0, 1]]

    lead(cluster_of("a"), play)


def test_an_unbound_victim_is_evicted_after_ten_seconds():
    """A rejected statement is not decided again and again: nothing would come of it."""
    memory = cluster_of()
    one = {"requests": {"nvidia.com/gpu": "1"}}
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "1"}
    memory.server.add(making.node("n", allocatable=allocatable))
    memory.server.add(making.other("PriorityClass", "scheduling.k8s.io/v1", "high", value=90))
    for each in (making.group("low", minMember=1), making.pod("low-0", group="low", **one)):
        memory.server.add(each)

    async def play(rig):
        await rig.until(lambda: rig.bound() == ["low-0"])
        ordered = anyio.current_time()
        await anyio.sleep(2.0)
        before = len(rig.cycles)
        memory.server.add(making.group("high", minMember=1, priorityClassName="high"))
        memory.server.add(making.pod("high-0", group="high", **one))
        await rig.until(lambda: memory.store.get(Pod, "low-0", "default") is None)
        assert anyio.current_time() - ordered == pytest.approx(10.0, abs=0.5)
        assert len(rig.cycles) - before <= 5

    lead(memory, play)


def test_a_moved_pods_place_goes_to_its_successor(tmp_path):
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j", "controller": True}
    owned, two = {"metadata": {"ownerReferences": [owner]}}, {"cpu": "8", "memory": "32Gi", "pods": "110"}
    one, memory = {"requests": {"nvidia.com/gpu": "1"}}, cluster_of()
    for each in (
        *(making.node(name, allocatable={**two, "nvidia.com/gpu": "2"}) for name in ("n1", "n2")),
        *(making.group(name, minMember=1) for name in ("moved", "wide", "late")),
        making.group("firm", minMember=1, preemptibility="non-preemptible"),
        making.pod("moved-0", group="moved", phase="Running", node="n1", **owned, **one),
        making.pod("firm-0", group="firm", phase="Running", node="n2", **one),
        making.pod("wide-0", group="wide", requests={"nvidia.com/gpu": "2"}),
    ):
        memory.server.add(each)

    async def play(rig):
        await rig.until(lambda: memory.store.get(Pod, "moved-0", "default") is None)
        memory.server.add(making.pod("late-0", group="late", **one))
        await rig.until(lambda: "wide-0" in rig.bound())
        await rig.touch()
        assert rig.bound() == ["wide-0"]
        for given in rig.inputs():
            assert replayed(given, rig.scheduler.settings, tmp_path / "given.zip") == []
            without = [pod for pod in given.objects.pods if "~" not in pod.metadata.name]
            missing = attrs.evolve(given, objects=attrs.evolve(given.objects, pods=tuple(without)))
            assert replayed(missing, rig.scheduler.settings, tmp_path / "given.zip") == ["late-0"]
        memory.server.add(making.pod("moved-1", group="moved", **owned, **one))
        await rig.until(lambda: rig.bound() == ["moved-1", "wide-0"])

    lead(memory, play)
