"""Facts about binding, deleting and evicting pods."""

from __future__ import annotations

from kai.cluster.transport.calls import MERGE_PATCH
from tests.doubles.facts.asking import (
    BUDGETS,
    MAPS,
    NODES,
    PODS,
    Server,
    fact,
    uid_of,
    version_of,
)


@fact
def a_pod_is_bound_once(server: Server, name: str) -> None:
    server.pod(name)
    assert server.bind(name)[0] == 201
    assert server.bind(name, "n2")[0] == 409
    assert server.good("GET", f"{PODS}/{name}")["spec"]["nodeName"] == "n1"


@fact
def a_second_binding_to_the_same_node_is_a_conflict_too(server: Server, name: str) -> None:
    server.pod(name)
    assert server.bind(name)[0] == 201
    status, answer = server.bind(name)
    assert (status, answer["reason"]) == (409, "Conflict")
    assert "already assigned" in answer["message"]


@fact
def a_gated_pod_is_not_bound(server: Server, name: str) -> None:
    server.pod(name, schedulingGates=[{"name": "wait"}])
    assert server.bind(name)[0] == 409


@fact
def a_pod_that_is_being_deleted_is_not_bound(server: Server, name: str) -> None:
    server.pod(name, metadata={"finalizers": ["kai.test/keep"]})
    server.good("DELETE", f"{PODS}/{name}")
    assert server.bind(name)[0] == 409


@fact
def a_binding_may_name_a_node_that_is_not_there(server: Server, name: str) -> None:
    server.pod(name)
    assert server.bind(name, "nowhere")[0] == 201


