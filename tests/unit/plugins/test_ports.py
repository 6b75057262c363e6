import random
from unittest import mock

import pytest

from kai.actions.allocate import Allocate
from kai.actions.preempt import Preempt
from kai.facts.model.pod import Status
from kai.plugins import node_filters as module
from kai.plugins.node_filters import ANY_ADDRESS, PORTS_TAKEN, Ports
from tests.unit.plugins.stage import Stage, evict, node, play, pod, ranked, snapshot_of

NODES = (node("n1"), node("n2"))


def port(number, protocol="TCP", address=""):
    return {"containerPort": number, "hostPort": number, "protocol": protocol, "hostIP": address}


def test_a_port_in_use_closes_the_node():
    stage = Stage.of(Ports(), snapshot_of(*NODES, pod("a-0", on="n1", ports=[port(80)]), pod("b-0", ports=[port(80)])))
    assert stage.accepting("b-0") == ["n2"]
    assert stage.reasons("b-0") == [PORTS_TAKEN]


@pytest.mark.parametrize(
    ("taken", "wanted", "clashes"),
    [
        (port(80), port(81), False),
        (port(80), port(80, "UDP"), False),
        (port(80, address="10.0.0.1"), port(80, address="10.0.0.2"), False),
        (port(80, address="10.0.0.1"), port(80, address="10.0.0.1"), True),
        (port(80, address="10.0.0.1"), port(80), True),
        (port(80), port(80, address="10.0.0.1"), True),
        (port(80, address="0.0.0.0"), port(80, address="10.0.0.1"), True),  # noqa: S104  an address in a manifest
    ],
)
def test_ports_clash_by_number_protocol_and_address(taken, wanted, clashes):
    stage = Stage.of(Ports(), snapshot_of(*NODES, pod("a-0", on="n1", ports=[taken]), pod("b-0", ports=[wanted])))
    assert ("n1" not in stage.accepting("b-0")) == clashes


def test_of_pods_with_one_port_no_node_takes_two():
    stage = Stage.of(Ports(), snapshot_of(*NODES, pod("a-0", ports=[port(80)]), pod("b-0")))
    assert [stage.is_single("a-0"), stage.is_single("b-0")] == [True, False]


def test_one_clash_of_many_ports_is_enough():
    held = pod("a-0", on="n1", ports=[port(80), port(90)])
    stage = Stage.of(Ports(), snapshot_of(*NODES, held, pod("b-0", ports=[port(70), port(90)])))
    assert stage.accepting("b-0") == ["n2"]


@pytest.mark.parametrize("seed", range(20))
def test_port_conflicts_equal_those_of_comparing_each_pair(seed):
    draw = random.Random(seed)
    addresses = ("", "0.0.0.0", "10.0.0.1", "10.0.0.2")  # noqa: S104  addresses in manifests
    nodes = [node(f"n{at}") for at in range(9)]
    sets = [
        [port(draw.randrange(80, 90), draw.choice(("TCP", "UDP")), draw.choice(addresses)) for _ in range(3)]
        for _ in range(10)
    ]
    held = [pod(f"a{at}-0", on=f"n{at}", ports=sets[at]) for at in range(9)]
    stage = Stage.of(Ports(), snapshot_of(*nodes, *held, pod("b-0", ports=sets[9])))
    free = [f"n{at}" for at in range(9) if not any(_collide(mine, other) for mine in sets[9] for other in sets[at])]
    assert stage.accepting("b-0") == free


def _collide(mine, other):
    if (mine["hostPort"], mine["protocol"]) != (other["hostPort"], other["protocol"]):
        return False
    return mine["hostIP"] == other["hostIP"] or bool({mine["hostIP"], other["hostIP"]} & set(ANY_ADDRESS))


def test_only_ports_of_the_same_number_are_compared():
    held = [pod(f"a{at}-0", on="n1", ports=[port(80 + at * 9 + each) for each in range(9)]) for at in range(30)]
    stage = Stage.of(Ports(), snapshot_of(*NODES, *held, pod("b-0", ports=[port(70), port(80)])))
    with mock.patch.object(module, "_is_shared", wraps=module._is_shared) as compared:
        assert stage.accepting("b-0") == ["n2"]
    assert compared.call_count == 2  # the pod's own, and that of one of thirty


