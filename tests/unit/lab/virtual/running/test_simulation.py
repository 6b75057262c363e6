import attrs
import pytest

from kai.basics.errors import InputError
from kai.deciding.configuration.profile_reading import default_configuration
from kai.deciding.configuration.profiles import make_profile
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.results.result import JobResult, SimulationResult
from kai.lab.virtual.running.simulation import Simulation, run
from kai.lab.virtual.scenes.scene import Change, NodeEvent
from kai.roles.scheduler.settings import SchedulerSettings
from kai.roles.scheduler.wakeups import Rhythm
from tests.unit.lab.virtual.builders import case, cluster, gang, job, scene_of

HOUR = 3600.0


def simulated(text: str, hours: float, *, seed: int = 0) -> SimulationResult:
    return result_of(run(scene_of(text, seed=seed), until=hours * HOUR))


def jobs_of(result: SimulationResult) -> dict[str, JobResult]:
    return {each.name: each for each in result.jobs}


def test_the_case_computed_by_hand_is_reproduced():
    result = simulated(case("reclaim.yaml"), 8)
    jobs = jobs_of(result)
    long, short = jobs["long"], jobs["short"]
    assert (long.start_seconds, long.end_seconds, long.state) == (0.0, 10530.0, "done")
    assert (long.waits_seconds, long.evictions, long.lost_gpu_seconds) == ((0.0, 1830.0), 1, 9600.0)
    assert (short.start_seconds, short.end_seconds, short.waits_seconds) == (3630.0, 5430.0, (30.0,))
    hours = {queue.name: queue.gpu_hours for queue in result.queues}
    assert hours == {"all": 21.4, "guest": 19.4, "owner": 2.0}
    expected = {
        "utilisation": 0.334375,
        "goodput": 0.292708,
        "queueingDelayP50": 0.0,
        "queueingDelayMax": 30.0,
        "gangWaitMax": 30.0,
        "completionMean": 6180.0,
        "slowdownMax": 1.404,
        "slowdownP50": 1.016667,
        "fragmentation": 1.0,
        "evictedGpus": 8.0,
        "evictionCost": 2.666667,
        "evictedPerGained": 2.0,
    }
    assert {name: result.value(name) for name in expected} == expected


def test_one_seed_reproduces_a_run_and_another_differs():
    text = cluster(2) + job("many", 2, arrival="poisson(rate=12/h, count=20)", duration="lognormal(median=20m, p95=2h)")
    first, again, other = simulated(text, 8), simulated(text, 8), simulated(text, 8, seed=1)
    assert first == again
    assert first.decision_hash != other.decision_hash
    assert len(first.jobs) == 20


def test_installed_priority_classes_exist_by_default():
    urgent = gang("urgent", pods=1, gpus=8, arrival="1h", duration="10m").replace("Name: train", "Name: inference")
    jobs = jobs_of(simulated(cluster() + gang("long", pods=1, gpus=8) + urgent, 2))
    assert (jobs["long"].evictions, jobs["urgent"].start_seconds) == (1, HOUR + 30.0)


def test_recreated_pods_have_uids_of_their_own():
    text = cluster(2) + gang("one", pods=2, gpus=4) + gang("other", pods=1, gpus=8)
    event = NodeEvent(at=HOUR, change=Change.FAIL, nodes=("n1", "n2"))
    scene = scene_of(text, events=(event,))
    simulation = Simulation(scene, make_profile(default_configuration()), scene.settings, 2 * HOUR)
    simulation.run()
    pods = [life.pod for life in simulation.workloads.lives.values()]
    assert sorted(pod.metadata.uid for pod in pods) == ["one-0-r1", "one-1-r1", "other-0-r1"]


def starts_of(text, rhythm=None):
    scene = scene_of(text)
    run = Simulation(scene, make_profile(default_configuration()), scene.settings, HOUR, rhythm).run()
    return run.cycles, [round(job.start, 6) for job in run.records.jobs]


