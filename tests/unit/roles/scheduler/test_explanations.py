"""What a cycle has to tell, from small clusters through the real engine."""

import datetime as dt
from unittest import mock

import attrs
import numpy as np
import pytest

from kai.api.conventions.caps import GATE
from kai.deciding.configuration.profiles import default_profile
from kai.deciding.engine.cycle import run_cycle
from kai.framework.decisions import Recorder
from kai.intake import IntakeSettings, declared_queues, take_snapshot
from kai.roles.scheduler.publishing import explanations
from kai.roles.scheduler.publishing.explanations import explain
from tests.unit.intake import making

FREE = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
GPUS = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "2"}


def queue(name="q", gpu=None, **spec):
    resources = {"cpu": FREE, "memory": FREE, "gpu": FREE if gpu is None else gpu}
    return making.queue(name, resources=resources, **spec)


def told(*manifests, pool="default", detailed=False):
    snapshot = making.taken(queue("root"), queue(parent="root"), *manifests)
    profile = default_profile()
    profile = attrs.evolve(profile, parameters=attrs.evolve(profile.parameters, detailed_fit_errors=detailed))
    report = run_cycle(snapshot, profile, Recorder())
    overall = explain(snapshot, report, pool, detailed=detailed)
    return {account.name: account for account in overall.groups}, overall


def gpu_pod(name, count, **options):
    return making.pod(name, requests={"nvidia.com/gpu": str(count)}, **options)


def test_an_unfitting_pod_and_its_group_get_the_reason():
    busy = gpu_pod("busy", 1, phase="Running", node="n1")
    found, overall = told(making.node("n1", allocatable=GPUS), making.group("g"), gpu_pod("p", 2, group="g"), busy)
    account = found["g"]
    why = "no nodes with enough resources were found: 1 node(s) didn't have enough resources: GPUs."
    assert [(pod.name, pod.message, pod.on_pod) for pod in account.pods] == [("p", why, True)]
    assert account.unschedulable.startswith("PodSchedulingErrors: Resources were not found for pod default/p due to: ")
    assert account.condition is not None
    assert [reason.reason for reason in account.condition.reasons] == ["PodSchedulingErrors"]
    assert overall.settled == frozenset()


def test_a_running_group_is_settled_without_an_account():
    found, overall = told(
        making.node("n1", allocatable=GPUS), making.group("g"), gpu_pod("p", 1, group="g", phase="Running", node="n1")
    )
    assert found == {}
    assert overall.settled == {("default", "g")}


def test_a_group_being_bound_gets_only_its_start_time():
    found, overall = told(making.node("n1", allocatable=GPUS), making.group("g"), gpu_pod("p", 1, group="g"))
    assert overall.settled == frozenset()
    assert found["g"].stamps["kai.scheduler/last-start-timestamp"] == "1970-01-12T13:46:40Z"
    assert found["g"].pods == ()


def test_a_group_with_a_placed_pod_gets_no_condition():
    found, _ = told(
        making.node("n1", allocatable=GPUS),
        making.group("g"),
        gpu_pod("a", 2, group="g", phase="Running", node="n1"),
        gpu_pod("b", 2, group="g"),
    )
    assert found["g"].condition is None
    assert found["g"].unschedulable
    assert [pod.name for pod in found["g"].pods] == ["b"]


def test_a_gang_that_lacks_pods_is_not_ready():
    found, _ = told(making.node("n1", allocatable=GPUS), making.group("g", minMember=3), gpu_pod("p", 1, group="g"))
    text = "Job is not ready for scheduling. Waiting for 3 pods, currently 1 exist, 0 are gated"
    assert found["g"].not_ready == text
    assert found["g"].unschedulable == ""
    assert [(pod.message, pod.only_instead, pod.is_announced) for pod in found["g"].pods] == [(text, True, False)]
    assert found["g"].condition.only_instead


