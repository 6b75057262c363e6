"""Asks the API server who owns a token and what the owner may do; answers are cached for seconds.

A token is never stored, only its digest. A missing answer raises `ReviewError` and grants nothing: the caller refuses.

Source: TokenReview and SubjectAccessReview, as controller-runtime's filter of metrics uses them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from kai.api.fields import EMPTY
from kai.basics.errors import ApiError
from kai.basics.parsing import list_of, mapping_of, part_of
from kai.cluster.port import Clock
from kai.cluster.requesting.sending import Label, Withheld
from kai.cluster.transport.calls import Answer, Call, NoAnswer, decoded

KEPT: Final = 30.0
"""How long a cached answer counts.

Units: seconds.
"""
_REMEMBERED: Final = 4096
_LONGEST_TOKEN: Final = 16_384
_TIMEOUT: Final = 5.0
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Send: TypeAlias = Callable[[Call, Label, Hashable], Awaitable[Answer | NoAnswer | Withheld]]


class ReviewError(ApiError):
    """The API server did not answer whether something is allowed."""


def _canonical(extra: Mapping[str, Any]) -> str:
    """Return a hashable text that is the same for equal values."""
    return json.dumps(dict(extra), sort_keys=True)


@attrs.frozen(kw_only=True)
class ClientIdentity:
    """The owner of a token."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Any] = attrs.field(default=EMPTY, eq=_canonical, repr=False)
    """Extra fields, which may restrict a token: with other values the same user may have other rights."""


@attrs.frozen(kw_only=True)
class Permission:
    """A verb on a resource; an empty namespace means all namespaces, an empty name any name."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""
    name: str = ""


@attrs.define(eq=False)
class Reviews:
    """Asks the API server who a client is and what it may do."""

    send: Send
    clock: Clock
    _identities: dict[str, tuple[float, ClientIdentity | None]] = attrs.field(factory=dict)
    _allowed: dict[tuple[ClientIdentity, Permission], tuple[float, bool]] = attrs.field(factory=dict)

    async def identify(self, token: str, most_age: float = KEPT) -> ClientIdentity | None:
        """Return the owner of a token, from an answer of at most ``most_age`` seconds ago; None for an invalid token.

        Raises: ReviewError without an answer of the API server.
        """
        # No cluster issues such a token, so the API server need not be asked.
        if not token or len(token) > _LONGEST_TOKEN or not token.isascii() or not token.isprintable():
            return None
        digest = hashlib.sha256(token.encode()).hexdigest()
        known = self._identities.get(digest)
        now = self.clock.monotonic()
        if known is not None and now - known[0] <= most_age:
            return known[1]
        status = await self._ask(_TOKENS, "authentication.k8s.io/v1", "TokenReview", {"token": token})
        found = _identity(status)
        _remember(self._identities, digest, (now, found))
        return found

    async def allows(self, identity: ClientIdentity, permission: Permission, most_age: float = KEPT) -> bool:
        """Return whether a user has a permission, from an answer of at most ``most_age`` seconds ago.

        Raises: ReviewError without an answer of the API server.
        """
        key = (identity, permission)
        known = self._allowed.get(key)
        now = self.clock.monotonic()
        if known is not None and now - known[0] <= most_age:
            return known[1]
        spec = {
            "user": identity.user,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": dict(identity.extra),
            "resourceAttributes": {each: text for each, text in attrs.asdict(permission).items() if text},
        }
        status = await self._ask(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        # Only a plain yes counts: what says both, or neither, grants nothing.
        allowed = status.get("allowed") is True and status.get("denied") is not True
        _remember(self._allowed, key, (now, allowed))
        return allowed

    async def _ask(self, path: str, version: str, kind: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
        body = json.dumps({"apiVersion": version, "kind": kind, "spec": spec}).encode()
        call = Call(method="POST", path=path, body=body, timeout=_TIMEOUT)
        answer = await self.send(call, Label("create", path.rpartition("/")[2]), object())
        if isinstance(answer, Withheld):
            raise ReviewError(f"{kind}: this process leads no more", retryable=True)
        if isinstance(answer, NoAnswer):
            raise ReviewError(f"{kind}: {answer.message or 'no answer'}", retryable=True)
        if answer.status == 403:
            raise ReviewError(f"kai may not create {path.rpartition('/')[2]}", retryable=False)
        status = part_of(decoded(answer.body), "status") if answer.is_good else None
        if not isinstance(status, Mapping):
            raise ReviewError(f"{kind}: found HTTP status {answer.status}, expected a review", retryable=True)
        return status


def _identity(status: Mapping[str, Any]) -> ClientIdentity | None:
    user = status.get("user")
    if status.get("authenticated") is not True or not isinstance(user, Mapping) or not user.get("username"):
        return None
    return ClientIdentity(
        user=str(user["username"]),
        uid=str(user.get("uid") or ""),
        groups=tuple(map(str, list_of(user, "groups"))),
        extra=mapping_of(user, "extra"),
    )


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """Store a value as the newest entry; drop the oldest beyond the limit."""
    known.pop(key, None)
    known[key] = value
    while len(known) > _REMEMBERED:
        del known[next(iter(known))]
