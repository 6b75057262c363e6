import pytest

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Delete, Get, List, Lock, Reason, Refusal
from kai.roles.binder.outcome import BindVerdict
from kai.roles.binder.sharers import BinderSettings
from kai.roles.binder.sweep import groups_to_sweep, sweep_everything, sweep_group, sweep_node, sweep_requests
from tests.doubles.api_server import ApiServer
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import (
    RESERVED,
    bind_request,
    cluster,
    node,
    pod,
    reservation,
    sharing_request,
    try_once,
)

SETTINGS = BinderSettings()


def user(name="u", phase="Running", group="g1", devices=1, **fields):
    labels = {"runai-gpu-group": group} if devices == 1 else {f"runai-gpu-group/{group}": group}
    return pod(name, labels=labels, phase=phase, **{"nodeName": "n1", **fields})


def sweep(server, group="g1"):
    return carry_out(sweep_group(group, SETTINGS), server.perform)


def test_a_reservation_with_users_stays():
    for phase in ("Running", "Pending"):
        server = cluster(reservation(), user(phase=phase))
        assert sweep(server) == ()


def test_a_user_on_several_devices_is_a_user():
    server = cluster(reservation(), user(devices=2))
    assert sweep(server) == ()


def granted(name="u", group="g1", phase="Running", **fields):
    """Make a pod that was bound with a grant of a group, and has dropped the label since."""
    annotations = {"kai.scheduler/granted": f'{{"gpus":["{group}"],"portion":0.9}}'}
    return pod(name, annotations=annotations, phase=phase, **{"nodeName": "n1", **fields})


def test_a_pod_dropping_its_label_keeps_its_gpu_reserved():
    for labels in ({}, {"runai-gpu-group": "another"}):
        server = cluster(reservation(), granted(labels=labels))
        assert sweep(server) == ()
        assert carry_out(sweep_everything(SETTINGS), server.perform) == ()


def test_a_running_pod_without_label_and_reservation_is_deleted():
    server = cluster(granted("r"), granted("p", phase="Pending"))
    assert carry_out(sweep_everything(SETTINGS), server.perform) == ("ns/r",)


LABEL = {"runai-gpu-group": "g1"}


@pytest.mark.parametrize(
    "stranger",
    [
        pod("s", labels=LABEL),
        pod("s", labels=LABEL, schedulerName="default-scheduler"),
        pod("s", labels=LABEL, phase="Running", nodeName="n1", schedulerName="default-scheduler"),
        pod("s", labels=LABEL, phase="Running", nodeName="n2"),
        granted("s", group="another", labels=LABEL),
    ],
    ids=["without a node", "of nobody's", "of another scheduler", "on another node", "granted another"],
)
def test_a_label_alone_holds_no_gpu(stranger):
    server = cluster(reservation(), stranger)
    assert sweep(server) == (f"{RESERVED}/gpu-reservation-g1",)
    assert "s" in server.names("Pod")


def lagging(server, *hidden):
    """Hide objects of these names from what the local store shows."""
    answer = ApiServer._list

    def listed(request):
        found = answer(server, request)
        return found if request.fresh else tuple(each for each in found if each.metadata.name not in hidden)

    server._list = listed


def test_a_bind_ending_during_the_sweep_keeps_its_gpu():
    server = cluster(reservation(), pod("u", labels=LABEL), sharing_request("u"))
    asked = []

    def bound_meanwhile(request):
        if isinstance(request, List) and request.fresh and not asked:
            asked.append(request)
            server.change("Pod", "u", "ns", {"spec": {"nodeName": "n1"}})
            server.change("BindRequest", "u", "ns", {"status": {"phase": "Succeeded"}})

    lagging(server, "u")
    server.fault = bound_meanwhile
    assert sweep(server) == ()
    assert asked


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_reservation_whose_users_have_ended_goes_at_once(phase):
    server = cluster(reservation(), user(phase=phase))
    assert sweep(server) == (f"{RESERVED}/gpu-reservation-g1",)
    (write,) = server.writes
    assert (write.grace_seconds, write.uid) == (0, f"uid-{RESERVED}-gpu-reservation-g1")


