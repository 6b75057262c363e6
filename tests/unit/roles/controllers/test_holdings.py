"""What pod groups hold, and the sums of queues, kept up change by change."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.conventions.amounts import texts
from kai.api.conventions.pod_amounts import Surroundings, gpu_memory
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.meta import PriorityClass
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.pod_group import PodGroup, PodGroupResources
from kai.api.values import BadValue
from kai.roles.controllers.holdings import Sum, Sums, is_preemptible, pod_group_resources, status_patch


def group(status=None, **spec):
    manifest = {"metadata": {"name": "g", "namespace": "ns"}, "spec": spec, "status": status or {}}
    return structure_as(PodGroup, manifest)


def pod(name="p", phase="Running", annotations=None, requests=None, scheduled=None, group_name="g", **spec):
    conditions = [] if scheduled is None else [{"type": "PodScheduled", "status": scheduled}]
    manifest = {
        "metadata": {
            "name": name,
            "namespace": "ns",
            "annotations": {"pod-group-name": group_name, **(annotations or {})},
        },
        "spec": {"containers": [{"resources": {"requests": requests or {"cpu": "1"}}}], **spec},
        "status": {"phase": phase, "conditions": conditions},
    }
    return structure_as(Pod, manifest)


def node(name="n", **labels):
    return structure_as(Node, {"metadata": {"name": name, "labels": {k: str(v) for k, v in labels.items()}}})


def claim(name, *requests, annotations=None):
    manifest = {
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations or {}},
        "spec": {"devices": {"requests": [{"name": str(i), "exactly": r} for i, r in enumerate(requests)]}},
    }
    return structure_as(ResourceClaim, manifest)


def around(nodes=(), claims=(), classes=()):
    by_name = {known.metadata.name: known for known in nodes}
    by_key = {(known.metadata.namespace, known.metadata.name): known for known in claims}
    return Surroundings(
        node=by_name.get,
        claim=lambda namespace, name: by_key.get((namespace, name)),
        priority_classes=tuple(
            structure_as(PriorityClass, {"metadata": {"name": name}, "value": value, "globalDefault": default})
            for name, value, default in classes
        ),
    )


def count(*pods, surroundings=None, **spec):
    return pod_group_resources(group(**spec), pods, surroundings or around())


def test_running_and_scheduled_pods_hold_their_requests():
    resources = count(pod("a"), pod("b", "Pending", scheduled="True"), pod("c", "Pending", scheduled="False"))
    assert resources.requested == {"cpu": "3"}
    assert resources.allocated == {"cpu": "2"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_ended_pods_count_nothing_and_need_no_claims(phase):
    gone = pod(phase=phase, resourceClaims=[{"name": "x", "resourceClaimName": "gone"}])
    assert count(gone) == PodGroupResources()


def test_pods_of_other_groups_and_namespaces_are_passed_over():
    assert count(pod(group_name="other")) == PodGroupResources()


def test_init_containers_and_overhead_count():
    heavy = pod(
        initContainers=[{"resources": {"requests": {"cpu": "3"}}}],
        overhead={"cpu": "500m"},
    )
    assert count(heavy).requested == {"cpu": "3500m"}


def test_a_share_is_requested_and_held_on_every_device():
    annotations = {"gpu-fraction": "0.25", "gpu-fraction-num-devices": "3", "received-resource-type": "Fraction"}
    resources = count(pod(annotations=annotations))
    assert resources.requested["nvidia.com/gpu"] == "750m"
    assert resources.allocated["nvidia.com/gpu"] == "750m"


def granted(text, **annotations):
    return pod(annotations={"kai.scheduler/granted": text, **annotations}, nodeName="n")


def test_the_granted_share_counts_instead_of_edited_annotations():
    edited = granted('{"gpus":["a","b"],"portion":0.9}', **{"gpu-fraction": "0.1", "received-resource-type": "Regular"})
    counted = count(edited)
    assert counted.allocated["nvidia.com/gpu"] == counted.requested["nvidia.com/gpu"] == "1800m"
    by_memory = granted('{"gpus":["a"],"memory":4096}', **{"gpu-memory": "1"})
    where = around(nodes=[node("n", **{"nvidia.com/gpu.memory": 8192})])
    assert count(by_memory, surroundings=where).allocated["nvidia.com/gpu"] == "500m"
    whole = granted("{}", **{"gpu-fraction": "0.1", "received-resource-type": "Fraction"})
    assert "nvidia.com/gpu" not in count(whole).allocated


def test_a_pod_counts_for_the_group_of_its_grant():
    moved = granted('{"group":"g"}', **{"pod-group-name": "other"})
    assert count(moved).allocated == {"cpu": "1"}
    assert count(granted('{"group":"other"}')).allocated == {}


def test_a_share_that_was_not_received_is_not_held():
    for kind in ("Regular", ""):
        resources = count(pod(annotations={"gpu-fraction": "0.5", "received-resource-type": kind}))
        assert "nvidia.com/gpu" in resources.requested
        assert "nvidia.com/gpu" not in resources.allocated


@pytest.mark.parametrize(
    ("labels", "memory", "share"),
    [
        ({"nvidia.com/gpu.memory": 4000}, "1000", "250m"),
        ({"nvidia.com/gpu.memory": 3000}, "1000", "333333334n"),
        ({"beta.amd.com/gpu.vram.16G": 1}, "4000", "250m"),
    ],
)
def test_memory_becomes_a_share_of_the_nodes_gpus(labels, memory, share):
    annotations = {"gpu-memory": memory, "received-resource-type": "Fraction"}
    resources = count(pod(annotations=annotations, nodeName="n"), surroundings=around([node(**labels)]))
    assert resources.allocated["nvidia.com/gpu"] == share
    assert resources.requested["run.ai/gpu.memory"] == f"{int(memory) // 1000}k"


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        ({"gpu-fraction": "half"}, 'pod ns/p: metadata.annotations.gpu-fraction: found "half", expected a quantity'),
        ({"gpu-fraction": "0.5", "gpu-fraction-num-devices": "1.5"}, "expected a whole number of devices"),
        ({"gpu-fraction-num-devices": "x"}, "gpu-fraction-num-devices: found"),
        ({"received-resource-type": "Fraction"}, "expected gpu-fraction or gpu-memory beside received-resource-type"),
        ({"received-resource-type": "Fraction", "gpu-memory": "1.5"}, "expected a whole number of MiB"),
        (
            {"received-resource-type": "Fraction", "gpu-memory": "5"},
            'spec.nodeName: found "", expected the name of a node',
        ),
    ],
)
def test_an_uncountable_pod_is_named_with_its_bad_value(annotations, message):
    with pytest.raises(BadValue) as caught:
        count(pod(annotations=annotations))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ({}, "node n: metadata.labels: found nothing"),
        ({"nvidia.com/gpu.memory": "0"}, "above 0"),
        ({"nvidia.com/gpu.memory": "lots"}, 'found "lots", expected a whole number of MiB'),
        ({"beta.amd.com/gpu.vram.1bG": 1}, "expected a quantity"),
        ({"nvidia.com/gpu.memory": 4000, "beta.amd.com/gpu.vram.32G": 1}, 'found "both"'),
    ],
)
def test_a_node_without_gpu_memory_size_is_named(labels, message):
    annotations = {"gpu-memory": "1000", "received-resource-type": "Fraction"}
    with pytest.raises(BadValue) as caught:
        count(pod(annotations=annotations, nodeName="n"), surroundings=around([node(**labels)]))
    assert message in str(caught.value)


def test_an_amd_label_without_a_size_is_skipped():
    assert gpu_memory(node(**{"beta.amd.com/gpu.vram.": 1, "nvidia.com/gpu.memory": 5})) == 5.0


def test_claims_of_gpus_count_by_device_class():
    claims = [
        claim("one", {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount", "count": 2}),
        claim("all", {"deviceClassName": "gpu.example.com", "allocationMode": "All"}),
        claim("nic", {"deviceClassName": "nic.example.com", "allocationMode": "ExactCount"}),
        claim(
            "synthetic",
            {"deviceClassName": "gpu.example.com", "allocationMode": "ExactCount"},
            annotations={"resource.kubernetes.io/extended-resource-claim": "true"},
        ),
    ]
    names = ["one", "all", "nic", "synthetic"]
    references = [{"name": name, "resourceClaimName": name} for name in names]
    resources = count(pod(resourceClaims=references), surroundings=around(claims=claims))
    assert resources.requested == {"cpu": "1", "gpu.example.com": "3"}
    assert resources.allocated == {"cpu": "1", "gpu.example.com": "3"}


def test_a_template_claim_is_found_through_the_pods_status():
    manifest = {
        "metadata": {"name": "p", "namespace": "ns", "annotations": {"pod-group-name": "g"}},
        "spec": {
            "resourceClaims": [
                {"name": "gpu", "resourceClaimTemplateName": "t"},
                {"name": "not-needed", "resourceClaimTemplateName": "t"},
            ],
        },
        "status": {
            "phase": "Running",
            "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu"}, {"name": "not-needed"}],
        },
    }
    claims = [claim("p-gpu", {"deviceClassName": "GPU", "allocationMode": "ExactCount"})]
    resources = count(structure_as(Pod, manifest), surroundings=around(claims=claims))
    assert resources.requested == {"GPU": "1"}


@pytest.mark.parametrize(
    "reference",
    [{"name": "c", "resourceClaimName": "gone"}, {"name": "c", "resourceClaimTemplateName": "t"}],
)
def test_a_missing_claim_of_a_living_pod_is_named(reference):
    with pytest.raises(BadValue, match=r"pod ns/p: spec.resourceClaims\[0\]"):
        count(pod(resourceClaims=[reference]))


@pytest.mark.parametrize(
    ("spec", "classes", "expected"),
    [
        ({"preemptibility": "preemptible", "priorityClassName": "high"}, [("high", 500, False)], True),
        ({"preemptibility": "non-preemptible"}, [], False),
        ({"priorityClassName": "c"}, [("c", 99, False), ("d", 500, True)], True),
        ({"priorityClassName": "c"}, [("c", 100, False)], False),
        ({"priorityClassName": "gone"}, [("d", 500, True)], False),
        ({"priorityClassName": "gone"}, [("d", 500, False)], True),
        ({}, [], True),
    ],
)
def test_preemptibility_is_explicit_or_follows_from_the_priority(spec, classes, expected):
    assert is_preemptible(group(**spec), around(classes=classes).priority_classes) is expected


def test_a_pod_bound_by_another_scheduler_counts_its_requests():
    share = {"gpu-fraction": "0.5", "received-resource-type": "Fraction"}
    bound = {"schedulerName": "another", "nodeName": "n", "annotations": share}
    assert count(pod(**bound)) == count(pod())
    assert count(pod(**{**bound, "schedulerName": "kai-scheduler"})).allocated["nvidia.com/gpu"] == "500m"


def test_a_group_that_turned_preemptible_clears_its_earlier_amounts():
    status = {"resourcesStatus": {"allocatedNonPreemptible": {"cpu": "1"}, "allocated": {"cpu": "1"}}}
    before = group(status, preemptibility="preemptible")
    resources = pod_group_resources(before, [pod()], around())
    assert status_patch(before, resources) == {
        "status": {"resourcesStatus": {"allocatedNonPreemptible": None, "requested": {"cpu": "1"}}},
    }


def test_equal_amounts_in_another_notation_write_nothing():
    status = {"resourcesStatus": {"allocated": {"cpu": "1000m"}, "requested": {"cpu": "1"}}}
    before = group(status)
    assert status_patch(before, pod_group_resources(before, [pod()], around())) is None


def test_a_vanished_resource_is_removed_from_the_list():
    before = group({"resourcesStatus": {"requested": {"cpu": "1", "memory": "1Gi"}, "allocated": {"cpu": "1"}}})
    resources = PodGroupResources(requested={"cpu": "2"}, allocated={"cpu": "1"})
    assert status_patch(before, resources) == {
        "status": {"resourcesStatus": {"requested": {"memory": None, "cpu": "2"}}},
    }


def test_the_order_of_pods_changes_nothing():
    pods = [pod(str(i), requests={"cpu": f"{i}m", "memory": f"{i}Mi"}) for i in range(1, 6)]
    assert count(*pods) == count(*reversed(pods))


amounts = st.dictionaries(st.sampled_from(["cpu", "memory", "gpu"]), st.sampled_from(["0", "1", "500m", "2Gi"]))
resources = st.builds(PodGroupResources, allocated=amounts, allocated_non_preemptible=amounts, requested=amounts)
keys = st.tuples(st.just("ns"), st.sampled_from("abcd"))
changes = st.lists(st.tuples(keys, st.sampled_from(["", "p", "q"]), resources), max_size=20)


def billionths(found: Sum):
    lists = (found.allocated, found.allocated_non_preemptible, found.requested)
    return [{name: amount.billionths for name, amount in each.items()} for each in lists]


@given(changes)
def test_a_sum_equals_the_last_amounts_after_any_changes(made):
    sums, last = Sums(), {}
    for key, queue, said in made:
        sums.put(key, queue, said)
        last[key] = (queue, said)
    for queue in ("p", "q", "r"):
        expected = Sum.of(*(said for on, said in last.values() if on == queue))
        assert billionths(sums.of(queue)) == billionths(expected)


def test_amounts_are_written_as_groups_write_them():
    sums = Sums()
    sums.put(("ns", "a"), "q", PodGroupResources(allocated={"memory": "1Gi", "cpu": "1500m"}))
    sums.put(("ns", "b"), "q", PodGroupResources(allocated={"memory": "1Gi", "cpu": "500m"}))
    assert texts(sums.of("q").allocated) == {"cpu": "2", "memory": "2Gi"}
    sums.put(("ns", "a"), "", PodGroupResources())
    assert texts(sums.of("q").allocated) == {"cpu": "500m", "memory": "1Gi"}


def test_an_invalid_amount_spoils_the_sum_until_corrected():
    sums = Sums()
    sums.put(("ns", "a"), "q", PodGroupResources(allocated={"cpu": "1"}))
    sums.put(("ns", "b"), "q", PodGroupResources(allocated={"cpu": "1", "memory": "much"}))
    with pytest.raises(BadValue):
        sums.of("q")
    sums.put(("ns", "b"), "q", PodGroupResources(allocated={"cpu": "2"}))
    assert texts(sums.of("q").allocated) == {"cpu": "3"}


def test_a_queue_without_groups_is_forgotten():
    sums = Sums()
    sums.put(("ns", "a"), "q", PodGroupResources(allocated={"cpu": "1"}))
    sums.put(("ns", "a"), "", PodGroupResources(allocated={"cpu": "1"}))
    assert sums == Sums()
