"""Authentication and authorization of readers.

A dashboard for this machine asks for no token, but checks the Host header: with DNS rebinding, a foreign page that
points its own name at kai's address could read through the browser of a reader. Elsewhere a reader sends a token; the
API server says whose it is, and what its owner may list. Anything that it does not confirm is refused.

A `Scope` says what a reader may see. The constants name others where they have to be mentioned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio
import attrs

from kai.basics.trees import ancestry
from kai.cluster.process.listener import STRANGE_NAME, is_asked_locally
from kai.cluster.requesting.reviews import KEPT, ClientIdentity, Permission, Reviews

if TYPE_CHECKING:
    from kai.cluster.process.connections import Request

FOREIGN_NAMESPACE: Final = "another namespace"
FOREIGN_JOB: Final = "another job"
FOREIGN_QUEUE: Final = "another queue"
FOREIGN_POD: Final = "another pod"
FOREIGN_NODE: Final = "a node"


@attrs.frozen(kw_only=True)
class Scope:
    """The rights of a reader; None is everything."""

    namespaces: frozenset[str] | None = None
    """Namespaces whose pod groups the reader may list."""
    queues: frozenset[str] | None = None
    """Queues that the reader may get."""
    nodes: bool = True
    """Whether the reader may list nodes."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is hidden."""
        return self.namespaces is None and self.queues is None and self.nodes

    def sees(self, namespace: str) -> bool:
        """Return whether the jobs of a namespace are visible."""
        return self.namespaces is None or namespace in self.namespaces

    def reads(self, queue: str) -> bool:
        """Return whether a queue is visible."""
        return self.queues is None or queue in self.queues


EVERYTHING: Final = Scope()


COOKIE: Final = "kai-token"
TOKEN_HEADER: Final = "X-Kai-Token"  # noqa: S105 - the name of a header
"""The header of a token behind the API server's proxy, which consumes the Authorization header."""
RECHECKED: Final = 10.0
"""Seconds between two reviews of the token of an open stream.

With as many seconds for which the API server caches a token, and the age of kai's own cached review, a stream ends
within 30 seconds of the end of its token.
"""
_FRESH: Final = 5.0
_GROUP: Final = "scheduling.run.ai"
_JOBS: Final = Permission(verb="list", resource="podgroups", group=_GROUP)
_QUEUES: Final = Permission(verb="get", resource="queues", group=_GROUP)
_NODES: Final = Permission(verb="list", resource="nodes")
_PODS: Final = Permission(verb="list", resource="pods")
_MOST_NAMESPACES: Final = 512
_MOST_QUEUES: Final = 64
_AT_ONCE: Final = 8


@attrs.frozen(kw_only=True)
class Reader:
    """A client whose requests are answered."""

    token: str = attrs.field(default="", repr=False)
    identity: ClientIdentity | None = None
    """The owner of the token; None on this machine, where there is none."""

    @property
    def name(self) -> str:
        """The name of the reader; "" on this machine."""
        return "" if self.identity is None else self.identity.user


@attrs.frozen(kw_only=True)
class Refused:
    """A client whose requests are refused."""

    status: int
    why: str


@attrs.frozen(kw_only=True)
class JobQueues:
    """The subjects of a scope's reviews: namespaces with jobs, the queues of those jobs, and their ancestors."""

    queues_by_namespace: Mapping[str, frozenset[str]] = attrs.field(factory=dict)
    parents: Mapping[str, str] = attrs.field(factory=dict)
    """The parent of each queue, "" for none."""

    def queues_of(self, namespaces: Collection[str] | None) -> list[str]:
        """Return the queues of the jobs in ``namespaces``, all with None, and then their ancestors."""
        known = self.queues_by_namespace
        own = sorted({queue for each in (known if namespaces is None else namespaces) for queue in known.get(each, ())})
        above = {name for queue in own for name in ancestry(queue, self.parents)} - {*own, ""}
        return [*own, *sorted(above)]


FindQueues: TypeAlias = Callable[[], Awaitable[JobQueues]]
"""Finds the subjects of a scope's reviews; not called for a reader who may see everything."""


class Access(Protocol):
    """Decides who may read what."""

    @property
    def asks_for_tokens(self) -> bool:
        """Whether readers need tokens."""
        ...

    async def reader(self, request: Request) -> Reader | Refused:
        """Return who sent a request.

        Raises: ReviewError if the review fails.
        """
        ...

    async def holds(self, reader: Reader) -> bool:
        """Return whether a reader of an open stream may go on.

        Raises: as ``reader``.
        """
        ...

    async def scope(self, reader: Reader, places: FindQueues, namespace: str = "", queue: str = "") -> Scope:
        """Return the rights of a reader; with a ``namespace``, only that one is reviewed.

        ``queue`` is reviewed by its name, whether or not the reader has jobs in it.

        Raises: as ``reader``.
        """
        ...

    async def may_take_all(self, reader: Reader) -> bool:
        """Return whether a reader may download everything that the scheduler reads."""
        ...


