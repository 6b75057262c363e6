"""Look at a cluster once: lists of manifests, access reviews, and the version. Nothing is written.

A list that cannot be read is noted with its reason, and the checks that need it are skipped. Only a server that does
not answer aborts the look.

The tables below have the rights without which a role does not work; ``docs/security.md`` has all rights, with the
reason for each.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib import metadata
from typing import Any, Final

import anyio
import attrs

from kai.api.fields import EMPTY
from kai.basics.errors import UnreachableError
from kai.basics.parsing import part_of
from kai.cluster.port import Clock
from kai.cluster.requesting.listing import address_of, plain_words
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Transport, redirected, said
from kai.doctor.seen import LISTS, NOT_ALLOWED, Manifest, Right, Seen, resource_of

_FOLLOW: Final = ("list", "watch")
_READ: Final = ("get", *_FOLLOW)
_OURS: Final = "scheduling.run.ai"
_CLASSES: Final = "scheduling.k8s.io"
_STORAGE: Final = "storage.k8s.io"
_DRA: Final = "resource.k8s.io"
_RESERVATION: Final = "kai-resource-reservation"
_SCALE: Final = "kai-scale-adjust"

_PLACES: Final = {"resource-reservation-namespace": _RESERVATION, "scale-adjust-namespace": _SCALE}
"""The flags that replace these default namespaces."""

_Row = tuple[str, tuple[str, ...], tuple[str, ...], str]
TABLE: Final[dict[str, tuple[_Row, ...]]] = {
    "scheduler": (
        ("", ("nodes", "pods"), _READ, ""),
        ("", ("namespaces", "configmaps", "persistentvolumes", "persistentvolumeclaims"), _FOLLOW, ""),
        ("", ("pods", "pods/status"), ("patch",), ""),
        ("", ("pods/eviction",), ("create",), ""),
        ("", ("events",), ("create",), ""),
        ("policy", ("poddisruptionbudgets",), _FOLLOW, ""),
        (_CLASSES, ("priorityclasses",), _FOLLOW, ""),
        (_STORAGE, ("storageclasses", "csidrivers", "csistoragecapacities"), _FOLLOW, ""),
        (_DRA, ("resourceclaims", "resourceclaimtemplates", "resourceslices", "deviceclasses"), _FOLLOW, ""),
        ("topology.node.k8s.io", ("noderesourcetopologies",), _FOLLOW, ""),
        ("kai.scheduler", ("topologies",), _FOLLOW, ""),
        (_OURS, ("queues", "podgroups", "bindrequests"), _READ, ""),
        (_OURS, ("podgroups", "podgroups/status", "queues/status"), ("patch",), ""),
        (_OURS, ("bindrequests",), ("create", "delete"), ""),
        (_OURS, ("podgroups", "bindrequests"), ("override",), ""),
    ),
    "binder": (
        ("", ("nodes", "pods", "persistentvolumes", "persistentvolumeclaims"), _READ, ""),
        (_STORAGE, ("storageclasses",), _READ, ""),
        (_DRA, ("resourceclaims",), _READ, ""),
        ("", ("pods/binding",), ("create",), ""),
        ("", ("pods", "pods/status"), ("patch",), ""),
        (_OURS, ("bindrequests",), (*_READ, "delete"), ""),
        (_OURS, ("bindrequests/status",), ("patch",), ""),
        (_OURS, ("bindrequests",), ("override",), ""),
        ("", ("pods",), ("create",), _RESERVATION),
    ),
    "podgrouper": (
        ("", ("pods",), _READ, ""),
        ("", ("namespaces",), _FOLLOW, ""),
        (_CLASSES, ("priorityclasses",), _FOLLOW, ""),
        ("", ("pods",), ("patch",), ""),
        (_OURS, ("podgroups",), (*_READ, "create", "patch", "override"), ""),
        ("batch", ("jobs",), ("get",), ""),
        ("apps", ("replicasets",), ("get",), ""),
    ),
    "podgroup-controller": (
        ("", ("pods", "nodes"), _FOLLOW, ""),
        (_CLASSES, ("priorityclasses",), _FOLLOW, ""),
        (_DRA, ("resourceclaims",), _FOLLOW, ""),
        (_OURS, ("podgroups",), _READ, ""),
        (_OURS, ("podgroups/status",), ("patch",), ""),
        (_OURS, ("podgroups",), ("override",), ""),
    ),
    "queue-controller": (
        ("", ("pods", "nodes"), _FOLLOW, ""),
        (_DRA, ("resourceclaims",), _FOLLOW, ""),
        (_OURS, ("queues",), _READ, ""),
        (_OURS, ("podgroups",), _FOLLOW, ""),
        (_OURS, ("queues/status",), ("patch",), ""),
    ),
    "node-scale-adjuster": (
        ("", ("pods",), _READ, ""),
        (_OURS, ("bindrequests",), _FOLLOW, ""),
        ("", ("pods",), ("create", "delete"), _SCALE),
    ),
    "admission": ((_OURS, ("queues",), _FOLLOW, ""),),
}
READER: Final[tuple[_Row, ...]] = (
    ("", ("nodes", "pods", "namespaces"), ("list",), ""),
    (_OURS, ("queues", "podgroups"), ("list",), ""),
)
"""The rights that a person needs for commands to see the whole cluster."""


def rights_of(roles: Iterable[str], flags: Mapping[str, str] = EMPTY) -> Iterator[Right]:
    """Yield the rights that roles need, each once, in the namespaces from their flags."""
    places = {default: flags.get(flag) or default for flag, default in _PLACES.items()}
    seen: set[tuple[str, str, str, str]] = set()
    for role in roles:
        rows = ((group, what, verbs, places.get(where, where)) for group, what, verbs, where in TABLE.get(role, ()))
        for right in _spread(role, rows):
            key = (right.verb, right.group, right.resource, right.namespace)
            if key not in seen:
                seen.add(key)
                yield right


def rights_of_readers() -> Iterator[Right]:
    """Yield the rights that reading commands need for complete answers."""
    yield from _spread("", READER)


def _spread(role: str, rows: Iterable[_Row]) -> Iterator[Right]:
    for group, resources, verbs, namespace in rows:
        for resource in resources:
            for verb in verbs:
                yield Right(role=role, verb=verb, group=group, resource=resource, namespace=namespace)


REVIEWS: Final = "reviews"
"""The key in `Seen.unread` that means: the rights of others could not be reviewed."""
_AUTHORIZATION: Final = "/apis/authorization.k8s.io/v1"
_PAGE: Final = "1000"
_AT_ONCE: Final = 8
_DISTRIBUTION: Final = "kai-scheduler"


@attrs.define
class Look:
    """One look at a cluster through a connection to its server; `cluster` is its name in messages."""

    transport: Transport
    clock: Clock
    server: str
    cluster: str
    _lists: dict[str, tuple[Manifest, ...]] = attrs.field(factory=dict)
    _unread: dict[str, str] = attrs.field(factory=dict)
    _missing: dict[str, list[Right]] = attrs.field(factory=dict)
    _asked: dict[str, int] = attrs.field(factory=dict)
    _limiter: anyio.Semaphore = attrs.field(factory=lambda: anyio.Semaphore(_AT_ONCE))

    async def all(self) -> Seen:
        """Return all observations that checks use.

        Raises: UnreachableError.
        """
        version = await self._version()
        async with anyio.create_task_group() as tasks:
            for name, path in LISTS.items():
                tasks.start_soon(self._list, name, path)
        # Lists before reviews: which accounts to ask about follows from the pods of kai.
        seen = Seen(now=self.clock.now(), version=version, lists=self._lists)
        await self._review("", rights_of_readers())
        accounts: dict[str, set[str]] = {}
        flags: dict[str, dict[str, str]] = {}
        for each in seen.programs():
            account = f"{each.namespace}/{each.account}"
            accounts.setdefault(account, set()).update(each.roles)
            flags.setdefault(account, {}).update(each.flags)
        for account, roles in accounts.items():
            await self._review(account, rights_of(sorted(roles), flags[account]))
        return attrs.evolve(
            seen,
            # The clock is read again after all requests: the age of a lease counts to the end of the look.
            now=self.clock.now(),
            unread=self._unread,
            missing={account: tuple(rights) for account, rights in self._missing.items()},
            asked=self._asked,
            foreign_module=foreign_module(),
        )

    async def _version(self) -> Mapping[str, Any]:
        answer = await self.transport.request(Call(method="GET", path="/version"))
        if isinstance(answer, NoAnswer):
            raise UnreachableError(
                f"cannot reach the cluster of {self.cluster}: {address_of(self.server)} {plain_words(answer)}"
            )
        if answer.status == 401:
            raise UnreachableError(
                f"the cluster of {self.cluster} does not know these credentials (401)", is_forbidden=True
            )
        # Every user may read /version by default, but some clusters remove that binding; the checks do without it.
        if answer.status == 403:
            return {}
        found = _decoded(answer)
        if not answer.is_good or not isinstance(found, Mapping) or "gitVersion" not in found:
            what = "no version" if answer.is_good else redirected(answer) or f"HTTP status {answer.status}"
            raise UnreachableError(
                f"cannot reach the cluster of {self.cluster}: GET /version was answered with {what}, "
                "expected the version of an API server"
            )
        return found

    async def _list(self, name: str, path: str) -> None:
        out: list[Manifest] = []
        token = ""
        while True:
            query = (("limit", _PAGE), *((("continue", token),) if token else ()))
            async with self._limiter:
                answer = await self.transport.request(Call(method="GET", path=path, query=query))
            # 404 means that the kind is not installed, so there are no objects of it.
            if isinstance(answer, Answer) and answer.status == 404:
                break
            page = _decoded(answer) if isinstance(answer, Answer) and answer.is_good else None
            if page is None:
                self._unread[name] = _why(answer)
                return
            out += part_of(page, "items") or ()
            token = part_of(page, "metadata", "continue") or ""
            if not token:
                break
        self._lists[name] = tuple(out)

    async def _review(self, account: str, rights: Iterable[Right]) -> None:
        """Review which of these rights an account lacks; "" is the account of this client."""
        async with anyio.create_task_group() as tasks:
            for right in rights:
                tasks.start_soon(self._ask, account, right)

    async def _ask(self, account: str, right: Right) -> None:
        resource, _, subresource = right.resource.partition("/")
        about = {"verb": right.verb, "group": right.group, "resource": resource, "subresource": subresource}
        spec: dict[str, Any] = {"resourceAttributes": {**about, "namespace": right.namespace}}
        kind = "SelfSubjectAccessReview"
        if account:
            kind = "SubjectAccessReview"
            namespace, _, name = account.partition("/")
            # The API server takes the groups as given: without them, bindings to groups of accounts would not count.
            groups = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"]
            spec |= {"user": f"system:serviceaccount:{namespace}:{name}", "groups": groups}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        call = Call(method="POST", path=f"{_AUTHORIZATION}/{kind.lower()}s", body=json.dumps(body).encode())
        async with self._limiter:
            answer = await self.transport.request(call)
        found = _decoded(answer) if isinstance(answer, Answer) and answer.is_good else None
        if found is None:
            self._unread[REVIEWS] = _why(answer)
            return
        self._asked[account] = self._asked.get(account, 0) + 1
        if part_of(found, "status", "allowed") is not True:
            self._missing.setdefault(account, []).append(right)


def not_allowed(seen: Seen, lists: Iterable[str]) -> tuple[str, ...]:
    """Return the resources among these lists that this account may not read: ``queues.scheduling.run.ai``."""
    return tuple(resource_of(name) for name in lists if name in LISTS and seen.unread.get(name) == NOT_ALLOWED)


def foreign_module() -> str:
    """Return another installed distribution with a module ``kai``; "" for none."""
    owners = metadata.packages_distributions().get("kai", [])
    return next((each for each in sorted(set(owners)) if each != _DISTRIBUTION), "")


def _decoded(answer: Answer) -> Any:  # noqa: ANN401 - JSON from outside
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        return None


def _why(answer: Answer | NoAnswer) -> str:
    if isinstance(answer, NoAnswer):
        return answer.message or "no answer"
    if answer.status == 403:
        return NOT_ALLOWED
    return said(answer)
