import numpy as np
import pytest

from kai.facts.model.axis import GPU, NodeRow
from kai.facts.model.pod import Status
from kai.framework.decisions import Cause
from kai.plugins.dra import Dra
from tests.unit.plugins.dra.manifests import (
    CLASS,
    GPU_CLASS,
    NIC_CLASS,
    NODE,
    claim,
    claiming,
    device,
    device_class,
    exactly,
    first_of,
    offer,
)
from tests.unit.plugins.stage import Stage, node, play, pod, snapshot_of

ELSEWHERE = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}]


def stage_of(*manifests):
    return Stage.of(Dra(), snapshot_of(NODE, CLASS, *manifests))


def place(stage, name, *, promise=False):
    """Place a pod in a statement that stays open; say whether it found a node."""
    session = stage.session
    statement = session.statement("test", Cause.RECLAIM)
    pods = np.array([stage.row(name)], np.int64)
    return bool(statement.place_pods(pods, session.all_nodes, session.no_extra, promise=promise))


def evict(stage, name):
    stage.session.statement("test", Cause.RECLAIM).evict(np.array([stage.row(name)], np.int64))


def devices_of(stage, name):
    row = stage.row(name)
    placement = stage.session.details.of(row).get("claims") or stage.answers.placement.recorded(row)
    return [each.device for each in placement.devices()]


def gpus(stage, column, at=0):
    return int(getattr(stage.session.columns, column)[at, GPU]) // 1000


# ------------------------------------------------------------------------------------------------- before any node


def test_without_claims_the_plugin_says_nothing():
    assert stage_of(offer("n1", "d0"), pod("a-0")).is_silent


def test_a_pod_without_claims_is_no_concern():
    stage = stage_of(claim("c"), claiming("a-0", "c"), pod("b-0"))
    assert stage.is_concerned("a-0")
    assert not stage.is_concerned("b-0")


def test_claims_wait_for_an_api_that_is_served():
    stage = Stage.of(Dra(), snapshot_of(NODE, claiming("a-0", "c")))
    assert "<c> while dynamic resource allocation is not available" in stage.refusal("a-0")


def test_a_claim_must_exist():
    assert stage_of(claiming("a-0", "c")).refusal("a-0") == "failed to get resource claim default/c: not found"


def test_a_pod_waits_for_its_unmade_template_claim():
    waiting = pod("a-0", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}])
    assert "no resource claim name found" in stage_of(waiting).refusal("a-0")


def test_a_claim_under_deletion_takes_no_further_pods():
    going = claim("c", held=[("n1", "d0")], users=["default-x-0"])
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    stage = stage_of(offer("n1", "d0"), going, claiming("x-0", "c", on="n1"), claiming("a-0", "c"))
    assert stage.refusal("a-0") == "resource claim default/c is being deleted"


def test_a_claim_made_from_a_template_needs_no_queue():
    status = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c"}]}
    made = pod("a-0", resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "t"}], status=status)
    assert stage_of(claim("c", queue=""), made).refusal("a-0") == ""


def test_a_shared_gpu_claim_is_for_its_queue_only():
    assert stage_of(claim("c"), claiming("a-0", "c")).refusal("a-0") == ""
    assert "does not have a queue label" in stage_of(claim("c", queue=""), claiming("a-0", "c")).refusal("a-0")
    refusal = stage_of(claim("c", queue="other"), claiming("a-0", "c")).refusal("a-0")
    assert "wrong queue label (expected queue: team, claim queue label: other)" in refusal


def test_a_shared_claim_for_gpus_must_have_a_queue():
    wanted = first_of("r", exactly("nic", of="nic.example.com"), exactly("gpu"))
    refusal = stage_of(claim("c", wanted, queue=""), claiming("a-0", "c")).refusal("a-0")
    assert "does not have a queue label" in refusal


