"""Asking the service: answers for users who may not list what the scheduler reads.

The way leads through the API server's proxy, so a user needs no network of the cluster, and only the right to that
Service. The proxy keeps the usual header with a token for itself; ours carries it on. What the service does not answer
is no error here: its reader falls back to what it has of its own.
"""

import importlib.metadata
import json
from collections.abc import Mapping
from typing import Any, Final

import anyio
import attrs

from kai.cluster.calls import Answer, Call, NoAnswer, Query
from kai.cluster.client import Account, Client, user_agent
from kai.cluster.clock import SystemClock
from kai.cluster.credentials import Source
from kai.errors import UnreachableError
from kai.simulation.case import Origin
from kai.simulation.live import Access

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


class RefusedByServiceError(UnreachableError):
    """The service does not answer this user, or not this question."""


@attrs.frozen(kw_only=True)
class Service:
    """Where answers are asked for, and as whom."""

    access: Access
    place: str = ""
    """A URL, or NAMESPACE/NAME of a Service behind the API server; "" for that of an installation as it is shipped."""

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

        Raises: RefusedByServiceError.
        """
        if self.access.impersonated:
            raise RefusedByServiceError("the service answers the owner of a token, and not for --as")
        query = tuple((name, value) for name, value in parameters.items() if value)
        found = anyio.run(self._ask, f"{_ROOT}/{path}", query)
        if isinstance(found, NoAnswer):
            raise RefusedByServiceError(f"{self.name}: {found.message}")
        document = _decoded(found)
        if not found.is_good:
            why = document.get("error") or document.get("message") or "no reason"
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

    async def _ask(self, path: str, query: tuple[tuple[str, str], ...]) -> Answer | NoAnswer:
        clock = SystemClock()
        account = await Account.open(self._source, clock)
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
            found = await client.request(call)
            for _ in range(_TRIES - 1):
                if not (isinstance(found, Answer) and found.status == 503):
                    break
                await clock.sleep(_PAUSE)
                found = await client.request(call)
        return found

    @property
    def _source(self) -> Source:
        source = self.access.source
        return attrs.evolve(source, server=self.place) if self.is_url else source


def _decoded(answer: Answer) -> Mapping[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, Mapping) else {}


__all__ = ["SERVICE", "RefusedByServiceError", "Service"]
