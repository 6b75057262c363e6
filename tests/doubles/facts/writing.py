"""Facts about creating, changing and applying objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kai.cluster.transport.calls import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from tests.doubles.facts.asking import (
    GROUPS,
    HOME,
    LEASES,
    MAPS,
    NAMESPACES,
    PODS,
    Server,
    fact,
    uid_of,
    version_of,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

RESOURCES = {"resourcesStatus": {"requested": {"cpu": "1"}}}


@fact
def a_name_is_taken_once(server: Server, name: str) -> None:
    server.map(name)
    status, answer = server.way.ask("POST", MAPS, {"metadata": {"name": name}})
    assert (status, answer["reason"]) == (409, "AlreadyExists")


@fact
def what_is_made_anew_has_another_uid(server: Server, name: str) -> None:
    first = server.map(name)
    server.good("DELETE", f"{MAPS}/{name}")
    assert uid_of(server.map(name)) != uid_of(first)


@fact
def a_name_can_be_generated(server: Server, name: str) -> None:
    made = server.good("POST", MAPS, {"metadata": {"generateName": f"{name}-"}})
    assert made["metadata"]["name"].startswith(f"{name}-")
    assert len(made["metadata"]["name"]) == len(name) + 6


@fact
def an_object_needs_a_name(server: Server, name: str) -> None:
    assert name
    assert server.status("POST", MAPS, {"metadata": {}}) == 422


@fact
def what_is_created_has_no_version_yet(server: Server, name: str) -> None:
    assert server.status("POST", MAPS, {"metadata": {"name": name, "resourceVersion": "1"}}) == 500


@fact
def a_namespace_has_to_be_there(server: Server, name: str) -> None:
    path = f"/api/v1/namespaces/{name}/configmaps"
    status, answer = server.way.ask("POST", path, {"metadata": {"name": "x"}})
    assert (status, answer["details"]["kind"]) == (404, "namespaces")


@fact
def nothing_is_created_in_a_namespace_that_ends(server: Server, name: str) -> None:
    server.good("POST", NAMESPACES, {"metadata": {"name": name}})
    path = f"/api/v1/namespaces/{name}/configmaps"
    server.good("POST", path, {"metadata": {"name": "x"}})
    server.good("DELETE", f"{NAMESPACES}/{name}")
    status, answer = server.way.ask("POST", path, {"metadata": {"name": "y"}})
    assert (status, answer["details"]["causes"][0]["reason"]) == (403, "NamespaceTerminating")
    assert server.status("PATCH", f"{path}/x", {"data": {"a": "2"}}, content_type=MERGE_PATCH) == 200


@fact
def a_new_pod_is_pending_whatever_it_says(server: Server, name: str) -> None:
    body = {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = server.good("POST", PODS, {**body, "status": {"phase": "Running"}})
    assert made["status"]["phase"] == "Pending"


@fact
def a_new_pod_group_has_no_status(server: Server, name: str) -> None:
    body = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1},
        "status": RESOURCES,
    }
    assert "status" not in server.good("POST", GROUPS, body)


@fact
def a_pod_may_be_created_on_a_node(server: Server, name: str) -> None:
    assert server.pod(name, nodeName="n1")["spec"]["nodeName"] == "n1"
    assert server.bind(name)[0] == 409


@fact
def every_change_counts_the_version_up(server: Server, name: str) -> None:
    first = server.map(name)
    second = server.good("PATCH", f"{MAPS}/{name}", {"data": {"a": "2"}}, content_type=MERGE_PATCH)
    assert version_of(second) > version_of(first)


@fact
def a_patch_that_changes_nothing_keeps_the_version(server: Server, name: str) -> None:
    first = server.map(name)
    second = server.good("PATCH", f"{MAPS}/{name}", {"data": {"a": "1"}}, content_type=MERGE_PATCH)
    assert version_of(second) == version_of(first)


@fact
def a_merge_patch_removes_with_null(server: Server, name: str) -> None:
    server.map(name)
    patched = server.good("PATCH", f"{MAPS}/{name}", {"data": {"a": None, "b": "2"}}, content_type=MERGE_PATCH)
    assert patched["data"] == {"b": "2"}


@fact
def a_patch_with_an_old_version_is_a_conflict(server: Server, name: str) -> None:
    made = server.map(name)
    server.good("PATCH", f"{MAPS}/{name}", {"data": {"a": "2"}}, content_type=MERGE_PATCH)
    patch = {"metadata": {"resourceVersion": str(version_of(made))}, "data": {"a": "3"}}
    assert server.status("PATCH", f"{MAPS}/{name}", patch, content_type=MERGE_PATCH) == 409


@fact
def a_patch_with_another_uid_is_refused(server: Server, name: str) -> None:
    server.pod(name)
    patch = {"metadata": {"uid": "00000000-0000-0000-0000-000000000000", "labels": {"a": "b"}}}
    status, _ = server.way.ask("PATCH", f"{PODS}/{name}", patch, content_type=MERGE_PATCH)
    assert status in {409, 422}
    assert "labels" not in server.good("GET", f"{PODS}/{name}")["metadata"]


@fact
def a_patch_of_nothing_is_not_found(server: Server, name: str) -> None:
    assert server.status("PATCH", f"{MAPS}/{name}", {"data": {"a": "1"}}, content_type=MERGE_PATCH) == 404


@fact
def a_json_patch_tests_before_it_changes(server: Server, name: str) -> None:
    server.map(name)
    change = {"op": "replace", "path": "/data/a", "value": "2"}
    wrong = [{"op": "test", "path": "/data/a", "value": "x"}, change]
    assert server.status("PATCH", f"{MAPS}/{name}", wrong, content_type=JSON_PATCH) == 422
    right = [{"op": "test", "path": "/data/a", "value": "1"}, change]
    assert server.good("PATCH", f"{MAPS}/{name}", right, content_type=JSON_PATCH)["data"] == {"a": "2"}


@fact
def a_strategic_patch_merges_conditions_by_type(server: Server, name: str) -> None:
    server.pod(name)
    for kind in ("A", "B"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        server.good("PATCH", f"{PODS}/{name}/status", patch, content_type=STRATEGIC_PATCH)
    conditions = server.good("GET", f"{PODS}/{name}")["status"]["conditions"]
    assert sorted(each["type"] for each in conditions) == ["A", "B"]


@fact
def a_merge_patch_replaces_conditions(server: Server, name: str) -> None:
    server.pod(name)
    for kind in ("A", "B"):
        patch = {"status": {"conditions": [{"type": kind, "status": "True"}]}}
        server.good("PATCH", f"{PODS}/{name}/status", patch, content_type=MERGE_PATCH)
    conditions = server.good("GET", f"{PODS}/{name}")["status"]["conditions"]
    assert [each["type"] for each in conditions] == ["B"]


@fact
def custom_kinds_know_no_strategic_patch(server: Server, name: str) -> None:
    server.group(name)
    assert server.status("PATCH", f"{GROUPS}/{name}", {"spec": {}}, content_type=STRATEGIC_PATCH) == 415


@fact
def a_write_of_an_object_leaves_its_status_alone(server: Server, name: str) -> None:
    server.pod(name)
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    patched = server.good("PATCH", f"{PODS}/{name}", patch, content_type=MERGE_PATCH)
    assert (patched["metadata"]["labels"], patched["status"]["phase"]) == ({"a": "b"}, "Pending")


@fact
def a_write_of_a_status_leaves_the_spec_alone(server: Server, name: str) -> None:
    server.group(name)
    patch = {"spec": {"minMember": 5}, "status": RESOURCES}
    patched = server.good("PATCH", f"{GROUPS}/{name}/status", patch, content_type=MERGE_PATCH)
    assert (patched["spec"]["minMember"], patched["status"]) == (1, RESOURCES)


@fact
def the_status_of_a_custom_kind_takes_no_labels(server: Server, name: str) -> None:
    server.group(name)
    patch = {"metadata": {"labels": {"a": "b"}}, "status": RESOURCES}
    patched = server.good("PATCH", f"{GROUPS}/{name}/status", patch, content_type=MERGE_PATCH)
    assert "labels" not in patched["metadata"]


@fact
def the_status_of_a_pod_takes_labels(server: Server, name: str) -> None:
    server.pod(name)
    patch = {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}}
    patched = server.good("PATCH", f"{PODS}/{name}/status", patch, content_type=MERGE_PATCH)
    assert patched["metadata"]["labels"] == {"a": "b"}


@fact
def the_spec_of_a_custom_kind_counts_its_generation(server: Server, name: str) -> None:
    assert server.group(name)["metadata"]["generation"] == 1
    patched = server.good("PATCH", f"{GROUPS}/{name}", {"spec": {"minMember": 2}}, content_type=MERGE_PATCH)
    assert patched["metadata"]["generation"] == 2
    patched = server.good(
        "PATCH",
        f"{GROUPS}/{name}/status",
        {"status": {"resourcesStatus": {"requested": {"cpu": "1"}}}},
        content_type=MERGE_PATCH,
    )
    assert patched["metadata"]["generation"] == 2


@fact
def the_node_of_a_pod_is_not_set_by_a_patch(server: Server, name: str) -> None:
    server.pod(name)
    patch = {"spec": {"nodeName": "n1"}}
    assert server.status("PATCH", f"{PODS}/{name}", patch, content_type=MERGE_PATCH) == 422


@fact
def a_gate_can_be_taken_away(server: Server, name: str) -> None:
    server.pod(name, schedulingGates=[{"name": "wait"}])
    server.good("PATCH", f"{PODS}/{name}", {"spec": {"schedulingGates": None}}, content_type=MERGE_PATCH)
    assert server.bind(name)[0] == 201


@fact
def a_replacement_with_an_old_version_is_a_conflict(server: Server, name: str) -> None:
    made = server.map(name)
    server.good("PATCH", f"{MAPS}/{name}", {"data": {"a": "2"}}, content_type=MERGE_PATCH)
    assert server.status("PUT", f"{MAPS}/{name}", {**made, "data": {"a": "3"}}) == 409


@fact
def a_replacement_of_nothing_is_not_found(server: Server, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
    assert server.status("PUT", f"{MAPS}/{name}", body) == 404


@fact
def a_lease_is_created_once_and_replaced_at_its_version(server: Server, name: str) -> None:
    spec = {"holderIdentity": "a", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}, "spec": spec}
    made = server.good("POST", LEASES, body)
    assert server.status("POST", LEASES, body) == 409
    other = {**made, "spec": {**spec, "holderIdentity": "b", "leaseTransitions": 1}}
    assert server.good("PUT", f"{LEASES}/{name}", other)["spec"]["holderIdentity"] == "b"
    assert server.status("PUT", f"{LEASES}/{name}", {**made, "spec": spec}) == 409


def applied(
    server: Server, name: str, manager: str = "one", metadata: Mapping[str, Any] | None = None, **spec: Any
) -> Any:
    body = {
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": HOME, **(metadata or {})},
        "spec": spec,
    }
    query = {"fieldManager": manager, "force": "true"}
    return server.way.ask("PATCH", f"{GROUPS}/{name}", body, content_type=APPLY_PATCH, **query)


@fact
def applying_creates_what_is_not_there(server: Server, name: str) -> None:
    assert applied(server, name, minMember=2)[0] == 201
    assert applied(server, name, minMember=2)[0] == 200


@fact
def applying_the_same_again_keeps_the_version(server: Server, name: str) -> None:
    first = applied(server, name, minMember=2)[1]
    assert version_of(applied(server, name, minMember=2)[1]) == version_of(first)


@fact
def applying_less_removes_what_was_applied_before(server: Server, name: str) -> None:
    applied(server, name, minMember=2, queue="q")
    assert "queue" not in applied(server, name, minMember=2)[1]["spec"]


@fact
def applying_less_leaves_what_others_applied(server: Server, name: str) -> None:
    applied(server, name, minMember=2, queue="q")
    applied(server, name, "two", queue="q")
    assert applied(server, name, minMember=2)[1]["spec"]["queue"] == "q"


@fact
def applying_with_another_uid_is_a_conflict(server: Server, name: str) -> None:
    wrong = {"uid": "00000000-0000-0000-0000-000000000000"}
    assert applied(server, name, metadata=wrong, minMember=1)[0] == 409
    applied(server, name, minMember=1)
    assert applied(server, name, metadata=wrong, minMember=2)[0] in {409, 422}


@fact
def applying_with_an_old_version_is_a_conflict(server: Server, name: str) -> None:
    first = applied(server, name, minMember=1)[1]
    applied(server, name, minMember=2)
    assert applied(server, name, metadata={"resourceVersion": str(version_of(first))}, minMember=3)[0] == 409
