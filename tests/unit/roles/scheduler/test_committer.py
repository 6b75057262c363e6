"""The committer under every order of events that a cluster can bring."""

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from kai.api.kubernetes.node import Node
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.api.scheduling.queue import Queue
from kai.roles.scheduler.effects import RequestKept, Send
from kai.roles.scheduler.settings import SchedulerSettings
from tests.unit.intake import making
from tests.unit.roles.scheduler.world import World

SHARED = {"annotations": {"gpu-fraction": "0.5"}}


def cluster(*more, **options):
    gang = [making.pod(f"p{number}", group="gang") for number in range(3)]
    running = making.pod("old", group="other", phase="Running", node="n2")
    base = (making.queue("q"), making.group("gang"), making.group("other"), making.node("n1"), making.node("n2"))
    world = World(*base, *gang, running, *more, **options)
    world.lead()
    return world


# --- Binds ---------------------------------------------------------------------------------------------------------


def test_a_bind_request_has_the_peers_fields_and_metadata():
    world = cluster()
    world.decide(world.bind("p0", "n1", received="Regular", gpu_count=2))
    world.settle()
    request = world.server.get("BindRequest", "p0", "default")
    pod = world.server.get("Pod", "p0", "default")
    assert request["spec"] == {
        "podName": "p0",
        "selectedNode": "n1",
        "receivedResourceType": "Regular",
        "receivedGPU": {"count": 2, "portion": "1.00"},
    }
    assert request["metadata"]["labels"] == {"selected-node": "n1"}
    assert request["metadata"]["annotations"] == {"kai.scheduler/granted": '{"queue":"q","group":"gang"}'}
    assert request["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": pod["metadata"]["uid"]}
    ]
    world.carry_out()
    assert world.server.events[-1].message == "Successfully assigned pod default/p0 to node n1 at node-pool default"


def test_a_request_grants_the_decided_share_despite_later_edits():
    world = cluster(
        making.pod("f", group="gang", annotations={"gpu-fraction": "0.498"}),
        making.pod("m", group="gang", annotations={"gpu-memory": "4096"}),
    )
    for name in ("f", "m"):
        edited = {"metadata": {"annotations": {"gpu-fraction": "0.1", "gpu-memory": None}}}
        world.server.change("Pod", name, "default", edited)
        world.decide(world.bind(name, "n1", devices=("d",), received="Fraction", gpu_count=1, gpu_portion=0.5))
    world.settle()
    told = [
        world.server.get("BindRequest", name, "default")["metadata"]["annotations"]["kai.scheduler/granted"]
        for name in ("f", "m")
    ]
    account = '{"queue":"q","group":"gang",'
    assert told == [f'{account}"portion":0.498}}', f'{account}"memory":4096}}']


def test_a_shard_labels_both_the_request_and_the_pod():
    chosen = SchedulerSettings(intake=making.IntakeSettings(node_pool="east"))
    label = {"kai.scheduler/node-pool": "east"}
    world = cluster(making.node("n3", labels=label), settings=chosen)
    world.decide(world.bind("p0", "n3"))
    world.settle()
    assert world.server.get("BindRequest", "p0", "default")["metadata"]["labels"] == {"selected-node": "n3", **label}
    assert world.server.get("Pod", "p0", "default")["metadata"]["labels"] == label


def test_each_cycle_names_a_newly_shared_device_once():
    world = cluster()
    world.decide(world.bind("p0", "n1", devices=("+n1/0",), received="Fraction", gpu_count=1, gpu_portion=0.5))
    world.decide(world.bind("p1", "n1", devices=("+n1/0",), received="Fraction", gpu_count=1, gpu_portion=0.5))
    world.decide(world.bind("p2", "n1", devices=("+n1/0",)), cycle=2)
    world.settle()
    groups = [world.server.get("BindRequest", f"p{n}", "default")["spec"]["selectedGPUGroups"] for n in range(3)]
    assert groups[0] == groups[1] != groups[2]
    assert world.server.get("BindRequest", "p0", "default")["spec"]["receivedGPU"] == {"count": 1, "portion": "0.50"}


# --- Binds that are carried out in this process --------------------------------------------------------------------

DIRECT = SchedulerSettings(direct_binds=True)


