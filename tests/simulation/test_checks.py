"""Each checker catches a history that breaks its invariant; histories are written by hand, and kai is not running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kai.api.kubernetes.pod import Pod
from kai.cluster.transport.calls import Answer, Call, NoAnswer
from tests.simulation.disorder import POOL
from tests.simulation.evictions import FUTILE, NONE_WAITED, PLACED, UNHELD
from tests.simulation.outcome import unsettled
from tests.simulation.schedule import look_at_size
from tests.simulation.stores import differences
from tests.simulation.trial import Trial, trial
from tests.simulation.users import CANARY
from tests.simulation.words import EVENT
from tests.simulation.world import (
    EPOCH,
    GPU,
    GROUP,
    HOME,
    LEASE,
    NODE,
    ORDER,
    POD,
    QUEUE,
    RESERVED,
    RIVAL,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.doubles.rest_server.storage import Manifest

__all__ = ["trial"]  # the fixture


def _node(trial: Trial, patch: dict[str, Any]) -> None:
    node = trial.world.server.storage.get(NODE, ("", "node-0"))
    assert node is not None
    trial.world.patch("admin", NODE, node, patch)


def overfilled(trial: Trial) -> None:
    for number in range(3):
        trial.bind(trial.pod(f"one-{number}"))


def device_overfilled(trial: Trial) -> None:
    for name in ("a", "b"):
        annotations = {"gpu-fraction": "0.75"}
        trial.bind(trial.pod(name, gpus=0, annotations=annotations, labels={"runai-gpu-group": "g"}))


def share_without_a_holder(trial: Trial) -> None:
    trial.bind(trial.pod("a", gpus=0, annotations={"gpu-fraction": "0.5"}, labels={"runai-gpu-group": "g"}))


def tainted(trial: Trial) -> None:
    _node(trial, {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    trial.bind(trial.pod("a"))


def wrong_node(trial: Trial) -> None:
    trial.bind(trial.pod("a", nodeSelector={"kubernetes.io/hostname": "node-1"}))


def cordoned(trial: Trial) -> None:
    _node(trial, {"spec": {"unschedulable": True}})
    trial.bind(trial.pod("a"))


def foreign_shard(trial: Trial) -> None:
    _node(trial, {"metadata": {"labels": {POOL: "theirs"}}})
    trial.bind(trial.pod("a"))


def over_the_limit(trial: Trial) -> None:
    for number, node in ((0, "node-0"), (1, "node-0"), (2, "node-1"), (3, "node-1")):
        trial.bind(trial.pod(f"one-{number}"), node)


def firm_over_the_quota(trial: Trial) -> None:
    for number, node in ((0, "node-0"), (1, "node-0"), (2, "node-1")):
        trial.bind(trial.pod(f"one-{number}", labels={"priorityClassName": "build"}), node)


def _order_of_an_earlier_version(trial: Trial) -> list[Manifest]:
    """Return three pods that cannot be taken back, of which two are within the quota, and the last is ordered."""
    pods = [trial.pod(f"one-{number}", labels={"priorityClassName": "build"}) for number in range(3)]
    trial.order(pods[2], by="elder")
    return pods


def ordered_by_an_earlier_version(trial: Trial) -> None:
    pods = _order_of_an_earlier_version(trial)
    trial.pass_time(60.0)
    for number in range(3):
        trial.bind(pods[number], f"node-{number // 2}")


def decided_before_the_order_of_an_earlier_version_was_known(trial: Trial) -> None:
    pods = _order_of_an_earlier_version(trial)
    trial.bind(pods[2], "node-1")
    trial.pass_time(5.0)
    for pod in pods[:2]:
        trial.bind(pod)


def decided_once_the_order_of_an_earlier_version_was_known(trial: Trial) -> None:
    pods = _order_of_an_earlier_version(trial)
    trial.bind(pods[2], "node-1")
    trial.pass_time(20.0)
    assert not trial.broken
    for pod in pods[:2]:
        trial.bind(pod)


def ordered_anew_after_an_earlier_version(trial: Trial) -> None:
    """The order of the earlier version failed, and the leader ordered the same."""
    pods = _order_of_an_earlier_version(trial)
    (order,) = trial.world.all(ORDER)
    assert trial.world.delete("kai-0", ORDER, order)
    for number in range(3):
        trial.bind(pods[number], f"node-{number // 2}")


def unknown_queue(trial: Trial) -> None:
    trial.bind(trial.pod("a", queue="nobodys"))


def orphaned_queue(trial: Trial) -> None:
    for name in ("top", "a"):
        queue = trial.world.server.storage.get(QUEUE, ("", name))
        assert queue is not None
        trial.world.delete("admin", QUEUE, queue)
    trial.bind(trial.pod("a"))


def grant_edited(trial: Trial) -> None:
    shared: dict[str, Any] = {"gpus": 0, "annotations": {"gpu-fraction": "0.75"}, "labels": {"runai-gpu-group": "g"}}
    pod = trial.pod("a", **shared)
    trial.bind(pod)
    trial.world.patch("user", POD, pod, {"metadata": {"annotations": {"gpu-fraction": "0.05"}}})
    trial.bind(trial.pod("b", **shared))


def futile_eviction(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.bind(pod)
    trial.pod("b")
    trial.evict(pod)
    for invariant, text in trial.watchers.evictions.futile():
        trial.world.violate(invariant, text)


def firm_victim(trial: Trial) -> None:
    trial.world.create("user", GROUP, {"metadata": {"name": "g", "namespace": HOME}, "spec": {"minMember": 1}})
    firm: dict[str, Any] = {"labels": {"priorityClassName": "build"}, "annotations": {"pod-group-name": "g"}}
    pods = [trial.pod(name, **firm) for name in ("a", "b", "c")]
    for number, pod in enumerate(pods):
        trial.bind(pod, f"node-{number % 2}")
    trial.evict(pods[0])


def _evictions(trial: Trial, *those: tuple[str, str, str]) -> None:
    """Tell of evictions: victim, evictor, action."""
    trial.world.is_calm, trial.world.calm_since = True, trial.world.time - 60.0
    for victim, evictor, action in those:
        regarding = {"kind": "PodGroup", "name": victim, "namespace": HOME}
        annotations = {"evictor-pod-group-name": evictor, "evictor-action-type": action}
        metadata = {"name": str(len(trial.world.all(EVENT))), "namespace": HOME, "annotations": annotations}
        event = {"metadata": metadata, "reason": "Evict", "involvedObject": regarding, "message": "evicted"}
        assert trial.world.create("kai-0", EVENT, event) is not None


def taking_turns(trial: Trial) -> None:
    _evictions(trial, ("a", "b", "reclaim"), ("b", "a", "preempt"))


def moving_in_turns(trial: Trial) -> None:
    _evictions(trial, ("a", "b", "consolidation"), ("b", "a", "consolidation"))


def taking_from_the_group_that_it_was_moved_for(trial: Trial) -> None:
    _evictions(trial, ("a", "b", "consolidation"), ("b", "a", "reclaim"))


def taking_again_after_a_move(trial: Trial) -> None:
    moved_for_the_group_that_it_took_from(trial)
    assert not trial.broken
    _evictions(trial, ("a", "b", "reclaim"))


def moved_for_the_group_that_it_took_from(trial: Trial) -> None:
    _evictions(trial, ("a", "b", "reclaim"), ("b", "a", "consolidation"))


def evicting_on_old_knowledge(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.pass_time(100.0)
    trial.send(pod, "eviction")


def store_that_is_behind_in_the_end(trial: Trial) -> None:
    trial.show()
    trial.pod("a")
    for invariant, text in differences(trial.world):
        trial.world.violate(invariant, text)


def refused_again_and_again(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    for _ in range(12):
        call = trial.send(pod)
        trial.end(call, Answer(status=403, body=b"quota.others denied the request"))
        trial.pass_time(1.0)


def written_again_without_a_look(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.end(trial.send(pod), NoAnswer(was_sent=True, message="lost"))
    trial.send(pod)


def asked_too_early(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.end(trial.send(pod), Answer(status=429, body=b"{}", retry_after="3"))
    trial.send(pod)


def many_tasks(trial: Trial) -> None:
    async def rest() -> None:
        raise AssertionError("never runs")

    coroutines = [rest() for _ in range(300)]
    tasks = [trial.world.loop.create_task(each) for each in coroutines]
    look_at_size(trial.world)
    for task in tasks:
        task.cancel()
    trial.world.loop.run_until_complete(_nothing())


async def _nothing() -> None:
    return None


def writing_without_a_term(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.replica.connection.leadership.term = None
    trial.send(pod)


def writing_for_an_earlier_term(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.send(pod, annotations={EPOCH: "0"})


def writing_long_after_the_lease(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    lease = Call(method="POST", path="/apis/coordination.k8s.io/v1/namespaces/kai-scheduler/leases")
    trial.world.wire.on_send("kai-0", lease)
    metadata = {"name": "kai-scheduler", "namespace": "kai-scheduler"}
    assert trial.world.create("kai-0", LEASE, {"metadata": metadata, "spec": {"holderIdentity": "kai-0"}})
    trial.pass_time(10.5)
    trial.send(pod)


def bound_once_it_is_known_to_leave(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.end(trial.send(pod, resourceVersion="1"), Answer(status=409, body=b"{}"))
    assert trial.world.patch("stranger", POD, pod, {"metadata": {"finalizers": ["others/keep"]}})
    assert trial.world.delete("user", POD, pod)
    trial.show()
    trial.send(pod, resourceVersion="2")


def bound_though_it_came_after_the_decision(trial: Trial) -> None:
    trial.replica.cpu.given_at = trial.world.loop.time() - 1.0
    pod = trial.pod("a")
    trial.show()
    trial.send(pod)


def failed_order_left_over(trial: Trial) -> None:
    metadata = {"name": "a", "namespace": HOME}
    order = {"metadata": metadata, "spec": {"podName": "a", "selectedNode": "node-0"}}
    made = trial.world.create("kai-0", ORDER, order)
    assert made is not None
    assert trial.world.patch("kai-0", ORDER, made, {"status": {"phase": "Failed"}}, "status")
    for invariant, text in unsettled(trial.world):
        if "failed, and is still there" in text:
            trial.world.violate(invariant, text)


def deciding_before_the_barrier(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    _node(trial, {"spec": {"unschedulable": True}})
    trial.watchers.conduct.leases[1] = trial.world.server.storage.version
    trial.send(pod)


def two_writes_at_once(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.send(pod)
    trial.send(pod, "eviction")


def store_that_goes_back(trial: Trial) -> None:
    trial.pod("a")
    trial.show()
    trial.watchers.stores.look()
    cache = trial.replica.connection.store.cache(Pod)
    uid, version = cache.versions()[HOME, "a"]
    cache._unread[HOME, "a"] = (uid, version - 1)
    trial.watchers.stores.look()


def bound_to_a_node_known_to_be_full(trial: Trial) -> None:
    for number in range(2):
        trial.bind(trial.pod(f"one-{number}"))
    pod = trial.pod("a")
    trial.show()
    trial.send(pod)


def bound_to_a_node_known_to_be_cordoned(trial: Trial) -> None:
    _node(trial, {"spec": {"unschedulable": True}})
    pod = trial.pod("a")
    trial.show()
    trial.send(pod)


def bound_to_a_node_known_to_be_tainted(trial: Trial) -> None:
    _node(trial, {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}})
    pod = trial.pod("a")
    trial.show()
    trial.send(pod)


def event_before_the_bind(trial: Trial) -> None:
    _tell(trial, trial.pod("a"), "Bound", "Pod bound")


def _tell(trial: Trial, pod: Manifest, reason: str, message: str) -> None:
    metadata = pod["metadata"]
    regarding = {"kind": "Pod", "name": metadata["name"], "namespace": metadata["namespace"], "uid": metadata["uid"]}
    about = {"name": "event", "namespace": metadata["namespace"]}
    event = {"metadata": about, "reason": reason, "involvedObject": regarding, "message": message}
    assert trial.world.create("kai-0", EVENT, event) is not None


def failure_of_an_order_that_is_there(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.order(pod)
    _tell(trial, pod, "FailedBinding", "Failed to bind pod")


def order_that_says_too_much(trial: Trial) -> None:
    order = trial.order(trial.pod("a"))
    trial.world.patch("kai-0", ORDER, order, {"status": {"phase": "Succeeded"}}, "status")


def foreign_pod_written(trial: Trial) -> None:
    pod = trial.pod("a", schedulerName="other")
    trial.world.patch("kai-0", POD, pod, {"metadata": {"labels": {"mine": "yes"}}})


def secret_told(trial: Trial) -> None:
    _tell(trial, trial.pod("a"), "Failed", f"cannot run with TOKEN={CANARY}")


def secret_logged(trial: Trial) -> None:
    trial.watchers.words.hear(f"log info: TOKEN={CANARY}")


def foreign_name_told(trial: Trial) -> None:
    trial.pod("secret-project", namespace=RIVAL)
    _tell(trial, trial.pod("a"), "Evict", "evicted for secret-project")


def half_a_gang_in_the_end(trial: Trial) -> None:
    trial.world.create("user", GROUP, {"metadata": {"name": "g", "namespace": HOME}, "spec": {"minMember": 2}})
    pods = [trial.pod(name, annotations={"pod-group-name": "g"}) for name in ("a", "b")]
    trial.bind(pods[0])
    _in_the_end(trial)


def waiting_although_there_is_room(trial: Trial) -> None:
    trial.world.create("user", GROUP, {"metadata": {"name": "g", "namespace": HOME}, "spec": {"minMember": 1}})
    trial.pod("a", annotations={"pod-group-name": "g"})
    _in_the_end(trial)


def order_left_over(trial: Trial) -> None:
    metadata = {"name": "a", "namespace": HOME}
    trial.world.create("kai-0", ORDER, {"metadata": metadata, "spec": {"podName": "a", "selectedNode": "n"}})
    _in_the_end(trial)


def reservation_left_over(trial: Trial) -> None:
    metadata = {"name": "r", "namespace": RESERVED, "labels": {"runai-gpu-group": "g"}}
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}
    spec = {"nodeName": "node-0", "containers": [container]}
    trial.world.create("kai-0", POD, {"metadata": metadata, "spec": spec})
    _in_the_end(trial)


def _in_the_end(trial: Trial) -> None:
    for invariant, text in unsettled(trial.world):
        trial.world.violate(invariant, text)


HISTORIES: list[tuple[int, Callable[[Trial], None]]] = [
    (2, overfilled),
    (2, bound_to_a_node_known_to_be_full),
    (3, device_overfilled),
    (4, tainted),
    (4, wrong_node),
    (4, bound_to_a_node_known_to_be_tainted),
    (5, cordoned),
    (5, foreign_shard),
    (5, bound_to_a_node_known_to_be_cordoned),
    (6, half_a_gang_in_the_end),
    (8, share_without_a_holder),
    (8, reservation_left_over),
    (9, over_the_limit),
    (10, firm_over_the_quota),
    (10, decided_once_the_order_of_an_earlier_version_was_known),
    (10, ordered_anew_after_an_earlier_version),
    (11, unknown_queue),
    (11, orphaned_queue),
    (12, grant_edited),
    (13, futile_eviction),
    (14, firm_victim),
    (15, taking_turns),
    (15, moving_in_turns),
    (15, taking_from_the_group_that_it_was_moved_for),
    (15, taking_again_after_a_move),
    (16, evicting_on_old_knowledge),
    (18, waiting_although_there_is_room),
    (19, store_that_is_behind_in_the_end),
    (20, refused_again_and_again),
    (21, order_left_over),
    (21, written_again_without_a_look),
    (22, asked_too_early),
    (23, many_tasks),
    (24, writing_without_a_term),
    (24, writing_for_an_earlier_term),
    (24, writing_long_after_the_lease),
    (5, bound_once_it_is_known_to_leave),
    (5, bound_though_it_came_after_the_decision),
    (21, failed_order_left_over),
    (24, deciding_before_the_barrier),
    (24, two_writes_at_once),
    (25, store_that_goes_back),
    (27, event_before_the_bind),
    (27, failure_of_an_order_that_is_there),
    (27, order_that_says_too_much),
    (28, foreign_pod_written),
    (29, secret_told),
    (29, secret_logged),
    (30, foreign_name_told),
]


@pytest.mark.parametrize(("invariant", "history"), HISTORIES, ids=lambda each: getattr(each, "__name__", str(each)))
def test_a_history_that_breaks_an_invariant_is_caught(
    trial: Trial, invariant: int, history: Callable[[Trial], None]
) -> None:
    trial.pass_time(20.0)  # what was changed at the beginning is no excuse any more
    history(trial)
    assert invariant in trial.broken


def firm_without_a_group(trial: Trial) -> None:
    for number, node in ((0, "node-0"), (1, "node-0"), (2, "node-1")):
        pod = trial.pod(f"one-{number}", labels={"priorityClassName": "build"}, annotations={"pod-group-name": "gone"})
        trial.bind(pod, node)


def queue_beside_that_was_gone(trial: Trial) -> None:
    trial.life.changed_at["a2"] = trial.world.time
    for number in range(4):
        trial.bind(trial.pod(f"one-{number}", queue=f"a{number % 2 + 1}"), f"node-{number // 2}")


def failure_told_late(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.world.orders_refused[f"{HOME}/a"] = trial.world.time
    trial.pass_time(1.0)
    trial.order(pod)
    _tell(trial, pod, "FailedBinding", "Failed to bind pod")


@pytest.mark.parametrize(
    "history",
    [
        firm_without_a_group,
        queue_beside_that_was_gone,
        failure_told_late,
        ordered_by_an_earlier_version,
        decided_before_the_order_of_an_earlier_version_was_known,
        moved_for_the_group_that_it_took_from,
    ],
)
def test_a_history_that_only_looks_wrong_is_good(trial: Trial, history: Callable[[Trial], None]) -> None:
    trial.pass_time(20.0)
    history(trial)
    assert not trial.broken


def test_evicting_an_unheld_gpu_share_is_not_futile(trial: Trial) -> None:
    pod = trial.pod("a", gpus=0, annotations={"gpu-fraction": "0.5"}, labels={"runai-gpu-group": "device"})
    trial.bind(pod)
    trial.pod("b")
    trial.evict(pod)
    assert not list(trial.watchers.evictions.futile())
    assert trial.watchers.evictions.became() == {UNHELD: 1}


def test_evictions_are_counted_by_their_beneficiaries_outcome(trial: Trial) -> None:
    trial.pass_time(20.0)
    victims = [trial.pod(name) for name in ("a", "b", "c")]
    for each in victims:
        trial.bind(each)  # so that the pod takes its time to leave
    trial.evict(victims[0])
    waiting = trial.pod("d")
    trial.evict(victims[1])
    assert trial.watchers.evictions.became() == {NONE_WAITED: 1, FUTILE: 1}
    trial.bind(waiting)
    trial.evict(victims[2])
    assert trial.watchers.evictions.became() == {NONE_WAITED: 2, PLACED: 1}


def test_what_kai_may_do_breaks_nothing(trial: Trial) -> None:
    pod = trial.pod("a")
    trial.show()
    trial.end(trial.send(pod), Answer(status=201, body=b"{}"))
    trial.bind(pod)
    _tell(trial, pod, "Bound", "Pod bound")
    trial.show()
    trial.watchers.stores.look()
    assert not trial.broken
    assert not list(differences(trial.world))
