import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import ObjectMeta, OwnerReference
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest, BindRequestSpec, BindRequestStatus
from kai.roles.controllers.node_scale import ScaleSettings, ScaleState, adjust, is_relevant, scaling_pod

SETTINGS = ScaleSettings(image="registry/scaling:1")


def pod(name="p", fraction="0.5", reason="Unschedulable", namespace="ns", devices=None, phase="Pending", **spec):
    annotations = {} if fraction is None else {"gpu-fraction": fraction}
    if devices is not None:
        annotations["gpu-fraction-num-devices"] = str(devices)
    manifest = {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "annotations": annotations},
        "spec": {"schedulerName": "kai-scheduler", **spec},
        "status": {
            "phase": phase,
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": reason}] if reason else [],
        },
    }
    return structure_as(Pod, manifest)


def scaling(target, devices=1, phase="Pending", **metadata):
    manifest = scaling_pod(target, devices, SETTINGS)
    manifest["status"] = {"phase": phase}
    manifest["metadata"].update(metadata)
    return structure_as(Pod, manifest)


def order(name, uid="", phase=""):
    owner = OwnerReference(api_version="v1", kind="Pod", name=name, uid=uid or f"uid-{name}")
    return BindRequest(
        metadata=ObjectMeta(name=name, namespace="ns", owner_references=(owner,)),
        spec=BindRequestSpec(pod_name=name, selected_node="n"),
        status=BindRequestStatus(phase=phase),
    )


def names(adjustment):
    return [manifest["metadata"]["name"] for manifest in adjustment.creations]


def run(pods, scaling_pods=(), state=ScaleState(), now=0.0, settings=SETTINGS, orders=()):  # noqa: B008 -- a frozen value
    return adjust(pods, scaling_pods, orders, state, settings, now=now)


def test_shares_are_rounded_up_to_whole_gpus():
    assert names(run([pod("a"), pod("b")])) == ["ns-a"]
    assert names(run([pod("a"), pod("b"), pod("c")])) == ["ns-a", "ns-b"]


def test_shares_with_different_node_selectors_are_summed_apart():
    """A pod for which no node can come holds a scaling pod for good; others are served all the same."""
    nowhere = pod("a", nodeSelector={"gpu": "made-up"})
    assert names(run([nowhere, pod("b", "0.3"), pod("c", "0.3")], [scaling(nowhere)])) == ["ns-b"]


@pytest.mark.parametrize(
    "where",
    [
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}},
    ],
)  # fmt: skip
def test_tolerations_and_node_affinity_decide_which_shares_add_up(where):
    assert names(run([pod("a", "0.3"), pod("b", "0.3", **where)])) == ["ns-a", "ns-b"]
    assert names(run([pod("a", "0.3", **where), pod("b", "0.3", **where)])) == ["ns-a"]