def test_an_unknown_sub_group_is_reported_on_the_pod():
    group = making.group("g", subGroups=[{"name": "a", "minMember": 1}], markUnschedulable=False)
    pod = gpu_pod("p", 1, group="g", labels={"kai.scheduler/subgroup-name": "b"})
    found, _ = told(
        making.node("n1", allocatable=GPUS),
        group,
        pod,
        gpu_pod("q", 9, group="g", labels={"kai.scheduler/subgroup-name": "a"}),
    )
    messages = {each.name: (each.message, each.on_pod) for each in found["g"].pods}
    text = 'Pod references subgroup "b", which does not exist in PodGroup default/g'
    assert messages["p"] == (text, True)
    assert messages["q"][1] is False


def test_a_stale_gang_is_called_stale():
    found, _ = told(
        making.node("n1", allocatable=GPUS),
        making.group("g", minMember=2),
        gpu_pod("p", 1, group="g", phase="Running", node="n1"),
    )
    assert found["g"].stale == "Job is stale. 1 pods are active, minMember is 2"
    assert found["g"].stamps["kai.scheduler/stale-podgroup-timestamp"]


def test_a_limit_is_reported_with_the_queues_figures():
    manifests = (making.node("n1", allocatable=GPUS), making.group("g", queue="small"), gpu_pod("p", 2, group="g"))
    small = queue("small", parent="root", gpu={"quota": 1, "limit": 1, "overQuotaWeight": 1})
    found, _ = told(*manifests, small)
    (reason,) = found["g"].condition.reasons
    details = reason.details.queue_details
    assert (reason.reason, details.name) == ("OverLimit", "small")
    assert dict(details.queue_resource_limits) == {"cpu": "-1", "memory": "-1", "nvidia.com/gpu": "1"}
    assert details.pod_group_requested_resources["nvidia.com/gpu"] == "2"


def test_figures_come_from_the_queue_and_not_its_namesake():
    manifests = (making.node("n1", allocatable=GPUS), making.group("g", queue="small"), gpu_pod("p", 2, group="g"))
    bound = {"quota": 1, "limit": 1, "overQuotaWeight": 1}
    small = queue("small", parent="root", gpu=bound, displayName="Team")
    wide = queue("wide", parent="root", displayName="Team")
    found, _ = told(*manifests, small, wide)
    details = found["g"].condition.reasons[0].details.queue_details
    assert (details.name, details.queue_resource_limits["nvidia.com/gpu"]) == ("Team", "1")


def test_a_parent_queue_is_reported_as_not_a_leaf():
    found, _ = told(making.node("n1", allocatable=GPUS), making.group("g", queue="root"), gpu_pod("p", 1, group="g"))
    text = "QueueNotLeaf: Queue 'root' has children; only a queue without children runs jobs: "
    assert found["g"].unschedulable.startswith(text)
    assert [reason.reason for reason in found["g"].condition.reasons] == ["QueueNotLeaf"]


def test_a_missing_queue_is_reported_as_not_existing():
    found, _ = told(making.node("n1", allocatable=GPUS), making.group("g", queue="lost"), gpu_pod("p", 1, group="g"))
    assert found["g"].unschedulable == "QueueDoesNotExist: Queue 'lost' does not exist."
    assert found["g"].condition is not None
    assert [reason.reason for reason in found["g"].condition.reasons] == ["QueueDoesNotExist"]


def test_a_group_with_one_attempt_names_the_pool():
    group = making.group("g", schedulingBackoff=1)
    found, _ = told(making.node("n1", allocatable=GPUS), group, gpu_pod("p", 3, group="g"), pool="east")
    assert found["g"].unschedulable.startswith("Node-Pool 'east': ")
    assert found["g"].pods[0].message.startswith("Node-Pool 'east': ")
    assert found["g"].condition is not None
    assert not any("Node-Pool" in reason.message for reason in found["g"].condition.reasons)


