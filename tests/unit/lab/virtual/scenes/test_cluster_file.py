import pytest

from kai.basics.errors import InputError
from kai.lab.virtual.results.metrics import result_of
from kai.lab.virtual.results.result import SimulationResult
from kai.lab.virtual.running.simulation import run
from kai.lab.virtual.scenes.cluster_file import read_cluster_file
from kai.manifests import RefusedError
from tests.unit.lab.virtual.builders import job, scene_of

HOUR = 3600.0
QUEUES = "queues: {all: {quota: 16}, work: {parent: all, quota: 16}}\n"


def simulated(file: str, workload: str, hours: float, seed: int = 0) -> SimulationResult:
    found = read_cluster_file((QUEUES + file).encode(), "cluster.yaml")
    scene = scene_of(
        workload,
        documents=found.documents,
        seed=seed,
        events=found.events,
        faults=found.faults,
        autoscale=found.autoscale,
    )
    return result_of(run(scene, until=hours * HOUR))


def test_a_failing_node_loses_its_pods_and_returns():
    file = "shapes: {h100x8: {gpu: 8, count: 1}}\nevents: [{at: 1h, node: h100x8-1, fail: 30m}]\n"
    result = simulated(file, job("steady", 8, duration="2h", checkpoint_every="45m"), 8)
    (steady,) = result.jobs
    assert steady.end_seconds == 1.5 * HOUR + 75 * 60  # 45m are saved
    assert steady.lost_gpu_seconds == 15 * 60 * 8
    assert result.value("nodeFailures") == 1.0
    assert result.counts["gpuHours"] == 8 * 7.5


def test_a_draining_node_empties_in_grace_and_reopens():
    file = "shapes: {a: {gpu: 8, count: 1}}\nevents: [{at: 1h, node: a-1, drain: 1h}]\n"
    (moved,) = simulated(file, job("moved", 8, duration="90m"), 8).jobs
    assert (moved.waits_seconds, moved.end_seconds) == ((0.0, HOUR), 3.5 * HOUR)


def test_a_taint_keeps_new_pods_away_while_it_lasts():
    file = 'shapes: {a: {gpu: 8, count: 1}}\nevents: [{at: 0s, node: a-1, taint: "x=y:NoSchedule", for: 2h}]\n'
    (kept,) = simulated(file, job("kept", 8, arrival="1m", duration="1h"), 8).jobs
    assert kept.start_seconds == 2 * HOUR


@pytest.mark.parametrize("event", ["drain: 1h", 'taint: "x=y:NoSchedule", for: 1h'])
def test_a_closed_node_reopens_even_while_it_is_down(event: str):
    events = f"[{{at: 0s, node: a-1, {event}}}, {{at: 30m, node: a-1, fail: 1h}}]"
    file = f"shapes: {{a: {{gpu: 8, count: 1}}}}\nevents: {events}\n"
    (waits,) = simulated(file, job("waits", 8, arrival="1m", duration="1h"), 8).jobs
    assert waits.start_seconds == 1.5 * HOUR


@pytest.mark.parametrize("event", ["drain: 1h", 'taint: "x=y:NoSchedule", for: 1h'])
def test_a_returning_node_keeps_its_drain_or_taint(event: str):
    events = f"[{{at: 0s, node: a-1, fail: 1h}}, {{at: 30m, node: a-1, {event}}}]"
    file = f"shapes: {{a: {{gpu: 8, count: 1}}}}\nevents: {events}\n"
    (waits,) = simulated(file, job("waits", 8, arrival="1m", duration="1h"), 8).jobs
    assert waits.start_seconds == 1.5 * HOUR


@pytest.mark.parametrize(("long", "short"), [("drain: 2h", "drain: 10m"), ("for: 2h", "for: 10m")])
def test_the_longer_of_two_drains_or_taints_counts(long: str, short: str):
    taint = "" if long.startswith("drain") else 'taint: "x=y:NoSchedule", '
    events = f"[{{at: 0s, node: a-1, {taint}{long}}}, {{at: 1h, node: a-1, {taint}{short}}}]"
    file = f"shapes: {{a: {{gpu: 8, count: 1}}}}\nevents: {events}\n"
    (waits,) = simulated(file, job("waits", 8, arrival="1m", duration="1h"), 8).jobs
    assert waits.start_seconds == 2 * HOUR