@fact
def a_binding_may_fill_a_node_beyond_its_size(server: Server, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    server.good("POST", NODES, body)
    size = {"nvidia.com/gpu": "1", "pods": "10"}
    server.good("PATCH", f"{NODES}/{name}/status", {"status": {"allocatable": size}}, content_type=MERGE_PATCH)
    amounts = {"limits": {"nvidia.com/gpu": "1"}, "requests": {"nvidia.com/gpu": "1"}}
    for each in ("a", "b"):
        server.pod(f"{name}-{each}", containers=[{"name": "main", "image": "none", "resources": amounts}])
        assert server.bind(f"{name}-{each}", name)[0] == 201


@fact
def a_limit_stands_for_a_request_that_is_missing(server: Server, name: str) -> None:
    amounts = {"limits": {"nvidia.com/gpu": "2", "cpu": "3"}, "requests": {"cpu": "1"}}
    container = {"name": "main", "image": "none", "resources": amounts}
    first = {"name": "first", "image": "none", "resources": {"limits": {"memory": "1Gi"}}}
    server.pod(name, containers=[container], initContainers=[first])
    spec = server.good("GET", f"{PODS}/{name}")["spec"]
    assert spec["containers"][0]["resources"]["requests"] == {"nvidia.com/gpu": "2", "cpu": "1"}
    assert spec["initContainers"][0]["resources"]["requests"] == {"memory": "1Gi"}


@fact
def a_binding_with_another_uid_is_a_conflict(server: Server, name: str) -> None:
    server.pod(name)
    assert server.bind(name, uid="00000000-0000-0000-0000-000000000000")[0] == 409


@fact
def a_binding_with_the_right_uid_and_version_binds(server: Server, name: str) -> None:
    pod = server.pod(name)
    assert server.bind(name, uid=uid_of(pod), resourceVersion=str(version_of(pod)))[0] == 201


@fact
def a_binding_with_an_old_version_is_a_conflict(server: Server, name: str) -> None:
    pod = server.pod(name)
    server.good("PATCH", f"{PODS}/{name}", {"metadata": {"labels": {"a": "b"}}}, content_type=MERGE_PATCH)
    assert server.bind(name, resourceVersion=str(version_of(pod)))[0] == 409
    assert "nodeName" not in server.good("GET", f"{PODS}/{name}")["spec"]


@fact
def annotations_of_a_binding_come_to_the_pod(server: Server, name: str) -> None:
    server.pod(name, metadata={"annotations": {"kept": "1", "changed": "1"}})
    assert server.bind(name, annotations={"kai.scheduler/epoch": "7", "changed": "2"})[0] == 201
    found = server.good("GET", f"{PODS}/{name}")["metadata"]["annotations"]
    assert found == {"kept": "1", "changed": "2", "kai.scheduler/epoch": "7"}


@fact
def a_binding_sets_the_condition_scheduled(server: Server, name: str) -> None:
    server.pod(name)
    assert server.bind(name)[0] == 201
    (condition,) = server.good("GET", f"{PODS}/{name}")["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "True")


@fact
def a_binding_of_no_pod_is_not_found(server: Server, name: str) -> None:
    status, answer = server.bind(name)
    assert (status, answer["details"]["name"]) == (404, name)


@fact
def a_binding_counts_the_version_up(server: Server, name: str) -> None:
    pod = server.pod(name)
    assert server.bind(name)[0] == 201
    assert version_of(server.good("GET", f"{PODS}/{name}")) > version_of(pod)


@fact
def a_pod_without_a_node_is_gone_at_once(server: Server, name: str) -> None:
    pod = server.pod(name)
    answer = server.good("DELETE", f"{PODS}/{name}")
    assert (answer["kind"], answer["metadata"]["deletionGracePeriodSeconds"]) == ("Pod", 0)
    assert uid_of(answer) == uid_of(pod)
    assert server.status("GET", f"{PODS}/{name}") == 404


@fact
def a_pod_on_a_node_stays_for_its_grace_period(server: Server, name: str) -> None:
    server.running(name)
    answer = server.good("DELETE", f"{PODS}/{name}")
    assert answer["metadata"]["deletionGracePeriodSeconds"] == 5
    assert server.good("GET", f"{PODS}/{name}")["metadata"]["deletionTimestamp"]


@fact
def the_kubelet_ends_a_pod_with_no_grace(server: Server, name: str) -> None:
    server.running(name)
    server.good("DELETE", f"{PODS}/{name}")
    server.good("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert server.status("GET", f"{PODS}/{name}") == 404


@fact
def a_second_deletion_changes_nothing(server: Server, name: str) -> None:
    server.running(name)
    first = server.good("DELETE", f"{PODS}/{name}")
    assert version_of(server.good("DELETE", f"{PODS}/{name}")) == version_of(first)


@fact
def a_finished_pod_is_gone_at_once(server: Server, name: str) -> None:
    server.running(name)
    server.good("PATCH", f"{PODS}/{name}/status", {"status": {"phase": "Succeeded"}}, content_type=MERGE_PATCH)
    server.good("DELETE", f"{PODS}/{name}")
    assert server.status("GET", f"{PODS}/{name}") == 404


@fact
def a_deletion_with_another_uid_is_a_conflict(server: Server, name: str) -> None:
    server.pod(name)
    options = {"preconditions": {"uid": "00000000-0000-0000-0000-000000000000"}}
    assert server.status("DELETE", f"{PODS}/{name}", options) == 409
    assert server.status("GET", f"{PODS}/{name}") == 200


@fact
def a_deletion_with_an_old_version_is_a_conflict(server: Server, name: str) -> None:
    server.map(name)
    assert server.status("DELETE", f"{MAPS}/{name}", {"preconditions": {"resourceVersion": "1"}}) == 409


@fact
def a_deletion_of_nothing_is_not_found(server: Server, name: str) -> None:
    status, answer = server.way.ask("DELETE", f"{MAPS}/{name}")
    assert (status, answer["details"]["name"]) == (404, name)


@fact
def other_kinds_are_answered_with_their_uid_when_they_end(server: Server, name: str) -> None:
    made = server.map(name)
    answer = server.good("DELETE", f"{MAPS}/{name}")
    assert (answer["kind"], answer["status"], answer["details"]["uid"]) == ("Status", "Success", uid_of(made))


@fact
def a_finalizer_keeps_an_object(server: Server, name: str) -> None:
    server.map(name, finalizers=["kai.test/keep"])
    answer = server.good("DELETE", f"{MAPS}/{name}")
    assert answer["metadata"]["deletionTimestamp"]
    assert server.status("GET", f"{MAPS}/{name}") == 200
    server.good("PATCH", f"{MAPS}/{name}", {"metadata": {"finalizers": None}}, content_type=MERGE_PATCH)
    assert server.status("GET", f"{MAPS}/{name}") == 404


@fact
def the_patch_that_takes_the_last_finalizer_shows_the_object_once_more(server: Server, name: str) -> None:
    made = server.map(name, finalizers=["kai.test/keep"])
    server.good("DELETE", f"{MAPS}/{name}")
    patch = {"metadata": {"finalizers": None}}
    assert uid_of(server.good("PATCH", f"{MAPS}/{name}", patch, content_type=MERGE_PATCH)) == uid_of(made)


@fact
def an_eviction_deletes_with_grace(server: Server, name: str) -> None:
    pod = server.running(name)
    assert server.evict(name, uid_of(pod))[0] == 201
    assert server.good("GET", f"{PODS}/{name}")["metadata"]["deletionTimestamp"]


@fact
def an_eviction_with_another_uid_is_a_conflict(server: Server, name: str) -> None:
    server.running(name)
    assert server.evict(name, "00000000-0000-0000-0000-000000000000")[0] == 409
    assert "deletionTimestamp" not in server.good("GET", f"{PODS}/{name}")["metadata"]


@fact
def an_eviction_of_no_pod_is_not_found(server: Server, name: str) -> None:
    assert server.evict(name)[0] == 404


@fact
def an_eviction_of_a_pod_without_a_node_ends_it(server: Server, name: str) -> None:
    server.pod(name)
    assert server.evict(name)[0] == 201
    assert server.status("GET", f"{PODS}/{name}") == 404


def budget_for(server: Server, name: str, allowed: int) -> None:
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": name}}}
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}
    server.good("POST", BUDGETS, body)
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
    status = {"status": {"disruptionsAllowed": allowed, **counts}}
    server.good("PATCH", f"{BUDGETS}/{name}/status", status, content_type=MERGE_PATCH)


@fact
def a_budget_refuses_an_eviction(server: Server, name: str) -> None:
    server.running(name, labels={"app": name})
    budget_for(server, name, 0)
    status, answer = server.evict(name)
    assert (status, answer["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")


@fact
def a_budget_counts_evictions(server: Server, name: str) -> None:
    server.running(name, labels={"app": name})
    server.running(f"{name}-2", labels={"app": name})
    budget_for(server, name, 1)
    assert server.evict(name)[0] == 201
    assert server.evict(f"{name}-2")[0] == 429
    status = server.good("GET", f"{BUDGETS}/{name}")["status"]
    assert status["disruptionsAllowed"] == 0
    # The disruption controller, where one runs, takes the pod off the list once it is gone, which may be now.
    assert list(status.get("disruptedPods", {})) in ([name], [])


@fact
def a_budget_does_not_protect_a_pod_without_a_node(server: Server, name: str) -> None:
    server.pod(name, metadata={"labels": {"app": name}})
    budget_for(server, name, 0)
    assert server.evict(name)[0] == 201
