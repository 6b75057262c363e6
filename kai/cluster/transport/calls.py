"""HTTP as values: a call to an API server, its three possible results, and what they mean.

All traffic of this package passes through `Transport`: `kai.cluster.transport.client` implements it over the network, a
test or a simulation in memory. No error of a server or a network makes it raise.

`refusal_of` says what the status of an answer means for a read or a write, and `wait_of` when to retry. A write that
was answered with 5xx, or not at all, has an unknown outcome: the API server may have stored it. Only 429 and a
connection that was never established prove that nothing was done.
"""

from __future__ import annotations

import datetime as dt
import email.utils
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from urllib.parse import urlsplit, urlunsplit

import attrs
import msgspec

from kai.api.plans import Reason, Refusal
from kai.basics.errors import on_one_line
from kai.basics.kubernetes_version import KubernetesVersion
from kai.basics.parsing import mapping_of, mappings_of, part_of
from kai.cluster.requests import BudgetExhausted, Forbidden, NamespaceEnding, NoSuchKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractAsyncContextManager

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"  # JSON is YAML
METADATA: Final = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"

LARGEST: Final = 64 << 20
"""Limit of bytes of an answer, unless its call sets another. An object has at most a few million."""
LARGEST_PAGE: Final = 4 << 30
"""Limit of bytes of a page from the API server itself; some servers answer with all objects of a kind."""

Query: TypeAlias = tuple[tuple[str, str], ...]


def always() -> bool:
    """Return True: the call may be sent."""
    return True


@attrs.frozen(kw_only=True)
class Call:
    """One HTTP request."""

    method: str
    path: str
    query: Query = ()
    body: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    """Wanted media type of the answer."""
    headers: Query = ()
    """Headers in addition to the common ones."""
    timeout: float = 30.0
    """Seconds until the answer must be complete; for a stream, until its first byte."""
    largest: int = LARGEST
    """Limit of bytes after which an answer counts as none: an aggregated API server of others may send it."""
    is_foreign: bool = False
    """Whether tenants chose the object, so that a refusal says nothing about the rights of this process."""
    may_send: Callable[[], bool] = attrs.field(default=always, eq=False, repr=False)
    """Checked just before the first byte is sent; if it returns False, the result is `NoAnswer`, not sent."""


@attrs.frozen(kw_only=True)
class Answer:
    """A complete HTTP response."""

    status: int
    body: bytes = b""
    retry_after: str = ""
    """The Retry-After header, unparsed."""
    location: str = ""
    """The Location header, unparsed: the target of a redirect."""

    @property
    def is_good(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


VERSION_CALL: Final = Call(method="GET", path="/version", timeout=4.0, is_foreign=True)
"""Requests the version of the API server."""


@attrs.frozen(kw_only=True)
class NoAnswer:
    """No complete response: the connection failed, was cut, or took too long."""

    was_sent: bool
    """Whether the server may have received the request; False only if that is impossible."""
    message: str = ""
    is_distrusted: bool = False
    """Whether the server's certificate is not trusted: the trusted authorities may have changed."""


class Stream(Protocol):
    """The body of a response, which arrives in pieces."""

    async def read(self) -> bytes | NoAnswer:
        """Return the bytes that have arrived, b"" at the regular end, or `NoAnswer` if the connection was cut."""
        ...


class Transport(Protocol):
    """A connection to an API server, with its address and credentials."""

    async def request(self, call: Call) -> Answer | NoAnswer:
        """Send a request and return the response."""
        ...

    def stream(self, call: Call) -> AbstractAsyncContextManager[Stream | Answer | NoAnswer]:
        """Send a request and return the body as it arrives, or the response that refuses it."""
        ...


class LineSplitter:
    """Splits a stream of bytes into lines, however the bytes are divided into pieces.

    The bytes after the last line feed are kept until the rest of the line arrives, and lost with the stream.
    """

    def __init__(self, longest: int = 64 << 20) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._longest = longest

    def feed(self, data: bytes) -> tuple[bytes, ...]:
        """Return the complete lines, without line feeds and without empty lines.

        Raises: ValueError for a line longer than any object.
        """
        head, feed, tail = data.rpartition(b"\n")
        if not feed:
            self._keep(data)
            return ()
        whole = b"".join([*self._pieces, head])
        self._pieces.clear()
        self._size = 0
        self._keep(tail)
        return tuple(_lines(whole))

    def _keep(self, data: bytes) -> None:
        if data:
            self._pieces.append(data)
            self._size += len(data)
        if self._size > self._longest:
            raise ValueError(f"found a line of more than {self._longest} bytes, expected at most that")


def _lines(whole: bytes) -> Iterator[bytes]:
    return (line for line in whole.split(b"\n") if line.strip())


_LONGEST_WAIT: Final = 3600.0
_LONGEST_MESSAGE: Final = 500
_LONGEST_PLACE: Final = 200
_TWO_BUDGETS: Final = "This pod has more than one PodDisruptionBudget"
"""Start of the message, with status 500 and no other mark, that the API server will never evict a pod."""
_REASONS: Final = {
    # The credentials are read again after it, so the same request may succeed later.
    401: Reason.UNAVAILABLE,
    409: Reason.CONFLICT,
    410: Reason.UNAVAILABLE,
    412: Reason.CONFLICT,
    429: Reason.UNAVAILABLE,
}


def decoded(body: bytes) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Return JSON as Python values; None if it cannot be parsed."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def status_of(body: bytes) -> Mapping[str, Any]:
    """Return the Status in a body; {} for anything else."""
    return mapping_of(decoded(body)) if body[:1] == b"{" else {}


def version_said(answer: Answer | NoAnswer) -> KubernetesVersion | None:
    """Return the version that an API server reports; None if it reports none."""
    if isinstance(answer, NoAnswer) or not answer.is_good:
        return None
    return KubernetesVersion.of(str(mapping_of(decoded(answer.body)).get("gitVersion", "")))


def said(answer: Answer, status: Mapping[str, Any] | None = None) -> str:
    """Return the message of a failed answer for users; ``status`` is its body, if it is known."""
    message = (status_of(answer.body) if status is None else status).get("message")
    if not isinstance(message, str) or not message:
        return redirected(answer) or f"HTTP status {answer.status}"
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}…"


