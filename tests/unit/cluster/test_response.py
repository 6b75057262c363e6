"""An answer is the same however its bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.cluster.calls import Answer
from kai.cluster.response import MalformedError, Response
from tests.doubles.packets import LENGTHS, mutated

LENGTH = b"HTTP/1.1 201 Created\r\nContent-Length: 5\r\nRetry-After: 3\r\n\r\nhello"
CHUNKS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\n\r\na\r\nA;x=1\r\n0123456789\r\n0\r\nTrailer: yes\r\n\r\n"
)
EARLY = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\nContent-Length: 7\r\n\r\n"


def read(data, sizes=()):
    """Feed bytes in pieces of these sizes, the rest at once; return the answer, and whether it is whole."""
    response, at, whole = Response(), 0, False
    for size in (*sizes, len(data)):
        assert not whole
        piece = data[at : at + size]
        at += size
        if piece:
            whole = response.feed(piece)
        if at >= len(data):
            break
    return response, whole


@pytest.mark.parametrize(
    ("data", "answer"),
    [
        (LENGTH, Answer(status=201, body=b"hello", retry_after="3")),
        (CHUNKS, Answer(status=200, body=b"\r\na0123456789")),
        (EARLY, Answer(status=204)),
    ],
    ids=["length", "chunks", "early"],
)
@given(sizes=st.lists(st.integers(1, 9), max_size=60))
def test_an_answer_is_whole_with_its_last_byte_and_not_before(data, answer, sizes):
    response, whole = read(data, sizes)
    assert whole
    assert response.answer() == answer
    assert response.keeps_connection
    assert not response.has_more
    _, whole = read(data[:-1], sizes)
    assert not whole


def test_what_follows_an_answer_is_noticed():
    response, whole = read(LENGTH + b"x")
    assert whole
    assert response.has_more


def test_an_answer_without_a_length_ends_with_its_connection():
    response, whole = read(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    assert not whole
    assert response.ends_with_connection
    assert not response.keeps_connection
    assert response.answer().body == b"all of it"


@pytest.mark.parametrize("head", [b"HTTP/1.0 200 OK\r\n", b"HTTP/1.1 200 OK\r\nConnection: Close\r\n"])
def test_a_connection_is_not_kept_where_the_server_says_so(head):
    response, whole = read(head + b"Content-Length: 0\r\n\r\n")
    assert whole
    assert not response.keeps_connection


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * (1 << 16),
    ],
    ids=["no version", "other version", "no status", "no colon", "length", "size", "sign", "after a chunk", "endless"],
)
def test_what_is_no_http_is_refused(data):
    with pytest.raises(MalformedError):
        read(data)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_length_that_is_no_number_of_bytes_is_malformed(length):
    response, whole = Response(), False
    try:
        whole = response.feed(b"HTTP/1.1 200 OK\r\nContent-Length: " + length + b"\r\n\r\n{}")
    except MalformedError:
        return
    assert length in {b"00000000000000002", b"9" * 12}
    assert whole == (int(length) <= 2)


@pytest.mark.parametrize("first", [b"HTTP/1.1 2\xb20 OK", b"HTTP/1.1 \xb2\xb2\xb2", b"HTTP/1.1 20", b"HTTP/1.1 0"])
def test_a_status_that_is_no_number_is_malformed(first):
    with pytest.raises(MalformedError):
        Response().feed(first + b"\r\n\r\n")


@given(
    data=st.one_of(st.binary(max_size=300), mutated(LENGTH), mutated(CHUNKS), mutated(EARLY)),
    sizes=st.lists(st.integers(1, 40), max_size=20),
)
def test_whatever_a_server_sends_is_an_answer_or_malformed(data, sizes):
    response, at = Response(), 0
    for size in (*sizes, len(data)):
        piece = data[at : at + size]
        at += size
        try:
            if not piece or response.feed(piece):
                return
        except MalformedError:
            return
