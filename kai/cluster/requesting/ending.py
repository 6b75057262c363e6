"""Namespaces that are being deleted: nothing new is sent into them.

The API server refuses every new object there, and counts binds, evictions and events as such. Each refusal would be a
call for nothing, and of a tenant that deletes a namespace with running jobs there are hundreds. Where the store has
namespaces it says which of them end; else, and until the watch has told, the first refusal is remembered for a while.
"""

from __future__ import annotations

from typing import Final

import attrs

from kai.api.kubernetes.core import Namespace
from kai.api.plans import Bind, Create, Emit
from kai.cluster.caching.store import WatchedStore
from kai.cluster.port import Clock
from kai.cluster.requests import Apply, Evict, NamespaceEnding, Request
from kai.deadlines import Deadlines

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
