"""Writes of a term that is over, at the API server: the shipped policy compares them with the lease."""

import pytest

from tests.integration.client import Refused, until
from tests.integration.installation import install
from tests.integration.stage import BIND_REQUEST, an_object
from tests.unit.deploy.rendering import DEPLOY

LEASE = "kai-scheduler"
_NUMBERS = iter(range(1000))


@pytest.fixture(scope="module")
def admin(bare_control_plane):
    """Return the administrator of a cluster in which the lease is in its seventh epoch, and refused what is older."""
    install(bare_control_plane, DEPLOY / "base")
    admin = bare_control_plane.admin
    admin.ensure(an_object("v1", "Namespace", "default"))
    for name in (LEASE, "another", "third"):
        spec = {"holderIdentity": "me", "leaseTransitions": 7 if name == LEASE else 1}
        admin.create(an_object("coordination.k8s.io/v1", "Lease", name, metadata={"namespace": LEASE}, spec=spec))
    admin.create(an_object("v1", "Node", "n1"))
    until(lambda: refusal(order(admin, 6)), "the policy to work")
    return admin


def stamp(epoch, lease=LEASE):
    return {"kai.scheduler/epoch": str(epoch), "kai.scheduler/lease": lease} if epoch else {}


def order(admin, epoch, lease=LEASE):
    """Return a way to order a bind in an epoch."""
    metadata = {"namespace": "default", "annotations": stamp(epoch, lease)}
    spec = {"podName": "p", "selectedNode": "n1"}
    return lambda: admin.create(
        an_object(BIND_REQUEST, "BindRequest", f"o{next(_NUMBERS)}", metadata=metadata, spec=spec)
    )


def binding(admin, epoch, lease=LEASE):
    """Return a way to bind a pod of its own in an epoch."""
    pod = a_pod(admin)
    name = pod["metadata"]["name"]
    body = an_object("v1", "Binding", name, metadata={"namespace": "default", "annotations": stamp(epoch, lease)})
    return lambda: admin.request("POST", admin.path(pod, "binding"), {**body, "target": {"kind": "Node", "name": "n1"}})


def eviction(admin, epoch, lease=LEASE):
    """Return a way to evict a pod of its own in an epoch."""
    pod = a_pod(admin)
    name = pod["metadata"]["name"]
    metadata = {"namespace": "default", "annotations": stamp(epoch, lease)}
    body = an_object("policy/v1", "Eviction", name, metadata=metadata)
    return lambda: admin.request("POST", admin.path(pod, "eviction"), body)


def reservation(admin, epoch, lease=LEASE):
    """Return a way to make a pod on a node in an epoch, as one that holds a GPU is made."""
    return lambda: a_pod(admin, stamp(epoch, lease), nodeName="n1")


def a_pod(admin, annotations=None, **more):
    spec = {"containers": [{"name": "main", "image": "none"}], **more}
    metadata = {"namespace": "default", "annotations": annotations or {}}
    return admin.create(an_object("v1", "Pod", f"p{next(_NUMBERS)}", metadata=metadata, spec=spec))


def refusal(write):
    """Return why a write was refused; empty if it was done."""
    try:
        write()
    except Refused as refused:
        return refused.message
    return ""


@pytest.mark.parametrize("write", [order, binding, eviction, reservation])
def test_what_was_decided_in_an_earlier_term_is_refused(admin, write):
    wanted = f"found 6, expected at least 7 as lease {LEASE} says"
    assert wanted in refusal(write(admin, 6))


@pytest.mark.parametrize("write", [order, binding, eviction, reservation])
def test_writes_of_present_foreign_or_no_terms_pass(admin, write):
    for epoch, lease in ((7, LEASE), (8, LEASE), (1, "another"), (1, "unknown"), (0, "")):
        assert refusal(write(admin, epoch, lease)) == ""


def test_a_copy_of_an_earlier_terms_pod_passes(admin):
    """Its annotations are those of the binding; it has no node yet."""
    assert a_pod(admin, stamp(6))


def test_a_term_that_begins_ends_the_one_before(admin):
    """The server learns of it within moments; a new leader waits for longer than that."""
    assert refusal(order(admin, 1, "third")) == ""
    lease = an_object("coordination.k8s.io/v1", "Lease", "third", metadata={"namespace": LEASE})
    admin.patch(lease, {"spec": {"leaseTransitions": 2}})
    until(lambda: refusal(order(admin, 1, "third")), "the earlier term to be refused")
    assert refusal(order(admin, 2, "third")) == ""
