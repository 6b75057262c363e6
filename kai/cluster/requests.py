"""What a service may ask of an API server: the requests of `kai.api.plans`, those beyond them, and refusals.

Holds: a reply is a value. What the API server refuses is a `Refusal`; those here are the ones that callers tell apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import attrs

from kai.api import plans
from kai.api.fields import EMPTY
from kai.api.kubernetes.pod import Pod
from kai.api.plans import Reason, Ref, Refusal

Manifest: TypeAlias = Mapping[str, Any]

# --- Requests beyond those of plans --------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Apply:
    """Create an object or bring the fields of this manifest into it, as their owner (server-side apply).

    Fields that this manager applied before and that are not in the manifest are removed; what others own is taken over.
    ``metadata.uid`` and ``metadata.resourceVersion`` in the manifest are preconditions.
    """

    ref: Ref[Any]
    manifest: Manifest
    manager: str
    subresource: str = ""
    can_wait: bool = False
    """Whether binds may go before it: the store shows the object to its readers already."""


@attrs.frozen(kw_only=True)
class JsonPatch:
    """Change an object by operations (RFC 6902), all or none; ``test`` operations are preconditions."""

    ref: Ref[Any]
    operations: tuple[Manifest, ...]
    subresource: str = ""


@attrs.frozen(kw_only=True)
class Evict:
    """Evict a pod, if it still has this UID, respecting disruption budgets; the annotations tell admission who asks.

    Refused with `BudgetExhausted` while a budget does not allow it.
    """

    ref: Ref[Pod]
    uid: str
    grace_seconds: int | None = None
    annotations: Mapping[str, str] = EMPTY


@attrs.frozen(kw_only=True)
class Fetch:
    """Read one object of any kind from the API server; the reply is its manifest."""

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    is_foreign: bool = False
    """Whether a tenant chose the kind: that reading it is forbidden is no right that this process lacks."""


@attrs.frozen(kw_only=True)
class FetchAll:
    """Read all objects of any kind, in one namespace or all, with these labels; the reply is a tuple of manifests."""

    api_version: str
    kind: str
    namespace: str = ""
    labels: Mapping[str, str] = EMPTY


Request: TypeAlias = plans.Request | Apply | JsonPatch | Evict | Fetch | FetchAll

WRITES: Final = (*plans.WRITES, Apply, JsonPatch, Evict, plans.Emit)


# --- Refusals that callers tell apart ------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class Forbidden(Refusal):
    """The rights of this process do not allow it (403, except for a namespace that is going away)."""

    reason: Reason = Reason.REJECTED


@attrs.frozen(kw_only=True)
class NamespaceEnding(Refusal):
    """The namespace is being deleted, and takes nothing new: no object, bind, eviction or event (403)."""

    reason: Reason = Reason.REJECTED


@attrs.frozen(kw_only=True)
class NoSuchKind(Refusal):
    """The API server does not serve this kind, at least not now."""

    reason: Reason = Reason.NOT_FOUND


@attrs.frozen(kw_only=True)
class BudgetExhausted(Refusal):
    """A disruption budget does not allow to evict this pod now."""

    reason: Reason = Reason.CONFLICT


@attrs.frozen(kw_only=True)
class NotLeading(Refusal):
    """The term in which this was decided is over, so it was not sent."""

    reason: Reason = Reason.UNAVAILABLE