def test_the_services_rhythm_reacts_to_changes_as_the_service():
    text = cluster(1) + "".join(
        job(name, 1, arrival=arrival, duration="10m")
        for name, arrival in (("a", "10s"), ("b", "10020ms"), ("c", "10070ms"), ("d", "10700ms"))
    )
    assert starts_of(text) == (3, [10.0, 10.1, 10.1, 10.7])
    assert starts_of(text, Rhythm(apart=1.0)) == (2, [10.0, 11.0, 11.0, 11.0])
    rhythm = Rhythm.of_service(SchedulerSettings())
    assert rhythm == Rhythm(apart=0.1, after=0.05, hurries=True)
    assert starts_of(text, rhythm) == (4, [10.0, 10.02, 10.07, 10.7])
    # Of gangs, `b` comes before the cycle of `a`; `c` has to wait until the service has rested.
    gangs = cluster(1) + "".join(
        gang(name, pods=2, gpus=1, arrival=arrival, duration="10m")
        for name, arrival in (("a", "10s"), ("b", "10020ms"), ("c", "10070ms"), ("d", "10700ms"))
    )
    assert starts_of(gangs, rhythm) == (3, [10.05, 10.05, 10.15, 10.75])


def test_a_burst_of_cycles_makes_the_service_gather_pods():
    arrivals = [10_000 + 10 * number for number in range(8)]
    text = cluster(1) + "".join(job(f"j{each}", 1, arrival=f"{each}ms", duration="10m") for each in arrivals)
    rhythm = Rhythm.of_service(SchedulerSettings())
    assert starts_of(text, rhythm) == (7, [10.0, 10.01, 10.02, 10.03, 10.04, 10.05, 10.1, 10.1])


def test_a_cycle_is_decided_only_when_something_changed():
    quiet = simulated(cluster() + job("one", 4, duration="1h"), 24)
    assert quiet.value("cycles") == 1.0
    # Nothing waits when `one` ends and when `two` ends; both arrive.
    both = simulated(cluster() + job("one", 4, duration="1h") + job("two", 4, arrival="2h", duration="1h"), 24)
    assert both.value("cycles") == 2.0


def test_pods_of_a_job_work_each_for_itself():
    text = cluster(1) + job("several", 4, spec="  parallelism: 3\n", duration="1h")
    jobs = jobs_of(simulated(text, 4))
    assert (jobs["several"].start_seconds, jobs["several"].end_seconds) == (0.0, 2 * HOUR)  # two pods, then one


def test_a_gang_starts_together_and_ends_together():
    text = cluster(1) + job("first", 4, duration="1h") + gang("both", pods=2, gpus=4, arrival="10m", duration="1h")
    both = jobs_of(simulated(text, 4))["both"]
    assert (both.start_seconds, both.end_seconds) == (HOUR, 2 * HOUR)
    assert both.waits_seconds == (50 * 60.0,)


def test_a_job_runs_its_parallelism_until_its_completions():
    text = cluster() + job("three", 8, spec="  completions: 3\n  parallelism: 2\n", duration="30m")
    three = jobs_of(simulated(text, 4))["three"]
    assert (three.end_seconds, three.state, three.pods) == (1.5 * HOUR, "done", 3)


def test_a_job_without_parallelism_makes_no_pods():
    text = cluster() + job("none", 8, spec="  completions: 3\n  parallelism: 0\n", duration="30m")
    with pytest.raises(InputError, match=r"case\.yaml: found no workload for this scheduler"):
        simulated(text, 4)


@pytest.mark.parametrize(
    ("restarts", "state", "end"), [("2", "failed", 3 * 600.0 + 10.0 + 20.0), ("9", "running", None)]
)
def test_a_crashing_job_restarts_as_often_as_allowed(restarts: str, state: str, end: float | None):
    text = cluster() + job("shaky", 8, duration="1h", fails_at="10m", restarts=restarts)
    shaky = jobs_of(simulated(text, 1.1))["shaky"]
    assert (shaky.state, shaky.end_seconds) == (state, end)
    assert shaky.crashed_gpu_seconds >= 3 * 600.0 * 8


def test_a_job_that_crashes_goes_on_from_its_checkpoint():
    text = cluster() + job("saved", 8, duration="25m", fails_at="12m", checkpoint_every="5m")
    # 10m of each 12m are saved: 12m, 10s, 12m, 20s, then the last 5m.
    assert jobs_of(simulated(text, 2))["saved"].end_seconds == 12 * 60 + 10 + 12 * 60 + 20 + 5 * 60