def test_inter_pod_affinity_makes_no_separate_sum():
    apart = {"labelSelector": {"matchLabels": {"job": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    assert names(run([pod("a", "0.3", affinity=affinity), pod("b", "0.3")])) == ["ns-a"]


def test_a_tenth_ten_times_is_one_gpu():
    assert len(run([pod(f"p{i}", "0.1") for i in range(10)]).creations) == 1


def test_memory_counts_as_a_tenth_of_a_gpu():
    def by_memory(name):
        made = {"metadata": {"name": name, "namespace": "ns", "annotations": {"gpu-memory": "1000"}}}
        base = pod(name)
        return structure_as(
            Pod,
            {
                **made,
                "spec": {"schedulerName": "kai-scheduler"},
                "status": {
                    "conditions": [
                        {"type": "PodScheduled", "status": "False", "reason": base.status.conditions[0].reason}
                    ],
                },
            },
        )

    assert len(run([by_memory(f"m{i}") for i in range(10)]).creations) == 1
    assert len(run([by_memory(f"m{i}") for i in range(11)]).creations) == 2


def test_more_devices_than_any_scaling_pod_need_their_own():
    existing = [scaling(pod("a", "0.1"), 4)]
    assert names(run([pod("a", "0.1"), pod("b", "0.1", devices=5)], existing)) == ["ns-b"]
    assert names(run([pod("a", "0.1"), pod("b", "0.1", devices=4)], existing)) == []


def test_a_pod_has_at_most_one_scaling_pod():
    assert names(run([pod("a", "0.9", devices=3)], [scaling(pod("a"))])) == []


@pytest.mark.parametrize(
    "settled",
    [
        pod(reason="SchedulerError"),
        pod(reason=None),
        pod(nodeName="n"),
        pod(phase="Failed"),
        pod(schedulerName="default-scheduler"),
        pod(fraction=None),
        pod(fraction="plenty"),
        pod(fraction="-1"),
        pod(fraction="inf"),
        pod(fraction="nan"),
        pod(fraction=" 0.5"),
        pod(fraction="1.5"),
        pod(fraction="0.001"),
        pod(devices="x"),
        pod(devices=0),
    ],
)
def test_placed_and_malformed_pods_ask_for_nothing(settled):
    assert run([settled]).creations == ()


def test_scaling_pods_of_gone_placed_or_served_pods_go():
    placed = structure_as(
        Pod,
        {
            "metadata": {"name": "placed", "namespace": "ns"},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
        },
    )
    existing = [
        scaling(pod("gone")),
        scaling(pod("placed")),
        scaling(pod("ran"), phase="Succeeded"),
        scaling(pod("waits")),
    ]
    adjustment = run([placed, pod("ran"), pod("waits")], existing, now=100.0)
    assert [deleted.metadata.name for deleted in adjustment.deletions] == ["ns-gone", "ns-placed", "ns-ran"]
    assert adjustment.state.cooling_since == 100.0


def test_an_ordered_pod_asks_for_no_other_place():
    waits = run([pod("a"), pod("b", "0.9")], orders=[order("a")])
    assert names(waits) == ["ns-b"]
    adjustment = run([pod("a"), pod("b")], [scaling(pod("a"))], orders=[order("a")])
    assert [deleted.metadata.name for deleted in adjustment.deletions] == ["ns-a"]


@pytest.mark.parametrize("useless", [order("a", phase="Failed"), order("a", uid="a namesake")])
def test_a_failed_or_outdated_order_gives_no_place(useless):
    assert names(run([pod("a")], orders=[useless])) == ["ns-a"]
    assert run([pod("a")], [scaling(pod("a"))], orders=[useless]).deletions == ()


def test_a_scaling_pod_stays_while_its_pod_is_undecided():
    assert run([pod("a", reason=None)], [scaling(pod("a"))]).deletions == ()


def test_nothing_is_created_until_the_cool_down_is_over():
    first = run([pod("a")], [scaling(pod("gone"))], now=100.0)
    assert (first.creations, first.look_again_after) == ((), 60.0)
    second = run([pod("a")], state=first.state, now=150.0)
    assert (second.creations, second.look_again_after) == ((), 10.0)
    third = run([pod("a")], state=second.state, now=160.0)
    assert names(third) == ["ns-a"]
    assert third.look_again_after is None


def test_a_scaling_pod_copies_its_pods_requests_and_constraints():
    manifest = scaling_pod(
        pod(
            containers=[
                {"resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}},
                {"resources": {"requests": {"cpu": "1"}}},
                {},
            ],
            nodeSelector={"zone": "a"},
            tolerations=[{"key": "gpu", "operator": "Exists"}],
        ),
        2,
        SETTINGS,
    )
    spec = manifest["spec"]
    assert spec["containers"][0]["resources"] == {
        "requests": {"nvidia.com/gpu": "2", "cpu": "1500m", "memory": "1Gi"},
        "limits": {"nvidia.com/gpu": "2"},
    }
    assert (spec["nodeSelector"], spec["restartPolicy"]) == ({"zone": "a"}, "OnFailure")
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert "schedulerName" not in spec
    assert manifest["metadata"]["labels"]["shared-gpu-pod-name"] == "p"


def test_long_names_get_a_hash_and_are_found_again():
    long = pod("x" * 253)
    (manifest,) = run([long]).creations
    assert len(manifest["metadata"]["name"]) <= 253
    assert len(manifest["metadata"]["labels"]["shared-gpu-pod-name"]) <= 63
    existing = structure_as(Pod, manifest)
    again = run([long], [existing])
    assert (again.creations, again.deletions) == ((), ())


def test_pods_with_equal_joined_names_get_two_scaling_pods():
    one = pod("b-c", "0.9", namespace="a")
    two = pod("c", "0.9", namespace="a-b")
    created = names(run([one, two]))
    assert len(set(created)) == 2


def test_the_order_of_pods_changes_nothing():
    pods = [pod(f"p{i}", "0.7") for i in range(5)]
    assert run(pods) == run(pods[::-1])


def test_changes_of_own_and_scaling_pods_are_relevant():
    assert is_relevant(pod(), SETTINGS)
    assert is_relevant(scaling(pod()), SETTINGS)
    assert not is_relevant(pod(schedulerName="other"), SETTINGS)
