"""Namespaces that are being deleted: nothing new is sent into them.

The API server refuses every new object there, and counts binds, evictions and events as such. Each refusal would be a
call for nothing, and of a tenant that deletes a namespace with running jobs there are hundreds. Where the store has
namespaces it says which of them end; else, and until the watch has told, the first refusal is remembered for a while.

An API that only reads: every write is refused before it is sent, whichever part of a process asks for it.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from kai.api.kubernetes.meta import Namespace
from kai.api.plans import Bind, Create, Emit
from kai.basics.deadlines import Deadlines
from kai.cluster.caching.store import WatchedStore
from kai.cluster.port import Api, Clock, Term
from kai.cluster.requests import WRITES, Apply, Evict, Forbidden, NamespaceEnding, Request


@attrs.frozen
class ReadOnlyApi:
    """Passes on what reads, and refuses what writes."""

    api: Api

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - as the port says
        """Return the reply to a request that reads; `Forbidden` for one that writes."""
        if isinstance(request, WRITES):
            return Forbidden(message=f"{type(request).__name__}: this process only reads")
        return await self.api.perform(request)

    def fenced(self, term: Term) -> Api:
        """Return this: what refuses every write refuses late ones."""
        del term
        return self


SECONDS: Final = 10.0
"""How long a refusal is remembered: a namespace of that name may be made anew as soon as the old one is gone."""
MOST: Final = 512
"""So many refusals are remembered."""


@attrs.define
class EndingNamespaces:
    """Which namespaces take nothing new."""

    store: WatchedStore
    clock: Clock
    _refused: Deadlines[tuple[str, str]] = attrs.field(factory=Deadlines)
    """Until when a refusal counts, by the name of the namespace and the UID that the store showed."""

    def refusal(self, request: Request) -> NamespaceEnding | None:
        """Return that a request would put something into a namespace that ends; None for any other request."""
        name = _entered(request)
        if not name:
            return None
        uid, ends = self._known(name)
        if not ends and not self._refused:
            return None
        now = self.clock.monotonic()
        if ends or self._refused.get((name, uid), now) > now:
            return NamespaceEnding(message=f"namespace {name} is being deleted and takes nothing new")
        return None

    def note(self, request: Request) -> None:
        """Take it that the API server refused a request because its namespace ends."""
        name = _entered(request)
        uid, ends = self._known(name)
        now = self.clock.monotonic()
        if ends or not name:
            return
        if len(self._refused) >= MOST:
            self._refused.forget(now)
        if len(self._refused) < MOST:
            self._refused[name, uid] = now + SECONDS

    def _known(self, name: str) -> tuple[str, bool]:
        """Return the UID of a namespace and whether it ends, as the store shows it."""
        found = self.store.get(Namespace, name) if self.store.watches(Namespace) else None
        return ("", False) if found is None else (found.metadata.uid, found.metadata.deletion_timestamp is not None)


def _entered(request: Request) -> str:
    """Return the namespace into which a request puts something; "" if there is none.

    Status and finalizers go on: what still runs in the namespace must stay accounted for, and must be able to end.
    """
    match request:
        case Create() | Bind() | Evict() | Emit():
            return request.ref.namespace
        case Apply(subresource=""):
            return request.ref.namespace
    return ""
