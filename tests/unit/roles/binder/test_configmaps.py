import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import ConfigMap
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Create, Get, Reason, Refusal
from kai.roles.binder.outcome import BindFailureError
from kai.roles.binder.steps import delete_config_map, upsert_config_map
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import cluster, pod

POD = structure_as(Pod, pod())
OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-ns-p"}


def config_map(values, owners=(OWNER,), **metadata):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m", "namespace": "ns", "ownerReferences": list(owners), **metadata},
        "data": values,
    }


def upsert(server, values, **fields):
    return carry_out(upsert_config_map(POD, "m", values, **fields), server.perform)


def test_a_missing_map_is_made_for_the_pod():
    server = cluster()
    upsert(server, {"a": "1"})
    made = server.get("ConfigMap", "m", "ns")
    assert made["metadata"]["ownerReferences"] == [OWNER]
    assert made["data"] == {"a": "1"}


def test_other_keys_of_the_pods_own_map_stay():
    server = cluster(config_map({"a": "0", "b": "2"}))
    upsert(server, {"a": "1"})
    assert server.get("ConfigMap", "m", "ns")["data"] == {"a": "1", "b": "2"}


def test_a_current_map_is_not_written():
    server = cluster(config_map({"a": "1"}))
    upsert(server, {"a": "1"})
    assert server.writes == []


def test_an_earlier_namesakes_map_is_taken_over_and_emptied():
    other = {**OWNER, "uid": "other"}
    server = cluster(config_map({"a": "0", "b": "2"}, owners=[other], labels={"x": "y"}, annotations={"z": "w"}))
    upsert(server, {"a": "1"})
    taken = server.get("ConfigMap", "m", "ns")
    assert taken["data"] == {"a": "1"}
    assert taken["metadata"]["ownerReferences"] == [OWNER]
    assert "labels" not in taken["metadata"]
    assert "annotations" not in taken["metadata"]


@pytest.mark.parametrize(
    "owners",
    [
        [],
        [{**OWNER, "name": "q", "uid": "other"}],
        [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "p", "uid": "s"}],
        [{**OWNER, "uid": "other"}, {**OWNER, "name": "q", "uid": "another"}],
    ],
)
def test_a_map_not_made_for_the_pod_stays_unchanged(owners):
    server = cluster(config_map({"password": "1"}, owners=owners))
    before = server.state()
    with pytest.raises(BindFailureError, match="configmap ns/m: found one that was not made for pod ns/p") as caught:
        upsert(server, {"a": "1"})
    assert not caught.value.retryable
    assert not carry_out(delete_config_map(POD, "m"), server.perform)
    assert server.state() == before


def test_a_second_owner_leaves_the_map_to_the_pod():
    server = cluster(config_map({"b": "2"}, owners=[OWNER, {**OWNER, "name": "q", "uid": "other"}]))
    upsert(server, {"a": "1"})
    assert server.get("ConfigMap", "m", "ns")["data"] == {"a": "1", "b": "2"}


def test_renewed_keys_are_written_only_where_they_exist():
    server = cluster(config_map({"old": "0"}))
    upsert(server, {}, renewed={"old": "1", "absent": "1"})
    assert server.get("ConfigMap", "m", "ns")["data"] == {"old": "1"}


def test_a_map_created_concurrently_is_updated():
    server = cluster()

    def fault(request):
        if isinstance(request, Create):
            server._put(config_map({"a": "0"}))
            return Refusal(reason=Reason.ALREADY_EXISTS)
        return None

    server.fault = fault
    upsert(server, {"a": "1"})
    assert server.get("ConfigMap", "m", "ns")["data"] == {"a": "1"}


def test_a_deleted_map_in_a_lagging_store_is_recreated():
    server = cluster()
    gone = structure_as(ConfigMap, config_map({"a": "1"}))

    def lagging(request):
        return gone if isinstance(request, Get) and not request.fresh else server.perform(request)

    carry_out(upsert_config_map(POD, "m", {"a": "1"}), lagging)
    assert server.get("ConfigMap", "m", "ns")["data"] == {"a": "1"}


def test_the_pods_map_is_deleted():
    server = cluster(config_map({}))
    assert carry_out(delete_config_map(POD, "m"), server.perform)
    assert server.names("ConfigMap") == []


def test_an_ownerless_map_with_a_random_name_is_deleted():
    drawn = "p-abc1234-shared-gpu-i0-evar"
    server = cluster(config_map({}, owners=(), name=drawn))
    assert carry_out(delete_config_map(POD, drawn), server.perform)
    assert server.names("ConfigMap") == []


def test_a_map_of_another_pod_is_not_deleted():
    server = cluster(config_map({}, owners=[{**OWNER, "uid": "other"}]))
    assert not carry_out(delete_config_map(POD, "m"), server.perform)
    assert server.names("ConfigMap") == ["m"]


def test_a_map_that_does_not_exist_needs_no_deletion():
    assert not carry_out(delete_config_map(POD, "m"), cluster().perform)


def test_a_map_with_the_same_data_is_taken_over():
    server = cluster(config_map({"a": "1"}, owners=[{**OWNER, "kind": "ReplicaSet", "name": "q", "uid": "other"}]))
    upsert(server, {"a": "1"})
    taken = server.get("ConfigMap", "m", "ns")
    assert (taken["data"], taken["metadata"]["ownerReferences"]) == ({"a": "1"}, [OWNER])