def test_a_bind_of_one_write_needs_no_request():
    world = cluster(settings=DIRECT)
    world.decide(world.bind("p0", "n1"))
    assert world.get(BindRequest, "p0", "default").spec.selected_node == "n1"
    assert (world.wires, world.said()) == ([], [])
    world.answer()
    assert not world.is_assumed(BindRequest, ("default", "p0"))
    world.settle()
    assert world.requests() == {}
    assert world.said() == [("p0", "Scheduled")]


def test_a_failed_bind_leaves_its_place_to_others():
    world = cluster(settings=DIRECT)
    world.decide(world.bind("p0", "n1"))
    world.answer("node n1 has taint x")
    assert world.get(BindRequest, "p0", "default") is None
    assert world.signals[-1].why == "node n1 has taint x"
    assert world.committer.feedback.bind_backoff.resting(world.time).keys() == {
        world.server.get("Pod", "p0", "default")["metadata"]["uid"]
    }
    assert world.said() == []


NO_ROOM = "node n1 has 0 of nvidia.com/gpu left, the pod needs 1"


def remembered(world):
    return [(each.pod, each.uid, each.node, each.reason) for each in seen(world)]


def seen(world):
    return world.committer.feedback.node_refusals.current(world.all(Node), world.all(Pod), world.time)


def test_a_pod_rests_after_the_third_full_node():
    world = cluster(making.node("n3"), settings=DIRECT)
    uid = world.server.get("Pod", "p0", "default")["metadata"]["uid"]
    for node in ("n1", "n2"):
        world.decide(world.bind("p0", node))
        world.answer(NO_ROOM.replace("n1", node))
        assert world.committer.feedback.bind_backoff.resting(world.time) == {}
    world.decide(world.bind("p0", "n3"))
    world.answer(NO_ROOM.replace("n1", "n3"))
    assert world.committer.feedback.bind_backoff.resting(world.time).keys() == {uid}
    assert remembered(world) == [("p0", uid, node, NO_ROOM.replace("n1", node)) for node in ("n1", "n2", "n3")]


def test_lack_of_room_in_a_failed_request_is_remembered():
    owner = {"kind": "Pod", "uid": "uid-p0"}
    status = {"phase": "Failed", "reason": NO_ROOM}
    world = cluster(making.bind_request("p0", "n1", status=status, metadata={"ownerReferences": [owner]}))
    world.expire("p0")
    assert remembered(world) == [("p0", "uid-p0", "n1", NO_ROOM)]
    assert world.committer.feedback.bind_backoff.resting(world.time) == {}


def test_an_answer_that_comes_after_the_term_changes_nothing():
    world = cluster(settings=DIRECT)
    world.decide(world.bind("p0", "n1"))
    world.lose()
    assert world.answer() == []
    assert world.get(BindRequest, "p0", "default") is None


def test_a_bind_of_several_writes_gets_a_bind_request():
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "c"}}
    world = cluster(making.pod("v0", group="gang", spec={"volumes": [claim]}), settings=DIRECT)
    world.decide(world.bind("p0", "n1", devices=("+n1/0",), received="Fraction", gpu_count=1, gpu_portion=0.5))
    world.decide(world.bind("v0", "n1"))
    world.settle()
    assert world.carried == []
    assert set(world.requests()) == {"p0", "v0"}


def test_the_outcome_is_shown_before_it_is_written():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    assert world.get(BindRequest, "p0", "default").spec.selected_node == "n1"
    assert world.requests() == {}


def test_a_statement_with_a_missing_pod_orders_nothing():
    world = cluster()
    world.server.remove("Pod", "p2", "default")
    world.sync()
    world.decide(world.bind("p0", "n1"), world.bind("p1", "n1"), world.bind("p2", "n1"))
    assert world.wires == []
    assert world.assumed == {}
    assert world.signals[-1].why == "pod default/p2: is gone"


