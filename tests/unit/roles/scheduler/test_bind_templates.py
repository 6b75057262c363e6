"""Bind requests that are filled in like forms, against the objects that they are."""

import json

import hypothesis.strategies as st
from hypothesis import given

from kai.api.codec.structuring import structure_as
from kai.api.kubernetes.meta import ObjectMeta
from kai.api.kubernetes.pod import Pod
from kai.api.scheduling.bind_request import BindRequest
from kai.cluster.transport.encoding import ServedVersions, encode_write
from kai.facts.model.placement import Quantities
from kai.framework.decisions import Bind
from kai.intake import IntakeSettings
from kai.roles.scheduler.committing.binds import BindTemplates
from kai.roles.scheduler.committing.orders import BLANK, Stamp, bind_request, create_bind_request
from kai.roles.scheduler.settings import SchedulerSettings

TOLD = [{}, {"predictedNUMAZones": [{"zone": "node-0", "amount": Quantities((("cpu", 1000),))}]}]
WORDS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.sampled_from(['o"d\\d', "\x7f\x00\n", "π"])
)
BINDS = st.builds(
    Bind,
    pod=st.just(0),
    node=st.just(0),
    received=st.sampled_from(["Regular", "Fraction", ""]),
    gpu_count=st.integers(0, 8),
    gpu_portion=st.sampled_from([1.0, 0.5, 0.333]),
    request=st.sampled_from(TOLD),
)
PODS = st.builds(
    lambda name, namespace, uid: Pod(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid)),
    WORDS.filter(bool),
    WORDS,
    WORDS,
)


@given(
    decisions=st.lists(BINDS, min_size=1, max_size=3),
    pods=st.lists(PODS, min_size=1, max_size=2),
    node=WORDS.filter(bool),
    devices=st.lists(WORDS.filter(bool), max_size=2).map(tuple),
    pool=st.one_of(st.just(""), WORDS),
    stamp=st.one_of(st.sampled_from([BLANK, Stamp()]), st.builds(Stamp, epoch=st.just(7), lease=WORDS, trace=WORDS)),
)
def test_an_order_is_encoded_like_its_plain_object(decisions, pods, node, devices, pool, stamp):
    settings = SchedulerSettings(intake=IntakeSettings(node_pool=pool))
    forms, served = BindTemplates(settings), ServedVersions()
    for decision in decisions:
        for pod in pods:
            order = (decision, pod, node, devices)
            plain = create_bind_request(bind_request(*order, settings, stamp))
            quick = forms.create(*order, stamp)
            assert encode_write(quick, served) == encode_write(plain, served)
            assert quick == plain


def test_one_template_serves_all_orders_of_a_form():
    forms = BindTemplates(SchedulerSettings())
    texts = [
        forms.text(Bind(pod=0, node=0, gpu_count=1), Pod(metadata=ObjectMeta(name=name, namespace="n", uid=name)), "n1")
        for name in ("a", "b")
    ]
    assert texts[0].replace(b'"a"', b'"b"') == texts[1]


def test_an_order_names_the_version_that_the_server_serves():
    pod = Pod(metadata=ObjectMeta(name="pod", namespace="team", uid="uid"))
    served = ServedVersions()
    served.settle(BindRequest, "scheduling.run.ai/v2")
    sent = json.loads(
        encode_write(BindTemplates(SchedulerSettings()).create(Bind(pod=0, node=0), pod, "n1"), served).body
    )
    assert sent["apiVersion"] == "scheduling.run.ai/v2"
    assert structure_as(BindRequest, sent).spec.selected_node == "n1"
