"""A cycle costs what it costs and nothing else: its failure is a value, its decisions are streamed."""

import itertools
import sys
from contextlib import contextmanager

import attrs
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from kai.api.kubernetes.pod import Container, ResourceRequirements
from kai.cluster.port import Term
from kai.cluster.process.tracing import make_tracing, no_tracing
from kai.deciding.configuration.profiles import default_profile
from kai.facts.model.groups import Shares
from kai.facts.model.placement import Past
from kai.framework.decisions import Bind
from kai.roles.scheduler.cycle import cycling
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.cycling import Cycles, Done, Failure
from kai.roles.scheduler.cycle.stream import CycleObserver, Stream
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.roles.scheduler.small import small_cluster
from tests.unit.roles.scheduler.test_service import cluster_of, lead

TERM = Term(1, "life")


@attrs.frozen
class Failing:
    name: str = "allocate"

    def run(self, session):
        raise RuntimeError("a bug\nwith two lines")


def run(settings, *, profile=None, stopped=False, tracing=None):
    spans = tracing or no_tracing()
    cycles = Cycles(settings, profile or default_profile(), lambda: 0.0)
    woken = []
    observer = CycleObserver.begin(spans.tracer, lambda: 0.0, 1)
    stream = Stream(TERM, 1, observer, lambda _: woken.append(1), lambda: stopped)
    return cycles.run(CycleInput(objects=small_cluster(), now=0.0, cycle=1), stream), stream, woken, cycles


def test_decisions_are_streamed_and_the_loop_is_told_once():
    outcome, stream, woken, cycles = run(SchedulerSettings())
    assert isinstance(outcome, Done)
    events = stream.taken()
    assert len(woken) == 1
    assert stream.taken() == ()
    assert {(event.term, event.cycle) for event in events} == {(TERM, 1)}
    binds = [each for event in events for each in event.decisions if isinstance(each, Bind)]
    assert outcome.decisions == sum(len(event.decisions) for event in events)
    assert outcome.groups["allocate"] == (len(binds), len(binds))
    assert outcome.restless
    assert {"snapshot", "open", "allocate", "reclaim", "close", "explain"} <= set(outcome.seconds)
    assert cycles.last is not None
    assert cycles.last.cycle == 1


def test_some_decisions_can_be_taken_while_the_rest_waits():
    _, stream, _, _ = run(SchedulerSettings())
    (first,) = stream.taken()
    for _ in range(3):
        stream.take(first.decisions)
    assert stream.taken(1) == (first,)
    assert stream.waiting == 2
    assert stream.taken(7) == (first, first)
    assert stream.taken() == ()


def test_a_failure_is_returned_and_its_input_written(tmp_path):
    profile = attrs.evolve(default_profile(), actions=(Failing(),))
    settings = SchedulerSettings(dump_folder=str(tmp_path))
    outcome, _, woken, _ = run(settings, profile=profile)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "ActionError"
    whose = f'action "allocate" ({__name__}), run: raised RuntimeError: a bug with two lines'
    assert outcome.message.startswith(f"{whose} (at run in tests.unit.roles.scheduler.test_cycling, line ")
    assert [path.name for path in tmp_path.iterdir()] == [outcome.dump.rpartition("/")[2]]
    assert woken == []


def test_a_failure_is_returned_even_without_its_input_file(tmp_path):
    profile = attrs.evolve(default_profile(), actions=(Failing(),))
    settings = SchedulerSettings(dump_folder=str(tmp_path), document={"actions": {"allocate"}})  # JSON has no sets
    with capture_logs() as logs:
        outcome, _, _, _ = run(settings, profile=profile)
    assert isinstance(outcome, Failure)
    assert (outcome.kind, outcome.dump) == ("ActionError", "")
    assert [(each["event"], each["why"].partition(":")[0]) for each in logs] == [("snapshot not written", "TypeError")]