def test_a_shared_claim_of_other_devices_is_for_everybody():
    manifests = (device_class("disk.example.com"), claim("c", exactly(of="disk.example.com"), queue=""))
    assert stage_of(*manifests, claiming("a-0", "c")).refusal("a-0") == ""


@pytest.mark.parametrize(("users", "refused"), [(255, False), (256, True)])
def test_a_claim_has_a_most_of_consumers(users, refused):
    full = claim("c", users=[f"u{at}" for at in range(users)])
    assert ("maximum number of consumers" in stage_of(full, claiming("a-0", "c")).refusal("a-0")) == refused


def test_a_consumer_does_not_stand_in_its_own_way():
    full = claim("c", users=["default-a-0", *(f"u{at}" for at in range(255))])
    assert stage_of(full, claiming("a-0", "c")).refusal("a-0") == ""


def test_consumers_of_this_cycle_count():
    full = claim("c", users=[f"u{at}" for at in range(255)])
    stage = stage_of(offer("n1", "d0"), full, claiming("a-0", "c"), claiming("b-0", "c"))
    assert place(stage, "a-0")
    assert "maximum number of consumers" in stage.refusal("b-0")


def test_an_unallocated_claim_needs_its_class():
    unknown = claim("c", exactly(of="gpu.nobody.com"))
    text = "device class gpu.nobody.com does not exist for claim default/c request r"
    assert stage_of(unknown, claiming("a-0", "c")).refusal("a-0") == text
    listed = claim("c", first_of("r", exactly("a", of="gpu.nobody.com"), exactly("b")))
    assert stage_of(listed, claiming("a-0", "c")).refusal("a-0") == f"{text}/a"
    allocated = claim("c", exactly(of="gpu.nobody.com"), held=[("n1", "d0")], users=["x"])
    assert stage_of(allocated, claiming("a-0", "c")).refusal("a-0") == ""


@pytest.mark.parametrize(
    ("conditions", "refused"),
    [
        ([], "attached is not true"),
        ([{"type": "attached", "status": "False"}], "attached is not true"),
        ([{"type": "attached", "status": "True"}, {"type": "failed", "status": "True"}], "failed is true"),
        ([{"type": "attached", "status": "True"}, {"type": "failed", "status": "False"}], ""),
    ],
)
def test_a_claim_with_unready_devices_refuses_its_pod(conditions, refused):
    held = claim("c", held=[("n1", "d0")], users=["default-b-0"])
    result = held["status"]["allocation"]["devices"]["results"][0]
    result |= {"bindingConditions": ["attached"], "bindingFailureConditions": ["failed"]}
    told = {key: result[key] for key in ("driver", "pool", "device")}
    held["status"]["devices"] = [{**told, "conditions": conditions}]
    found = stage_of(held, claiming("a-0", "c")).refusal("a-0")
    wanted = f"resource claim default/c has devices that are not ready yet: gpu.example.com/n1/d0 ({refused})"
    assert found == (wanted if refused else "")


def test_device_classes_of_two_gpu_vendors_need_a_plugin():
    vendors = [device_class(f"gpu.{each}.com", extended=f"{each}.com/gpu") for each in ("amd", "nvidia")]
    asking = pod("a-0", requests={"amd.com/gpu": "1"})
    refused = "device classes back amd.com/gpu and nvidia.com/gpu, which count alike"
    assert stage_of(offer("n1", "d0"), *vendors, asking).reasons("a-0") == [refused]
    assert stage_of(offer("n1", "d0"), vendors[0], asking).accepting("a-0") == ["n1"]
    plugin = node("n3", allocatable={"amd.com/gpu": "1"})
    assert stage_of(offer("n1", "d0"), *vendors, plugin, asking).accepting("a-0") == ["n3"]


def test_devices_with_binding_conditions_are_not_allocated():
    later = device("d0", bindingConditions=["attached"])
    stage = stage_of(offer("n1", later), claim("c"), claiming("a-0", "c"))
    refused = "cannot allocate all DRA claims: devices with binding conditions are not allocated"
    assert refused in stage.reasons("a-0")


