"""The requests to an API server beyond those of `kai.api.plans`, and the refusals that callers distinguish.

Holds: a reply is a value. What the API server refuses is a `Refusal`; callers react to the types of refusals here.
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
    """Create an object or set the fields of this manifest in it, as their owner (server-side apply).

    Fields that this manager applied earlier and that are missing in the manifest are removed; fields of other owners
    are taken over. ``metadata.uid`` and ``metadata.resourceVersion`` in the manifest are preconditions.
    """

    ref: Ref[Any]
    manifest: Manifest
    manager: str
    subresource: str = ""
    can_wait: bool = False
    """Whether binds may overtake it: readers of the store see the object already."""


@attrs.frozen(kw_only=True)
class JsonPatch:
    """Change an object by operations (RFC 6902), all or none; ``test`` operations are preconditions."""

    ref: Ref[Any]
    operations: tuple[Manifest, ...]
    subresource: str = ""


@attrs.frozen(kw_only=True)
class Evict:
    """Evict the pod with this UID, respecting disruption budgets; admission reads the sender from the annotations.

    Refused with `BudgetExhausted` while a budget does not permit it.
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
    """Whether a tenant chose the kind: then a refusal for lack of rights (403) is no fault of this installation."""


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
    """This process lacks the right (403, except for a terminating namespace)."""

    reason: Reason = Reason.REJECTED


@attrs.frozen(kw_only=True)
class NamespaceEnding(Refusal):
    """The namespace is terminating and accepts nothing new: no object, bind, eviction or event (403)."""

    reason: Reason = Reason.REJECTED


@attrs.frozen(kw_only=True)
class NoSuchKind(Refusal):
    """The API server does not serve this kind, at least not now."""

    reason: Reason = Reason.NOT_FOUND


@attrs.frozen(kw_only=True)
class BudgetExhausted(Refusal):
    """A disruption budget does not permit the eviction of this pod now."""

    reason: Reason = Reason.CONFLICT


@attrs.frozen(kw_only=True)
class NotLeading(Refusal):
    """The term of the decision is over, so the request was not sent."""

    reason: Reason = Reason.UNAVAILABLE
