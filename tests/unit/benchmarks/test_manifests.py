import json
from collections import Counter
from itertools import islice

import pytest

from benchmarks.catalogue import WORKLOADS, UnknownWorkloadError, find_workload
from benchmarks.generate import write
from benchmarks.manifests import KINDS, manifests, newcomers


def objects(id_, kind):
    return list(KINDS[kind](find_workload(id_)))


@pytest.mark.parametrize("id_", ["w1", "w1b", "w2", "w6b", "w7s", "w9", "large-100"])
def test_a_workload_has_its_stated_nodes_groups_and_pods(id_):
    workload = find_workload(id_)
    counts = Counter(manifest["kind"] for manifest in manifests(workload))
    groups = (workload.running.groups if workload.running else 0) + (workload.pending.groups if workload.pending else 0)
    assert counts["Node"] == workload.nodes.count
    assert counts["Pod"] == workload.running_pods + workload.pending_pods
    assert counts["PodGroup"] == groups
    assert counts["Queue"] == len(workload.queues)


def test_every_name_is_used_once():
    seen = Counter((manifest["kind"], manifest["metadata"]["name"]) for manifest in manifests(find_workload("w2")))
    assert set(seen.values()) == {1}


@pytest.mark.parametrize("id_", ["w1b", "w7s", "w9", "large-100"])
def test_running_pods_fit_their_nodes(id_):
    used = Counter()
    for pod in objects(id_, "pods"):
        if node := pod["spec"].get("nodeName"):
            used[node] += int(pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"])
    assert max(used.values()) <= 8
    assert sum(used.values()) == find_workload(id_).running_pods


def test_children_get_no_more_quota_than_their_parent():
    for id_ in ("w1", "w7", "w7s"):
        quotas, children = {}, Counter()
        for queue in objects(id_, "queues"):
            quota = queue["spec"]["resources"]["gpu"]["quota"]
            quotas[queue["metadata"]["name"]] = quota
            children[queue["spec"].get("parentQueue", "")] += quota
        assert children.pop("") == find_workload(id_).nodes.total_gpus
        assert all(quotas[parent] == total for parent, total in children.items())


def test_w7_gives_fifty_queues_double_quota_and_fifty_nothing():
    held, wanted = Counter(), Counter()
    for pod in objects("w7", "pods"):
        counter = held if "nodeName" in pod["spec"] else wanted
        counter[pod["metadata"]["labels"]["kai.scheduler/queue"]] += 1
    assert set(held.values()) == {80}
    assert set(wanted.values()) == {10}
    assert len(held) == len(wanted) == 50
    assert not held.keys() & wanted.keys()


def test_racks_of_w6_hold_thirty_two_nodes():
    racks = Counter(node["metadata"]["labels"]["perf/rack"] for node in objects("w6", "nodes"))
    zones = Counter(node["metadata"]["labels"]["perf/zone"] for node in objects("w6", "nodes"))
    assert set(racks.values()) == {32}
    assert set(zones.values()) == {256}


def test_a_half_gpu_pod_asks_by_annotation_alone():
    pod = objects("w5s", "pods")[0]
    assert pod["metadata"]["annotations"]["gpu-fraction"] == "0.5"
    assert "nvidia.com/gpu" not in pod["spec"]["containers"][0]["resources"]["requests"]


def test_groups_are_a_millisecond_apart():
    stamps = [group["metadata"]["creationTimestamp"] for group in islice(KINDS["pod-groups"](find_workload("w1")), 3)]
    assert stamps == ["2026-01-01T11:50:00Z", "2026-01-01T11:50:00.001Z", "2026-01-01T11:50:00.002Z"]


def test_objects_of_the_largest_workload_are_made_lazily():
    first = next(KINDS["pods"](find_workload("w10")))
    assert first["metadata"]["name"] == "running-000000-000"


def test_a_written_workload_reads_back_as_it_was_made(tmp_path):
    workload = find_workload("w7s")
    written = write(workload, tmp_path)
    items = [item for file in written for item in json.loads(file.path.read_text())["items"]]
    assert items == list(manifests(workload))
    assert [file.objects for file in written if "pods" in file.path.name] == [900]


def test_an_item_is_a_line_of_its_own(tmp_path):
    (nodes,) = (file for file in write(find_workload("w0"), tmp_path) if "nodes" in file.path.name)
    lines = nodes.path.read_text().splitlines()
    assert len(lines) == 102
    assert json.loads(lines[1].rstrip(","))["metadata"]["name"] == "node-00000"


def test_kinds_without_objects_leave_no_file_behind(tmp_path):
    write(find_workload("w6b"), tmp_path)
    assert list(tmp_path.glob("*topologies*"))
    write(find_workload("w0"), tmp_path)
    assert not list(tmp_path.glob("*topologies*"))


def test_newcomers_are_those_who_wait_and_nobody_else():
    everything = list(manifests(find_workload("w7s")))
    assert list(newcomers(find_workload("w7s"))) == [
        manifest for manifest in everything if manifest["metadata"]["name"].startswith("waiting-")
    ]
    assert list(newcomers(find_workload("w4d"))) == []


def test_published_gangs_keep_their_sizes():
    assert find_workload("large-1000").pending_pods == 100
    assert find_workload("huge-1000").pending_pods == 500


def test_an_unknown_workload_names_those_that_exist():
    with pytest.raises(UnknownWorkloadError, match="w1b"):
        find_workload("w99")


def test_every_workload_of_the_series_is_there():
    series = "w0 w1 w1b w2 w3 w4a w4b w4c w4d w4e w5 w5s w6 w6b w7 w7s w9 w10 large-1000 huge-1000"
    others = "many-500 fill-10k gang-full gang-short"
    assert {*series.split(), *others.split()} <= WORKLOADS.keys()
