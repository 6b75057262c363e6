"""The order of jobs is shown as the peer shows it, and showing it changes nothing."""

import json
from types import SimpleNamespace

import anyio
import attrs

from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle, waiting_order
from kai.framework.decisions import Bind, Recorder
from kai.framework.parameters import Parameters
from kai.intake import take_snapshot
from kai.roles.scheduler.cycle.cycle_input import CycleInput
from kai.roles.scheduler.cycle.dump import job_order
from kai.roles.scheduler.service import Scheduler
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making

FREE = {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("cpu", "memory", "gpu")}


def manifests():
    yield making.queue("top", resources=FREE)
    yield making.queue("first", parent="top", resources=FREE, priority=200)
    yield making.queue("second", parent="top", resources=FREE)
    yield making.node("n")
    for name, queue, priority in (("low", "first", "lower"), ("high", "first", "higher"), ("other", "second", "lower")):
        yield making.group(name, queue=queue, priorityClassName=priority)
        yield making.pod(f"{name}-0", group=name)
    yield making.group("gang", queue="second", minMember=2)  # one of its pods is missing
    yield making.pod("gang-0", group="gang")
    yield making.group("lost", queue="nowhere")
    yield making.pod("lost-0", group="lost")
    for name, value in (("lower", 40), ("higher", 60)):
        yield making.other("PriorityClass", "scheduling.k8s.io/v1", name, value=value)


OBJECTS = making.objects(*manifests())


def shown(profile=None, objects=OBJECTS):
    given = CycleInput(objects=objects, now=0.0, cycle=1)
    return job_order(given, SchedulerSettings(), profile or default_profile())


def test_jobs_are_ordered_across_and_within_queues():
    low, high, other = ({"id": name, "priority": value} for name, value in (("low", 40), ("high", 60), ("other", 40)))
    text = shown()
    found = json.loads(text)
    assert found == {"global_order": [high, low, other], "queue_order": {"first": [high, low], "second": [other]}}
    assert text.startswith(b'{\n  "global_order": [\n')


def test_the_allocation_depth_bounds_the_shown_jobs_per_queue():
    profile = attrs.evolve(default_profile(), parameters=Parameters(queue_depth={"allocate": 1}))
    assert [len(jobs) for jobs in json.loads(shown(profile))["queue_order"].values()] == [1, 1]


def test_without_jobs_there_is_an_empty_order():
    assert json.loads(shown(objects=making.objects())) == {"global_order": [], "queue_order": {}}


def test_looking_at_the_order_changes_no_decision():
    snapshot, sink = take_snapshot(OBJECTS, 0.0), Recorder()
    before = waiting_order(snapshot, default_profile())
    run_cycle(snapshot, default_profile(), sink)
    bound = [snapshot.pods[each.pod].name for each in sink.decisions if isinstance(each, Bind)]
    assert bound == [f"{snapshot.groups[row].name}-0" for row in before]
    assert waiting_order(snapshot, default_profile()) == before


def test_before_everything_is_known_there_is_no_order():
    store = SimpleNamespace(is_synced=False)
    parts = dict.fromkeys(field.name.lstrip("_") for field in attrs.fields(Scheduler) if field.default is attrs.NOTHING)
    scheduler = Scheduler(**{**parts, "cluster": SimpleNamespace(store=store)})
    route = scheduler.routes()["/get-job-order"]
    assert route.local
    response = anyio.run(route.answer)
    assert (response.status, response.body) == (503, b"Job order data not ready\n")