def test_a_cycle_that_is_told_to_stop_decides_nothing():
    outcome, stream, _, _ = run(SchedulerSettings(), stopped=True)
    assert isinstance(outcome, Failure)
    assert outcome.kind == "AbandonedError"
    assert stream.taken() == ()


def test_a_cycle_is_one_trace_with_spans_for_parts():
    exporter = InMemorySpanExporter()
    tracing = make_tracing("kai", exporter=exporter)
    _, stream, _, _ = run(SchedulerSettings(), tracing=tracing)
    tracing.close()
    spans = exporter.get_finished_spans()
    assert {"cycle", "snapshot", "open", "allocate", "stalegangeviction", "commit", "close", "explain"} <= {
        s.name for s in spans
    }
    assert len({span.context.trace_id for span in spans}) == 1
    assert all(set(span.attributes) <= {"kai.cycle", "kai.action", "kai.statements", "kai.decisions"} for span in spans)
    assert {event.trace.split("-")[1] for event in stream.taken()} == {f"{spans[0].context.trace_id:032x}"}


@attrs.frozen
class Counting:
    """An action that counts how often it runs."""

    runs: list[int]
    name: str = "counting"

    def run(self, session):
        self.runs.append(len(session.snapshot.pods))


def test_a_cycle_in_which_nothing_changed_looks_at_nothing():
    """However many objects there are: what is not called costs nothing, so calls are counted, not seconds."""
    runs: list[int] = []
    settings, spans = SchedulerSettings(), no_tracing()
    profile = attrs.evolve(default_profile(), actions=(Counting(runs),))
    cycles = Cycles(settings, profile, lambda: 0.0)
    objects, done, calls = small_cluster(), [], []
    for number in range(1, 4):
        observer = CycleObserver.begin(spans.tracer, lambda: 0.0, number)
        stream = Stream(TERM, number, observer, lambda _: None, lambda: False)
        with calls_counted() as count:
            done.append(cycles.run(CycleInput(objects=objects, now=float(number), cycle=number), stream))
        calls.append(count[0])
    assert len(runs) == 1
    assert all(isinstance(each, Done) for each in done)
    assert done[0].report is done[1].report is done[2].report
    assert done[0].overall is done[2].overall
    assert [each.snapshot.now for each in done] == [1.0, 2.0, 3.0]
    assert calls[1] == calls[2] < 400 < calls[0]


def cycle(cycles, objects, number):
    spans = no_tracing()
    observer = CycleObserver.begin(spans.tracer, lambda: 0.0, number)
    stream = Stream(TERM, number, observer, lambda _: None, lambda: False)
    return cycles.run(CycleInput(objects=objects, now=float(number), cycle=number), stream)


def test_objects_read_ahead_are_decided_like_others():
    objects = small_cluster()
    cycles = Cycles(SchedulerSettings(), default_profile(), lambda: 0.0)
    cycles.read_ahead(objects.pods)  # before the first cycle there is nothing to read for
    empty = attrs.evolve(objects, pods=(), pod_groups=())
    assert cycle(cycles, empty, 1).decisions == 0
    cycles.read_ahead((*objects.pods, *objects.pod_groups))
    done = cycle(cycles, objects, 2)
    assert done.decisions == cycle(Cycles(SchedulerSettings(), default_profile(), lambda: 0.0), objects, 2).decisions
    assert done.decisions


def test_an_object_unreadable_ahead_fails_the_cycle():
    objects = small_cluster()
    cycles = Cycles(SchedulerSettings(), default_profile(), lambda: 0.0)
    cycle(cycles, objects, 1)
    container = Container(name="c", resources=ResourceRequirements(requests={"cpu": "some"}))
    broken = attrs.evolve(objects.pods[0], spec=attrs.evolve(objects.pods[0].spec, containers=(container,)))
    cycles.read_ahead((broken,))
    outcome = cycle(cycles, attrs.evolve(objects, pods=(broken,)), 2)
    assert isinstance(outcome, Failure)


