"""Who asks, and what they may see.

On this machine nothing is asked of a reader, but the name under which it was found is: a page of a stranger that gives
its own name our address would otherwise read through the browser of a reader who opened it. Elsewhere a reader brings a
token, and the API server says whose it is and what its owner may list. What it does not say is refused.

What a reader may see, and what others are called where they have to be mentioned.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

import anyio
import attrs

from kai.basics.trees import ancestry
from kai.cluster.requesting.reviews import KEPT, Identity, Permission, Reviews
from kai.telemetry.listener import STRANGE_NAME, is_asked_locally

if TYPE_CHECKING:
    from kai.telemetry.connections import Request

FOREIGN_NAMESPACE: Final = "another namespace"
FOREIGN_JOB: Final = "another job"
FOREIGN_QUEUE: Final = "another queue"
FOREIGN_POD: Final = "another pod"
FOREIGN_NODE: Final = "a node"


@attrs.frozen(kw_only=True)
class Scope:
    """What a reader may see; None is everything."""

    namespaces: frozenset[str] | None = None
    """Whose pod groups may be listed."""
    queues: frozenset[str] | None = None
    """The queues that may be read."""
    nodes: bool = True
    """Whether nodes may be listed."""

    @property
    def is_whole(self) -> bool:
        """Whether nothing is hidden."""
        return self.namespaces is None and self.queues is None and self.nodes

    def sees(self, namespace: str) -> bool:
        """Return whether jobs of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces

    def reads(self, queue: str) -> bool:
        """Return whether a queue may be read."""
        return self.queues is None or queue in self.queues


EVERYTHING: Final = Scope()


