"""Laws of budgets of GPU-hours."""

import datetime as dt
import math
from math import inf
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai.answers.cases.case import Case
from kai.api.codec.structuring import structure_as
from kai.api.conventions.budgets import GPU_HOUR, amount_of, carried_over, is_open, period_at, period_before
from kai.api.scheduling.queue import QueueBudget
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.deciding.engine.cycle import run_cycle
from kai.deciding.engine.host import Silent
from kai.deciding.engine.session import Session
from kai.facts.model.budgets import Spent
from kai.facts.model.placement import Past
from kai.framework.decisions import Cause, Recorder
from kai.history.database import Author, Writer, connect
from kai.history.reports import by_queue
from kai.history.spending import spent_of
from kai.intake import Intake, take_snapshot
from kai.lab.scenarios.scenario import read_short
from kai.lab.virtual.running.history import RunHistory
from kai.lab.virtual.running.live_jobs import State
from kai.lab.virtual.running.simulation import simulation_of
from kai.lab.virtual.scenes.loading import load_scene
from kai.lab.virtual.scenes.scene import Change, NodeEvent
from kai.roles.scheduler.reporting.history import Spending
from kai.testing import load_scenario, run_scenario

SCENARIOS = Path(__file__).parents[1] / "scenarios"
KINDS = ("allocate", "reclaim", "preempt", "consolidate", "elastic", "runtime", "windows")
HUGE = {"name": "huge", "amount": 1e9, "enforce": "stop"}
WARNS = {"name": "none", "amount": 0, "enforce": "warn"}
HOUR = 3600.0
ZONES = ("", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata")
PERIODS = ("monthly", "weekly", "daily", "0 6 * * 1-5", "30 2 * * *")


def budget(**fields):
    return structure_as(QueueBudget, {"name": "b", "amount": 100, **fields})


# --- Periods ---------------------------------------------------------------------------------------------------------


@given(st.sampled_from(PERIODS), st.sampled_from(ZONES), st.floats(1.7e9, 1.9e9))
def test_a_period_is_the_same_at_all_its_instants(period, zone, instant):
    one = budget(period=period, timeZone=zone)
    found = period_at(one, instant)
    assert found.since <= instant < found.until
    for other in (found.since, (found.since + found.until) / 2, found.until - 1e-3):
        assert period_at(one, other) == found
    assert period_at(one, found.until).since == found.until
    before = period_before(one, found)
    assert before.until == found.since


@given(st.sampled_from(ZONES), st.integers(2024, 2030), st.integers(1, 12))
def test_a_month_begins_at_midnight_of_its_zone(zone, year, month):
    first = dt.datetime(year, month, 1, tzinfo=ZoneInfo(zone or "UTC")).timestamp()
    assert period_at(budget(timeZone=zone), first).since == first
    assert period_at(budget(timeZone=zone), first - 1).until == first


def test_a_once_budget_is_open_between_its_bounds():
    grant = budget(period="once", **{"from": "2026-01-01T00:00:00Z"}, until="2026-02-01T00:00:00Z")
    period = period_at(grant, 0.0)
    assert [is_open(grant, period, at) for at in (period.since - 1, period.since, period.until - 1, period.until)] == [
        False,
        True,
        True,
        False,
    ]
    assert period_at(budget(period="once"), 0.0).since == -inf


@given(st.floats(0, 1), st.integers(0, 300))
def test_what_is_carried_over_was_never_used(part, spent):
    one = budget(carryOver=part)
    carried = carried_over(one, spent * GPU_HOUR)
    assert 0 <= carried <= max(0, amount_of(one) - spent * GPU_HOUR)


# --- The core --------------------------------------------------------------------------------------------------------


def decisions(case):
    return [each for cycle in run_scenario(case).cycles for each in cycle.decisions]


def with_budgets(case: Case, *budgets):
    made = tuple(structure_as(QueueBudget, each) for each in budgets)
    queues = [attrs.evolve(each, spec=attrs.evolve(each.spec, budgets=made)) for each in case.objects.queues]
    return attrs.evolve(case, objects=attrs.evolve(case.objects, queues=tuple(queues)))


@pytest.mark.parametrize("kind", KINDS)
def test_budgets_that_are_never_used_up_change_no_decision(kind):
    for path in sorted((SCENARIOS / kind).glob("*.yaml")):
        case = load_scenario(path)
        plain = decisions(case)
        assert decisions(with_budgets(case, HUGE)) == plain, path
        assert decisions(with_budgets(case, WARNS)) == plain, path


jobs = st.lists(
    st.tuples(st.integers(1, 4), st.integers(1, 8), st.sampled_from((None, 10, 60, 240)), st.booleans()),
    min_size=1,
    max_size=10,
)
"""GPUs of a pod, pods, minutes of a limit, and whether it runs already."""


def cluster(chosen, amount, spent):
    groups, nodes = {}, {"free": {"gpu": 16}}
    for at, (gpus, pods, limit, runs) in enumerate(chosen):
        group = {"queue": ("a", "b")[at % 2], "members": pods, "each": {"gpu": gpus}}
        if limit is not None:
            group["annotations"] = {"kai.scheduler/max-runtime": f"{limit}m"}
        if runs:
            nodes[f"n{at}"] = {"gpu": gpus * pods}
            group |= {"runs_on": f"n{at}", "started": "5m"}
        groups[f"job-{at}"] = group
    queues = {
        "root": {"quota": 1_000, "budgets": {"all": {"amount": amount, "spent": spent}}},
        "a": {"parent": "root", "quota": 500, "budgets": {"own": {"amount": amount / 2, "slice": "30m"}}},
        "b": {"parent": "root", "quota": 500},
    }
    return read_short({"cluster": {"nodes": nodes}, "queues": queues, "groups": groups, "run": ["allocate"]}, "budgets")


@given(jobs, st.integers(0, 200), st.integers(0, 50))
def test_no_cycle_starts_more_than_the_budget_has_left(chosen, amount, spent):
    case = cluster(chosen, amount, spent)
    for cycle in run_scenario(case).cycles:
        report, snapshot = cycle.report, cycle.snapshot
        running = sum(1 for _, _, limit, runs in chosen if runs and limit is not None)
        for row, each in enumerate(snapshot.budgets.bounding):
            if not running:  # work with a limit that ran before stays, whatever is left
                assert report.budget_used[row] <= max(0, each.left)


@given(jobs, st.integers(0, 200))
@settings(max_examples=50)
def test_a_rollback_restores_the_remainder_bit_for_bit(chosen, amount):
    case = cluster(chosen, amount, 0)
    snapshot = take_snapshot(case.objects, case.now, case.settings)
    session = Session(snapshot, make_profile(default_configuration()), Recorder(), Silent())
    before = session.ledger.fingerprint()
    used = session.columns.budget_used.copy()
    with session.statement("preempt", Cause.PREEMPT) as statement:
        for group in range(len(snapshot.groups)):
            portion = session.portion(group)
            statement.evict(portion.holding(0xFF))
            pods = portion.chunk()
            statement.place_pods(pods, session.all_nodes, session.no_extra, promise=True)
    assert session.ledger.fingerprint() == before
    assert (session.columns.budget_used == used).all()
    session.release()


def charged_until(left, since, now, slice_length):
    """Return until when work is charged that may run for ``left`` seconds ``since`` an instant; None: it starts now."""
    start = now if since is None else since
    if left < inf:
        return max(start + left, now)
    return start + (math.floor(max(0.0, now - start) / slice_length) + 1) * slice_length


@given(jobs, st.integers(0, 20_000))
def test_work_is_charged_until_its_limit_or_slice_ends(chosen, later):
    case = cluster(chosen, 1000, 0)
    snapshot = take_snapshot(case.objects, case.now + later, case.settings)
    for row, group in enumerate(snapshot.groups):
        _, _, limit, runs = chosen[int(group.name.removeprefix("job-"))]
        left = inf if limit is None else 60.0 * limit
        until = charged_until(
            left, group.last_start if runs else None, snapshot.now, 1800.0 if group.queue == "a" else HOUR
        )
        assert abs(snapshot.budgets.duration[row] - 1000 * (until - snapshot.now)) <= 1
        assert snapshot.budgets.unending[row] == (limit is None)
        assert (row in snapshot.budgets.sliced) == (limit is None and runs)


# --- Cycles at rest --------------------------------------------------------------------------------------------------


@attrs.frozen
class Counting:
    """An action that counts how often it runs."""

    runs: list[float]
    name: str = "counting"

    def run(self, session):
        self.runs.append(session.snapshot.now)


def counting():
    runs, profile = [], make_profile(default_configuration())
    return runs, attrs.evolve(profile, actions=(*profile.actions, Counting(runs)))


def spending(case, paces, now):
    """Return what the history says at an instant if each budget was used at its pace since the case began."""
    at, began = round(now * 1000), round(case.now * 1000)
    return {
        key: Spent(since=began - 1, at=at, total=1000 * GPU_HOUR // 10 + pace * (at - began), pace=pace)
        for key, pace in paces.items()
    }


def paces_of(chosen):
    held = {
        name: 1000 * sum(gpus * pods for at, (gpus, pods, _, runs) in enumerate(chosen) if runs and at % 2 == place)
        for place, name in enumerate(("a", "b"))
    }
    return {("root", "all"): held["a"] + held["b"], ("a", "own"): held["a"]}


def answers(report, sink):
    return sink.statements, {
        group: sorted(reason.code for reason in record.reasons) for group, record in report.records.items()
    }


@given(jobs, st.integers(100, 300), st.lists(st.integers(0, 4 * 3_600_000), min_size=1, max_size=6), st.integers(0, 1))
def test_a_cycle_at_rest_answers_as_a_run_one(chosen, amount, instants, lag):
    case = cluster(chosen, amount, 0)
    paces = {key: pace * (1 - lag) for key, pace in paces_of(chosen).items()}
    intake, (_, profile) = Intake(case.settings), counting()
    for now in (case.now, *(case.now + each / 1000 for each in sorted(instants))):
        past = Past(spent=spending(case, paces, now))
        sinks, reports = (Recorder(), Recorder()), []
        for sink, taken in zip(
            sinks,
            (intake.take(case.objects, now, past), take_snapshot(case.objects, now, case.settings, past)),
            strict=True,
        ):
            reports.append(run_cycle(taken, profile, sink))
        assert answers(reports[0], sinks[0]) == answers(reports[1], sinks[1])


def test_a_rested_cycle_repeats_until_a_limit_ends():
    case = cluster([(4, 2, 60, True), (4, 8, 60, False)], 120, 0)
    runs, profile = counting()
    intake, paces = Intake(case.settings), paces_of([(4, 2, 60, True)])
    # It began five minutes before, so its charge ends after 55 minutes; from then on what is left falls.
    minutes = (0, 10, 20.5, 54.99, 56, 57)
    for minute in minutes:
        now = case.now + 60 * minute
        report = run_cycle(intake.take(case.objects, now, Past(spent=spending(case, paces, now))), profile, Recorder())
        assert not any(report.counts.values())
    assert runs == [case.now + 60 * minute for minute in (0, 56, 57)]


def test_a_rested_cycle_repeats_until_a_slice_ends():
    case = cluster([(4, 2, None, True), (4, 8, 60, False)], 260, 0)
    runs, profile = counting()
    intake, paces = Intake(case.settings), paces_of([(4, 2, None, True)])
    for minute in (0, 10, 24.9, 25.1, 40, 54.9, 55.1):  # slices of half an hour, since five minutes before
        now = case.now + 60 * minute
        run_cycle(intake.take(case.objects, now, Past(spent=spending(case, paces, now))), profile, Recorder())
    assert runs == [case.now + 60 * minute for minute in (0, 25.1, 55.1)]


def test_a_cycle_at_rest_ends_when_the_pace_changes():
    case = cluster([(4, 2, 60, True), (4, 8, 60, False)], 120, 0)
    runs, profile = counting()
    intake, paces = Intake(case.settings), paces_of([(4, 2, 60, True)])
    for minute, part in ((0, 1), (10, 1), (20, 2), (30, 2)):
        now = case.now + 60 * minute
        found = spending(case, {key: pace * part for key, pace in paces.items()}, now)
        run_cycle(intake.take(case.objects, now, Past(spent=found)), profile, Recorder())
    assert len(runs) == 3


# --- Virtual time ----------------------------------------------------------------------------------------------------


def scene_of(tmp_path, budgets, chosen, gpus=8):
    parts = [
        f"""apiVersion: v1
kind: Node
metadata: {{name: n1}}
status:
  capacity: {{cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "{gpus}"}}
  allocatable: {{cpu: "64", memory: 512Gi, pods: "110", nvidia.com/gpu: "{gpus}"}}
  conditions: [{{type: Ready, status: "True"}}]"""
    ]
    for name, parent in (("lab", ""), ("team", "lab"), ("other", "lab")):
        own = f"budgets: {budgets}" if name == "team" else ""
        parts.append(
            f"""apiVersion: scheduling.run.ai/v2
kind: Queue
metadata: {{name: {name}, creationTimestamp: "2025-12-01T00:00:00Z"}}
spec:
  parentQueue: "{parent}"
  {own}
  resources:
    gpu: {{quota: {gpus}, limit: -1, overQuotaWeight: 1}}
    cpu: {{quota: -1, limit: -1, overQuotaWeight: 1}}
    memory: {{quota: -1, limit: -1, overQuotaWeight: 1}}"""
        )
    for at, (size, minutes, limit, arrival) in enumerate(chosen):
        bound = f", kai.scheduler/max-runtime: {limit}m" if limit else ""
        parts.append(
            f"""apiVersion: batch/v1
kind: Job
metadata:
  name: job-{at}
  namespace: ns
  labels: {{kai.scheduler/queue: team}}
  annotations:
    {{simulation.kai.scheduler/duration: {minutes}m, simulation.kai.scheduler/arrival: {arrival}m{bound}}}
spec:
  template:
    spec:
      schedulerName: kai-scheduler
      restartPolicy: Never
      containers: [{{name: c, image: x, resources: {{limits: {{nvidia.com/gpu: {size}}}}}}}]"""
        )
    path = tmp_path / "work.yaml"
    path.write_text("\n---\n".join(parts) + "\n", encoding="utf-8")
    return load_scene(str(path), None).scene


works = st.lists(
    st.tuples(st.integers(1, 4), st.integers(5, 300), st.sampled_from((0, 30, 120, 300)), st.integers(0, 3000)),
    min_size=1,
    max_size=12,
)
"""GPUs, minutes of work, minutes of a limit (0: none), and the minute of arrival."""


@given(works, st.integers(1, 40), st.sampled_from(("daily", "0 */6 * * *")), st.sampled_from((0.0, 0.5, 1.0)))
@settings(max_examples=10, deadline=None)
def test_nothing_is_ever_used_beyond_a_budget(tmp_path_factory, chosen, amount, period, carry):
    one = f"[{{name: b, amount: {amount}, period: '{period}', carryOver: {carry}, slice: 30m}}]"
    scene = scene_of(tmp_path_factory.mktemp("budgets"), one, chosen)
    simulation = simulation_of(scene, None, until=3 * 86_400.0)
    simulation.begin()
    while simulation.next < inf:
        simulation.step()
        if simulation.last is None:
            continue
        snapshot, report = simulation.last.snapshot, simulation.last.report
        for row, each in enumerate(snapshot.budgets.bounding):
            # A slice that is not renewed ends when its pods are gone: GPUs are held for their grace period.
            grace = 8 * 30 * 1_000_000
            assert each.spent + report.budget_used[row] <= each.amount + grace


@given(works, st.integers(1, 200))
@settings(max_examples=10, deadline=None)
def test_what_budgets_count_is_what_reports_count(tmp_path_factory, chosen, amount):
    one = f"[{{name: b, amount: {amount}, period: once, enforce: stop}}]"
    scene = scene_of(tmp_path_factory.mktemp("budgets"), one, chosen)
    simulation = simulation_of(scene, None, until=2 * 86_400.0)
    run = simulation.run()
    now = round(run.end.now * 1000)
    simulation.history.look(run.end.now)
    connection = simulation.history.writer.connection
    spent = spent_of(connection, run.end.objects.queues, now)["team", "b"]
    held = by_queue(connection, 0, now)
    assert spent.total == sum(use.held.gpu for uid, use in held.items() if uid == "team")
    assert sum(gpus for _, gpus in spent.jobs) <= spent.total


@attrs.define
class Hands:
    """A clock that is set by hand."""

    instant: float = 0.0

    def now(self):
        return self.instant

    def monotonic(self):
        return self.instant


@attrs.define(eq=False, kw_only=True)
class Restarting(RunHistory):
    """The history of a run in a file, which the scheduler's own reader reads."""

    path: str
    clock: Hands
    reader: Spending | None = None

    def restart(self, now):
        """Begin as a new process does: it knows only the file, and lists what runs."""
        if self.writer is not None:
            self.writer.close()
        self.reader = Spending(self.path, self.clock)
        author, connection = Author(epoch=None, identity="run"), connect(self.path, writes=True)
        held, nodes = self.recording.everything()
        self.writer = Writer.begin(
            self.path, author, round(now * 1000), held, nodes, retention=90 * 86_400_000, connection=connection
        )

    def spent(self, now):
        self.clock.instant = now
        anyio.run(self.reader.refresh, self.cluster.objects().queues)
        return self.reader.known


def with_restarts(simulation, path):
    plain = simulation.history
    made = Restarting(
        settings=plain.settings, cluster=plain.cluster, recording=plain.recording, path=str(path), clock=Hands()
    )
    made.next_read = inf
    made.restart(simulation.cluster.instant(0.0))
    simulation.history = made
    return made


def committed(simulation, chosen):
    """Return what the pods that run may still use: until their limits, or the ends of their slices of 30 minutes."""
    found = 0.0
    for life in simulation.workloads.lives.values():
        if life.state is State.RUNNING:
            _, _, limit, _ = chosen[int(life.group.metadata.name.rpartition("job-")[2])]
            until = charged_until(60.0 * limit or inf, life.since, simulation.now, 1800.0)
            found += life.gpus * (until - simulation.now)
    return round(found * GPU_HOUR / HOUR)


@given(
    works,
    st.integers(1, 40),
    st.sampled_from(("daily", "0 */6 * * *")),
    st.sampled_from((0.0, 0.5, 1.0)),
    st.sets(st.integers(0, 80), max_size=10),
)
@settings(max_examples=5, deadline=None)
def test_use_and_commitments_fit_the_budget_over_restarts(tmp_path_factory, chosen, amount, period, carry, restarts):
    folder = tmp_path_factory.mktemp("budgets")
    one = f"[{{name: b, amount: {amount}, period: '{period}', carryOver: {carry}, slice: 30m}}]"
    simulation = simulation_of(scene_of(folder, one, chosen), None, until=2 * 86_400.0)
    history = with_restarts(simulation, folder / "history.db")
    simulation.begin()
    step = decided = 0
    while simulation.next < inf:
        simulation.step()
        if step in restarts:
            history.restart(simulation.cluster.instant(simulation.now))
        step += 1
        if simulation.last is None or simulation.last.number == decided:
            continue
        decided = simulation.last.number
        known = history.spent(simulation.cluster.instant(simulation.now))["team", "b"]
        held = by_queue(history.writer.connection, known.since, known.at)
        assert known.total == (held["team"].held.gpu if "team" in held else 0)
        # A slice that is not renewed ends when its pods are gone: GPUs are held for their grace period.
        grace = 8 * 30 * 1_000_000
        assert known.total + committed(simulation, chosen) <= amount * GPU_HOUR + known.carried + grace
    history.writer.close()


@pytest.mark.parametrize(("refund", "used"), [("[]", 4), ("[nodeFailure]", 0)])
def test_a_failed_node_gives_back_what_refunds_name(tmp_path, refund, used):
    one = f"[{{name: b, amount: 8, period: once, refund: {refund}}}]"
    chosen = [(4, 120, 120, 0)]  # 4 GPUs for 2 hours: all of the budget
    scene = scene_of(tmp_path, one, chosen)
    fails = NodeEvent(at=HOUR, change=Change.FAIL, nodes=("n1",), seconds=600.0)
    simulation = simulation_of(attrs.evolve(scene, events=(fails,)), None, until=3 * HOUR)
    history = with_restarts(simulation, tmp_path / "history.db")
    simulation.begin()
    before = None
    while simulation.next < inf:
        simulation.step()
        known = history.spent(simulation.cluster.instant(simulation.now))["team", "b"]
        assert known.total <= 8 * GPU_HOUR
        if before is None and simulation.now >= HOUR:
            history.restart(simulation.cluster.instant(simulation.now))
            before = history.spent(simulation.cluster.instant(simulation.now))["team", "b"].total
            assert before == known.total
            assert abs(before - used * GPU_HOUR) <= GPU_HOUR / HOUR  # it started within a quarter of a second
    assert before is not None
    history.writer.close()
