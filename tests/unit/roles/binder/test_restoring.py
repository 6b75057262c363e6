"""Grants that were lost are written again from the bind request, by which they were given."""

import pytest

from kai.roles.binder.sharers import BinderSettings
from kai.roles.binder.sweep import restore_grants, sweep_everything, sweep_group
from tests.doubles.plans import carry_out
from tests.unit.roles.binder.clusters import (
    bind_request,
    cluster,
    node,
    pod,
    reservation,
    sharing_pod,
    sharing_request,
    try_once,
)

GRANTED = "kai.scheduler/granted"
SETTINGS = BinderSettings()
SHARE = '{"queue":"q","gpus":["g1"],"portion":0.5}'
DONE = {"status": {"phase": "Succeeded"}}


def told(request):
    request["metadata"]["annotations"] = {GRANTED: '{"queue":"q"}'}
    return request


def user(text, **fields):
    annotations = {} if text is None else {GRANTED: text}
    return pod("u", annotations=annotations, phase="Running", **{"nodeName": "n1", **fields})


def restore(server):
    return carry_out(restore_grants(SETTINGS), server.perform)


def written(server, name="u"):
    return server.get("Pod", name, "ns")["metadata"]["annotations"].get(GRANTED)


@pytest.mark.parametrize("text", [None, "", "nonsense", '{"portion":7}'])
def test_a_lost_grant_is_written_again_and_named(text):
    server = cluster(user(text), told(sharing_request("u", **DONE)))
    (lost,) = restore(server)
    found = "nothing" if text is None else f'"{text}"'.replace('"portion"', '\\"portion\\"')
    where = f'pod ns/u: metadata.annotations["{GRANTED}"]'
    assert lost.message == f"{where}: found {found}, expected what was granted when the pod was bound"
    assert lost.is_restored
    assert written(server) == SHARE
    assert restore(server) == ()


UNKNOWN = {
    "there is no bind request": [],
    "the bind request is of another pod of the name": [
        {
            **bind_request("u"),
            "metadata": {
                **told(bind_request("u"))["metadata"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "u", "uid": "another"}],
            },
        }
    ],
    "the bind request is for another node": [told(bind_request("u", "n2"))],
    "the bind request tells no grant": [bind_request("u")],
}


@pytest.mark.parametrize("requests", UNKNOWN.values(), ids=UNKNOWN)
def test_an_unknown_grant_is_named_but_not_restored(requests):
    server = cluster(user("nonsense"), *requests)
    (lost,) = restore(server)
    assert not lost.is_restored
    assert written(server) == "nonsense"


@pytest.mark.parametrize(
    "fine",
    [
        user(SHARE),
        user(None),
        user("nonsense", schedulerName="another"),
        pod("u", annotations={GRANTED: "nonsense"}),
        {**user("nonsense"), "status": {"phase": "Succeeded"}},
    ],
    ids=["has its grant", "never had one", "of another scheduler", "is not bound", "has ended"],
)
def test_others_are_left_alone(fine):
    assert restore(cluster(fine)) == ()


def test_one_unwritable_pod_does_not_hinder_others():
    first, second = user("nonsense"), user("nonsense")
    second["metadata"] |= {"name": "v", "uid": "uid-ns-v"}
    server = cluster(first, second, told(sharing_request("u")), told(sharing_request("v")))
    server.get("Pod", "u", "ns")["metadata"]["uid"] = "uid-ns-u"

    def gone(request):
        name = getattr(getattr(request, "ref", None), "name", "")
        if type(request).__name__ == "Patch" and name == "u":
            server.remove("Pod", "u", "ns")

    found = carry_out(restore_grants(SETTINGS), lambda request: (gone(request), server.perform(request))[1])
    assert [each.is_restored for each in found] == [False, True]
    assert written(server, "v") == SHARE


@pytest.mark.parametrize("text", [None, "nonsense"])
def test_a_pod_losing_grant_and_label_keeps_its_reservation(text):
    server = cluster(reservation(), user(text), sharing_request("u", **DONE))
    assert carry_out(sweep_group("g1", SETTINGS), server.perform) == ()
    assert carry_out(sweep_everything(SETTINGS), server.perform) == ()


def test_a_pod_losing_grant_and_label_keeps_its_share():
    taken = user("nonsense")
    wanting = sharing_pod("p", "0.6")
    orders = (sharing_request("u", portion="0.50", **DONE), sharing_request("p", portion="0.60"))
    server = cluster(node(), reservation(), taken, wanting, *orders)
    assert "would hold 1.10 of a GPU" in try_once(server).message
