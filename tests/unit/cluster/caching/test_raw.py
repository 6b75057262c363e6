import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.kubernetes.pod import Pod
from kai.cluster.caching.assume_cache import AssumeCache, Peek
from kai.cluster.caching.raw import line_of, manifest_of, page_of, take

POD = (
    b'{"kind":"Pod","metadata":{"name":"p","namespace":"team","uid":"u","resourceVersion":"7",'
    b'"managedFields":[{"x":{}}],"labels":{"a":"b"}},"spec":{"nodeName":"n"}}'
)


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


@given(st.binary(max_size=60))
def test_bytes_of_any_kind_are_survived(data):
    for reader in (page_of, line_of):
        reader(data)
    manifest_of(msgspec.Raw(data), Pod)


def pods_taken(*texts):
    """A cache that took these, and what it returned for each."""
    cache = AssumeCache(Pod, lambda *_: None)
    return cache, [take(cache, msgspec.Raw(text)) for text in texts]


def test_an_object_is_taken_from_its_bytes():
    cache, (seen,) = pods_taken(POD)
    assert seen == Peek(("team", "p"), "u", 7)
    assert cache.get(("team", "p")).spec.node_name == "n"


def test_pods_share_the_text_of_namespace_and_node():
    cache, _ = pods_taken(POD, POD.replace(b'"p"', b'"q"').replace(b'"u"', b'"v"'))
    one, other = cache.all()
    assert one.metadata.namespace is other.metadata.namespace
    assert one.spec.node_name is other.spec.node_name


def test_an_older_version_is_not_read():
    cache, _ = pods_taken(POD, POD.replace(b'"7"', b'"6"').replace(b'"n"', b"7"))
    assert cache.get(("team", "p")).spec.node_name == "n"
    assert cache.rejected == ()


def test_an_invalid_pod_is_rejected_with_the_codecs_message():
    cache, (seen,) = pods_taken(POD.replace(b'"n"', b"7"))
    assert seen.key == ("team", "p")
    assert [rejected.message for rejected in cache.rejected] == [
        "pod team/p: spec.nodeName: found 7, expected a string"
    ]


def test_nulls_are_taken_for_absent():
    cache, _ = pods_taken(POD.replace(b'"labels"', b'"generateName":null,"labels"'))
    assert cache.get(("team", "p")).metadata.generate_name == ""


@pytest.mark.parametrize(
    "text",
    [
        b"7",
        b"null",
        b'{"metadata":null}',
        b'{"metadata":[]}',
        b'{"metadata":{"name":7}}',
        b'{"metadata":{"name":""}}',
        b"{}",
    ],
)
def test_what_has_no_name_is_rejected(text):
    cache, seen = pods_taken(text)
    assert seen == [None]
    assert len(cache) == 0
    assert len(cache.rejected) == 1
