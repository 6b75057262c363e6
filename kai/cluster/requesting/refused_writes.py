"""Refuses writes before they are sent: into terminating namespaces, and of a process that only reads.

`EndingNamespaces`: the API server refuses every new object in a terminating namespace, and treats binds, evictions and
events as such. When a tenant deletes a namespace with running jobs, that would be hundreds of calls for nothing. If the
store watches namespaces, it shows which of them are terminating. Otherwise, and until the watch catches up, the first
refusal is remembered for a while.

`ReadOnlyApi` refuses every write, whichever part of a process makes it.
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
    """Passes on reads, and refuses writes."""

    api: Api

    async def perform(self, request: Request) -> Any:  # noqa: ANN401 - as the port says
        """Return the reply to a read; `Forbidden` for a write."""
        if isinstance(request, WRITES):
            return Forbidden(message=f"{type(request).__name__}: this process only reads")
        return await self.api.perform(request)

    def fenced(self, term: Term) -> Api:
        """Return itself: it refuses every write anyway."""
        del term
        return self


SECONDS: Final = 10.0
"""How long a refusal is remembered: a new namespace of that name may exist as soon as the old one is gone.

Units: seconds.
"""
MOST: Final = 512
"""Limit of remembered refusals."""


@attrs.define
class EndingNamespaces:
    """The namespaces that accept nothing new."""

    store: WatchedStore
    clock: Clock
    _refused: Deadlines[tuple[str, str]] = attrs.field(factory=Deadlines)
    """When each refusal expires, by the name of the namespace and its UID in the store."""

    def refusal(self, request: Request) -> NamespaceEnding | None:
        """Return a refusal if a request would create something in a terminating namespace; else None."""
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
        """Remember that the API server refused a request because its namespace is terminating."""
        name = _entered(request)
        uid, ends = self._known(name)
        now = self.clock.monotonic()
        # What the store shows needs no memory of its own.
        if ends or not name:
            return
        if len(self._refused) >= MOST:
            self._refused.forget(now)
        if len(self._refused) < MOST:
            self._refused[name, uid] = now + SECONDS

    def _known(self, name: str) -> tuple[str, bool]:
        """Return the UID of a namespace and whether it is terminating, according to the store."""
        found = self.store.get(Namespace, name) if self.store.watches(Namespace) else None
        return ("", False) if found is None else (found.metadata.uid, found.metadata.deletion_timestamp is not None)


def _entered(request: Request) -> str:
    """Return the namespace in which a request creates something; "" if there is none.

    Status and finalizers may still be written: pods that run there stay accounted for, and must be able to end.
    """
    match request:
        case Create() | Bind() | Evict() | Emit():
            return request.ref.namespace
        case Apply(subresource=""):
            return request.ref.namespace
    return ""
