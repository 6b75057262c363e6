"""What a process decides, shows, says and removes, in histories that break the invariants which are checked there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs
import msgspec
import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.transport.calls import Answer, Call, NoAnswer
from tests.simulation.trial import Trial, trial
from tests.simulation.world import EPOCH, HOME, NODE, ORDER, POD, RESERVED, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.rest_server.storage import Manifest

__all__ = ["trial"]  # the fixture


def _decide(trial: Trial, pod: Manifest, *changes: Any) -> None:
    """Let a cycle end in the order to bind a pod, or in what is given; what the process knows is what it has seen."""
    decisions, store = trial.watchers.conduct.decisions, trial.replica.connection.store
    replica: Any = trial.replica
    decisions._await_decisions(replica)
    for each in changes or (_order_for(pod),):
        store.assume(each, lambda _: False)
    trial.world.loop._run_once()


def _order_for(pod: Manifest, node: str = "node-0") -> BindRequest:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    metadata = {"name": name, "namespace": HOME, "ownerReferences": [owner]}
    return structure_as(BindRequest, {"metadata": metadata, "spec": {"podName": name, "selectedNode": node}})


@pytest.mark.parametrize("harm", ["cordoned", "gone", "leaving", "another"])
def test_a_bind_against_known_facts_is_caught(trial: Trial, harm: str) -> None:
    pod = trial.pod("a")
    node = trial.world.all(NODE)[0]
    if harm == "cordoned":
        trial.world.patch("admin", NODE, node, {"spec": {"unschedulable": True}})
    elif harm == "gone":
        trial.world.delete("admin", NODE, node)
    elif harm == "leaving":
        trial.world.patch("stranger", POD, pod, {"metadata": {"finalizers": ["others/keep"]}})
        trial.world.delete("user", POD, pod)
    trial.show()
    other = {**pod, "metadata": {**pod["metadata"], "uid": "other"}}
    _decide(trial, other if harm == "another" else pod)
    assert trial.broken == {5}


def test_a_bind_on_known_facts_is_allowed(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    _decide(trial, pod)
    assert not trial.broken


def test_evicting_a_pod_known_as_finished_is_caught(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.bind(pod)
    trial.world.patch("kubelet", POD, pod, {"status": {"phase": "Succeeded"}}, "status")
    trial.show()
    shown = trial.replica.connection.store.get(Pod, "a", HOME)
    _decide(trial, pod, attrs.evolve(shown, metadata=attrs.evolve(shown.metadata, deletion_timestamp=1.0)))
    assert trial.broken == {16}


def test_forgetting_an_own_bind_is_caught(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.end(trial.send(pod, resourceVersion="1"), Answer(status=201, body=b"{}"))
    trial.pass_time(1.0)
    trial.watchers.conduct.decisions._check_told(_any(trial.replica))
    assert trial.broken == {19}


def _any(value: Any) -> Any:
    return value


def _patch(trial: Trial, path: str, body: object, meanwhile: Callable[[], object] = lambda: None) -> None:
    call = Call(method="PATCH", path=path, body=msgspec.json.encode(body))
    trial.world.wire.on_send("kai-0", call)
    (pod,) = trial.world.all(POD, HOME)
    answer = Answer(status=200, body=msgspec.json.encode({"metadata": pod["metadata"]}))
    meanwhile()
    trial.world.wire.on_outcome("kai-0", call, answer)


@pytest.mark.parametrize("changed", ["", "before the answer is heard", "after it is heard"])
def test_a_repeated_write_is_caught_unless_others_wrote_between(trial: Trial, changed: str) -> None:
    pod = trial.pod("a")
    path = path_of(POD, HOME, "a", "status")

    def change() -> None:
        trial.world.patch("user", POD, pod, {"metadata": {"labels": {"mine": "yes"}}})

    first = {"status": {"conditions": [{"type": "Seen", "lastTransitionTime": "1"}]}}
    _patch(trial, path, first, change if changed.startswith("before") else lambda: None)
    if changed.startswith("after"):
        change()
    _patch(trial, path, {"status": {"conditions": [{"type": "Seen", "lastTransitionTime": "2"}]}})
    assert trial.broken == (set() if changed else {21})


def test_a_failed_order_left_behind_in_calm_is_caught(trial: Trial) -> None:
    order = trial.world.create(
        "kai-0", ORDER, {"metadata": {"name": "a", "namespace": HOME}, "spec": {"podName": "a", "selectedNode": "n"}}
    )
    assert order is not None
    trial.world.patch("kai-0", ORDER, order, {"status": {"phase": "Failed"}}, "status")
    trial.world.calm_since = trial.world.time
    trial.watchers.conduct.decisions.look()
    assert not trial.broken
    trial.pass_time(80.0)
    trial.watchers.conduct.decisions.look()
    assert trial.broken == {21}


@pytest.mark.parametrize("is_read", [False, True])
def test_a_write_whose_outcome_is_not_read_is_caught(trial: Trial, *, is_read: bool) -> None:
    path = path_of(POD, HOME, "a", "status")
    call = Call(method="PATCH", path=path, body=b"{}")
    trial.world.wire.on_send("kai-0", call)
    trial.world.wire.on_outcome("kai-0", call, NoAnswer(was_sent=True, message="lost"))
    if is_read:
        trial.world.wire.on_send("kai-0", Call(method="GET", path=path_of(POD, HOME, "a")))
    trial.world.calm_since = trial.world.time
    trial.pass_time(60.0)
    trial.watchers.conduct.decisions.look()
    assert trial.broken == (set() if is_read else {21})


def test_deleting_an_order_while_writing_it_is_caught(trial: Trial) -> None:
    path = path_of(ORDER, HOME)
    body = msgspec.json.encode({"metadata": {"name": "a", "namespace": HOME}})
    trial.world.wire.on_send("kai-0", Call(method="POST", path=path, body=body))
    trial.world.wire.on_send("kai-0", Call(method="DELETE", path=f"{path}/a"))
    assert trial.broken == {24}


def test_reserving_a_gpu_on_a_full_node_is_caught(trial: Trial) -> None:
    for number in range(2):
        trial.bind(trial.pod(f"one-{number}"))
    trial.show()
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    body = {"metadata": {"name": "gpu"}, "spec": {"nodeName": "node-0", "containers": [container]}}
    trial.world.wire.on_send("kai-0", Call(method="POST", path=path_of(POD, RESERVED), body=msgspec.json.encode(body)))
    assert trial.broken == {2}


def test_carrying_out_an_earlier_terms_late_order_is_caught(trial: Trial) -> None:
    pods = [trial.pod(name) for name in ("a", "b")]
    trial.show()
    for name, epoch in (("b", 1), ("a", 0)):
        metadata = {"name": name, "namespace": HOME, "annotations": {EPOCH: str(epoch)}}
        spec = {"podName": name, "selectedNode": "node-0"}
        path, body = path_of(ORDER, HOME), {"metadata": metadata, "spec": spec}
        trial.world.fenced = False
        assert trial.world.ask("kai-0" if epoch else "kai-9", "POST", path, body).is_good
        trial.pass_time(5.0)
    trial.send(pods[0])
    assert 24 in trial.broken
