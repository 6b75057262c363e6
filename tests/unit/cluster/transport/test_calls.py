import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai.api.plans import Reason, Refusal
from kai.cluster.requests import BudgetExhausted, Forbidden, NamespaceEnding, NoSuchKind
from kai.cluster.transport.calls import (
    Answer,
    LineSplitter,
    NoAnswer,
    decoded,
    is_throttled,
    refusal_of,
    status_of,
    wait_of,
    wants_rest,
)

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


NOW = 1_700_000_000.0


def answer(status, retry_after="", **body):
    return Answer(status=status, body=json.dumps({"kind": "Status", **body}).encode(), retry_after=retry_after)


def meaning(given, *, is_write=True):
    return refusal_of(given, is_write=is_write, now=NOW)


@pytest.mark.parametrize(
    ("status", "write", "read"),
    [
        (400, Reason.REJECTED, Reason.REJECTED),
        (401, Reason.UNAVAILABLE, Reason.UNAVAILABLE),
        (405, Reason.REJECTED, Reason.REJECTED),
        (409, Reason.CONFLICT, Reason.CONFLICT),
        (410, Reason.UNAVAILABLE, Reason.UNAVAILABLE),
        (412, Reason.CONFLICT, Reason.CONFLICT),
        (413, Reason.REJECTED, Reason.REJECTED),
        (422, Reason.REJECTED, Reason.REJECTED),
        (429, Reason.UNAVAILABLE, Reason.UNAVAILABLE),
        (500, Reason.UNKNOWN, Reason.UNAVAILABLE),
        (502, Reason.UNKNOWN, Reason.UNAVAILABLE),
        (504, Reason.UNKNOWN, Reason.UNAVAILABLE),
    ],
)
def test_a_status_has_one_meaning_for_writes_and_reads(status, write, read):
    assert meaning(answer(status)).reason is write
    assert meaning(answer(status), is_write=False).reason is read


def test_a_missing_object_is_told_from_a_missing_kind():
    named = answer(404, message='pods "p" not found', details={"name": "p", "kind": "pods"})
    assert meaning(named) == Refusal(reason=Reason.NOT_FOUND, message='pods "p" not found')
    assert isinstance(meaning(Answer(status=404, body=b"404 page not found\n")), NoSuchKind)


def test_an_existing_object_is_distinguished_from_a_conflict():
    assert meaning(answer(409, reason="AlreadyExists")).reason is Reason.ALREADY_EXISTS
    assert meaning(answer(409, reason="Conflict")).reason is Reason.CONFLICT


def test_a_differing_uid_is_a_conflict_despite_status_422():
    causes = [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]
    assert meaning(answer(422, details={"causes": causes})).reason is Reason.CONFLICT


def test_missing_rights_are_distinguished_from_a_terminating_namespace():
    assert isinstance(meaning(answer(403, message="no")), Forbidden)
    ending = answer(403, details={"causes": [{"reason": "NamespaceTerminating"}]})
    assert isinstance(meaning(ending), NamespaceEnding)
    assert meaning(ending).reason is Reason.REJECTED


def test_a_disruption_budget_is_told_from_throttling():
    budget = answer(429, retry_after="10", details={"causes": [{"reason": "DisruptionBudget"}]})
    assert isinstance(meaning(budget), BudgetExhausted)
    assert not is_throttled(budget)
    assert is_throttled(answer(429))


def test_two_budgets_on_a_pod_count_as_budget_exhausted():
    text = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    assert isinstance(meaning(answer(500, message=text)), BudgetExhausted)
    assert not isinstance(meaning(answer(500, message="etcd is away")), BudgetExhausted)


def test_an_overloaded_server_differs_from_one_throttled_request():
    assert wants_rest(Answer(status=429, body=b"Too many requests, please try again later.\n", retry_after="1"))
    assert wants_rest(Answer(status=429, body=b"{}"))
    assert not wants_rest(answer(429, message='admission webhook "w" denied the request: later'))


def test_only_a_missing_connection_means_nothing_was_done():
    assert meaning(NoAnswer(was_sent=True)).reason is Reason.UNKNOWN
    assert meaning(NoAnswer(was_sent=False)).reason is Reason.UNAVAILABLE
    assert meaning(NoAnswer(was_sent=True), is_write=False).reason is Reason.UNAVAILABLE
    assert not is_throttled(NoAnswer(was_sent=False))


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0", 0.0),
        ("99999999999999", 3600.0),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10.0),
        ("Tue, 14 Nov 2000 22:13:30 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("٣", None),
    ],
)
def test_the_header_says_for_how_long_to_wait(header, seconds):
    assert wait_of(answer(429, retry_after=header), NOW) == seconds


def test_without_a_header_the_body_says_it():
    assert wait_of(answer(429, details={"retryAfterSeconds": 3}), NOW) == 3.0
    assert wait_of(answer(504, details={"retryAfterSeconds": 10**12}), NOW) is None
    assert wait_of(answer(409, details={"retryAfterSeconds": 3}), NOW) is None


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"nonsense", b'"x"', b"{", b"\xff", b"[" * 100_000, b'{"details": 7}', b'{"details": {"causes": 7}}'],
)
def test_a_body_of_any_shape_is_survived(body):
    for status in (400, 403, 404, 409, 429, 500):
        assert meaning(Answer(status=status, body=body)).message == f"HTTP status {status}"


def test_what_is_no_json_decodes_to_nothing():
    assert decoded(b"{") is None
    assert status_of(b"[1]") == {}


@pytest.mark.parametrize(
    ("location", "to"),
    [
        ("https://me:SECRET@sso.example.com/login?state=SECRET#SECRET", " to https://sso.example.com/login"),
        ("/login", " to /login"),
        ("https://[x", ""),
        ("", ""),
    ],
)
def test_a_redirect_names_where_it_leads_without_secrets(location, to):
    found = meaning(Answer(status=302, body=b"<html>", location=location))
    assert found.message == (f"a redirect{to}, which no API server sends: a proxy or a login page may stand in between")


def test_messages_have_a_longest_length():
    assert len(meaning(answer(400, message="x" * 10_000)).message) == 501