TAINTED = "cannot allocate all DRA claims: devices have taints that the claims do not tolerate"
NOT_WHOLE = "cannot allocate all DRA claims: slices of their pool are missing or contradict each other"


def test_tainted_free_devices_refuse_the_node_with_reason():
    bad = device("d0", taints=[{"key": "bad", "effect": "NoSchedule"}])
    stage = stage_of(node("n2"), offer("n1", bad), claim("c"), claiming("a-0", "c"))
    assert stage.reasons("a-0") == [TAINTED, "cannot allocate all DRA claims"]
    held = claim("o", held=[("n1", "d0")], users=["default-b-0"])
    stage = stage_of(offer("n1", bad), held, claiming("b-0", "o", on="n1"), claim("c"), claiming("a-0", "c"))
    assert stage.reasons("a-0") == ["cannot allocate all DRA claims"]


def test_a_node_is_refused_for_slices_that_are_missing():
    part = offer("n1", "d0")
    part["spec"]["pool"]["resourceSliceCount"] = 2
    wanted = claim("c", exactly(selectors=["device.driver == 'gpu.example.com'"]))
    assert stage_of(part, wanted, claiming("a-0", "c")).reasons("a-0") == [NOT_WHOLE]
    other = claim("c", exactly(selectors=["device.driver == 'other'"]))
    assert stage_of(part, other, claiming("a-0", "c")).reasons("a-0") == ["cannot allocate all DRA claims"]


def test_a_faulty_selector_refuses_nodes_with_its_error():
    stage = stage_of(
        node("n2"), offer("n1", "d0"), claim("c", exactly(selectors=["device.driver.foo()"])), claiming("a-0", "c")
    )
    said = "cannot allocate all DRA claims: selector 'device.driver.foo()': undeclared reference to 'foo'"
    assert stage.reasons("a-0") == [said, "cannot allocate all DRA claims"]


def test_a_claim_beyond_32_devices_refuses_the_node():
    stage = stage_of(offer("n1", "d0"), claim("c", exactly(count=33)), claiming("a-0", "c"))
    said = "claim default/c: wants 33 devices, at most 32 are allowed"
    assert stage.reasons("a-0") == [f"cannot allocate all DRA claims: {said}"]


# ------------------------------------------------------------------------------------------------- nodes and devices


def test_an_allocated_claim_ties_the_pod_to_its_node():
    held = claim("c", held=[("n2", "d0")], users=["x"], terms=ELSEWHERE)
    stage = stage_of(node("n2"), offer("n2", "d0"), held, claiming("a-0", "c"))
    assert stage.accepting("a-0") == ["n2"]
    assert stage.reasons("a-0") == ["claim node selector does not match node"]


def test_nodes_without_enough_devices_are_left_out():
    stage = stage_of(
        node("n2"), offer("n1", "d0"), offer("n2", "d0", "d1"), claim("c", exactly(count=2)), claiming("a-0", "c")
    )
    assert stage.accepting("a-0") == ["n2"]
    assert stage.reasons("a-0") == ["cannot allocate all DRA claims"]


def test_a_second_pod_gets_the_claims_same_device():
    stage = stage_of(offer("n1", "d0", "d1"), claim("c"), claiming("a-0", "c"), claiming("b-0", "c"))
    assert place(stage, "a-0")
    assert place(stage, "b-0")
    assert devices_of(stage, "a-0") == devices_of(stage, "b-0") == ["d0"]


def test_a_claim_named_twice_by_a_pod_counts_once():
    references = [{"name": each, "resourceClaimName": "c"} for each in ("one", "two")]
    stage = stage_of(offer("n1", "d0"), claim("c"), pod("a-0", resourceClaims=references))
    before = stage.session.ledger.fingerprint()
    assert place(stage, "a-0")
    assert devices_of(stage, "a-0") == ["d0", "d0"]
    stage.session.ledger.undo_to(0)
    assert stage.session.ledger.fingerprint() == before


