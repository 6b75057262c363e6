"""What a stranger may send to a port that speaks HTTP: nonsense, requests that are almost good, and known tricks."""

from hypothesis import strategies as st

_GOOD = b"POST /livez?a=b HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
LENGTHS = (
    *(b"\xb2", b"\xb2\xb3", b"9" * 5000, b"-1", b"+1", b"1_0", b"0x10", b" ", b"", b"1, 1", b"1\x00"),
    *(b"18446744073709551616", b"9" * 12, b"00000000000000002", "٣".encode()),
)
_TRICKS = (
    *(
        b"\x00",
        b"\r\n\r\n",
        b"\n",
        b"\xb2",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ),
    b"GET /livez HTTP/1.1\r\nHost: x\r\n folded: yes\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: x\r\nA: b\r\n\tfolded\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: x\r\nA\x00B: c\x00d\r\n\r\n",
    b"GET http://[::1 HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET //[ HTTP/1.1\r\nHost: [\r\n\r\n",
    b"GET /\xff\xfe?%zz HTTP/1.1\r\nHost: \xff\r\n\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n\x00\x01",
    b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET / HTTP/1.1\r\n",
    b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /livez HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n",
    b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\n\x1f\x8b\x08",
    b"GET /livez HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 500 + b"\r\n",
    b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
    b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" * 100,
)
_CHUNKS = (b"\xb2", b"f" * 5000, b"-1", b"0x5", b"ffffffffffffffff", b"5;a=" + b"b" * 9000, b"", b"zz")


def _with_length(length: bytes) -> bytes:
    return b"POST /livez HTTP/1.1\r\nHost: x\r\nContent-Length: " + length + b"\r\n\r\n{}"


def _with_chunk(size: bytes) -> bytes:
    return b"POST /livez HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + size + b"\r\nhello\r\n0\r\n\r\n"


BODIES = (
    *(b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b"-" * 10, b"NaN", b"1e999999", b"null", b'"\\ud800"', b"\x00"),
    b'{"request": NaN}',
    b'{"request": {"uid": Infinity, "operation": "CREATE", "object": {"metadata": {}}}}',
    b'{"request": {"uid": "u", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": {"spec": []}}}',
    b'{"request": {"uid": "u", "operation": "CREATE", "kind": {"kind": "Pod"}, "object": {"metadata": {"labels": 1}}}}',
    b'{"request": {"uid": "u", "operation": "UPDATE", "kind": {"kind": "Queue"}, "object": ' + b"[" * 5000 + b"}}",
)
"""Bodies that are no review, or one that makes little sense."""


@st.composite
def mutated(draw: st.DrawFn, good: bytes = _GOOD) -> bytes:
    """Draw a good message in which a few pieces are taken out, put in or doubled."""
    out = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(out)))
        end = min(len(out), start + draw(st.integers(0, 8)))
        out[start:end] = draw(st.one_of(st.binary(max_size=8), st.just(bytes(out[start:end]) * 2)))
    return bytes(out)


def packets(path: str = "/livez") -> st.SearchStrategy[bytes]:
    """Draw what a stranger sends."""
    found = st.one_of(
        st.binary(max_size=300),
        mutated(),
        st.sampled_from(LENGTHS).map(_with_length),
        st.sampled_from(_CHUNKS).map(_with_chunk),
        st.sampled_from(_TRICKS),
    )
    return found.map(lambda packet: packet.replace(b"/livez", path.encode()))
