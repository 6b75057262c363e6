from collections import Counter, defaultdict
from fractions import Fraction
from pathlib import Path

import pytest
import yaml

LAB = Path(__file__).parents[3] / "examples" / "lab"


@pytest.fixture(scope="module")
def lab():
    by_kind = defaultdict(dict)
    for path in sorted(LAB.glob("*.yaml")):
        for document in yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader):
            name = document["metadata"]["name"]
            assert name not in by_kind[document["kind"]], f"{document['kind']} {name} is there twice"
            by_kind[document["kind"]][name] = document
    return by_kind


def group_of(pod):
    return pod["metadata"]["annotations"]["pod-group-name"]


def gpus_of(pod):
    whole = pod["spec"]["containers"][0]["resources"]["requests"].get("nvidia.com/gpu", 0)
    return Fraction(pod["metadata"]["annotations"].get("gpu-fraction", whole))


def test_the_lab_has_a_hundred_gpus(lab):
    assert sum(int(node["status"]["allocatable"]["nvidia.com/gpu"]) for node in lab["Node"].values()) == 100
    assert Counter(node["metadata"]["labels"]["topology.kubernetes.io/rack"] for node in lab["Node"].values()) == {
        "rack-a": 4,
        "rack-b": 4,
        "rack-c": 4,
        "rack-d": 1,
    }


def test_ten_gangs_train_on_four_to_thirty_two_gpus(lab):
    sizes = Counter()
    for pod in lab["Pod"].values():
        if lab["PodGroup"][group_of(pod)]["spec"]["queue"] in {"language", "vision", "scratch"}:
            sizes[group_of(pod)] += gpus_of(pod)
    assert len(sizes) == 10
    assert min(sizes.values()) == 4
    assert max(sizes.values()) == 32


def test_twenty_services_have_a_floor_that_cannot_be_taken(lab):
    floors = [group for group in lab["PodGroup"].values() if group["spec"].get("preemptibility") == "non-preemptible"]
    assert len(floors) == 20
    bursts = [group for group in lab["PodGroup"].values() if group["spec"].get("preemptibility") == "preemptible"]
    assert all(group["spec"]["minMember"] == 0 for group in bursts)
    assert {group["metadata"]["name"].removesuffix("-burst") for group in bursts} <= {
        group["metadata"]["name"] for group in floors
    }


def test_every_pod_is_grouped_in_a_leaf_queue(lab):
    parents = {queue["spec"].get("parentQueue") for queue in lab["Queue"].values()}
    for pod in lab["Pod"].values():
        queue = lab["PodGroup"][group_of(pod)]["spec"]["queue"]
        assert queue == pod["metadata"]["labels"]["kai.scheduler/queue"]
        assert queue in lab["Queue"]
        assert queue not in parents


def test_every_gang_has_the_pods_it_waits_for(lab):
    members = Counter(group_of(pod) for pod in lab["Pod"].values())
    for name, group in lab["PodGroup"].items():
        assert members[name] >= group["spec"]["minMember"]
        assert group["spec"]["priorityClassName"] in lab["PriorityClass"]


def test_running_pods_share_no_more_gpus_than_there_are(lab):
    devices, whole = defaultdict(lambda: defaultdict(Fraction)), Counter()
    for pod in lab["Pod"].values():
        node = pod["spec"].get("nodeName")
        if node and (device := pod["metadata"]["labels"].get("runai-gpu-group")):
            devices[node][device] += gpus_of(pod)
        elif node:
            whole[node] += gpus_of(pod)
    for name, node in lab["Node"].items():
        assert max(devices[name].values(), default=0) <= 1
        assert whole[name] + len(devices[name]) <= int(node["status"]["allocatable"]["nvidia.com/gpu"])


def test_eighty_eight_gpus_are_in_use(lab):
    assert sum(gpus_of(pod) for pod in lab["Pod"].values() if "nodeName" in pod["spec"]) == 88
