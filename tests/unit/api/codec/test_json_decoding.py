import json

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from kai.api.codec.json_decoding import decode_as
from kai.api.codec.structuring import structure_as
from kai.api.kinds import BY_CLASS
from kai.api.kubernetes.dra import ResourceClaim
from kai.api.kubernetes.pod import Pod
from kai.basics.errors import InputError

KEYS = ["metadata", "spec", "status", "name", "containers", "conditions", "type", "env", "resources", "requests", "cpu"]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "1", "2026-01-01T00:00:00Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=25,
)
PODS = st.fixed_dictionaries(
    {"metadata": st.just({"name": "p"})},
    optional={
        "spec": st.fixed_dictionaries({"containers": VALUES}, optional={"tolerations": VALUES, "volumes": VALUES}),
        "status": VALUES,
    },
)


def read(manifest):
    """What the codec makes of it, or what it says is wrong."""
    try:
        return structure_as(Pod, manifest)
    except InputError as error:
        return str(error)


@given(PODS | VALUES.filter(lambda value: isinstance(value, dict)))
def test_decoding_with_an_outline_reads_like_without_one(manifest):
    assert read(decode_as(Pod, json.dumps(manifest).encode())) == read(manifest)


def test_undeclared_keys_are_dropped_at_every_depth():
    text = b'{"kind":"Pod","x":1,"metadata":{"name":"p","managedFields":[{}]},'
    text += b'"spec":{"containers":[{"name":"c","tty":1}]}}'
    assert decode_as(Pod, text) == {
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c"}]},
    }


def test_values_of_free_keys_stay():
    text = b'{"metadata":{"name":"p","labels":{"any":"thing"}}}'
    assert decode_as(Pod, text)["metadata"]["labels"] == {"any": "thing"}


def test_a_malformed_object_is_decoded_whole_for_the_codec():
    assert decode_as(Pod, b'{"metadata":{"name":"p"},"spec":7,"x":1}') == {"metadata": {"name": "p"}, "spec": 7, "x": 1}


def test_a_kind_with_older_shapes_is_decoded_whole():
    assert decode_as(ResourceClaim, b'{"spec":{"anything":1}}') == {"spec": {"anything": 1}}


@pytest.mark.parametrize("cls", list(BY_CLASS))
def test_every_kind_has_an_outline(cls):
    assert decode_as(cls, b'{"metadata":{"name":"n"}}') == {"metadata": {"name": "n"}}


def test_what_is_no_json_is_an_error():
    with pytest.raises(msgspec.DecodeError):
        decode_as(Pod, b'{"metadata":')
