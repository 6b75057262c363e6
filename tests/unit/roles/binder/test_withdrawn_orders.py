"""Orders that do not stand any more while their binds are prepared, or repeated."""

import attrs
import pytest

from kai.api.codec.structuring import structure_as
from kai.api.plans import Create, Get, Patch, Ref
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.requests import NoSuchKind
from kai.roles.binder import BindVerdict
from kai.roles.binder.attempt import attempt, attempt_unwritten
from tests.doubles.plans import carry_out
from tests.unit.intake import making
from tests.unit.roles.binder.clusters import BINDER, bind_request, cluster, node, pod, sharing_pod, sharing_request


def node_of(server):
    return server.get("Pod", "p", "ns")["spec"].get("nodeName")


@pytest.mark.parametrize("request_", [bind_request(), sharing_request()])
def test_an_order_withdrawn_during_preparation_is_not_bound(request_):
    shares = bool(request_["spec"].get("selectedGPUGroups"))
    server = cluster(node(), sharing_pod() if shares else pod(), request_)

    def perform(asked):
        reply = server.perform(asked)
        # The last thing that is read before the order is looked at once more is the pod.
        if server.get("BindRequest", "p", "ns") and isinstance(asked, Create if shares else Get):
            server.remove("BindRequest", "p", "ns")
        return reply

    outcome = carry_out(attempt(BINDER, Ref(BindRequest, "p", "ns")), perform)
    assert (outcome.verdict, outcome.message) == (BindVerdict.GONE, "bindrequest ns/p: was withdrawn")
    assert not node_of(server)
    assert not server.get("Pod", "p", "ns")["metadata"]["labels"]
    assert not [name for name in server.names("Pod") if name.startswith("gpu-reservation")]


@pytest.mark.parametrize("request_", [bind_request(), sharing_request()])
@pytest.mark.parametrize("refused", [(Get, Patch), (Patch,)])
def test_an_order_is_retried_while_its_kind_is_unserved(request_, refused):
    """The server answers as if there were no bind requests, once an attempt has begun or as it ends."""
    shares = bool(request_["spec"].get("selectedGPUGroups"))
    server = cluster(node(), sharing_pod() if shares else pod(), request_)
    asked_for = []

    def perform(asked):
        if getattr(asked, "ref", None) is None or asked.ref.cls is not BindRequest:
            return server.perform(asked)
        asked_for.append(asked)
        is_served = len(asked_for) == 1 or not isinstance(asked, refused)
        return server.perform(asked) if is_served else NoSuchKind(message="not served")

    ref = Ref(BindRequest, "p", "ns")
    outcome = carry_out(attempt(BINDER, ref), perform)
    assert outcome.verdict is BindVerdict.INTERRUPTED
    assert server.get("BindRequest", "p", "ns").get("status", {}).get("phase") != "Failed"
    assert carry_out(attempt(BINDER, ref), server.perform).verdict is BindVerdict.BOUND
    assert node_of(server) == "n1"


@pytest.mark.parametrize(("there", "expected"), [(True, BindVerdict.BOUND), (False, BindVerdict.FAILED)])
def test_an_unwritten_order_needs_its_queue_to_exist(there, expected):
    server = cluster(node(), pod(), *([making.queue("q")] if there else []))
    order = structure_as(BindRequest, bind_request())
    annotations = {"kai.scheduler/granted": '{"queue":"q"}'}
    order = attrs.evolve(order, metadata=attrs.evolve(order.metadata, uid="", annotations=annotations))
    outcome = carry_out(attempt_unwritten(BINDER, order), server.perform)
    assert outcome.verdict is expected
    assert outcome.message == ("" if there else "queue q does not exist any more")
    assert bool(node_of(server)) == there