@pytest.mark.parametrize(
    ("status", "stays"),
    [({}, True), ({"phase": "Pending"}, True), ({"phase": "Succeeded"}, False), ({"phase": "Failed"}, False)],
)
def test_a_reservation_that_a_living_bind_request_claims_stays(status, stays):
    server = cluster(reservation(), sharing_request(status=status))
    assert (sweep(server) == ()) is stays


@pytest.mark.parametrize(
    ("tried", "stays"),
    [
        (pod("p", labels={"runai-gpu-group": "g1"}), True),
        (pod("p", labels={"runai-gpu-group/g1": "g1"}), True),
        (pod("p"), False),
        (pod("p", labels={"runai-gpu-group": "g1"}, uid="a-namesake"), False),
    ],
    ids=["tried again", "on several devices", "waiting to be tried again", "of another pod"],
)
def test_a_reservation_stays_while_a_failed_bind_is_retried(tried, stays):
    """The pod is a member of the group for as long as the attempt lasts; its request still says that it failed."""
    server = cluster(reservation(), tried, sharing_request(limit=9, status={"phase": "Failed", "failedAttempts": 1}))
    assert (sweep(server) == ()) is stays


def test_only_running_users_without_reservation_are_deleted():
    server = cluster(user("r"), user("p", "Pending"))
    assert sweep(server) == ("ns/r",)
    assert server.names("Pod") == ["p"]


def test_a_reservation_that_has_ended_holds_nothing():
    server = cluster(reservation(phase="Failed"), user("r"))
    assert sweep(server) == ("ns/r",)
    assert sweep(server) == (f"{RESERVED}/gpu-reservation-g1",)


def test_a_user_being_deleted_is_not_deleted_again():
    going = user("r")
    going["metadata"] |= {"deletionTimestamp": "2023-01-01T00:00:00Z", "finalizers": ["f"]}
    server = cluster(going)
    assert sweep(server) == ()
    assert server.writes == []


def test_nothing_is_deleted_because_a_local_store_lags():
    server = cluster(reservation(), user("r"))
    lagging(server, "gpu-reservation-g1")
    assert sweep(server) == ()
    lagging(server, "r")
    assert sweep(server) == ()
    assert server.writes == []


def test_a_namesake_that_was_made_since_survives():
    server = cluster(user("r"))
    made = []

    def fault(request):
        if isinstance(request, Delete) and not made:
            made.append(True)
            server.change("Pod", "r", "ns", {"metadata": {"uid": "new"}})

    server.fault = fault
    assert sweep(server) == ()
    assert server.names("Pod") == ["r"]


@pytest.mark.parametrize("member", [user(), sharing_request("u")], ids=["a user", "a bind under way"])
def test_a_sound_group_costs_nothing(member):
    """A group that the store gives no reason to touch costs no quorum read, and no wait for the holder of its key."""
    server = cluster(reservation(), member)
    sweep(server)
    assert not any(request.fresh for request in server.requests if isinstance(request, Get | List))
    assert not any(isinstance(request, Lock) for request in server.requests)


def test_a_bind_made_under_the_lock_counts():
    """The store lacks the bind until its key is let go."""
    server = cluster(reservation(), user())
    lagging(server, "u")

    def catch_up(request):
        if isinstance(request, Lock):
            lagging(server)
        return False

    server.lost = catch_up
    assert sweep(server) == ()
    assert any(isinstance(request, Lock) for request in server.requests)
    assert not any(request.fresh for request in server.requests if isinstance(request, Get | List))


def test_a_node_sweep_covers_both_label_forms():
    server = cluster(
        reservation("a"),
        reservation("b", node_name="n2"),
        user("multi", group="c", devices=2, nodeName="n1"),
    )
    swept = carry_out(sweep_node("n1", SETTINGS), server.perform)
    assert swept == (f"{RESERVED}/gpu-reservation-a", "ns/multi")


_UNNAMED = "the state of other pods on the node could not be read or repaired: rejected"


