"""A client of the service: it answers users who may not list everything that the scheduler reads.

Requests go through the API server's service proxy, so a user needs no access to the cluster's network, and only the
right to proxy that Service. The proxy consumes the Authorization header; the token also travels in a header of kai's
own. A question that the service does not answer is no fatal error: the caller falls back to the user's own view.
"""

import importlib.metadata
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import anyio
import attrs

from kai.answers.cases.origin import Origin
from kai.api.values import BadValue
from kai.basics.errors import UnreachableError
from kai.basics.wording import shown
from kai.cluster.clock import SystemClock
from kai.cluster.transport.access import Access
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Query, redirected
from kai.cluster.transport.client import Client, user_agent

SERVICE: Final = "kai-scheduler/kai-dashboard"
"""Namespace and name of the default Service."""
_PORT: Final = "dashboard"
_TOKEN_HEADER: Final = "X-Kai-Token"  # noqa: S105 - the name of a header
_BEARER: Final = "Bearer "
_ROOT: Final = "/api/v1"
_TRIES: Final = 3
"""Only the leader of several replicas answers, and each try may reach a different replica."""
_PAUSE: Final = 0.2
_TIMEOUT: Final = 20.0
SOON: Final = 1.5
"""Seconds that the service gets for an optional answer: deciding locally takes about as long."""

R = TypeVar("R")


class RefusedByServiceError(UnreachableError):
    """The service does not answer this user, or not this question."""


class SlowServiceError(RefusedByServiceError):
    """The service did not answer in time. Worth a note, as the user waited for it."""


@attrs.frozen(kw_only=True)
class Service:
    """The service to ask, and the identity to ask as."""

    access: Access
    place: str = ""
    """A URL, or NAMESPACE/NAME of a Service behind the API server; "" for the default Service."""
    is_optional: bool = False
    """Whether the caller can do without the answer, so that waiting for an absent service is not worth it."""

    @property
    def is_url(self) -> bool:
        """Whether the service is reached directly, without the API server's proxy."""
        return self.place.startswith(("http://", "https://"))

    @property
    def name(self) -> str:
        """The name in messages."""
        return self.place or SERVICE

    def ask(self, path: str, **parameters: str) -> Mapping[str, Any]:
        """Return the document at a path below ``/api/v1``.

        Raises: RefusedByServiceError; SlowServiceError if an optional answer took too long.
        """
        # The token in kai's own header names its holder, so the answer would not be that user's.
        if self.access.impersonated:
            raise RefusedByServiceError("the service answers the owner of a token, and not for --as")
        query = tuple((name, value) for name, value in parameters.items() if value)
        found = anyio.run(self._ask_in_time, f"{_ROOT}/{path}", query)
        if found is None:
            raise SlowServiceError(f"{self.name}: no answer within {SOON:g} s, so this is decided here")
        if isinstance(found, NoAnswer):
            raise RefusedByServiceError(f"{self.name}: {_in_words(found)}")
        document = _decoded(found)
        if not found.is_good:
            why = document.get("error") or document.get("message") or redirected(found) or "no reason"
            raise RefusedByServiceError(
                f"{self.name}: HTTP status {found.status}: {why}", is_forbidden=found.status == 403
            )
        return document

    def origin_of(self, document: Mapping[str, Any]) -> Origin:
        """Return the origin of a document."""
        source = document.get("source") or {}
        chosen = self.access.chosen
        return Origin(
            type="service",
            cluster=chosen.name or None,
            namespace=chosen.namespace or "default",
            revision=source.get("revision"),
            complete=bool(source.get("complete")),
        )

    async def _ask_in_time(self, path: str, query: tuple[tuple[str, str], ...]) -> Answer | NoAnswer | None:
        """Return the answer; None if an optional answer did not come in time."""
        if not self.is_optional:
            return await self._ask(path, query)
        with anyio.move_on_after(SOON):
            return await self._ask(path, query)
        return None

    async def _ask(self, path: str, query: tuple[tuple[str, str], ...]) -> Answer | NoAnswer:
        clock = SystemClock()
        account = await self.access.account(clock, self.place if self.is_url else "")
        authorization = account.credentials.authorization
        prefix = ""
        headers: Query = ()
        if not self.is_url:
            if not authorization.startswith(_BEARER):
                return NoAnswer(was_sent=False, message="these credentials are no token, which is all it understands")
            namespace, _, name = self.name.partition("/")
            prefix = f"/api/v1/namespaces/{namespace}/services/{name}:{_PORT}/proxy"
            headers = ((_TOKEN_HEADER, authorization.removeprefix(_BEARER)),)
        agent = user_agent("cli", importlib.metadata.version("kai-scheduler"))
        call = Call(method="GET", path=prefix + path, query=query, headers=headers, timeout=_TIMEOUT)
        async with Client(account, user_agent=agent, connections=1) as client:
            if self.is_optional:
                # A cheap request first: an absent service shows before any answer is computed.
                there = await client.request(attrs.evolve(call, path=prefix + _ROOT, query=()))
                if isinstance(there, NoAnswer) or not there.is_good:
                    return there
            found = await client.request(call)
            for _ in range(_TRIES - 1):
                # 503 comes from a replica that does not lead, or from a proxy without an endpoint.
                if self.is_optional or not (isinstance(found, Answer) and found.status == 503):
                    break
                await clock.sleep(_PAUSE)
                found = await client.request(call)
        return found


def read(document: object, kind: str, reader: Callable[[Any], R]) -> R:
    """Return the result of ``reader`` on a document of the given kind.

    Raises: UnreachableError for another kind, or a missing field: that counts as no answer.
    """
    found = document.get("kind") if isinstance(document, Mapping) else None
    if found != kind:
        raise UnreachableError(f"service: kind: found {shown(found)}, expected {kind}")
    try:
        return reader(document)
    except (LookupError, TypeError, ValueError, AttributeError, BadValue) as error:
        text = f"{type(error).__name__}: {error}"
        raise UnreachableError(f"service: {kind}: found {text}, expected a document of output.kai/v1") from None


def _in_words(found: NoAnswer) -> str:
    """Return the reason of a failure in plain words, unless it is worded already."""
    from kai.cluster.requesting.listing import plain_words  # noqa: PLC0415 - only failures need it

    return plain_words(found, _TIMEOUT) if ": " in found.message else found.message


def _decoded(answer: Answer) -> Mapping[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
