import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.pod import Pod
from kai.cluster.raw import head_of, line_of, manifest_of, page_of
from kai.cluster.shelf import Peek

POD = (
    b'{"kind":"Pod","metadata":{"name":"p","namespace":"team","uid":"u","resourceVersion":"7",'
    b'"managedFields":[{"x":{}}],"labels":{"a":"b"}},"spec":{"nodeName":"n"}}'
)


def test_the_head_says_which_object_and_version_it_is():
    assert head_of(msgspec.Raw(POD)) == Peek(("team", "p"), "u", 7)


def test_the_rest_comes_without_the_record_of_managers():
    assert manifest_of(msgspec.Raw(POD), Pod) == {
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "team", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}},
        "spec": {"nodeName": "n"},
    }


def test_a_page_keeps_its_objects_unread():
    page = page_of(b'{"metadata":{"resourceVersion":"9","continue":"x"},"items":[' + POD + b"]}")
    assert (page.metadata.version, page.metadata.token) == ("9", "x")
    assert bytes(page.items[0]) == POD
    assert page_of(b'{"metadata":{"resourceVersion":"9"},"items":null}').items is None


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"metadata":7}', b'{"metadata":{},"items":7}', b"[" * 100_000])
def test_what_is_no_page_is_none(body):
    assert page_of(body) is None


@pytest.mark.parametrize("line", [b"", b"{}", b'{"type":"ADDED"}', b'{"type":7,"object":{}}', b'{"type":"ADDED","obj'])
def test_what_is_no_line_is_none(line):
    assert line_of(line) is None


@pytest.mark.parametrize(
    "text",
    [b"7", b"null", b'{"metadata":null}', b'{"metadata":[]}', b'{"metadata":{"name":7}}', b'{"metadata":{"name":""}}'],
)
def test_what_has_no_name_has_no_head(text):
    assert head_of(msgspec.Raw(text)) is None


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_survived(data):
    for reader in (page_of, line_of):
        reader(data)
    head_of(msgspec.Raw(data))
    manifest_of(msgspec.Raw(data), Pod)