@attrs.frozen
class LocalAccess:
    """Admits every process of this machine, and no foreign page."""

    asks_for_tokens: bool = False

    async def reader(self, request: Request) -> Reader | Refused:
        """Return the reader, unless the Host header has a foreign name."""
        if not is_asked_locally(request):
            return Refused(status=421, why=STRANGE_NAME)
        return Reader()

    async def holds(self, reader: Reader) -> bool:
        """Admit every reader."""
        del reader
        return True

    async def scope(self, reader: Reader, places: FindQueues, namespace: str = "", queue: str = "") -> Scope:
        """Show everything."""
        del reader, places, namespace, queue
        return EVERYTHING

    async def may_take_all(self, reader: Reader) -> bool:
        """Permit every reader."""
        del reader
        return True


@attrs.frozen
class TokenAccess:
    """Authenticates and authorizes tokens by reviews of the API server."""

    reviews: Reviews
    asks_for_tokens: bool = True

    async def reader(self, request: Request) -> Reader | Refused:
        """Return the owner of the token in a request."""
        token = token_of(request)
        if not token:
            return Refused(status=401, why="found no token, expected one of the cluster")
        identity = await self.reviews.identify(token)
        if identity is None:
            return Refused(status=401, why="found a token that the cluster does not know, or not any more")
        return Reader(token=token, identity=identity)

    async def holds(self, reader: Reader) -> bool:
        """Return whether the token still belongs to the same user."""
        found = await self.reviews.identify(reader.token, most_age=_FRESH)
        # Other groups mean other rights: the stream ends, and the next request is judged anew.
        return found is not None and found == reader.identity

    async def scope(self, reader: Reader, places: FindQueues, namespace: str = "", queue: str = "") -> Scope:
        """Return what the owner of a token may list."""
        if reader.identity is None:
            return Scope(namespaces=frozenset(), queues=frozenset(), nodes=False)
        namespaces: frozenset[str] | None = None
        if not await self._may(reader, _JOBS):
            # Each namespace takes a review. Sorted, so that the bound leaves out the same ones each time.
            asked = [namespace] if namespace else sorted((await places()).queues_by_namespace)[:_MOST_NAMESPACES]
            wanted = {each: attrs.evolve(_JOBS, namespace=each) for each in asked}
            namespaces = await self._allowed(reader, wanted)
        queues: frozenset[str] | None = None
        if not await self._may(reader, _QUEUES):
            # Queues of the reader's jobs come first, so the bound cuts off ancestors.
            own = (await places()).queues_of(namespaces)[:_MOST_QUEUES]
            named = {each: attrs.evolve(_QUEUES, name=each) for each in (*own, queue) if each}
            queues = await self._allowed(reader, named)
        return Scope(namespaces=namespaces, queues=queues, nodes=await self._may(reader, _NODES))

    async def may_take_all(self, reader: Reader) -> bool:
        """Return whether the owner of a token may list pods, pod groups, queues and nodes everywhere."""
        return all([await self._may(reader, each) for each in (_PODS, _JOBS, _QUEUES, _NODES)])

    async def _allowed(self, reader: Reader, wanted: Mapping[str, Permission]) -> frozenset[str]:
        """Return the names of the permissions in ``wanted`` that a reader has."""
        found: set[str] = set()
        # A reader of hundreds of namespaces must not take all connections to the API server.
        limit = anyio.CapacityLimiter(_AT_ONCE)

        async def ask(name: str, permission: Permission) -> None:
            async with limit:
                if await self._may(reader, permission):
                    found.add(name)

        async with anyio.create_task_group() as tasks:
            for name, permission in wanted.items():
                tasks.start_soon(ask, name, permission)
        return frozenset(found)

    async def _may(self, reader: Reader, permission: Permission) -> bool:
        return reader.identity is not None and await self.reviews.allows(reader.identity, permission, most_age=KEPT)


def token_of(request: Request) -> str:
    """Return the token in a request, "" for none."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    # Before the cookie: a command states its token, a browser only repeats one.
    if token := request.headers.get(TOKEN_HEADER, "").strip():
        return token
    try:
        found = SimpleCookie(request.headers.get("Cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def missing_rights(scope: Scope, resources: Collection[str]) -> str:
    """Return which of these the reader may not list, as text; "" if all are allowed."""
    missing = {
        "podgroups": scope.namespaces is not None and not scope.namespaces,
        "queues": scope.queues is not None and not scope.queues,
        "nodes": not scope.nodes,
    }
    verbs = {"podgroups": "list podgroups.scheduling.run.ai", "queues": "get queues", "nodes": "list nodes"}
    return ", ".join(verbs[each] for each in resources if missing[each])