@pytest.mark.parametrize(("namespace", "told"), [("ns", "delete pod ns/u: a webhook says no"), ("theirs", _UNNAMED)])
def test_a_refused_sweep_names_no_pod_of_another_namespace(namespace, told):
    server = cluster(node(), user(namespace=namespace), pod(), bind_request())
    refusal = Refusal(reason=Reason.REJECTED, message="a webhook says no")
    server.fault = lambda request: refusal if isinstance(request, Delete) else None
    assert try_once(server).verdict is BindVerdict.FAILED
    (condition,) = [each for each in server.get("Pod", "p", "ns")["status"]["conditions"] if each["type"] == "PodBound"]
    assert condition["message"] == f"Failed to bind pod ns/p to node n1: {told}"


def test_everything_is_swept_after_a_start():
    server = cluster(reservation("a"), reservation("b", node_name="n2"), user("u", group="c"), pod("plain"))
    carry_out(sweep_everything(SETTINGS), server.perform)
    assert server.names("Pod") == ["plain"]


def shaped(phase="Running", scheduler="kai-scheduler", **labels):
    manifest = pod(labels={key.replace("__", "/"): value for key, value in labels.items()}, phase=phase)
    manifest["spec"]["schedulerName"] = scheduler
    return structure_as(Pod, manifest)


GROUPS = {"runai-gpu-group/a": "a", "runai-gpu-group/b": "b"}


def test_an_ended_or_deleted_pod_releases_all_its_groups():
    running, ended = shaped(**GROUPS), shaped("Succeeded", **GROUPS)
    assert groups_to_sweep(running, ended, "kai-scheduler") == ("a", "b")
    assert groups_to_sweep(running, None, "kai-scheduler") == ("a", "b")
    assert groups_to_sweep(ended, None, "kai-scheduler") == ("a", "b")


def test_a_pod_without_label_releases_its_granted_groups():
    unlabelled = structure_as(Pod, granted())
    assert groups_to_sweep(unlabelled, None, "kai-scheduler") == ("g1",)
    relabelled = structure_as(Pod, granted(phase="Failed", labels={"runai-gpu-group": "b"}))
    assert groups_to_sweep(structure_as(Pod, granted()), relabelled, "kai-scheduler") == ("b", "g1")


def test_other_changes_release_nothing():
    running, ended = shaped(**GROUPS), shaped("Failed", **GROUPS)
    assert groups_to_sweep(running, running, "kai-scheduler") == ()
    assert groups_to_sweep(ended, ended, "kai-scheduler") == ()
    assert groups_to_sweep(None, running, "kai-scheduler") == ()
    assert groups_to_sweep(shaped(scheduler="other", **GROUPS), None, "kai-scheduler") == ()
    assert groups_to_sweep(None, None, "kai-scheduler") == ()


# --- Requests that say what is not so ----------------------------------------------------------------------------

SUCCEEDED = {"phase": "Succeeded"}


def test_a_succeeded_request_without_binding_is_deleted():
    server = cluster(pod(), bind_request(status=SUCCEEDED))
    assert carry_out(sweep_requests(SETTINGS), server.perform) == ("ns/p",)
    assert server.names("BindRequest") == []


@pytest.mark.parametrize(
    ("of_pod", "request_"),
    [
        (pod(nodeName="n1"), bind_request(status=SUCCEEDED)),
        (pod(), bind_request()),
        (pod(), bind_request(status={"phase": "Failed", "failedAttempts": 1})),
        (pod(uid="another"), bind_request(status=SUCCEEDED)),
        (pod(schedulerName="default-scheduler"), bind_request(status=SUCCEEDED)),
    ],
    ids=["bound", "under way", "failed", "of a namesake", "of another scheduler"],
)
def test_all_other_requests_stay(of_pod, request_):
    server = cluster(of_pod, request_)
    assert carry_out(sweep_requests(SETTINGS), server.perform) == ()
    assert server.writes == []


def test_a_request_whose_pod_only_seems_to_wait_stays():
    server = cluster(pod(), bind_request(status=SUCCEEDED))
    waiting = server.perform(List(cls=Pod))
    server.change("Pod", "p", "ns", {"spec": {"nodeName": "n1"}})

    def lagging(request):
        return waiting if isinstance(request, List) and request.cls is Pod else server.perform(request)

    assert carry_out(sweep_requests(SETTINGS), lagging) == ()
    assert server.names("BindRequest") == ["p"]