def test_a_group_that_lacks_pods_names_no_pool():
    group = making.group("g", schedulingBackoff=1, minMember=2)
    found, _ = told(making.node("n1", allocatable=GPUS), group, gpu_pod("p", 1, group="g"), pool="east")
    assert found["g"].not_ready.startswith("Job is not ready for scheduling. Waiting for 2 pods")


def test_detailed_messages_have_a_line_per_node():
    nodes = [making.node(name, allocatable=GPUS) for name in ("n1", "n2")]
    pods = [gpu_pod("p", 2, group="g"), gpu_pod("busy", 1, phase="Running", node="n1")]
    found, _ = told(*nodes, making.group("g"), *pods, gpu_pod("also", 1, phase="Running", node="n2"), detailed=True)
    (pod,) = found["g"].pods
    assert [line.partition(":")[0] for line in pod.message.splitlines()[2:]] == ["<n1>", "<n2>"]
    assert found["g"].unschedulable.startswith("\nPodSchedulingErrors.\n")


def test_fair_shares_are_quantities():
    _, overall = told(making.node("n1", allocatable=GPUS), making.group("g"), gpu_pod("p", 2, group="g"))
    assert overall.fair_shares["q"]["nvidia.com/gpu"] == "2"


def test_amounts_of_queues_that_are_equal_are_written_once():
    explanations._quantity.cache_clear()
    with mock.patch.object(explanations, "canonical", wraps=explanations.canonical) as written:
        for _ in range(2):
            told(making.node("n"), *(queue(f"q{at}", gpu={"quota": 12345}) for at in range(20)))
    assert written.call_count < 10


def test_the_order_of_objects_changes_nothing():
    manifests = [making.node("n1", allocatable=GPUS), making.group("g"), making.group("h")]
    manifests += [gpu_pod(f"p{n}", 3, group="gh"[n % 2]) for n in range(6)]
    rng = np.random.default_rng(1)
    one = told(*manifests)[1]
    for _ in range(3):
        assert told(*(manifests[at] for at in rng.permutation(len(manifests))))[1] == one


def test_a_capped_pods_message_states_its_excess():
    """Its gate is kai's own, so no other controller says a word about it."""
    excess = "spec.affinity: found 2,000 terms, expected at most 1,024"
    capped = gpu_pod("p", 1, group="g", spec={"schedulingGates": [{"name": f"{GATE}{excess}"}]})
    found, _ = told(making.node("n1", allocatable=GPUS), making.group("g"), capped)
    assert [(pod.name, pod.message, pod.on_pod) for pod in found["g"].pods] == [("p", excess, True)]


def test_a_foreign_gate_leaves_the_pod_without_account():
    gated = gpu_pod("p", 1, group="g", spec={"schedulingGates": [{"name": "example.com/quota"}]})
    found, _ = told(making.node("n1", allocatable=GPUS), making.group("g"), gated)
    assert found["g"].pods == ()


def resting(name, text, **options):
    """Return a pod whose bind was refused, as cycles are shown it."""
    return gpu_pod(name, 1, spec={"schedulingGates": [{"name": f"kai.scheduler/bind-refused {text}"}]}, **options)


REFUSED = "the bind was refused 3 times: exceeded quota; the next try is at 2026-01-01T00:00:08Z"


def test_a_refused_bind_explains_its_pod_and_group():
    node, group = making.node("n1", allocatable=GPUS), making.group("g")
    found, overall = told(node, group, resting("p", REFUSED, group="g"))
    (pod,), account = found["g"].pods, found["g"]
    assert (pod.reason, pod.message, pod.is_announced) == ("BindRefused", f"T{REFUSED[1:]}.", False)
    assert account.condition.message == f"BindRefused: T{REFUSED[1:]}."
    assert [reason.reason for reason in account.condition.reasons] == ["BindRefused"]
    assert (account.not_ready, account.unschedulable, overall.settled) == ("", "", frozenset())
    assert overall.waiting == {"BindRefused": 1}