def redirected(answer: Answer) -> str:
    """Return the meaning of a redirect; "" for other answers.

    An API server never redirects. A redirect comes from something in front of it that wants a person to sign in.
    """
    if not 300 <= answer.status < 400:
        return ""
    try:
        at = urlsplit(answer.location)
    except ValueError:
        at = urlsplit("")
    # The query may be a secret: login pages carry the state of a session there.
    place = on_one_line(urlunsplit(at._replace(netloc=at.netloc.rpartition("@")[2], query="", fragment="")))
    to = f" to {place[:_LONGEST_PLACE]}" if place else ""
    return f"a redirect{to}, which no API server sends: a proxy or a login page may stand in between"


def refusal_of(answer: Answer | NoAnswer, *, is_write: bool, now: float) -> Refusal:
    """Return the meaning of a failed answer.

    Units: ``now`` in seconds since the epoch, for a date in ``Retry-After``.
    """
    lost = Reason.UNKNOWN if is_write else Reason.UNAVAILABLE
    if isinstance(answer, NoAnswer):
        return Refusal(reason=lost if answer.was_sent else Reason.UNAVAILABLE, message=answer.message)
    status = status_of(answer.body)
    message = said(answer, status)
    if answer.status == 404:
        return _missing(status, message)
    if answer.status == 403:
        return NamespaceEnding(message=message) if ends_with_namespace(status) else Forbidden(message=message)
    wait = wait_of(answer, now)
    by_budget = answer.status == 429 and _has_cause(status, "DisruptionBudget")
    if by_budget or (answer.status == 500 and message.startswith(_TWO_BUDGETS)):
        return BudgetExhausted(message=message, retry_after=wait)
    if answer.status == 409 and status.get("reason") == "AlreadyExists":
        return Refusal(reason=Reason.ALREADY_EXISTS, message=message)
    if answer.status == 422 and _has_cause(status, "metadata.uid", "field"):
        # A UID in a patch is a precondition; the server reports a mismatch as a change of an immutable field.
        return Refusal(reason=Reason.CONFLICT, message=message)
    reason = lost if answer.status >= 500 else _REASONS.get(answer.status, Reason.REJECTED)
    return Refusal(reason=reason, message=message, retry_after=wait)


def ends_with_namespace(status: Mapping[str, Any]) -> bool:
    """Return whether something is refused because its namespace is terminating."""
    return _has_cause(status, "NamespaceTerminating")


def is_throttled(answer: Answer | NoAnswer) -> bool:
    """Return whether the server throttled a request: nothing was done, and the same request may be sent again."""
    return (
        isinstance(answer, Answer)
        and answer.status == 429
        and not _has_cause(status_of(answer.body), "DisruptionBudget")
    )


def wants_rest(answer: Answer) -> bool:
    """Return whether an answer of 429 concerns the server as a whole, and not this request.

    Source: priority and fairness, the limit of requests in flight and a server that shuts down answer in plain text
    (http.Error), before anything looks at the request. A webhook that denies with code 429, and a kind whose cache is
    not ready, answer with a Status. The headers X-Kubernetes-PF-* do not help: all answers have them.
    """
    return status_of(answer.body).get("kind") != "Status"


def wait_of(answer: Answer, now: float) -> float | None:
    """Return the delay in seconds that the server asks for, in a header or the body; None without one."""
    text = answer.retry_after.strip()
    if text.isascii() and text.isdigit():
        # A header of a thousand digits is a long wait, and no error.
        return min(float(text[:9]), _LONGEST_WAIT)
    if text:
        moment = _instant(text)
        return None if moment is None else min(max(0.0, moment - now), _LONGEST_WAIT)
    if answer.status not in {429, 500, 503, 504}:
        return None
    seconds = part_of(status_of(answer.body), "details", "retryAfterSeconds")
    return min(float(seconds), _LONGEST_WAIT) if isinstance(seconds, int) and 0 < seconds < 1 << 31 else None


def _instant(text: str) -> float | None:
    try:
        moment = email.utils.parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp()


def _missing(status: Mapping[str, Any], message: str) -> Refusal:
    """Distinguish a missing object from a missing path: only the answer for an object names it."""
    is_named = bool(part_of(status, "details", "name"))
    return Refusal(reason=Reason.NOT_FOUND, message=message) if is_named else NoSuchKind(message=message)


def _has_cause(status: Mapping[str, Any], wanted: str, part: str = "reason") -> bool:
    return any(cause.get(part) == wanted for cause in mappings_of(status, "details", "causes"))