@pytest.mark.parametrize(
    ("kind", "name", "namespace", "patch", "why"),
    [
        ("Pod", "p0", "default", {"metadata": {"uid": "another"}}, "is gone"),
        ("Pod", "p0", "default", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "is being deleted"),
        ("Pod", "p0", "default", {"spec": {"nodeName": "n2"}}, "is bound to node n2 already"),
        ("Pod", "p0", "default", {"status": {"phase": "Succeeded"}}, "is Succeeded"),
        ("Pod", "p0", "default", {"spec": {"schedulingGates": [{"name": "wait"}]}}, "has scheduling gates"),
        ("Node", "n1", "", {"spec": {"unschedulable": True}}, "node n1 is cordoned"),
        ("Node", "n1", "", {"metadata": {"labels": {"kai.scheduler/node-pool": "x"}}}, "node n1 belongs to another"),
    ],
)
def test_what_changed_since_the_snapshot_stops_a_bind(kind, name, namespace, patch, why):
    world = cluster()
    world.server.change(kind, name, namespace, patch)
    world.sync()
    world.decide(world.bind("p0", "n1"))
    assert why in world.signals[-1].why
    assert world.wires == []


def test_a_node_that_is_gone_stops_a_bind():
    world = cluster()
    world.server.remove("Node", "n1")
    world.sync()
    world.decide(world.bind("p0", "n1"))
    assert "node n1 is gone" in world.signals[-1].why


def test_the_same_decision_twice_is_written_once():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    world.decide(world.bind("p0", "n2"))
    world.settle()
    world.decide(world.bind("p0", "n2"), cycle=2)
    world.settle()
    assert world.requests() == {"p0": "n1"}
    world.carry_out()
    assert world.said() == [("p0", "Scheduled")]


def test_a_lost_answer_is_neither_success_nor_failure():
    for fault in ("lost before", "lost after"):
        world = cluster()
        world.decide(world.bind("p0", "n1"))
        world.deliver(fault=fault)
        assert world.is_assumed(BindRequest, ("default", "p0")), fault
        assert world.said() == []
        world.settle()
        assert world.requests() == {"p0": "n1"}
        assert world.said() == []
        assert world.assumed == {}


def test_an_order_of_a_finished_attempt_is_replaced():
    failed = making.bind_request("p0", "n2", status={"phase": "Failed", "failedAttempts": 3})
    world = cluster(failed)
    world.decide(world.bind("p0", "n1"))
    world.settle()
    assert world.requests() == {"p0": "n1"}


def test_an_order_of_unknown_outcome_is_looked_up_first():
    """To give up before the look would have the pod ordered to another node while the first order may still come."""
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    for _ in range(20):
        world.deliver(fault="lost before")
        world.pass_time(max(0.0, world.wake - world.time) + 0.001)
        (look,) = world.wires
        assert type(look.send.request).__name__ == "Get"
    world.deliver()
    assert world.wires == []
    assert type(world.signals[-1]).__name__ == "WriteGivenUp"
    world.decide(world.bind("p0", "n2"), cycle=2)
    world.settle()
    assert world.server.get("BindRequest", "p0", "default")["spec"]["selectedNode"] == "n2"


def test_an_order_that_another_leader_wrote_meanwhile_stands():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    uid = world.server.get("Pod", "p0", "default")["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": uid}
    other = making.bind_request("p0", "n2", metadata={"ownerReferences": [owner], "namespace": "default"})
    world.server._put(other)
    world.settle()
    assert world.requests() == {"p0": "n2"}
    assert world.assumed == {}


def test_a_refused_bind_is_reported_and_backs_off():
    world = cluster()
    world.decide(world.bind("p0", "n1"))
    world.deliver(fault="refused")
    assert world.assumed == {}
    uid = world.get(Pod, "p0", "default").metadata.uid
    assert world.committer.feedback.bind_backoff.resting(world.time).keys() == {uid}
    world.settle()
    assert world.said() == [("p0", "FailedBinding")]
    assert world.server.events[-1].message == "Failed to bind pod default/p0 to node n1. a webhook said no"
    (text,) = world.committer.feedback.bind_backoff.resting(world.time).values()
    assert text.startswith("the bind was refused once: a webhook said no; the next try is at ")
    assert world.requests() == {}


def left_over(**metadata):
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p0", "uid": "of-the-past"}
    metadata = {"ownerReferences": [owner], **metadata}
    return making.bind_request("p0", "n2", metadata=metadata, status={"phase": "Succeeded"})