def test_an_evicted_pod_gives_its_devices_back():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    stage = stage_of(offer("n1", "d0"), held, claiming("a-0", "c", on="n1"), claim("e"), claiming("b-0", "e"))
    assert stage.accepting("b-0") == []
    evict(stage, "a-0")
    assert stage.accepting("b-0") == ["n1"]
    assert place(stage, "b-0", promise=True)
    assert devices_of(stage, "b-0") == ["d0"]


def test_a_claim_stays_allocated_while_somebody_else_uses_it():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0", "somebody"])
    stage = stage_of(offer("n1", "d0"), held, claiming("a-0", "c", on="n1"), claim("e"), claiming("b-0", "e"))
    evict(stage, "a-0")
    assert stage.accepting("b-0") == []


def is_promised(stage, name):
    return stage.session.columns.status[stage.row(name)] == Status.PIPELINED


def test_devices_of_a_terminating_pod_are_only_promised():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    leaving = claiming("a-0", "c", on="n1", leaving=True)
    stage = stage_of(offer("n1", "d0"), held, leaving, claim("e"), claiming("b-0", "e"))
    before = stage.session.ledger.fingerprint()
    assert stage.accepting("b-0") == ["n1"]
    assert place(stage, "b-0")
    assert is_promised(stage, "b-0")
    assert devices_of(stage, "b-0") == ["d0"]
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (0, 0)
    stage.session.ledger.undo_to(0)
    assert stage.session.ledger.fingerprint() == before


def test_a_device_that_is_being_released_is_promised_once():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    wanting = (claim("e"), claiming("b-0", "e"), claim("f"), claiming("b-1", "f"))
    stage = stage_of(offer("n1", "d0"), held, claiming("a-0", "c", on="n1", leaving=True), *wanting)
    assert place(stage, "b-0")
    assert stage.accepting("b-1") == []


def test_free_devices_are_given_before_releasing_ones():
    held = claim("c", held=[("n1", "d0")], users=["gone"])
    wanting = (claim("e"), claiming("b-0", "e"), claim("f"), claiming("b-1", "f"))
    stage = stage_of(offer("n1", "d0", "d1"), held, *wanting)
    assert place(stage, "b-0")
    assert (is_promised(stage, "b-0"), devices_of(stage, "b-0")) == (False, ["d1"])
    assert place(stage, "b-1")
    assert (is_promised(stage, "b-1"), devices_of(stage, "b-1")) == (True, ["d0"])


def test_releasing_devices_other_than_gpus_are_promised_too():
    nics = {"driver": "nic.example.com"}
    held = claim("c", exactly(of=NIC_CLASS), held=[("n1", "p0")], users=["gone"], **nics)
    wanted = claim("e", exactly(of=NIC_CLASS, selectors=["device.driver == 'nic.example.com'"]))
    stage = stage_of(device_class(NIC_CLASS), offer("n1", "p0", **nics), held, wanted, claiming("b-0", "e"))
    assert place(stage, "b-0")
    assert is_promised(stage, "b-0")


def test_a_releasing_shared_capacity_is_promised_after_free_capacity():
    shared = device("d0", capacity={"memory": "8Gi"}, allowMultipleAllocations=True)
    half = {"of": NIC_CLASS, "capacity": {"requests": {"memory": "4Gi"}}}
    held = claim("c", exactly(**half), held=[("n1", "d0")], users=["gone"], driver=NIC_CLASS)
    consumed = {"memory": "4Gi"}
    held["status"]["allocation"]["devices"]["results"][0] |= {"consumedCapacity": consumed, "shareID": "s"}
    wanting = [each for at in range(2) for each in (claim(f"e{at}", exactly(**half)), claiming(f"b-{at}", f"e{at}"))]
    stage = stage_of(device_class(NIC_CLASS), offer("n1", shared, driver=NIC_CLASS), held, *wanting)
    answers = []
    for name in ("b-0", "b-1"):
        row = np.array([stage.row(name)], np.int64)
        assert stage.accepting(name) == ["n1"]
        answers.append(bool(stage.session.policy.must_wait(row[0], stage.session.all_nodes)[0]))
        assert place(stage, name, promise=True)
    assert answers == [False, True]


