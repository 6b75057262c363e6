"""What the disruption controller would say of a budget, and which evictions the API server would allow by it."""

import attrs
import pytest

from kai.api.codec.structuring import structure_all
from kai.api.kubernetes.meta import PodDisruptionBudget
from kai.api.kubernetes.pod import Pod
from kai.intake.disruption_budgets import Budgets, judged

WEB = {"app": "web"}


def one(manifest):
    (found,) = structure_all([manifest]).objects
    return found


def budget(name="web", labels=None, status=None, **spec) -> PodDisruptionBudget:
    selector = {"matchLabels": WEB if labels is None else labels}
    return one(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": selector} | spec,
        }
        | ({} if status is None else {"status": status})
    )


def pod(name, owner="ReplicaSet", *, phase="Running", ready=None, leaving=False) -> Pod:
    metadata = {"name": name, "namespace": "default", "labels": WEB}
    if owner:
        metadata["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "web", "uid": "w", "controller": True}
        ]
    if leaving:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [] if ready is None else [{"type": "Ready", "status": str(ready)}]
    status = {"phase": phase, "conditions": conditions}
    return one({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": []}, "status": status})


def pods(count, owner="ReplicaSet"):
    return [pod(f"web-{at}", owner) for at in range(count)]


@pytest.mark.parametrize(
    ("spec", "there", "allowed"),
    [
        ({"minAvailable": 2}, pods(3), 1),
        ({"minAvailable": 2}, pods(3, ""), 1),  # a number needs no owner
        ({"minAvailable": 4}, pods(3), 0),
        ({"minAvailable": "50%"}, pods(5), 2),  # 3 are to be there, rounded up
        ({"minAvailable": "50%"}, pods(4, ""), 0),  # of no owner it is not known how many there should be
        ({"minAvailable": "0%"}, pods(4), 4),
        ({"maxUnavailable": 1}, pods(3), 1),
        ({"maxUnavailable": "50%"}, pods(5), 3),  # rounded up as well
        ({"maxUnavailable": 1}, [*pods(2), pod("web-2", phase="Pending")], 0),
        ({"maxUnavailable": 1}, [*pods(2), pod("web-2", ready=False)], 0),
        ({"maxUnavailable": 1}, [*pods(2), pod("web-2", leaving=True)], 0),
        ({"maxUnavailable": 1}, pods(3, "Job"), 0),  # a Job says nothing that the controller reads
        ({"maxUnavailable": "most"}, pods(3), 0),
        ({}, pods(3), 0),
        ({"minAvailable": 0}, [], 0),
    ],
)
def test_a_budget_without_status_allows_what_its_pods_leave(spec, there, allowed):
    (found,) = judged([budget(**spec)], there, anew=False)
    assert found.status.disruptions_allowed == allowed


def test_a_budgets_status_holds_until_recomputed():
    told = budget(minAvailable=2, status={"disruptionsAllowed": 7})
    (kept,) = judged([told], pods(3), anew=False)
    (anew,) = judged([told], pods(3), anew=True)
    assert (kept.status.disruptions_allowed, anew.status.disruptions_allowed) == (7, 1)


def test_pods_of_other_namespaces_and_labels_do_not_count():
    elsewhere = [attrs.evolve(each, metadata=attrs.evolve(each.metadata, namespace="other")) for each in pods(2)]
    (found,) = judged([budget(minAvailable=2)], [*pods(1), *elsewhere], anew=False)
    assert found.status.disruptions_allowed == 0


@pytest.mark.parametrize(
    ("victim", "policy", "status", "goes"),
    [
        (pod("web-0"), "", {}, False),
        (pod("web-0", phase="Pending"), "", {}, True),
        (pod("web-0", phase="Failed"), "", {}, True),
        (pod("web-0", leaving=True), "", {}, True),
        (pod("web-0", ready=True), "AlwaysAllow", {}, False),
        (pod("web-0", ready=False), "AlwaysAllow", {}, True),
        (pod("web-0", ready=False), "", {"currentHealthy": 1, "desiredHealthy": 2}, False),
        (pod("web-0", ready=False), "", {"currentHealthy": 2, "desiredHealthy": 2}, True),
        (pod("web-0", ready=False), "", {"currentHealthy": 0, "desiredHealthy": 0}, False),
    ],
)
def test_an_unhealthy_pod_is_evicted_where_its_budget_allows(victim, policy, status, goes):
    used_up = budget(
        minAvailable=2, unhealthyPodEvictionPolicy=policy or None, status={"disruptionsAllowed": 0} | status
    )
    assert (Budgets([used_up]).obstacle([victim]) == ("", ())) is goes


def test_disruptions_that_others_took_are_not_there_any_more():
    budgets = Budgets([budget(minAvailable=2, status={"disruptionsAllowed": 1})])
    (victim,) = pods(1)
    assert budgets.obstacle([victim])[1] == ()
    assert budgets.obstacle([victim], {("default", "web"): 1})[1] == (victim,)
