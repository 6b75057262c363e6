import pytest

from kai.api.codec.structuring import structure_as
from kai.api.conventions.binding import is_lack_of_room
from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest, is_for
from kai.roles.binder import BinderSettings
from kai.roles.binder.sharers import Sight, portion_used, refuse_node, refuse_overfull, refuse_reservation, refuse_share
from tests.unit.roles.binder.clusters import bind_request, node, pod, sharing_pod, sharing_request


def pods(*manifests):
    return tuple(structure_as(Pod, manifest) for manifest in manifests)


def sight(wanting=None, on=None, others=(), request=None):
    return Sight(
        pod=structure_as(Pod, wanting or pod()),
        node=structure_as(Node, on or node()),
        request=structure_as(BindRequest, request or bind_request()),
        others=pods(*others),
    )


def running(name, requests, **fields):
    return pod(name, requests=requests, phase=fields.pop("phase", "Running"), nodeName="n1", **fields)


def test_a_pod_that_fits_is_not_refused():
    assert refuse_node(sight()) == ""
    assert refuse_overfull(sight()) == ""


def test_a_node_outside_of_the_shard_is_refused():
    request = bind_request(labels={"kai.scheduler/node-pool": "blue"})
    assert refuse_node(sight(request=request)) == "node n1 is not in node pool blue"
    assert refuse_node(sight(request=request, on=node(labels={"kai.scheduler/node-pool": "blue"}))) == ""


def test_a_node_moved_to_a_pool_refuses_poolless_requests():
    given = node(labels={"kai.scheduler/node-pool": "blue"})
    assert refuse_node(sight(on=given)) == "node n1 is in node pool blue now, and the bind request is for none"


def test_a_node_that_is_going_is_refused():
    going = node()
    going["metadata"]["deletionTimestamp"] = "2023-01-01T00:00:00Z"
    assert refuse_node(sight(on=going)) == "node n1 is being deleted"


def test_a_node_whose_labels_changed_is_refused():
    assert "no longer satisfies the node affinity" in refuse_node(sight(pod(nodeSelector={"zone": "a"})))


def test_what_other_pods_hold_is_not_there():
    others = [running("a", {"cpu": "5"}), running("b", {"cpu": "2500m"})]
    assert refuse_overfull(sight(others=others)) == "node n1 has 500m of cpu left, the pod needs 1"
    assert refuse_overfull(sight(pod(requests={"cpu": "500m"}), others=others)) == ""


def test_pods_that_have_ended_hold_nothing():
    others = [running("a", {"cpu": "8"}, phase=phase) for phase in ("Succeeded", "Failed")]
    assert refuse_overfull(sight(others=others)) == ""


def test_pods_that_are_going_still_hold_what_they_have():
    going = running("a", {"cpu": "8"})
    going["metadata"]["deletionTimestamp"] = "2023-01-01T00:00:00Z"
    assert "0 of cpu left" in refuse_overfull(sight(others=[going]))


def test_a_resource_missing_on_the_node_is_refused():
    wanting = pod(requests={"example.com/fpga": "1"})
    assert refuse_overfull(sight(wanting)) == "node n1 has 0 of example.com/fpga left, the pod needs 1"


def test_a_claimed_resource_need_not_be_on_the_node():
    mapping = {"containerName": "main", "resourceName": "example.com/fpga", "requestName": "r"}
    request = bind_request(extendedResourceClaimAllocation={"containerMappings": [mapping]})
    assert refuse_overfull(sight(pod(requests={"example.com/fpga": "1"}), request=request)) == ""


def test_an_overfull_resource_refuses_no_pod_without_it():
    others = [running("a", {"memory": "900Gi"})]
    assert refuse_overfull(sight(pod(requests={"cpu": "1"}), others=others)) == ""


def test_the_number_of_pods_counts():
    assert "has 0 of pods left" in refuse_overfull(sight(on=node(pods="1"), others=[running("a", {"cpu": "1m"})]))