def test_a_pod_takes_over_its_claim_while_releasing():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    leaving = claiming("a-0", "c", on="n1", leaving=True)
    stage = stage_of(offer("n1", "d0"), held, leaving, claiming("b-0", "c"), claim("e"), claiming("x-0", "e"))
    before = stage.session.ledger.fingerprint()
    assert place(stage, "b-0")
    assert (is_promised(stage, "b-0"), devices_of(stage, "b-0")) == (False, ["d0"])
    assert stage.accepting("x-0") == []
    evict(stage, "b-0")
    assert stage.accepting("x-0") == ["n1"]
    stage.session.ledger.undo_to(0)
    assert stage.session.ledger.fingerprint() == before


def test_pods_sharing_a_claim_are_promised_its_device_together():
    held = claim("o", held=[("n1", "d0")], users=["gone"])
    stage = stage_of(offer("n1", "d0"), held, claim("c"), claiming("a-0", "c"), claiming("a-1", "c"))
    assert place(stage, "a-0")
    assert place(stage, "a-1")
    assert is_promised(stage, "a-0")
    assert is_promised(stage, "a-1")


def test_a_gang_shares_a_device_that_is_being_released():
    held = claim("o", held=[("n1", "d0")], users=["default-x-0"])
    leaving = claiming("x-0", "o", on="n1", leaving=True)
    stage = stage_of(offer("n1", "d0"), held, leaving, claim("c"), claiming("a-0", "c"), claiming("a-1", "c"))
    assert place(stage, "a-0")
    assert place(stage, "a-1")
    assert is_promised(stage, "a-1")
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (0, 0)


def test_a_victim_that_is_put_back_keeps_its_devices():
    held = claim("c", held=[("n1", "d1")], users=["default-a-0"])
    stage = stage_of(offer("n1", "d0", "d1"), held, claiming("a-0", "c", on="n1"))
    before = stage.session.ledger.fingerprint()
    evict(stage, "a-0")
    assert place(stage, "a-0", promise=True)
    assert devices_of(stage, "a-0") == ["d1"]
    assert not stage.session.columns.evicted_status[stage.row("a-0")]
    stage.session.ledger.undo_to(0)
    assert stage.session.ledger.fingerprint() == before


def test_free_devices_are_promised_before_those_of_victims():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    stage = stage_of(offer("n1", "d0", "d1"), held, claiming("a-0", "c", on="n1"), claim("e"), claiming("b-0", "e"))
    evict(stage, "a-0")
    assert place(stage, "b-0", promise=True)
    assert devices_of(stage, "b-0") == ["d1"]


def test_a_victim_stays_while_a_device_remains_for_it():
    held = [claim(f"c{at}", held=[("n1", f"d{at}")], users=[f"default-a-{at}"]) for at in range(2)]
    running = [claiming(f"a-{at}", f"c{at}", on="n1") for at in range(2)]
    stage = stage_of(offer("n1", "d0", "d1"), *held, *running, claim("e"), claiming("b-0", "e"))
    evict(stage, "a-0")
    evict(stage, "a-1")
    assert place(stage, "b-0", promise=True)
    assert devices_of(stage, "b-0") == ["d0"]
    assert place(stage, "a-0", promise=True)
    assert devices_of(stage, "a-0") == ["d0"]
    assert not stage.session.columns.evicted_status[stage.row("a-0")]
    assert not place(stage, "a-1", promise=True)
    assert gpus(stage, "idle") + gpus(stage, "releasing") == 0