def test_nodes_are_added_by_plan():
    file = "shapes: {a: {gpu: 8, count: 1}, b: {gpu: 16, count: 0}}\nevents: [{at: 1h, add: b, count: 1}]\n"
    (large,) = simulated(file, job("large", 16, duration="1h"), 8).jobs
    assert (large.start_seconds, large.nodes) == (HOUR, ("b-added-1-1",))


def test_the_autoscaler_adds_nodes_on_demand_and_removes_idle():
    file = "shapes: {a: {gpu: 8, count: 0}}\nautoscale: [{shape: a, min: 0, max: 2, provision: 5m, idle: 10m}]\n"
    result = simulated(file, job("burst", 8, arrival="1h", duration="1h"), 8)
    (burst,) = result.jobs
    assert burst.start_seconds == HOUR + 300
    assert result.counts["gpuHours"] < 8 * 1.4


def test_a_node_is_removed_only_after_its_idle_time():
    file = "shapes: {a: {gpu: 8, count: 0}}\nautoscale: [{shape: a, min: 0, max: 1, provision: 5m, idle: 10m}]\n"
    jobs = job("first", 8, duration="9m") + job("second", 8, arrival="20m", duration="1m")
    # The node comes at 5m and is idle from 14m on, so it is there at 20m, and goes at 31m.
    result = simulated(file, jobs, 1)
    assert [each.start_seconds for each in result.jobs] == [300.0, 1200.0]
    assert result.counts["gpuHours"] == pytest.approx(8 * 26 / 60)


def test_no_node_is_made_for_pods_with_claims():
    template = """---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: default}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}}
"""
    claims = job("claims", 0).replace(
        "schedulerName", "resourceClaims: [{name: r, resourceClaimTemplateName: one}]\n      schedulerName"
    )
    file = "shapes: {a: {gpu: 8, count: 0}}\nautoscale: [{shape: a, min: 0, max: 2, provision: 5m, idle: 10m}]\n"
    result = simulated(file, template + claims, 8)
    assert ([each.gpus for each in result.jobs], result.counts["gpuHours"]) == ([1.0], 0.0)


