import copy
import json

import pytest

from tests.generate.census import of_kind
from tests.generate.features import parse_features
from tests.generate.laws import amount, broken_laws
from tests.generate.scenario import generate


def find(features, wanted):
    """Find a scenario with an object that ``wanted`` accepts; give a copy of it and that object within."""
    for seed in range(300):
        scenario = copy.deepcopy(generate(seed, parse_features(features)))
        for each in scenario["objects"]:
            if wanted(each):
                return scenario, each
    raise AssertionError(f"no scenario with {features} has it")


def is_running(each):
    return each["kind"] == "Pod" and each["status"]["phase"] == "Running" and "pod-group-name" in annotations(each)


def annotations(each):
    return each["metadata"].get("annotations", {})


def assert_broken(scenario, words):
    assert any(words in law for law in broken_laws(scenario)), broken_laws(scenario)


def test_too_much_cpu_on_a_node_is_found():
    scenario, pod = find("running,whole-gpus", is_running)
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1000"
    assert_broken(scenario, "of cpu taken")


def test_too_many_gpus_on_a_node_are_found():
    scenario, pod = find("running,whole-gpus", is_running)
    pod["spec"]["containers"][0]["resources"]["requests"]["nvidia.com/gpu"] = "9"
    assert_broken(scenario, "of nvidia.com/gpu taken")


def test_a_shared_device_counts_as_a_whole_one():
    scenario, pod = find("running,fractions", is_running)
    for node in of_kind(scenario, "Node"):
        node["status"]["allocatable"]["nvidia.com/gpu"] = "0"
    assert pod["metadata"]["labels"]["runai-gpu-group"]
    assert_broken(scenario, "of nvidia.com/gpu taken")


def test_an_overfull_shared_device_is_found():
    scenario, pod = find("running,fractions", is_running)
    twin = copy.deepcopy(pod)
    pod["metadata"]["annotations"]["gpu-fraction"] = twin["metadata"]["annotations"]["gpu-fraction"] = "0.6"
    twin["metadata"]["name"] = "twin"
    scenario["objects"].append(twin)
    assert_broken(scenario, "of it taken")


def test_a_zone_giving_more_than_it_has_breaks_laws():
    key = "kai.scheduler/numa-placement-observed"
    scenario, pod = find("running,whole-gpus,numa", lambda each: key in annotations(each))
    (part, *_) = placement = json.loads(annotations(pod)[key])
    part["amount"] = dict.fromkeys(part["amount"], "999")
    annotations(pod)[key] = json.dumps(placement)
    assert_broken(scenario, "gives more")


def test_a_device_in_two_allocations_is_found():
    scenario, claim = find("running,dra", lambda each: each.get("status", {}).get("allocation"))
    twin = copy.deepcopy(claim)
    twin["metadata"]["name"] = "twin"
    scenario["objects"].append(twin)
    assert_broken(scenario, "in the allocations of")


def test_devices_on_another_node_than_the_pod_are_found():
    scenario, pod = find("running,dra", lambda each: is_running(each) and each["spec"].get("resourceClaims"))
    elsewhere = copy.deepcopy(of_kind(scenario, "Node")[0])
    elsewhere["metadata"]["name"] = pod["spec"]["nodeName"] = "elsewhere"
    scenario["objects"].append(elsewhere)
    assert_broken(scenario, "on elsewhere, its devices are on")


def test_a_port_taken_twice_is_found():
    scenario, pod = find(
        "running,whole-gpus,ports", lambda each: is_running(each) and each["spec"]["containers"][0].get("ports")
    )
    twin = copy.deepcopy(pod)
    twin["metadata"]["name"] = "twin"
    scenario["objects"].append(twin)
    assert_broken(scenario, "taken twice")


def test_a_volume_out_of_reach_is_found():
    scenario, volume = find(
        "running,whole-gpus,volumes",
        lambda each: each["kind"] == "PersistentVolume" and each["spec"].get("nodeAffinity"),
    )
    user = next(
        pod
        for pod in of_kind(scenario, "Pod")
        if any(
            each["persistentVolumeClaim"]["claimName"] == volume["spec"]["claimRef"]["name"]
            for each in pod["spec"].get("volumes", ())
        )
    )
    user["spec"]["nodeName"] = of_kind(scenario, "Node")[0]["metadata"]["name"]
    (term,) = volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"]
    term["matchExpressions"][0]["values"] = ["nowhere"]
    assert_broken(scenario, "cannot reach")


def test_a_leaf_without_a_minimum_is_found():
    scenario, group = find("subgroups", lambda each: each.get("spec", {}).get("subGroups"))
    leaf = next(part for part in group["spec"]["subGroups"] if "minMember" in part)
    del leaf["minMember"]
    assert_broken(scenario, "must have minMember")


def test_sub_groups_in_a_circle_are_found():
    scenario, group = find(
        "subgroups", lambda each: any("parent" in part for part in each.get("spec", {}).get("subGroups", ()))
    )
    part = next(part for part in group["spec"]["subGroups"] if "parent" in part)
    part["parent"] = part["name"]
    assert_broken(scenario, "its own ancestor")


def test_a_doubled_name_is_found():
    scenario = generate(1)
    scenario["objects"].append(copy.deepcopy(scenario["objects"][0]))
    assert_broken(scenario, "exists 2 times")


def test_a_reference_to_nothing_is_found():
    scenario, group = find("gangs", lambda each: each["kind"] == "PodGroup")
    group["spec"]["priorityClassName"] = "nothing"
    assert_broken(scenario, "PriorityClass nothing does not exist")


def test_a_moment_in_the_future_is_found():
    scenario, group = find("gangs", lambda each: each["kind"] == "PodGroup")
    group["metadata"]["creationTimestamp"] = "2030-01-01T00:00:00Z"
    assert_broken(scenario, "later than now")


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("250m", 0.25), ("2Gi", 2**31), ("1G", 10**9), ("20k", 20000), ("0.5", 0.5)]
)
def test_quantities_are_read_exactly(text, value):
    assert amount(text) == value


def test_what_is_no_quantity_is_refused():
    with pytest.raises(ValueError, match="lots"):
        amount("lots")