def test_a_victim_follows_its_claim_to_another_node():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    manifests = (node("n2"), offer("n1", "d0"), offer("n2", "z9"), held, claiming("a-0", "c", on="n1"))
    stage = stage_of(*manifests, claiming("b-0", "c"))
    session = stage.session
    evict(stage, "a-0")
    statement = session.statement("test", Cause.RECLAIM)
    moved = np.array([stage.row("b-0")], np.int64)
    assert statement.place_pods(moved, np.array([1], np.int64), session.no_extra, promise=True)
    assert stage.accepting("a-0") == ["n2"]
    assert place(stage, "a-0", promise=True)
    assert devices_of(stage, "a-0") == ["z9"]


def test_a_victim_that_moves_gets_devices_there():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    manifests = (node("n2"), offer("n1", "d0"), offer("n2", "z9"), held, claiming("a-0", "c", on="n1"))
    stage = stage_of(
        *manifests, claim("e", exactly(count=1)), claiming("b-0", "e", nodeSelector={"kubernetes.io/hostname": "n1"})
    )
    evict(stage, "a-0")
    session = stage.session
    statement = session.statement("test", Cause.RECLAIM)
    for name, at in (("b-0", 0), ("a-0", 1)):
        pods = np.array([stage.row(name)], np.int64)
        assert statement.place_pods(pods, np.array([at], np.int64), session.no_extra, promise=True)
    assert devices_of(stage, "a-0") == ["z9"]
    assert devices_of(stage, "b-0") == ["d0"]


def test_claims_of_a_pod_with_bind_request_are_assumed():
    request = {
        "apiVersion": "scheduling.run.ai/v1alpha2",
        "kind": "BindRequest",
        "metadata": {"name": "a-0", "namespace": "default"},
        "spec": {
            "podName": "a-0",
            "selectedNode": "n1",
            "resourceClaimAllocations": [
                {
                    "name": "c",
                    "allocation": {
                        "devices": {"results": [{"request": "r", "driver": GPU_CLASS, "pool": "n1", "device": "d0"}]}
                    },
                }
            ],
        },
    }
    stage = stage_of(offer("n1", "d0"), claim("c"), claiming("a-0", "c"), request, claim("e"), claiming("b-0", "e"))
    assert devices_of(stage, "a-0") == ["d0"]
    assert stage.accepting("b-0") == []


# ------------------------------------------------------------------------------------------------- GPUs of the node


def sharing(*users, devices=("d0",), **parts):
    held = claim("c", held=[("n1", "d0")], users=[f"default-{name}" for name in users])
    return stage_of(offer("n1", *devices), held, *(claiming(name, "c", on="n1") for name in users), **parts)


def test_a_device_shared_by_pods_counts_one_gpu():
    stage = sharing("a-0", "b-0", devices=("d0", "d1"))
    assert (gpus(stage, "idle"), gpus(stage, "used"), gpus(stage, "releasing")) == (1, 1, 0)
    assert int(stage.session.columns.queue_used[0, GPU]) // 1000 == 1


def test_a_shared_device_is_released_by_its_last_pod():
    stage = sharing("a-0", "b-0", devices=("d0", "d1"))
    evict(stage, "b-0")
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (1, 0)
    evict(stage, "a-0")
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (1, 1)


def test_a_claim_shared_with_an_active_pod_stays_held():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0", "default-b-0"])
    leaving = claiming("a-0", "c", on="n1", leaving=True)
    stage = stage_of(offer("n1", "d0", "d1"), held, leaving, claiming("b-0", "c", on="n1"))
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (1, 0)


def test_a_pod_fits_on_the_device_it_already_shares():
    held = claim("c", held=[("n1", "d0")], users=["default-a-0"])
    stage = stage_of(offer("n1", "d0"), held, claiming("a-0", "c", on="n1"), claiming("b-0", "c"))
    assert gpus(stage, "idle") == 0
    assert place(stage, "b-0")
    assert (gpus(stage, "idle"), gpus(stage, "used"), gpus(stage, "releasing")) == (0, 1, 0)
    evict(stage, "b-0")
    assert (gpus(stage, "idle"), gpus(stage, "used"), gpus(stage, "releasing")) == (0, 1, 0)


