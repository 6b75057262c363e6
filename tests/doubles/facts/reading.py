"""Facts about reading and watching objects."""

from __future__ import annotations

from kai.cluster.transport.calls import MERGE_PATCH, METADATA, METADATA_LIST
from tests.doubles.facts.asking import (
    HOME,
    MAPS,
    PODS,
    Server,
    fact,
    uid_of,
    version_of,
)


@fact
def an_unknown_kind_is_not_found_without_a_name(server: Server, name: str) -> None:
    status, answer = server.way.ask("GET", f"/apis/kai.test/v1/namespaces/{HOME}/{name}")
    assert status == 404
    assert not isinstance(answer, dict) or "name" not in answer.get("details", {})


@fact
def a_missing_object_is_named(server: Server, name: str) -> None:
    status, answer = server.way.ask("GET", f"{PODS}/{name}")
    assert (status, answer["reason"], answer["details"]["name"]) == (404, "NotFound", name)


@fact
def kinds_of_a_group_can_be_asked_for(server: Server, name: str) -> None:
    assert name
    found = server.good("GET", "/apis/scheduling.run.ai/v2alpha2")["resources"]
    assert {"podgroups"} <= {each["name"] for each in found}


@fact
def a_list_comes_in_pages_of_one_version(server: Server, name: str) -> None:
    for number in range(3):
        server.map(f"{name}-{number}", labels={"page": name})
    query = {"labelSelector": f"page={name}", "limit": 2}
    first = server.good("GET", MAPS, **query)
    second = server.good("GET", MAPS, **query, **{"continue": first["metadata"]["continue"]})
    names = [each["metadata"]["name"] for page in (first, second) for each in page["items"]]
    assert names == [f"{name}-{number}" for number in range(3)]
    assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]


@fact
def items_of_a_list_do_not_say_what_they_are(server: Server, name: str) -> None:
    server.map(name, labels={"one": name})
    answer = server.good("GET", MAPS, labelSelector=f"one={name}")
    assert (answer["kind"], "kind" in answer["items"][0]) == ("ConfigMapList", False)


@fact
def pods_are_selected_by_node_and_phase(server: Server, name: str) -> None:
    server.running(name, labels={"one": name})
    server.pod(f"{name}-2", metadata={"labels": {"one": name}})
    query = {"labelSelector": f"one={name}"}
    on_node = server.good("GET", PODS, fieldSelector="spec.nodeName=n1", **query)["items"]
    pending = server.good("GET", PODS, fieldSelector="status.phase!=Running", **query)["items"]
    assert [each["metadata"]["name"] for each in on_node] == [name]
    assert [each["metadata"]["name"] for each in pending] == [f"{name}-2"]


@fact
def metadata_alone_can_be_asked_for(server: Server, name: str) -> None:
    server.map(name, labels={"one": name})
    answer = server.good("GET", MAPS, accept=METADATA_LIST, labelSelector=f"one={name}")
    assert answer["kind"] == "PartialObjectMetadataList"
    assert "data" not in answer["items"][0]


@fact
def a_watch_brings_what_came_after_its_version(server: Server, name: str) -> None:
    made = server.map(name)
    server.good("PATCH", f"{MAPS}/{name}", {"data": {"a": "2"}}, content_type=MERGE_PATCH)
    server.good("DELETE", f"{MAPS}/{name}")
    before = str(version_of(made) - 1)
    events = server.way.watched(MAPS, before, fieldSelector=f"metadata.name={name}")
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]


@fact
def the_end_of_an_object_has_a_version_of_its_own(server: Server, name: str) -> None:
    made = server.map(name)
    server.good("DELETE", f"{MAPS}/{name}")
    version = str(version_of(made))
    ((kind, last),) = server.way.watched(MAPS, version, fieldSelector=f"metadata.name={name}")
    assert kind == "DELETED"
    assert version_of(last) > version_of(made)
    assert uid_of(last) == uid_of(made)


@fact
def what_leaves_a_selection_is_deleted_from_it(server: Server, name: str) -> None:
    made = server.map(name, labels={"one": name})
    for value in ("other", name):
        patch = {"metadata": {"labels": {"one": value}}}
        server.good("PATCH", f"{MAPS}/{name}", patch, content_type=MERGE_PATCH)
    events = server.way.watched(MAPS, str(version_of(made)), labelSelector=f"one={name}")
    assert [kind for kind, _ in events] == ["DELETED", "ADDED"]


@fact
def a_watch_may_bring_metadata_alone(server: Server, name: str) -> None:
    made = server.map(name)
    version = str(version_of(made) - 1)
    ((kind, found),) = server.way.watched(MAPS, version, accept=METADATA, fieldSelector=f"metadata.name={name}")
    assert (kind, found["kind"], "data" in found) == ("ADDED", "PartialObjectMetadata", False)


@fact
def a_patch_that_changes_nothing_is_no_event(server: Server, name: str) -> None:
    made = server.map(name)
    server.good("PATCH", f"{MAPS}/{name}", {"data": {"a": "1"}}, content_type=MERGE_PATCH)
    assert server.way.watched(MAPS, str(version_of(made)), fieldSelector=f"metadata.name={name}") == []


@fact
def a_watch_from_the_future_is_silent(server: Server, name: str) -> None:
    server.map(name)
    future = str(int(server.version()) + 1_000_000)
    assert server.way.watched(MAPS, future, fieldSelector=f"metadata.name={name}") == []


@fact
def a_list_from_the_future_takes_too_long(server: Server, name: str) -> None:
    assert name
    future = str(int(server.version()) + 1_000_000)
    query = {"resourceVersion": future, "resourceVersionMatch": "NotOlderThan"}
    status, answer = server.way.ask("GET", PODS, **query)
    assert (status, answer["details"]["causes"][0]["reason"]) == (504, "ResourceVersionTooLarge")


@fact
def a_watch_from_a_forgotten_version_brings_an_error(server: Server, name: str) -> None:
    made = server.map(name)
    for number in range(3):
        server.good("PATCH", f"{MAPS}/{name}", {"data": {"n": str(number)}}, content_type=MERGE_PATCH)
    server.way.compact()
    server.map(f"{name}-later")
    # The cache of a real API server may still know what etcd has forgotten; version 1 is older than any cache.
    del made
    ((kind, status),) = server.way.watched(MAPS, "1")
    assert (kind, status["code"], status["reason"]) == ("ERROR", 410, "Expired")
