import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.cluster.transport.calls import LineSplitter

STREAM = '{"type":"ADDED","object":"é"}\n\n{"type":"MODIFIED","object":"日本"}\n{"a":1}\n'.encode()
LINES = tuple(line for line in STREAM.split(b"\n") if line)


def test_a_stream_cut_at_any_byte_keeps_its_lines():
    for cut in range(len(STREAM) + 1):
        splitter = LineSplitter()
        assert (*splitter.feed(STREAM[:cut]), *splitter.feed(STREAM[cut:])) == LINES


@given(st.lists(st.integers(0, len(STREAM))))
def test_a_stream_cut_into_any_pieces_keeps_its_lines(cuts):
    splitter = LineSplitter()
    places = [0, *sorted(cuts), len(STREAM)]
    pieces = [STREAM[start:end] for start, end in itertools.pairwise(places)]
    assert tuple(line for piece in pieces for line in splitter.feed(piece)) == LINES


def test_text_after_the_last_line_feed_is_kept_back():
    assert LineSplitter().feed(b'{"a":1}\n{"half') == (b'{"a":1}',)


def test_a_line_longer_than_any_object_is_refused():
    splitter = LineSplitter(longest=10)
    splitter.feed(b"12345")
    with pytest.raises(ValueError, match="a line of more than 10 bytes"):
        splitter.feed(b"678901")