def test_a_request_of_an_earlier_namesake_is_replaced():
    world = cluster(left_over())
    world.decide(world.bind("p0", "n1"))
    world.settle()
    assert world.server.get("BindRequest", "p0", "default")["spec"]["selectedNode"] == "n1"


def test_an_old_request_with_finalizer_fails_the_bind():
    world = cluster(left_over(finalizers=["a/b"]))
    world.decide(world.bind("p0", "n1"))
    world.settle()
    assert len([write for write in world.server.writes if type(write).__name__ == "Delete"]) == 1
    assert ("p0", "FailedBinding") in world.said()
    assert world.server.events[-1].message.endswith(
        "bindrequest default/p0 of an earlier bind is being deleted, but is still there (finalizers: a/b)"
    )
    assert world.requests() == {"p0": "n2"}


# --- Promises ------------------------------------------------------------------------------------------------------


def test_a_promise_is_told_once():
    world = cluster()
    for cycle in (1, 2, 3):
        world.decide(world.promise("p0", "n2"), cycle=cycle)
    world.decide(world.promise("p0", "n1"), cycle=4)
    world.settle()
    assert world.said() == [("p0", "Pipelined")] * 2


# --- Orders that are over ------------------------------------------------------------------------------------------


def test_a_failed_order_is_deleted_and_backs_off():
    world = cluster(making.bind_request("p0", "n1", status={"phase": "Failed"}, metadata={"ownerReferences": []}))
    world.server.change(
        "BindRequest", "p0", "default", {"metadata": {"ownerReferences": [{"kind": "Pod", "uid": "uid-p0"}]}}
    )
    world.sync()
    world.expire("p0")
    world.expire("p0")
    assert len(world.wires) == 1
    world.settle()
    assert world.requests() == {}
    assert world.committer.feedback.bind_backoff.resting(0.5).keys() == {"uid-p0"}
    assert world.committer.feedback.bind_backoff.resting(1.5) == {}


@pytest.mark.parametrize(
    ("lost", "manifest", "why"),
    [
        (Ref(Node, "n1"), making.node("n1"), "its node is there"),
        (Ref(Queue, "q"), making.queue("q"), "its queue is there"),
    ],
)
def test_an_order_whose_node_or_queue_exists_is_kept(lost, manifest, why):
    world = cluster(making.bind_request("p0", "n1"), manifest)
    world.expire("p0", lost=lost)
    world.settle()
    assert world.requests() == {"p0": "n1"}
    assert [each.why for each in world.signals if isinstance(each, RequestKept)] == [why]
    world.server.remove(lost.cls.__name__, lost.name)
    world.pass_time(30.0)
    world.expire("p0", lost=lost)
    world.settle()
    assert world.requests() == {}


def test_an_order_whose_queue_read_fails_is_kept():
    world = cluster(making.bind_request("p0", "n1"))
    world.expire("p0", lost=Ref(Queue, "q"))
    world.deliver(fault="refused")
    world.settle()
    assert world.requests() == {"p0": "n1"}
    assert [each.why for each in world.signals if isinstance(each, RequestKept)] == ["a webhook said no"]


# --- Leading -------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_or_assumed_after_the_term():
    world = cluster()
    old = world.term
    world.decide(world.bind("p0", "n1"))
    world.deliver(fault="unavailable")
    effects = world.lose()
    assert not [effect for effect in effects if isinstance(effect, Send)]
    assert world.assumed == {}
    assert world.pass_time(100.0) == []
    assert world.decide(world.bind("p1", "n1"), term=old) == []
    assert world.expire() == []
    world.lead(2)
    assert world.decide(world.bind("p1", "n1"), term=old) == []
    assert world.wires == []


def test_a_leaders_writes_carry_epoch_and_lease():
    world = cluster(settings=SchedulerSettings(leader_elect=True))
    world.decide(world.bind("p0", "n1"))
    world.decide(world.evict("old"))
    create, evict = (wire.send.request for wire in world.wires)
    stamp = {"kai.scheduler/epoch": "1", "kai.scheduler/lease": "kai-scheduler"}
    granted = {"kai.scheduler/granted": '{"queue":"q","group":"gang"}'}
    assert create.manifest["metadata"]["annotations"] == {**stamp, **granted}
    assert dict(evict.annotations) == stamp