def test_a_cycle_after_a_rehearsal_decides_the_same_faster():
    objects = small_cluster()
    cycles, fresh = (Cycles(SchedulerSettings(), default_profile(), lambda: 0.0) for _ in range(2))
    cycle(fresh, small_cluster(), 1)  # what is made once for a process is not what is counted
    cycles.rehearse(objects, 0.0)
    fresh = Cycles(SchedulerSettings(), default_profile(), lambda: 0.0)
    counts = []
    for each in (cycles, fresh):
        with calls_counted() as count:
            done = cycle(each, objects, 1)
        counts.append((done.decisions, count[0]))
    (decisions, after), (wanted, before) = counts
    assert decisions == wanted > 0
    assert after < before


def test_a_failed_rehearsal_does_not_affect_the_cycle():
    objects = small_cluster()
    cycles = Cycles(SchedulerSettings(), default_profile(), lambda: 0.0)
    cycles.rehearse(attrs.evolve(objects, pods=(*objects.pods, objects.pods[0])), 0.0)
    assert cycle(cycles, objects, 1).decisions > 0


@contextmanager
def calls_counted():
    """Count the calls of Python functions."""
    count = [0]

    def profiler(frame, event, argument):
        count[0] += event == "call"

    sys.setprofile(profiler)
    try:
        yield count
    finally:
        sys.setprofile(None)


def test_past_usage_lowers_the_next_fair_share():
    cycles = Cycles(SchedulerSettings(), default_profile(), lambda: 0.0)
    small = small_cluster()
    weighed = {
        kind: attrs.evolve(getattr(small.queues[0].spec.resources, kind), quota=0.0)
        for kind in ("cpu", "memory", "gpu")
    }
    queues = [
        attrs.evolve(each, spec=attrs.evolve(each.spec, resources=attrs.evolve(each.spec.resources, **weighed)))
        for each in small.queues
    ]
    objects = attrs.evolve(small, queues=tuple(queues))

    def shares(number, usage):
        observer = CycleObserver.begin(no_tracing().tracer, lambda: 0.0, number)
        stream = Stream(TERM, number, observer, lambda _: None, lambda: False)
        done = cycles.run(CycleInput(objects=objects, now=0.0, cycle=number, past=Past(usage=usage)), stream)
        gpus = {queue.name: done.report.fair_share[row, 2] for row, queue in enumerate(done.snapshot.queues)}
        return gpus["a"], gpus["b"]

    before = shares(1, {})
    after = shares(2, {"a": Shares(gpu=1.0)})
    assert sum(after) == sum(before)
    assert after[0] < before[0]
    assert cycles.last.past.usage == {"a": Shares(gpu=1.0)}
    assert shares(3, {}) == before


def test_each_plugin_is_timed_when_it_opens():
    ticks = itertools.count()
    profile = default_profile()
    cycles = Cycles(SchedulerSettings(), profile, lambda: 0.0)
    observer = CycleObserver.begin(no_tracing().tracer, lambda: float(next(ticks)), 1)
    stream = Stream(TERM, 1, observer, lambda _: None, lambda: False)
    done = cycles.run(CycleInput(objects=small_cluster(), now=0.0, cycle=1), stream)
    opened = {name for name, phase in done.plugins if phase == "open"}
    assert opened == {use.name for use in profile.plugins}
    # The clock goes on by one at each look, and the stopwatch looks twice in between.
    assert set(done.plugins.values()) == {3.0}
    opening = {plugin: taken for (plugin, hook), taken in done.taken.items() if hook == "open"}
    assert set(opening) == opened
    assert {(taken.calls, taken.seconds) for taken in opening.values()} == {(1, 1.0)}


def test_what_stops_cycles_is_told_to_probes(monkeypatch):
    def failing(*_):
        raise LookupError("a bug")

    monkeypatch.setattr(cycling, "run_cycle", failing)

    async def play(rig):
        await rig.until(lambda: rig.scheduler._failures == 2, seconds=3600)
        assert rig.scheduler.problem().startswith("cycles fail: LookupError: a bug (at ")

    lead(cluster_of("good"), play)