def test_a_gang_shares_a_fresh_claim_on_one_gpu():
    manifests = (offer("n1", "d0"), claim("c"), claiming("a-0", "c"), claiming("a-1", "c"))
    played = play(Dra(), snapshot_of(NODE, CLASS, *manifests, minimum=2))
    assert played.bound == {"a-0": "n1", "a-1": "n1"}
    assert int(played.session.columns.idle[0, GPU]) == 0


def test_promises_of_a_gang_share_a_device_too():
    held = claim("o", held=[("n1", "d0")], users=["default-x-0"])
    leaving = claiming("x-0", "o", on="n1")
    stage = stage_of(offer("n1", "d0"), held, leaving, claim("c"), claiming("a-0", "c"), claiming("a-1", "c"))
    before = stage.session.ledger.fingerprint()
    evict(stage, "x-0")
    assert place(stage, "a-0", promise=True)
    assert gpus(stage, "releasing") == 0
    assert place(stage, "a-1", promise=True)
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (0, 0)
    stage.session.ledger.undo_to(0)
    assert stage.session.ledger.fingerprint() == before


def test_promising_an_allocation_gives_its_idle_gpus_back():
    stage = stage_of(offer("n1", "d0", "d1"), claim("c"), claiming("a-0", "c"), claiming("a-1", "c"))
    session = stage.session
    statement = session.statement("test")
    pods = np.array([stage.row("a-0"), stage.row("a-1")], np.int64)
    assert statement.place_pods(pods, session.all_nodes, session.no_extra, promise=False) == 2
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (1, 0)
    statement.promise_all(int(session.facts.pods.group[pods[0]]))
    assert (gpus(stage, "idle"), gpus(stage, "releasing")) == (2, -1)


# ------------------------------------------------------------------------------------------------- extended resources


BACKED = device_class(GPU_CLASS, extended="example.com/accelerator")


def test_devices_serve_an_extended_resource_without_a_device_plugin():
    plugged = node("n1", allocatable={"example.com/accelerator": "4"})
    wants = pod("a-0", requests={"example.com/accelerator": "2"})
    manifests = (plugged, node("n2"), node("n3"), BACKED, offer("n2", "d0", "d1"), offer("n3", "d0"), wants)
    stage = Stage.of(Dra(), snapshot_of(*manifests))
    assert stage.accepting("a-0") == ["n1", "n2"]
    assert stage.answers.placement.choose(stage.row("a-0"), NodeRow(0)).extended is None
    extended = stage.answers.placement.choose(stage.row("a-0"), NodeRow(1)).extended
    assert [each.device for each in extended.devices] == ["d0", "d1"]
    assert extended.containers == ((0, "example.com/accelerator", "container-0-request-0"),)


def test_pods_with_extended_resources_get_different_devices():
    pods = [pod(f"a-{at}", requests={"example.com/accelerator": "1"}) for at in range(3)]
    played = play(Dra(), snapshot_of(NODE, BACKED, offer("n1", "d0", "d1"), *pods))
    assert played.bound == {"a-0": "n1", "a-1": "n1"}


def test_an_evicted_pod_releases_its_generated_claim():
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "a-0", "uid": "default-a-0", "controller": True}]
    held = claim("made", held=[("n1", "d0")], users=["default-a-0"], metadata={"ownerReferences": owner})
    request = {"example.com/accelerator": "1"}
    manifests = (BACKED, offer("n1", "d0"), held, pod("a-0", on="n1", requests=request), pod("b-0", requests=request))
    stage = Stage.of(Dra(), snapshot_of(NODE, *manifests))
    assert stage.accepting("b-0") == []
    evict(stage, "a-0")
    assert stage.accepting("b-0") == ["n1"]