class AnyOrder(RuleBasedStateMachine):
    """Decisions, faults, restarts and other people's changes, in any order."""

    @initialize()
    def begin(self):
        self.world = cluster()
        self.cycle = 0
        self.epoch = 1

    @rule(
        pods=st.lists(st.sampled_from(["p0", "p1", "p2"]), min_size=1, unique=True), node=st.sampled_from(["n1", "n2"])
    )
    def bind(self, pods, node):
        world = self.world
        if world.term is None:
            return
        self.cycle += 1
        before = len(world.wires)
        world.decide(*(world.bind(pod, node) for pod in pods), cycle=self.cycle)
        creates = [w for w in world.wires[before:] if type(w.send.request).__name__ == "Create"]
        assert len(creates) in {0, len(pods)}

    @rule()
    def evict(self):
        if self.world.term is not None and "old" in [pod.name for pod in self.world.snapshot.pods]:
            self.cycle += 1
            self.world.decide(self.world.evict("old"), self.world.promise("p0", "n2"), cycle=self.cycle)

    @precondition(lambda self: self.world.wires)
    @rule(
        at=st.integers(0, 20),
        fault=st.sampled_from(["", "", "", "unavailable", "refused", "lost before", "lost after"]),
    )
    def deliver(self, at, fault):
        self.world.deliver(at % len(self.world.wires), fault)

    @rule(seconds=st.sampled_from([0.1, 1.0, 15.0]))
    def wait(self, seconds):
        self.world.pass_time(seconds)

    @rule()
    def see(self):
        self.world.sync()

    @rule(pod=st.sampled_from(["p0", "p1", "p2", "old"]))
    def remake(self, pod):
        """Let the owner of a pod replace it by another of the same name."""
        found = self.world.server.get("Pod", pod, "default")
        if found is not None:
            self.world.server.change("Pod", pod, "default", {"metadata": {"uid": f"{found['metadata']['uid']}'"}})

    @rule(node=st.sampled_from(["n1", "n2"]))
    def fail(self, node):
        for name, chosen in self.world.requests().items():
            if chosen == node:
                self.world.server.change("BindRequest", name, "default", {"status": {"phase": "Failed"}})
        self.world.sync()
        if self.world.term is not None:
            self.world.expire(*(name for name in self.world.requests() if self.world.get(BindRequest, name, "default")))

    @rule()
    def crash(self):
        self.epoch += 1
        self.world.start()
        self.world.lead(self.epoch)
        self.world.sync()

    @rule()
    def lose(self):
        assert not [effect for effect in self.world.lose() if isinstance(effect, Send)]

    @invariant()
    def silent_without_a_term(self):
        if self.world.term is None:
            assert self.world.committer.under_way == 0
            assert not [key for key in self.world.assumed if key[0] is BindRequest]

    def teardown(self):
        """When the faults stop, everything comes to rest and nothing stays assumed that is not so."""
        world = self.world
        self.epoch += 1
        if world.term is None:
            world.lead(self.epoch)
        world.settle()
        assert not [key for key in world.assumed if key[0] is BindRequest]
        for (cls, (namespace, name)), (obj, _) in world.assumed.items():
            there = world.server.get("Pod", name, namespace)
            assert cls is not Pod or there is None or there["metadata"]["uid"] != obj.metadata.uid


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(
    deadline=None, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@given(faults=st.lists(st.sampled_from(["", "unavailable", "lost before", "lost after"]), max_size=12))
@settings(deadline=None)
def test_a_gang_is_ordered_once_whatever_is_lost(faults):
    world = cluster()
    world.decide(*(world.bind(f"p{number}", "n1") for number in range(3)))
    for fault in faults:
        if world.wires:
            world.deliver(fault=fault)
        elif world.wake is not None:
            world.pass_time(world.wake - world.time)
    world.settle()
    assert world.requests() == {"p0": "n1", "p1": "n1", "p2": "n1"}
    creates = [request for request in world.server.writes if type(request).__name__ == "Create"]
    assert sorted(request.ref.name for request in creates) == ["p0", "p1", "p2"]