def test_a_gang_with_a_refused_bind_lacks_no_pods():
    manifests = (making.node("n1", allocatable=GPUS), making.group("g", minMember=2), gpu_pod("a", 1, group="g"))
    found, overall = told(*manifests, resting("b", REFUSED, group="g"))
    assert found["g"].condition.message == f"BindRefused: {REFUSED.replace('the bind', 'The bind of b')}."
    assert (found["g"].not_ready, overall.waiting) == ("", {"BindRefused": 2})


@pytest.mark.parametrize(
    ("queues", "code", "text"),
    [
        ((queue("a", parent="b"), queue("b", parent="a")), "QueueCycle", "its parents form a circle, a -> b -> a"),
        ((queue("a", parent="gone"),), "QueueOrphaned", "gone, the parent of a, does not exist"),
        ((queue("a", metadata={"labels": {"pool": "x"}}),), "QueueOfAnotherPool", "belongs to another node pool"),
    ],
)
def test_an_unusable_queue_is_not_reported_missing(queues, code, text):
    manifests = (*queues, making.node("n1", allocatable=GPUS), making.group("g", queue="a"), gpu_pod("p", 1, group="g"))
    settings = IntakeSettings(node_pool_label="pool")
    objects = making.objects(*manifests)
    snapshot = take_snapshot(objects, making.NOW, settings)
    report = run_cycle(snapshot, default_profile(), Recorder())
    overall = explain(snapshot, report, "default", declared=lambda: declared_queues(objects.queues, settings))
    (account,) = overall.groups
    assert account.condition.message.startswith(f"{code}: Queue a ")
    assert text in account.condition.message
    assert [reason.reason for reason in account.condition.reasons] == [code]
    assert overall.waiting == {code: 1}


def test_a_promised_pod_reports_who_occupies_its_place():
    leaving = gpu_pod("old", 1, phase="Running", node="n1", metadata={"deletionTimestamp": "1970-01-12T13:46:00Z"})
    found, overall = told(
        making.node("n1", allocatable={**GPUS, "nvidia.com/gpu": "1"}),
        making.group("h"),
        {**leaving, "metadata": {**leaving["metadata"], "annotations": {"pod-group-name": "h"}}},
        making.group("g"),
        gpu_pod("p", 1, group="g"),
    )
    (pod,) = found["g"].pods
    text = "Its place on n1 is being vacated by pods that are terminating"
    assert (pod.reason, pod.message, pod.is_announced) == ("HeldForLeaving", text, False)
    assert found["g"].condition.message == f"HeldForLeaving: {text}."
    assert overall.waiting == {"HeldForLeaving": 1}


@pytest.mark.parametrize(
    ("minutes", "gpus", "is_told"), [(4, 2, True), (6, 2, False), (4, 1, False)], ids=["soon", "early", "within quota"]
)
def test_a_closing_window_warns_only_work_beyond_its_quota(minutes, gpus, is_told):
    closes = dt.datetime.fromtimestamp(making.NOW + minutes * 60, dt.UTC)
    opens = closes - dt.timedelta(hours=1)
    window = {
        "name": "hour",
        "start": f"{opens.minute} {opens.hour} * * *",
        "duration": f"{3600 + closes.second}s",
        "resources": {"gpu": {"quota": 2, "limit": 2}},
        "onClose": "evict",
    }
    at_night = queue("night", gpu={"quota": 1, "limit": 1}, parent="root", schedules=[window])
    pod = gpu_pod("p", gpus, group="g", phase="Running", node="n1")
    found, _ = told(at_night, making.node("n1", allocatable=GPUS), making.group("g", queue="night"), pod)
    wanted = (
        f"The window hour of queue night closes at {closes:%a %H:%M} (UTC); running work that is then beyond the quota"
        " of the queue is evicted"
    )
    assert [each.closing for each in found.values()] == ([wanted] if is_told else [])
