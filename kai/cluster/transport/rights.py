"""Rights that this process lacks: what 403 names, said once for each right, and not believed at the first word.

An API server that has just started refuses everything with 403 until it has read its roles. A right that is refused
once more after a while is missing: the log names it, and calls that need it fail at once from then on.

Holds: of as many rights as are remembered, each is said once; a right that is granted later is noticed, because calls
that need it are still made.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Final

import attrs
import structlog

from kai.cluster.port import Clock
from kai.cluster.transport.answers import ends_with_namespace, status_of
from kai.cluster.transport.calls import Answer

_PERSISTS: Final = 3.0
"""A right is missing if it is refused again after so many seconds."""
_SETTLING: Final = 10.0
"""For so long after the first refusal a write is worth another try."""
_FORGOTTEN: Final = 300.0
"""Refusals further apart than this have nothing to do with each other."""
_SHOWN: Final = 600.0
"""For so long after its last refusal a right is shown as missing."""
_REMEMBERED: Final = 1000
_QUOTA: Final = re.compile(r"is forbidden: (exceeded quota|failed quota): ")
_PATH: Final = re.compile(r'User "[^"]{0,300}" cannot [a-z]{1,40} path ')
_WORDS: Final = re.compile(
    r'User "(?P<account>[^"]{0,300})" cannot (?P<verb>[a-z]{1,40}) resource "(?P<resource>[^"]{1,200})" '
    r'in API group "(?P<group>[^"]{0,200})" '
    r'(?:at the cluster scope|in the namespace "(?P<namespace>[^"]{1,100})")'
)


@attrs.frozen(kw_only=True)
class Right:
    """What an account may not do, as the API server says it; `namespace` is empty for the whole cluster."""

    verb: str
    resource: str
    group: str
    namespace: str
    account: str


@attrs.define
class _Refusals:
    """How often a right was refused."""

    first: float
    last: float
    is_said: bool = False


@attrs.define
class Rights:
    """The rights that were refused lately."""

    clock: Clock
    _refusals: dict[Right, _Refusals] = attrs.field(factory=dict)

    def refused(self, answer: Answer) -> None:
        """Note a refusal; name the right once it is sure to be missing."""
        right = right_of(answer)
        if right is None:
            return
        now = self.clock.monotonic()
        known = self._refusals.pop(right, None)
        if known is None or now - known.last > _FORGOTTEN:
            known = _Refusals(now, now, is_said=known is not None and known.is_said)
        known.last = now
        self._refusals[right] = known
        while len(self._refusals) > _REMEMBERED:
            del self._refusals[next(iter(self._refusals))]
        if now - known.first >= _PERSISTS and not known.is_said:
            known.is_said = True
            facts = attrs.asdict(right)
            structlog.get_logger().error("right is missing", **facts, instead="a role that allows it")

    def missing(self) -> Mapping[tuple[str, str], int]:
        """Return how many rights are missing by verb and resource, of those refused lately. Callable in any thread."""
        now = self.clock.monotonic()
        lately = [
            (right.verb, right.resource)
            for right, known in tuple(self._refusals.items())
            if known.last - known.first >= _PERSISTS and now - known.last < _SHOWN
        ]
        return Counter(lately)

    def may_come(self, answer: Answer) -> bool:
        """Return whether the server may allow the same in a moment: it has refused it only for seconds."""
        right = right_of(answer) if answer.status == 403 else None
        known = self._refusals.get(right) if right is not None else None
        return known is not None and self.clock.monotonic() - known.first < _SETTLING


def why_forbidden(answer: Answer) -> str:
    """Return by what a call was refused with 403: ``namespace``, ``quota``, ``rights`` or ``admission``.

    The first of these is being deleted; the last is any other rule that looks at what is written. What is no answer of
    an API server counts as a lack of rights: a proxy may know no roles, but keeps us out as well.
    """
    status = status_of(answer.body)
    if ends_with_namespace(status):
        return "namespace"
    if status.get("kind") != "Status" or right_of(answer) is not None:
        return "rights"
    message = status.get("message")
    text = message if isinstance(message, str) else ""
    if _QUOTA.search(text):
        return "quota"
    return "rights" if _PATH.search(text) else "admission"


def right_of(answer: Answer) -> Right | None:
    """Return the right that a refusal names; None where something else than rights refused it."""
    status = status_of(answer.body)
    details = status.get("details")
    message = status.get("message")
    # What follows is quoted from the answer; a name in front of it may hold anything.
    found = _WORDS.search(message) if isinstance(message, str) else None
    if found is None or (details is not None and not isinstance(details, Mapping)):
        return None
    words = {name: text or "" for name, text in found.groupdict().items()}
    return Right(**words)
