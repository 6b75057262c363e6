"""The quick way to write an order against the thorough one; what becomes of orders is tried in test_committer."""

import hypothesis.strategies as st
from hypothesis import given

from kai.api.meta import ObjectMeta
from kai.api.pod import Pod
from kai.framework.decisions import Bind
from kai.intake import IntakeSettings
from kai.model.placement import NumaPlacement
from kai.scheduler.orders import Stamp, bind_request, create_bind, create_bind_request
from kai.scheduler.settings import SchedulerSettings

DETAILS = [
    {},
    {"numa": NumaPlacement()},
    {"numa": NumaPlacement(zones=(0,), names=("node-0",), amounts=((("cpu", 1000),),))},
]
BINDS = st.builds(
    Bind,
    pod=st.just(0),
    node=st.just(0),
    received=st.sampled_from(["Regular", "Fraction", ""]),
    gpu_count=st.integers(0, 8),
    gpu_portion=st.sampled_from([1.0, 0.5, 0.333]),
    details=st.sampled_from(DETAILS),
    annotations=st.sampled_from([{}, {"note": "said"}]),
)
PODS = st.builds(
    lambda name, namespace, uid: Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid)),
    st.sampled_from(["pod", 'odd"name']),
    st.sampled_from(["team", ""]),
    st.sampled_from(["uid", ""]),
)


@given(
    decision=BINDS,
    pod=PODS,
    devices=st.sampled_from([(), ("one",), ("one", "two")]),
    pool=st.sampled_from(["", "east"]),
    stamp=st.sampled_from([Stamp(), Stamp(epoch=7, trace="00-1-2-01")]),
)
def test_an_order_is_written_as_the_object_that_it_is(decision, pod, devices, pool, stamp):
    settings = SchedulerSettings(intake=IntakeSettings(node_pool=pool))
    order = (decision, pod, "n1", devices, settings, stamp)
    assert create_bind(*order) == create_bind_request(bind_request(*order))


def test_fields_are_written_in_the_order_of_the_object():
    pod = Pod(metadata=ObjectMeta(name="pod", namespace="team", uid="uid"))
    order = (Bind(pod=0, node=0, annotations={"note": "said"}), pod, "n1", ("one",), SchedulerSettings())
    quick, thorough = create_bind(*order).manifest, create_bind_request(bind_request(*order)).manifest
    assert list(quick["metadata"]) == list(thorough["metadata"])
    assert list(quick["spec"]) == list(thorough["spec"])