def test_nodes_fail_by_chance_as_the_seed_says():
    file = "shapes: {a: {gpu: 8, count: 4}}\nmtbf: 10h\nrepair: 1h\n"
    counts = [simulated(file, job("x", duration="1h"), 48, seed).value("nodeFailures") for seed in (0, 0, 1)]
    assert counts[0] == counts[1]
    assert 5 < (counts[0] or 0) < 40
    assert counts[2] != counts[0] or counts[2] is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("shapes:\n  a: {gpus: 8}\n", "cluster.yaml:2:7: K002 there is no key gpus"),
        ("shapes:\n  a: {on: 8}\n", "cluster.yaml:2:7: K002 there is no key true, which the file has as on"),
        ("shapes:\n  a: {names: b, count: {c: true}}\n", "K001 count is {c: true}"),
        ("shapes:\n  a: {gpu: eight}\n", "cluster.yaml:2:12: K001 gpu is 'eight'"),
        ("shapes: {a: {gpu: 8}}\nevents:\n  - {at: 1x, node: a-1, fail: 1h}\n", "cluster.yaml:3:10: K001 at is '1x'"),
        ("shapes: {a: {gpu: 8}}\nevents:\n  - {at: 1h, node: b-1, fail: 1h}\n", "3:20: K001 there is no node 'b-1'"),
        ("shapes: {a: {gpu: 8}}\nevents:\n  - {at: 1h, fail: 1h}\n", "3:5: K001 found no node"),
        (
            "shapes: {a: {gpu: 8}}\nevents:\n  - {at: 1h, node: a-1, fail: 1h, for: 2h}\n",
            "K001 for says nothing beside fail",
        ),
        (f"shapes:\n  a: {{gpu: 8, names: n1..n{'9' * 5000}}}\n", "expected a range of at most 100000 nodes"),
        ("queues:\n  a: {qouta: 3}\n", "cluster.yaml:2:3: K002 a: found key 'qouta'"),
        ("autoscale:\n  - {shape: b}\n", "cluster.yaml:2:13: K001 there is no shape 'b'"),
        ("shapes: {c: {}}\nautoscale:\n  - {shape: c}\n", "3:13: K001 nodes of shape c have no GPU"),
        ("shapes: {a: {gpu: 8}}\nautoscale:\n  - {shape: a, min: 5, max: 2}\n", "3:29: K001 max is 2"),
        ("shapes: {a: {gpu: 8}}\nautoscale:\n  - {shape: a, idle: 0s}\n", "3:22: K001 idle is '0s'"),
        ("shapes:\n  a: {gpu: 8, memory: -80Gi}\n", "cluster.yaml:2:23: K001 memory is '-80Gi'"),
        ("shapes:\n  a: {gpu: 8, cpu: -4}\n", "cluster.yaml:2:20: K001 cpu is '-4'"),
        ("shapes: {a: {gpu: 8}}\n---\nshapes: {b: {gpu: 8}}\n", "cluster.yaml:3:1: K001 found a second cluster file"),
        ("queues:\n  a: {}\n  b: {parent: c}\n", "cluster.yaml:3:15: K001 there is no queue 'c', the parent of b"),
        ("queues:\n  a: {parent: a}\n", "cluster.yaml:2:15: K001 parents lead in a circle: a -> a"),
        (
            "queues:\n  c: {parent: a}\n  a: {parent: b}\n  b: {parent: a}\n",
            "cluster.yaml:3:15: K001 parents lead in a circle: a -> b -> a",
        ),
        ("queues:\n  a: {quota: -3}\n", "cluster.yaml:2:14: K001 a: quota: found -3"),
        ("queues:\n  a: {weight: {cpu: -2}}\n", "cluster.yaml:2:21: K001 a: weight: found -2"),
        ("queues:\n  a: {priority: x}\n", 'cluster.yaml:2:17: K001 a: priority: found "x"'),
    ],
)
def test_a_mistake_has_its_place(text: str, said: str):
    with pytest.raises(RefusedError) as refused:
        read_cluster_file(text.encode(), "cluster.yaml")
    assert said in str(refused.value)


NODE = "---\n{apiVersion: v1, kind: Node, metadata: {name: other}}\n"


@pytest.mark.parametrize("shapes", ["", "shapes: {a: {gpu: 8}}\n"])
def test_an_event_may_name_a_node_defined_further_down(shapes: str):
    def read(name: str):
        return read_cluster_file(
            f"{shapes}events: [{{at: 1h, node: {name}, fail: 1h}}]\n{NODE}".encode(), "cluster.yaml"
        )

    assert read("other").events[0].nodes == ("other",)
    with pytest.raises(RefusedError, match="K001 there is no node 'typo'"):
        read("typo")


def test_a_parent_queue_may_be_defined_elsewhere():
    text = """\
queues: {a: {parent: root}, b: {parent: other}}
---
{apiVersion: scheduling.run.ai/v2, kind: Queue, metadata: {name: root}, spec: {}}
"""
    assert len(read_cluster_file(text.encode(), "cluster.yaml", {"other"}).documents) == 3


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_a_file_that_says_nothing_is_refused(text: str):
    with pytest.raises(InputError, match=r"^cluster\.yaml: found nothing, expected a cluster file: shapes, queues"):
        read_cluster_file(text.encode(), "cluster.yaml")


def test_a_yaml_boolean_in_a_label_becomes_its_word():
    file = "shapes: {a: {gpu: 8, count: 1, labels: {fast: true, zone: 3}}}\n"
    found = read_cluster_file((QUEUES + file).encode(), "cluster.yaml").documents
    (labels,) = [each.manifest["metadata"]["labels"] for each in found if each.manifest["kind"] == "Node"]
    assert (labels["fast"], labels["zone"]) == ("true", "3")
