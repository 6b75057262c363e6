"""Whose token it is, and what its owner may do: reviews that the API server makes for us, kept for seconds.

A token is never kept, only its digest. What the server does not answer is a `ReviewError` and no right: a caller that
meets it refuses.

Source: TokenReview and SubjectAccessReview, as controller-runtime's filter of metrics uses them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

import attrs

from kai.api.fields import EMPTY
from kai.basics.parsing import list_of, mapping_of, part_of
from kai.cluster.port import Clock
from kai.cluster.requesting.sending import Label, Withheld
from kai.cluster.transport.answers import decoded
from kai.cluster.transport.calls import Answer, Call, NoAnswer
from kai.errors import ApiError

KEPT: Final = 30.0
"""Seconds for which an answer counts."""
_REMEMBERED: Final = 4096
_LONGEST_TOKEN: Final = 16_384
_TIMEOUT: Final = 5.0
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
Send: TypeAlias = Callable[[Call, Label, Hashable], Awaitable[Answer | NoAnswer | Withheld]]


class ReviewError(ApiError):
    """The API server did not say whether something is allowed."""


def _canonical(extra: Mapping[str, Any]) -> str:
    """Return a text that is the same for equal values, and can be hashed."""
    return json.dumps(dict(extra), sort_keys=True)


@attrs.frozen(kw_only=True)
class Identity:
    """Whose token it is."""

    user: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, Any] = attrs.field(default=EMPTY, eq=_canonical, repr=False)
    """What narrows a token, among other things: with another one the same user may do something else."""


@attrs.frozen(kw_only=True)
class Permission:
    """What is asked about: a verb on a resource; no namespace is all of them, no name is any."""

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
    _identities: dict[str, tuple[float, Identity | None]] = attrs.field(factory=dict)
    _allowed: dict[tuple[Identity, Permission], tuple[float, bool]] = attrs.field(factory=dict)

    async def identify(self, token: str, most_age: float = KEPT) -> Identity | None:
        """Return whose token it is, as it was at most ``most_age`` seconds ago; None for a token that is not valid.

        Raises: ReviewError if the API server does not say.
        """
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

    async def allows(self, identity: Identity, permission: Permission, most_age: float = KEPT) -> bool:
        """Return whether a user may do something, as it was at most ``most_age`` seconds ago.

        Raises: ReviewError if the API server does not say.
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


def _identity(status: Mapping[str, Any]) -> Identity | None:
    user = status.get("user")
    if status.get("authenticated") is not True or not isinstance(user, Mapping) or not user.get("username"):
        return None
    return Identity(
        user=str(user["username"]),
        uid=str(user.get("uid") or ""),
        groups=tuple(map(str, list_of(user, "groups"))),
        extra=mapping_of(user, "extra"),
    )


def _remember(known: dict[K, V], key: K, value: V) -> None:
    """Keep a value as the newest; of more than can be kept the oldest goes."""
    known.pop(key, None)
    known[key] = value
    while len(known) > _REMEMBERED:
        del known[next(iter(known))]
