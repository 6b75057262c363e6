import copy
import json
from typing import Any

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given

from kai.api.codec import structure_as
from kai.api.kinds import BY_NAME
from kai.api.outline import decode_as
from kai.api.pod import Pod
from kai.api.podgroup import PodGroup
from kai.api.quick import REFUSED, open_object, read_opened
from kai.errors import InputError
from tests.unit.api.manifests import COMPLETE

ODD = st.sampled_from([
    None, True, 0, 1, 1.0, 2**70, -1, "", "x", "1", "2026-01-01T00:00:00Z", "Running", [], [None], ["a", 1], {},
    {"a": "b"}, {"name": "n"}, [{"type": "T", "status": None}], 'say "nodeName":"x"', "kube-api-access-bcdfg",
])  # fmt: skip


def slowly(cls: type[Any], text: bytes):
    """What the codec makes of it; None for what is wrong."""
    try:
        return structure_as(cls, decode_as(cls, text))
    except (InputError, msgspec.DecodeError):
        return None


def quickly(cls: type[Any], text: bytes):
    """What is made of it without the codec; None for what is left to the codec."""
    try:
        opened = open_object(cls, text)
        return None if opened is None else read_opened(cls, opened)
    except REFUSED:
        return None


def paths(value, path=()):
    """Say where every value of a manifest stands."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths(item, (*path, key))


@st.composite
def changed(draw):
    """A manifest of any kind with a few values replaced or removed, or their keys renamed or turned around."""
    manifest = copy.deepcopy(draw(st.sampled_from(COMPLETE)))
    for path in draw(st.lists(st.sampled_from([path for path in paths(manifest) if path]), max_size=3)):
        inner = manifest
        for key in path[:-1]:
            try:
                inner = inner[key]
            except (KeyError, IndexError, TypeError):
                break
        if isinstance(inner, dict) and path[-1] in inner:
            value = inner.pop(path[-1])
            match draw(st.sampled_from(["replace", "remove", "rename", "last"])):
                case "replace":
                    inner[path[-1]] = draw(ODD)
                case "rename":
                    inner[draw(st.sampled_from(["nodeName", "name", "x", 'a"nodeName']))] = value
                case "last":
                    inner[path[-1]] = value
    return manifest


@given(changed(), st.sampled_from([None, 1]))
def test_what_is_read_quickly_is_what_the_codec_reads(manifest, indent):
    named = manifest.get("apiVersion"), manifest.get("kind")
    cls = BY_NAME.get(named) if all(isinstance(name, str) for name in named) else None
    if cls is None:
        return
    text = json.dumps(manifest, indent=indent).encode()
    for _ in range(3):
        found = quickly(cls.cls, text)
        assert found is None or found == slowly(cls.cls, text)


@pytest.mark.parametrize("manifest", COMPLETE, ids=lambda manifest: manifest["kind"])
def test_most_kinds_are_read_quickly(manifest):
    cls = BY_NAME[manifest["apiVersion"], manifest["kind"]].cls
    found = quickly(cls, json.dumps(manifest).encode())
    assert found == (None if cls.__name__.startswith("Resource") else structure_as(cls, manifest))


def pod(spec: str, **metadata) -> bytes:
    return f'{{"metadata":{json.dumps({"name": "p", **metadata})},"spec":{spec}}}'.encode()


SPECS = [
    '{"nodeName":"n1","schedulerName":"s"}',
    '{"nodeName":"n2","schedulerName":"s"}',
    '{"nodeName":"","schedulerName":"s"}',
    '{"schedulerName":"s"}',
    '{"schedulerName":"s","nodeName":"n1","nodeName":"n2"}',
    '{"schedulerName":"s","nodeName":"n3","nodeName":"n2"}',
    '{"schedulerName":"s","nodeName":"n1","node\\u004eame":"n2"}',
    '{"schedulerName":"s","nodeName":"n3","node\\u004eame":"n2"}',
    '{"nodeSelector":{"nodeName":"n1"}}',
    '{"nodeSelector":{"nodeName":"n2"}}',
    '{"nodeSelector":{"a\\"nodeName":"n1"}}',
    '{"nodeSelector":{"a\\"nodeName":"n2"}}',
    '{"x":{"nodeName":"n1"},"nodeName":"n4"}',
    '{"x":{"nodeName":"n2"},"nodeName":"n4"}',
    '{"schedulerName":"say \\"nodeName\\":\\"n1\\"","nodeName":"n1"}',
    '{"schedulerName":"say \\"nodeName\\":\\"n2\\"","nodeName":"n1"}',
    '{ "nodeName" : "n1" }',
    '{"nodeName":"n\\u0031"}',
    '{"nodeName":"n\\u0032"}',
    '{"nodeName":null}',
    '{"nodeName":7}',
    "null",
    *(
        template % {"name": name}
        for template in (
            '{"volumes":[{"name":"%(name)s"}],"containers":[{"name":"c","volumeMounts":[{"name":"%(name)s"}]}]}',
            '{"volumes":[{"name":"%(name)s"}],"nodeSelector":{"a":"%(name)s"}}',
            '{"volumes":[{"name":"%(name)s"}],"nodeSelector":{"%(name)s":"a"}}',
            '{"volumes":[{"name":"%(name)s"}],"schedulerName":"say \\"%(name)s\\""}',
            '{"volumes":[{"name":"%(name)s"},{"name":"%(name)s"}]}',
            '{"volumes":[{"name":"%(name)s"},{"name":"kube-api-access-vwxzb"}]}',
            '{"volumes":[{"name":"%(name)s"},{"name":"kube-api-access-00000"}]}',
            '{"schedulerName":"%(name)s"}',
        )
        for name in ("kube-api-access-bcdfg", "kube-api-access-hjklm", "kube-api-access-00000", "kube-api-access-aeiou")
    ),
]


@given(st.lists(st.sampled_from(SPECS), min_size=1, max_size=12))
def test_specs_that_look_alike_are_told_apart(specs):
    for spec in specs * 2:
        assert quickly(Pod, pod(spec)) in {None, slowly(Pod, pod(spec))}


@given(st.binary(max_size=60) | st.lists(st.sampled_from(['"', "nodeName", ":", "{", "}", ",", "\\", "a", "1"])).map(
    lambda parts: b'{"metadata":{"name":"p"},"spec":' + "".join(parts).encode() + b"}"
))  # fmt: skip
def test_bytes_of_any_kind_are_read_as_the_codec_reads_them_or_not_at_all(text):
    found = quickly(Pod, text)
    assert found is None or found == slowly(Pod, text)


def test_pods_of_a_template_share_their_spec_from_the_third_on():
    first, second, third, fourth = (
        quickly(Pod, pod(f'{{"nodeName":"{node}","containers":[{{"name":"template-of-four"}}]}}', uid=node))
        for node in ("n1", "n2", "n3", "n3")
    )
    assert [found.spec.node_name for found in (first, second, third, fourth)] == ["n1", "n2", "n3", "n3"]
    assert first.spec.containers is second.spec.containers is third.spec.containers is fourth.spec.containers


def test_groups_that_ask_for_the_same_share_it():
    text = b'{"metadata":{"name":"%d","labels":{"a":"b"}},"spec":{"queue":"q","minMember":2},"status":{}}'
    first, second = quickly(PodGroup, text % 1), quickly(PodGroup, text % 2)
    assert (first.metadata.name, second.metadata.name) == ("1", "2")
    assert first.spec is second.spec
    assert first.metadata.labels is second.metadata.labels