COOKIE: Final = "kai-token"
TOKEN_HEADER: Final = "X-Kai-Token"  # noqa: S105 - the name of a header
"""Where a token is that comes through the API server's proxy, which takes the usual header for itself."""
RECHECKED: Final = 10.0
"""Seconds between two looks at the token of an open stream.

With as many seconds for which the API server keeps what it knows of a token, and the age of our own review, a stream
ends within 30 seconds of the end of its token.
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
    identity: Identity | None = None
    """Whose token it is; None on this machine, where none is asked for."""

    @property
    def name(self) -> str:
        """What the reader is called; "" on this machine."""
        return "" if self.identity is None else self.identity.user


@attrs.frozen(kw_only=True)
class Refused:
    """A client whose requests are not answered."""

    status: int
    why: str


@attrs.frozen(kw_only=True)
class JobQueues:
    """What a scope is asked for: namespaces that have jobs, the queues of those jobs, and those above."""

    queues_by_namespace: Mapping[str, frozenset[str]] = attrs.field(factory=dict)
    parents: Mapping[str, str] = attrs.field(factory=dict)
    """The parent of each queue, "" for none."""

    def queues_of(self, namespaces: Collection[str] | None) -> list[str]:
        """Return the queues of the jobs of namespaces, of all with None, and then those above them."""
        known = self.queues_by_namespace
        own = sorted({queue for each in (known if namespaces is None else namespaces) for queue in known.get(each, ())})
        above = {name for queue in own for name in ancestry(queue, self.parents)} - {*own, ""}
        return [*own, *sorted(above)]


FindQueues: TypeAlias = Callable[[], Awaitable[JobQueues]]
"""Finds out what a scope is asked for; a reader who may see everything needs none of it."""


class Access(Protocol):
    """Decides who may read what."""

    @property
    def asks_for_tokens(self) -> bool:
        """Whether readers bring tokens."""
        ...

    async def reader(self, request: Request) -> Reader | Refused:
        """Return who asks.

        Raises: ReviewError if that cannot be found out.
        """
        ...

    async def holds(self, reader: Reader) -> bool:
        """Return whether a reader of an open stream may go on.

        Raises: as ``reader``.
        """
        ...

    async def scope(self, reader: Reader, places: FindQueues, namespace: str = "", queue: str = "") -> Scope:
        """Return what a reader may see; only one namespace is looked at where one is asked for.

        ``queue``: one that is asked for by its name, whether or not jobs of the reader's are in it.

        Raises: as ``reader``.
        """
        ...

    async def may_take_all(self, reader: Reader) -> bool:
        """Return whether a reader may have everything that the scheduler reads, in a file."""
        ...


@attrs.frozen
class LocalAccess:
    """Lets every process of this machine read, and no page of a stranger."""

    asks_for_tokens: bool = False

    async def reader(self, request: Request) -> Reader | Refused:
        """Return the reader, unless it was led here under another name."""
        if not is_asked_locally(request):
            return Refused(status=421, why=STRANGE_NAME)
        return Reader()

    async def holds(self, reader: Reader) -> bool:
        """Let each reader go on."""
        del reader
        return True

    async def scope(self, reader: Reader, places: FindQueues, namespace: str = "", queue: str = "") -> Scope:
        """Show everything."""
        del reader, places, namespace, queue
        return EVERYTHING

    async def may_take_all(self, reader: Reader) -> bool:
        """Let each reader have it."""
        del reader
        return True


@attrs.frozen
class TokenAccess:
    """Has the API server say whose token it is, and what its owner may list."""

    reviews: Reviews
    asks_for_tokens: bool = True

    async def reader(self, request: Request) -> Reader | Refused:
        """Return whose token came with a request."""
        token = token_of(request)
        if not token:
            return Refused(status=401, why="found no token, expected one of the cluster")
        identity = await self.reviews.identify(token)
        if identity is None:
            return Refused(status=401, why="found a token that the cluster does not know, or not any more")
        return Reader(token=token, identity=identity)

    async def holds(self, reader: Reader) -> bool:
        """Return whether the token is still that of the same user."""
        found = await self.reviews.identify(reader.token, most_age=_FRESH)
        return found is not None and found == reader.identity

    async def scope(self, reader: Reader, places: FindQueues, namespace: str = "", queue: str = "") -> Scope:
        """Return what the owner of a token may list."""
        if reader.identity is None:
            return Scope(namespaces=frozenset(), queues=frozenset(), nodes=False)
        namespaces: frozenset[str] | None = None
        if not await self._may(reader, _JOBS):
            asked = [namespace] if namespace else sorted((await places()).queues_by_namespace)[:_MOST_NAMESPACES]
            wanted = {each: attrs.evolve(_JOBS, namespace=each) for each in asked}
            namespaces = await self._allowed(reader, wanted)
        queues: frozenset[str] | None = None
        if not await self._may(reader, _QUEUES):
            own = (await places()).queues_of(namespaces)[:_MOST_QUEUES]
            named = {each: attrs.evolve(_QUEUES, name=each) for each in (*own, queue) if each}
            queues = await self._allowed(reader, named)
        return Scope(namespaces=namespaces, queues=queues, nodes=await self._may(reader, _NODES))

    async def may_take_all(self, reader: Reader) -> bool:
        """Return whether the owner of a token may list pods, pod groups, queues and nodes everywhere."""
        return all([await self._may(reader, each) for each in (_PODS, _JOBS, _QUEUES, _NODES)])

    async def _allowed(self, reader: Reader, wanted: Mapping[str, Permission]) -> frozenset[str]:
        """Return the names of those permissions that a reader has."""
        found: set[str] = set()
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
    """Return the token that came with a request, "" where none did."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        return token.strip()
    if token := request.headers.get(TOKEN_HEADER, "").strip():
        return token
    try:
        found = SimpleCookie(request.headers.get("Cookie", "")).get(COOKIE)
    except CookieError:
        return ""
    return "" if found is None else found.value


def missing_rights(scope: Scope, resources: Collection[str]) -> str:
    """Return which of these a reader may not list, in words; "" if all."""
    missing = {
        "podgroups": scope.namespaces is not None and not scope.namespaces,
        "queues": scope.queues is not None and not scope.queues,
        "nodes": not scope.nodes,
    }
    verbs = {"podgroups": "list podgroups.scheduling.run.ai", "queues": "get queues", "nodes": "list nodes"}
    return ", ".join(verbs[each] for each in resources if missing[each])