def test_a_container_port_without_host_port_concerns_no_node():
    stage = Stage.of(Ports(), snapshot_of(*NODES, pod("a-0", ports=[{"containerPort": 80}]), pod("b-0")))
    assert stage.is_silent


def test_under_host_network_every_container_port_is_taken():
    snapshot = snapshot_of(
        *NODES, pod("a-0", on="n2", ports=[{"containerPort": 80}], hostNetwork=True), pod("b-0", ports=[port(80)])
    )
    assert Stage.of(Ports(), snapshot).accepting("b-0") == ["n1"]


def test_the_port_of_a_terminating_pod_is_waited_for():
    leaving = pod("a-0", on="n1", ports=[port(80)], leaving=True)
    stage = Stage.of(Ports(), snapshot_of(*NODES, leaving, pod("b-0", ports=[port(80)])))
    assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (["n1", "n2"], ["n1"])


def test_a_stuck_terminating_pod_keeps_its_port_taken():
    stuck = pod("a-0", on="n1", ports=[port(80)], metadata={"deletionTimestamp": "2026-01-01T11:00:00Z"})
    stage = Stage.of(Ports(), snapshot_of(*NODES, stuck, pod("b-0", ports=[port(80)])))
    assert stage.accepting("b-0") == ["n2"]


def test_the_port_of_an_evicted_pod_is_waited_for():
    stage = Stage.of(Ports(), snapshot_of(*NODES, pod("a-0", on="n1", ports=[port(80)]), pod("b-0", ports=[port(80)])))
    assert stage.waiting_on("b-0") == []
    evict(stage.session, "a-0")
    assert (stage.accepting("b-0"), stage.waiting_on("b-0")) == (["n1", "n2"], ["n1"])


def test_a_finished_pod_holds_no_port():
    done = pod("a-0", on="n1", ports=[port(80)], status={"phase": "Succeeded"})
    assert Stage.of(Ports(), snapshot_of(*NODES, done, pod("b-0", ports=[port(80)]))).accepting("b-0") == ["n1", "n2"]


def test_pods_without_ports_are_not_asked_about():
    stage = Stage.of(Ports(), snapshot_of(*NODES, pod("a-0", ports=[port(80)]), pod("b-0")))
    assert (stage.is_concerned("a-0"), stage.is_concerned("b-0")) == (True, False)


def test_pods_placed_in_a_cycle_hold_their_ports():
    pods = [pod(f"a-{at}", ports=[port(80)]) for at in range(3)]
    assert play(Ports(), snapshot_of(*NODES, *pods)).bound == {"a-0": "n1", "a-1": "n2"}


def test_a_gang_that_fits_nowhere_leaves_no_port_behind():
    gang = [pod(f"a-{at}", ports=[port(80)]) for at in range(3)]
    single = pod("b-0", ports=[port(80)])
    assert play(Ports(), snapshot_of(*NODES, *gang, minimum=3)).bound == {}
    played = play(Ports(), snapshot_of(*NODES, *gang[:2], single, minimum=2))
    assert played.bound == {"a-0": "n1", "a-1": "n2"}


def test_a_pod_is_evicted_for_its_port_despite_room():
    held = pod("a-0", on="n1", ports=[port(80)])
    for ports, victims in (([port(80)], ["a-0"]), ([port(81)], [])):
        snapshot = ranked(snapshot_of(NODES[0], held, pod("b-0", ports=ports)), a=50, b=90)
        played = play(Ports(), snapshot, (Allocate(), Preempt()))
        assert (played.evicted, played.bound) == (victims, {} if victims else {"b-0": "n1"})


def test_a_later_action_awaits_ports_of_evicted_pods():
    pods = [pod("a-0", on="n1", ports=[port(80), port(81)]), pod("b-0", ports=[port(80)]), pod("c-0", ports=[port(81)])]
    snapshot = ranked(snapshot_of(NODES[0], *pods), a=50, b=90, c=40)
    session = play(Ports(), snapshot, (Preempt(), Allocate())).session
    assert [Status(status).name for status in session.columns.status] == ["RELEASING", "PIPELINED", "PIPELINED"]