def test_a_node_without_status_takes_a_pod_without_requests():
    bare = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    wanting = pod(containers=[{"name": "c"}])
    assert refuse_overfull(sight(wanting, on=bare)) == ""


def test_a_gpu_is_reserved_only_where_one_is_left():
    one = structure_as(Node, node(gpus=1))
    assert refuse_reservation(one, ()) == ""
    holder = pods(running("a", {"nvidia.com/gpu": "1"}))
    assert refuse_reservation(one, holder) == "node n1 has no GPU left to be shared"
    assert refuse_reservation(structure_as(Node, node(gpus=0)), ()) != ""


def member(name, group="g1", **fields):
    manifest = sharing_pod(name, **{"nodeName": "n1", **fields})
    manifest["metadata"]["labels"] = {"runai-gpu-group": group}
    return structure_as(Pod, manifest)


def grant(name, portion):
    return structure_as(BindRequest, sharing_request(name, portion=portion))


def share(portion, *members, grants=None, labels=None):
    looking = sight(sharing_pod(), request=sharing_request(portion=portion), on=node(labels=labels))
    known = grants or {}
    found = [
        portion_used(each, "g1", looking.node, known.get(each.metadata.name), BinderSettings()) for each in members
    ]
    return refuse_share(looking, "g1", found)


def test_portions_on_one_gpu_sum_to_at_most_one():
    assert share("0.50", member("a")) == ""
    assert "would hold 1.10 of a GPU" in share("0.60", member("a"))


def test_the_grant_counts_and_not_the_annotation():
    assert share("0.50", member("a", fraction="0.9"), grants={"a": grant("a", "0.30")}) == ""
    assert share("0.80", member("a", fraction="0.1"), grants={"a": grant("a", "0.30")}) != ""


def test_rounding_of_portions_is_not_overuse():
    eighths = {name: grant(name, "0.13") for name in "abcdefg"}
    assert share("0.13", *(member(name, fraction="0.125") for name in eighths), grants=eighths) == ""


@pytest.mark.parametrize(
    "harmless",
    [
        member("a", fraction="1.0", phase="Succeeded"),
        member("a", fraction="1.0", group="other"),
        member("a", fraction="1.0", nodeName="n2"),
        member("a", fraction="1.0", nodeName=""),
        member("a", fraction="1.0", schedulerName="another"),
        member("a", fraction="1.0", annotations={"kai.scheduler/granted": '{"queue":"q"}'}),
        member("a", fraction="nonsense"),
    ],
)
def test_pods_without_a_share_of_the_gpu_are_ignored(harmless):
    assert share("0.90", harmless) == ""


def test_memory_is_a_portion_of_what_the_node_tells():
    by_memory = pod("a", annotations={"gpu-memory": "6000"}, labels={"runai-gpu-group": "g1"}, nodeName="n1")
    known = structure_as(Pod, by_memory)
    assert share("0.50", known, labels={"nvidia.com/gpu.memory": "8000"}) != ""
    assert share("0.50", known, labels={"nvidia.com/gpu.memory": "16000"}) == ""
    assert share("0.50", known) == ""


def test_a_request_that_grants_no_portion_is_not_measured():
    assert share("") == ""


def test_a_request_is_for_the_pod_that_owns_it():
    ours = structure_as(Pod, pod()).metadata.uid
    assert is_for(structure_as(BindRequest, bind_request()), ours)
    assert is_for(structure_as(BindRequest, bind_request(owner=False)), ours)
    assert not is_for(structure_as(BindRequest, bind_request()), "new")


def test_only_refusals_for_lack_of_room_are_recognised():
    assert is_lack_of_room(refuse_overfull(sight(others=[running("a", {"cpu": "8"})])))
    assert is_lack_of_room(refuse_reservation(structure_as(Node, node(gpus=0)), ()))
    assert is_lack_of_room(share("0.60", member("a"), grants={"a": grant("a", "0.60")}))
    assert not is_lack_of_room("")
    assert not is_lack_of_room("node n1 has taint x:NoSchedule, which the pod does not tolerate")
    assert not is_lack_of_room("admission webhook said no")