def test_replicas_come_and_go_by_their_steps():
    text = cluster() + job("served", 2, kind="Deployment", replicas="0h:1, 1h:3, 2h:0")
    result = simulated(text, 4)
    assert result.queues[1].gpu_hours == round(2 * (2 * HOUR + 30 + 2 * (HOUR + 30)) / HOUR, 6)  # 30s of grace each
    assert [each.state for each in result.jobs] == ["taken back"] * 3
    assert [each.arrival_seconds for each in result.jobs] == [0.0, HOUR, HOUR]


FULL = cluster(2, 2, 4) + job("first", 1, duration="30m") + job("wide", 2, arrival="1h", duration="5h")
"""Two nodes of two GPUs: at the first hour one of two pods is moved to the other, and the wide one has its node."""


def move(*jobs):
    """Return what was moved, what was bound since, and when each job started."""
    found = run(scene_of(FULL + "".join(jobs) + job("late", 1, arrival="3620s")), until=3 * HOUR)
    (moved,) = found.records.evictions
    bound = {text.split()[1]: at for at, _, text in found.first if text.startswith("bind") and at >= HOUR}
    return moved, bound, {row.name: row.start_seconds for row in result_of(found).jobs}


@pytest.mark.parametrize(("kind", "back"), [("StatefulSet", 30.0), ("Deployment", 0.1)])
def test_a_moved_pod_gets_its_place_before_newcomers(kind, back):
    """The pods of a StatefulSet come again when the old ones are gone; those of a Deployment at once, in new groups."""
    moved, bound, starts = move(*(job(name, 1, kind=kind, arrival=at) for name, at in (("a", "1s"), ("b", "2s"))))
    assert (moved.cause, moved.time) == ("consolidation", HOUR)
    assert sorted(bound.values()) == sorted([HOUR + back, HOUR + 30.0])
    assert (starts["wide"], starts["late"]) == (HOUR + 30.0, None)


def test_the_place_of_a_missing_successor_lapses():
    stays = job("a", 1, kind="StatefulSet", arrival="1s")
    moved, _, starts = move(stays, job("b", 1, kind="StatefulSet", replicas="2s:1, 3610s:0"))
    assert (moved.pod, moved.time, starts["wide"], starts["late"]) == ("default/b-0", HOUR, HOUR + 30.0, HOUR + 60.0)


def test_who_never_starts_waits_until_the_end():
    text = cluster() + job("first", 8, duration="9h") + job("second", 8, arrival="1h", duration="1h")
    result = simulated(text, 4)
    assert result.value("queueingDelayMax") == 3 * HOUR
    assert jobs_of(result)["second"].state == "waiting"


def test_shared_devices_are_held_as_they_were_granted():
    share = ', annotations: {gpu-fraction: "0.5"}'
    text = cluster(1, 1, 1) + "".join(
        job(name, 0, duration="1h", more=share).replace('limits: {nvidia.com/gpu: "0"}', "{}") for name in "abc"
    )
    result = simulated(text.replace("resources: {{}}", "resources: {}"), 4)
    ends = sorted(each.end_seconds or 0.0 for each in result.jobs)
    assert ends == [HOUR, HOUR, 2 * HOUR]
    assert result.value("utilisation") == pytest.approx(1.5 / 4)


def test_every_metric_says_what_it_means():
    result = simulated(cluster() + job("one", duration="1h"), 2)
    assert all(metric.definition for metric in result.metrics.values())
    assert all(isinstance(attrs.asdict(metric), dict) for metric in result.metrics.values())


def test_gpus_of_every_vendor_are_gpus():
    text = (cluster() + job("one", 8, duration="1h")).replace("nvidia.com/gpu", "amd.com/gpu")
    result = simulated(text, 2)
    assert (result.counts["gpus"], result.value("utilisation")) == (8.0, 0.5)


