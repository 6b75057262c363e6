import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.codec.structuring import structure_as
from kai.api.conventions.binding import Grant, grant_of, read_grant
from kai.api.kubernetes.pod import Pod

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)


@given(
    st.builds(
        Grant,
        queue=TEXTS,
        pool=TEXTS,
        group=TEXTS,
        gpus=st.lists(TEXTS.filter(bool), max_size=3).map(tuple),
        portion=st.none() | st.floats(0, 1, exclude_min=True),
        memory=st.none() | st.integers(1, 2**40),
    )
)
def test_a_grant_is_read_as_it_was_written(grant):
    assert read_grant(grant.text) == grant


def test_what_is_empty_is_not_written():
    assert Grant().text == "{}"
    assert Grant(queue="q", group="g").text == '{"queue":"q","group":"g"}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "[]",
        '{"queue":1}',
        '{"portion":0}',
        '{"portion":1.5}',
        '{"portion":NaN}',
        '{"memory":0}',
        '{"memory":"4096"}',
        '{"gpus":"g"}',
        '{"gpus":[""]}',
        '{"queue":' + "[" * 100_000,
        "\ud800",
    ],
)
def test_what_holds_no_grant_is_none(text):
    assert read_grant(text) is None


def test_a_long_grant_is_read_like_a_short_one():
    grant = Grant(queue="q", gpus=tuple(str(number) for number in range(1000)), portion=0.5)
    assert read_grant(grant.text) == grant


@pytest.mark.parametrize(("node", "given"), [("n", Grant(queue="q")), ("", None)])
def test_a_pod_without_a_node_was_given_nothing(node, given):
    annotations = {"kai.scheduler/granted": '{"queue":"q"}'}
    manifest = {"metadata": {"name": "p", "annotations": annotations}, "spec": {"nodeName": node}}
    assert grant_of(structure_as(Pod, manifest)) == given
