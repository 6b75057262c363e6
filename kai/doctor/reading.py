"""Looking at a cluster once: lists of manifests, reviews of rights, the version. Nothing is written.

A list that cannot be read is noted with its reason; the checks that need it are skipped. Only a server that gives no
answer ends the look.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import metadata
from typing import Any, Final

import anyio
import attrs

from kai.cluster.port import Clock
from kai.cluster.requesting.listing import address_of, plain_words
from kai.cluster.transport.answers import redirected, said
from kai.cluster.transport.calls import Answer, Call, NoAnswer, Transport
from kai.doctor.rights import rights_of, rights_of_readers
from kai.doctor.seen import LISTS, NOT_ALLOWED, Manifest, Right, Seen, resource_of
from kai.errors import UnreachableError
from kai.lenient import part_of

REVIEWS: Final = "reviews"
"""The name under which it is noted that rights of others could not be asked about."""
_AUTHORIZATION: Final = "/apis/authorization.k8s.io/v1"
_PAGE: Final = "1000"
_AT_ONCE: Final = 8
_DISTRIBUTION: Final = "kai-scheduler"


@attrs.define
class Look:
    """One look at a cluster over a way to its server; `cluster` is what messages call it."""

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
        """Return everything that checks look at.

        Raises: UnreachableError.
        """
        version = await self._version()
        async with anyio.create_task_group() as tasks:
            for name, path in LISTS.items():
                tasks.start_soon(self._list, name, path)
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
        """Ask which of these rights an account has; "" is the account that asks."""
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
    """Return which of these lists a look was not allowed, as rights have it: ``queues.scheduling.run.ai``."""
    return tuple(resource_of(name) for name in lists if name in LISTS and seen.unread.get(name) == NOT_ALLOWED)


def foreign_module() -> str:
    """Return which installed distribution besides ours has a module ``kai``; "" for none."""
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