def test_fair_shares_follow_requests_after_jobs_end():
    other = cluster().split("---")[-1].replace("name: work", "name: other")
    short = job("short", 4, duration="1h") + job("long", 2, duration="3h")
    alone = job("theirs", 2, duration="3h").replace("queue: work", "queue: other")
    result = simulated(f"{cluster()}---{other}{short}{alone}", 4)
    assert result.value("jain") == 1.0
    late = int(2 * HOUR / result.series.bucket_seconds)
    assert [result.series.columns[f"fair/{name}"][late] for name in ("work", "other")] == [2.0, 2.0]


def test_a_missing_queue_is_entitled_to_nothing():
    lost = job("lost", 4, duration="3h").replace("queue: work", "queue: gone")
    result = simulated(cluster() + lost + job("runs", 8, duration="1h"), 2)
    assert (result.value("jain"), result.value("belowFairShare")) == (1.0, 0.0)
    assert "fair/?" not in result.series.columns


def test_slices_of_gpus_count_as_queues_count_them():
    text = (cluster(gpus=3) + job("one", 2, duration="1h")).replace("nvidia.com/gpu", "nvidia.com/mig-2g.10gb")
    result = simulated(text, 2)
    assert (result.counts["gpus"], result.jobs[0].gpus, result.queues[-1].gpu_hours) == (6.0, 4.0, 4.0)


def test_gpus_that_are_claimed_count():
    drivers = """---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: n1}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: a}, {name: b}, {name: c}, {name: d}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c, namespace: default, labels: {kai.scheduler/queue: work}}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu, allocationMode: ExactCount, count: 3}}]}}
"""
    claims = gang("one", pods=1, gpus=0, duration="1h").replace(
        "spec:\n  schedulerName", "spec:\n  resourceClaims: [{name: c, resourceClaimName: c}]\n  schedulerName"
    )
    result = simulated(cluster(gpus=0) + drivers + claims, 2)
    assert (result.counts["gpus"], result.value("utilisation")) == (4.0, 0.375)


def test_an_eviction_loses_work_by_the_held_gpus():
    labelled = cluster(gpus=1, quota=1).replace("hostname: n1", 'hostname: n1, nvidia.com/gpu.memory: "40000"')
    part = gang("part", pods=1, gpus=1, duration="2h").replace("name: part}", 'name: part, gpu-memory: "20000"}')
    part = part.replace(', resources: {limits: {nvidia.com/gpu: "1"}}', "")
    urgent = gang("urgent", pods=1, gpus=1, arrival="1h", duration="10m").replace("Name: train", "Name: inference")
    jobs = jobs_of(simulated(labelled + part + urgent, 2))
    assert (jobs["part"].evictions, jobs["part"].lost_gpu_seconds) == (1, 0.5 * HOUR)
    elastic = gang("elastic", pods=4, gpus=2, duration="2h").replace("minMember: 4", "minMember: 1")
    urgent = urgent.replace('gpu: "1"', 'gpu: "4"')
    jobs = jobs_of(simulated(cluster(gpus=4) + elastic + urgent, 2))
    assert (jobs["elastic"].evictions, jobs["elastic"].lost_gpu_seconds) == (2, 4 * HOUR)


WORKFLOW = """
---
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata:
  name: flow
  labels: {kai.scheduler/queue: work}
  annotations: {simulation.kai.scheduler/duration: 10m}
spec:
  schedulerName: kai-scheduler
  entrypoint: main
  templates:
  - name: main
    steps:
    - - {name: prepare, template: small}
    - - {name: train, template: large, withItems: [1, 2]}
    - - {name: graph, template: graph}
  - name: graph
    dag: {tasks: [{name: a, template: small}, {name: b, template: large, depends: a.Succeeded}]}
  - {name: small, container: {image: x}}
  - {name: large, container: {image: x, resources: {limits: {nvidia.com/gpu: 4}}}}
"""


def test_workflow_steps_arrive_after_their_dependencies():
    jobs = jobs_of(simulated(cluster(gpus=4) + WORKFLOW, 2))
    assert {name: (each.arrival_seconds, each.start_seconds) for name, each in jobs.items()} == {
        "flow-small-1": (0.0, 0.0),
        "flow-large-2": (600.0, 600.0),
        "flow-large-3": (600.0, 1200.0),  # there is room for one of them
        "flow-small-4": (1800.0, 1800.0),
        "flow-large-5": (2400.0, 2400.0),
    }


