"""What counts of a pod that is resized in place, or that asks as a whole: on its node, and for its queue."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.conventions.amounts import effective_requests
from kai.api.kubernetes.pod import Pod
from kai.facts.model.units import LARGEST_AMOUNT
from kai.intake.requests import demand, resource_key

INFEASIBLE = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
DEFERRED = {"type": "PodResizePending", "status": "True", "reason": "Deferred"}


def told(allocated=None, used=None, name="main"):
    """Make what a kubelet tells of a container."""
    return {"name": name, "allocatedResources": allocated or {}, "resources": {"requests": used or {}}}


def pod(asked, *statuses, conditions=(), sidecar=None, **rest):
    containers = [{"name": "main", "resources": {"requests": asked}}]
    initial = [{"name": "side", "restartPolicy": "Always", "resources": {"requests": sidecar}}] if sidecar else []
    spec = {"containers": containers, "initContainers": initial, **rest.pop("spec", {})}
    kubelet = {"containerStatuses": [each for each in statuses if each["name"] == "main"]}
    kubelet["initContainerStatuses"] = [each for each in statuses if each["name"] == "side"]
    return structure_as(Pod, {"spec": spec, "status": {**kubelet, "conditions": list(conditions), **rest}})


def cpus(pod):
    """Return how many thousandths of a CPU count, of which the binder and the scheduler must say the same."""
    binder = effective_requests(pod).get("cpu")
    scheduler = dict(demand(resource_key(pod)).request).get("cpu", 0)
    assert scheduler == (0 if binder is None else binder.billionths // 10**6)
    return scheduler


@pytest.mark.parametrize(
    ("about", "found", "expected"),
    [
        ("a kubelet that tells nothing", pod({"cpu": "2"}), 2000),
        ("what was asked for is given", pod({"cpu": "2"}, told({"cpu": "2"}, {"cpu": "2"})), 2000),
        ("more is asked for", pod({"cpu": "4"}, told({"cpu": "2"}, {"cpu": "2"})), 4000),
        ("more is asked for than there is yet", pod({"cpu": "4"}, told({"cpu": "2"}), conditions=[DEFERRED]), 4000),
        ("more than the node has", pod({"cpu": "9k"}, told({"cpu": "2"}, {"cpu": "2"}), conditions=[INFEASIBLE]), 2000),
        ("a CPU where none was", pod({"cpu": "9k"}, told({"memory": "1Gi"}), conditions=[INFEASIBLE]), 0),
        ("less is asked for", pod({"cpu": "1"}, told({"cpu": "2"}, {"cpu": "2"})), 2000),
        ("less is given, and more in use", pod({"cpu": "1"}, told({"cpu": "1"}, {"cpu": "3"})), 3000),
        ("a sidecar that shrinks", pod({"cpu": "1"}, told({"cpu": "3"}, name="side"), sidecar={"cpu": "1"}), 4000),
        ("the pod as a whole", pod({"cpu": "1"}, spec={"resources": {"requests": {"cpu": "6"}}}), 6000),
        ("a limit of the whole", pod({}, spec={"resources": {"limits": {"cpu": "6"}}}), 6000),
        (
            "a whole that shrinks, with overhead",
            pod(
                {},
                spec={"resources": {"requests": {"cpu": "6"}}, "overhead": {"cpu": "1"}},
                allocatedResources={"cpu": "8"},
                resources={"requests": {"cpu": "8"}},
            ),
            8000,
        ),
        (
            "a whole that is given, with overhead",
            pod(
                {},
                spec={"resources": {"requests": {"cpu": "6"}}, "overhead": {"cpu": "250m"}},
                allocatedResources={"cpu": "6250m"},
                resources={"requests": {"cpu": "6250m"}},
            ),
            6250,
        ),
        (
            "a whole that no node has, with overhead",
            pod(
                {},
                spec={"resources": {"requests": {"cpu": "9k"}}, "overhead": {"cpu": "1"}},
                allocatedResources={"cpu": "8"},
                resources={"requests": {"cpu": "8"}},
                conditions=[INFEASIBLE],
            ),
            8000,
        ),
        (
            "less than the overhead",
            pod(
                {},
                spec={"resources": {"requests": {"cpu": "0"}}, "overhead": {"cpu": "1"}},
                allocatedResources={"cpu": "500m"},
            ),
            1000,
        ),
        (
            "a whole that no node has",
            pod(
                {},
                spec={"resources": {"requests": {"cpu": "9k"}}},
                allocatedResources={"cpu": "7"},
                resources={"requests": {"cpu": "7"}},
                conditions=[INFEASIBLE],
            ),
            7000,
        ),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_asked_for_or_held_counts(about, found, expected):
    assert cpus(found) == expected, about


def test_a_limit_does_not_replace_an_infeasible_request():
    found = pod({"cpu": "9k"}, told({"memory": "1Gi"}), conditions=[INFEASIBLE])
    limits = {"containers": [{"name": "main", "resources": {"requests": {"cpu": "9k"}, "limits": {"cpu": "9k"}}}]}
    assert cpus(found) == 0
    status = {"containerStatuses": [told({"memory": "1Gi"})], "conditions": [INFEASIBLE]}
    assert cpus(structure_as(Pod, {"spec": limits, "status": status})) == 0


@pytest.mark.parametrize("asked", ["100Pi", "7Ei"])
@pytest.mark.parametrize("conditions", [(), (INFEASIBLE,)])
def test_the_largest_possible_memory_request_is_read(asked, conditions):
    """An owner may ask for it, and the pods of others are read in the same turn."""
    found = pod({"memory": asked}, told({"memory": "1Gi"}, {"memory": "1Gi"}), conditions=conditions)
    counted = dict(demand(resource_key(found)).request)["memory"]
    assert counted == (2**30 if conditions else LARGEST_AMOUNT)
    assert effective_requests(found)["memory"].text == ("1Gi" if conditions else asked)


def test_gpus_are_counted_as_they_are_asked_for():
    """No kubelet resizes devices, and a pod as a whole asks for none."""
    found = pod(
        {"nvidia.com/gpu": "2", "cpu": "1"},
        told({"nvidia.com/gpu": "8", "cpu": "1"}),
        spec={"resources": {"requests": {"nvidia.com/gpu": "5", "cpu": "1"}}},
    )
    assert effective_requests(found)["nvidia.com/gpu"].text == "2"
    assert dict(demand(resource_key(found)).request)["gpu"] == 2000


AMOUNTS = st.one_of(st.none(), st.sampled_from(["0", "250m", "1", "1500m", "2", "9k"]))


def listed(cpu):
    return {} if cpu is None else {"cpu": cpu}


@given(AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, st.booleans(), AMOUNTS)
def test_binder_and_scheduler_count_alike_and_enough(asked, given_, used, side, refused, whole):
    found = pod(
        listed(asked),
        told(listed(given_), listed(used)),
        sidecar=listed(side),
        conditions=[INFEASIBLE] if refused else [],
        spec={"resources": {"requests": listed(whole)}} if whole else {},
    )
    counted = cpus(found)
    if whole is None:
        assert counted >= cpus(pod(listed(given_)))
