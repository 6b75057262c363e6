"""Asking the service: answers for users who may not list what the scheduler reads.

The way leads through the API server's proxy, so a user needs no network of the cluster, and only the right to that
Service. The proxy keeps the usual header with a token for itself; ours carries it on. What the service does not answer
is no error here: its reader falls back to what it has of its own.
"""

import importlib.metadata
import json
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import anyio
import attrs

from kai.api.values import BadValue
from kai.basics.wording import shown
from kai.cluster.threads import SystemClock
from kai.cluster.transport.access import Access
from kai.cluster.transport.answers import redirected
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Query
from kai.cluster.transport.client import Client, user_agent
from kai.errors import UnreachableError
from kai.simulation.cases.origin import Origin

SERVICE: Final = "kai-scheduler/kai-dashboard"
"""Namespace and name of the Service that is asked where none is named."""
_PORT: Final = "dashboard"
_TOKEN_HEADER: Final = "X-Kai-Token"  # noqa: S105 - the name of a header
_BEARER: Final = "Bearer "
_ROOT: Final = "/api/v1"
_TRIES: Final = 3
"""Of several replicas one leads and answers; each try may meet another one."""
_PAUSE: Final = 0.2
_TIMEOUT: Final = 20.0
SOON: Final = 1.5
"""So many seconds a service has for the answer, where there is another way to it that takes about as long."""

R = TypeVar("R")


class RefusedByServiceError(UnreachableError):
    """The service does not answer this user, or not this question."""


class SlowServiceError(RefusedByServiceError):
    """There is a service, and it did not answer in time: worth a word, as the user waited for it."""


@attrs.frozen(kw_only=True)
class Service:
    """Where answers are asked for, and as whom."""

    access: Access
    place: str = ""
    """A URL, or NAMESPACE/NAME of a Service behind the API server; "" for that of an installation as it is shipped."""
    is_optional: bool = False
    """Whether there is another way to the answer, so that a service that is away must not be waited for."""

    @property
    def is_url(self) -> bool:
        """Whether the place is reached directly."""
        return self.place.startswith(("http://", "https://"))

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.place or SERVICE

    def ask(self, path: str, **parameters: str) -> Mapping[str, Any]:
        """Return the document at a path below ``/api/v1``.

        Raises: RefusedByServiceError; SlowServiceError where there is another way, and it took too long.
        """
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
        """Return where a document comes from."""
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
        """Return what comes back; None where nothing comes in time, and there is another way to the answer."""
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
                there = await client.request(attrs.evolve(call, path=prefix + _ROOT, query=()))
                if isinstance(there, NoAnswer) or not there.is_good:
                    return there
            found = await client.request(call)
            for _ in range(_TRIES - 1):
                if self.is_optional or not (isinstance(found, Answer) and found.status == 503):
                    break
                await clock.sleep(_PAUSE)
                found = await client.request(call)
        return found


def read(document: object, kind: str, reader: Callable[[Any], R]) -> R:
    """Return what ``reader`` makes of a document of a kind.

    Raises: UnreachableError for a document that is another one, or lacks something: that is no answer.
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
    """Return what went wrong as a person says it; what is said here is said so already."""
    from kai.cluster.requesting.listing import plain_words  # noqa: PLC0415 - most answers come, and need none of it

    return plain_words(found, _TIMEOUT) if ": " in found.message else found.message


def _decoded(answer: Answer) -> Mapping[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}