RAY_JOB = """
---
apiVersion: ray.io/v1
kind: RayJob
metadata:
  name: ray
  labels: {kai.scheduler/queue: work}
  annotations: {simulation.kai.scheduler/duration: 30m}
spec:
  submitterPodTemplate: {spec: {schedulerName: kai-scheduler, restartPolicy: Never, containers: [{name: s, image: x}]}}
  rayClusterSpec:
    headGroupSpec: {template: {spec: {schedulerName: kai-scheduler, containers: [{name: h, image: x}]}}}
    workerGroupSpecs:
    - groupName: workers
      replicas: 1
      minReplicas: 1
      maxReplicas: 1
      template:
        spec:
          schedulerName: kai-scheduler
          containers: [{name: w, image: x, resources: {limits: {nvidia.com/gpu: 8}}}]
"""


def test_a_ray_jobs_submitter_arrives_with_its_cluster():
    first = job("first", 8, duration="20m")
    jobs = jobs_of(simulated(cluster() + first + RAY_JOB, 2))
    assert jobs["ray"].start_seconds == 1200.0
    assert jobs["ray-submitter"].arrival_seconds == 1200.0


def test_a_job_whose_dependency_never_runs_is_noted_uncreated():
    result = simulated(cluster(gpus=4) + RAY_JOB, 2)
    assert [each.name for each in result.jobs] == ["ray"]
    assert "Never created: ray-submitter of ray, which comes once the cluster is ready." in result.notes


NIGHT = """
  schedules:
  - {name: nights, start: "0 22 * * *", duration: 8h, resources: {gpu: {quota: 8, limit: 8}}, onClose: %s}
"""


def at_night(on_close, more):
    """Return one node with 8 GPUs, of which the queue may have 2 by day; the run begins at midnight."""
    by_day = cluster(1, quota=8).replace("gpu: {quota: 8, limit: -1", "gpu: {quota: 2, limit: 2").split("---")
    by_day[1] = by_day[1].replace("gpu: {quota: 2, limit: 2", "gpu: {quota: 8, limit: -1")
    by_day[2] = by_day[2].rstrip() + NIGHT % on_close
    return "---".join(by_day) + more


def test_use_is_compared_with_the_quota_of_open_windows():
    text = at_night("reclaim", job("small", 2, arrival="2026-01-05T00:00:00Z", duration="3h"))
    queues = {each.name: each for each in simulated(text, 24).queues}
    # Eight GPUs until six and from ten at night on, two in between.
    assert queues["work"].of_quota == pytest.approx(2 * 3 / (8 * 8 + 2 * 16), abs=1e-6)
    assert queues["all"].of_quota == pytest.approx(2 * 3 / (8 * 24), abs=1e-6)


def test_a_job_too_large_by_day_starts_at_night():
    text = at_night("reclaim", job("small", 2, arrival="2026-01-05T00:00:00Z", duration="1h"))
    text += job("large", 8, arrival="2026-01-05T12:00:00Z", duration="1h")
    large = jobs_of(simulated(text, 48))["large"]
    assert (large.start_seconds, large.end_seconds) == (22 * HOUR, 23 * HOUR)


@pytest.mark.parametrize(("on_close", "evictions"), [("reclaim", 0), ("drain", 0), ("evict", 1)])
def test_only_an_evicting_window_ends_running_work_at_closing(on_close, evictions):
    text = at_night(on_close, job("long", 8, arrival="2026-01-05T23:00:00Z", duration="9h"))
    long = jobs_of(simulated(text, 30))["long"]
    assert long.evictions == evictions
    if evictions:
        assert long.waits_seconds[1] == pytest.approx(16 * HOUR, abs=60)


def test_a_run_ends_although_windows_open_for_ever():
    result = simulated(
        at_night("reclaim", job("hopeless", 16, arrival="2026-01-05T00:00:00Z", duration="1h")), float("inf")
    )
    assert jobs_of(result)["hopeless"].start_seconds is None
