"""Reads objects of any kind, known to kai or not; API discovery is requested once for each API version.

Tenants write such objects, as owners of their pods, and an object takes 20 times more memory as Python values than as
text. So at most `MOST_READ` bytes of an object are parsed. Its managed fields, and a large status, do not count: they
are left out first. A workflow may have a status of a megabyte.

`Absence` is a bounded negative cache that lasts a minute. Tenants choose what kai reads, and may name any number of
things that do not exist. Each of them is requested once a minute while the cache has room, and is found within that
time once it exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote

import attrs
import msgspec

from kai.api.plans import Reason, Refusal
from kai.basics.deadlines import Deadlines
from kai.basics.parsing import mappings_of, part_of
from kai.cluster.port import Clock
from kai.cluster.requesting.sending import Label, Sender
from kai.cluster.requests import Fetch, FetchAll, NoSuchKind
from kai.cluster.transport.calls import Answer, Call, NoAnswer, decoded, refusal_of
from kai.cluster.transport.encoding import collection, label_selector, page_query

K = TypeVar("K", bound=Hashable)

SECONDS: Final = 60.0
MOST: Final = 512


@attrs.define
class Absence(Generic[K]):
    """Keys that were requested and not found.

    Units: seconds of a monotonic clock.
    """

    _until: Deadlines[K] = attrs.field(factory=Deadlines)

    def __len__(self) -> int:
        """Return the count of keys, including expired ones."""
        return len(self._until)

    def holds(self, key: K, now: float) -> bool:
        """Return whether this key was not found within the last minute."""
        return self._until.get(key, now) > now

    def note(self, key: K, now: float) -> None:
        """Remember a key, unless the cache is full of unexpired ones."""
        if len(self._until) >= MOST:
            self._until.forget(now)
        if len(self._until) < MOST or key in self._until:
            self._until[key] = now + SECONDS

    def forget(self, key: K) -> None:
        """Forget a key, because it exists."""
        self._until.pop(key, None)


_PAGE: Final = 500
_MOST_PAGES: Final = 200
"""Limit of pages of a list: an aggregated API server of others may return pages without end."""
_LARGEST: Final = 8 << 20
"""Limit of bytes of an object in an answer, and of the discovery document of an API version."""
MOST_READ: Final = 512 << 10
"""Limit of bytes of an object that are parsed: far more than the description of a workload needs."""
_LARGEST_STATUS: Final = 64 << 10
_PARTS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)
_VERSION: Final = re.compile(r"([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_NO_NAMES: Final = frozenset({"", ".", ".."})


@attrs.frozen
class _Place:
    """The path and scope of a kind."""

    plural: str
    namespaced: bool


@attrs.define
class ForeignReader:
    """Reads manifests of any kind.

    A kind that was not found is looked up again after a while, because its CRD may be installed at any time.
    """

    sender: Sender
    clock: Clock
    _places: dict[str, tuple[float, Mapping[str, _Place]]] = attrs.field(factory=dict)
    """Discovery by API version, with the time of the read; versions without any kind are not in here."""
    _unserved: Absence[str] = attrs.field(factory=Absence)

    async def read(self, request: Fetch | FetchAll) -> Any:  # noqa: ANN401 - a manifest, a tuple of them or a refusal
        """Return a manifest or, for all of a kind, a tuple of them."""
        place = await self._place(request.api_version, request.kind)
        if isinstance(place, Refusal):
            return place
        namespace = request.namespace if place.namespaced else ""
        path = collection(request.api_version, place.plural, namespace)
        if isinstance(request, Fetch):
            if request.name in _NO_NAMES:
                return Refusal(reason=Reason.NOT_FOUND, message=f'no object has the name "{request.name}"')
            name = quote(request.name, safe="")
            call = Call(method="GET", path=f"{path}/{name}", largest=_LARGEST, is_foreign=request.is_foreign)
            return await self._json(call, Label("get", place.plural), _lean)
        return await self._all(request, path, place)

    async def _all(self, request: FetchAll, path: str, place: _Place) -> Any:  # noqa: ANN401 - as above
        selector = (("labelSelector", label_selector(request.labels)),) if request.labels else ()
        found: list[Mapping[str, Any]] = []
        token = ""
        for _ in range(_MOST_PAGES):
            call = Call(method="GET", path=path, query=(*selector, *page_query(_PAGE, token)))
            page = await self._json(call, Label("list", place.plural))
            if isinstance(page, Refusal):
                return page
            # The items of a list lack apiVersion and kind.
            head = {"apiVersion": request.api_version, "kind": request.kind}
            found += [{**head, **item} for item in mappings_of(page, "items")]
            token = part_of(page, "metadata", "continue") or ""
            if not token:
                return tuple(found)
        return Refusal(reason=Reason.REJECTED, message=f"{path}: the list has no end after {_MOST_PAGES} pages")

    async def _place(self, api_version: str, kind: str) -> _Place | Refusal:
        if not _VERSION.fullmatch(api_version):  # it may come from a tenant, and becomes part of a path
            return NoSuchKind(message=f"the server serves no {kind} of {api_version}")
        now = self.clock.monotonic()
        read_at, known = self._places.get(api_version, (-SECONDS, {}))
        is_news = now - read_at > SECONDS and not self._unserved.holds(api_version, now)
        if kind not in known and is_news:
            root = "apis" if "/" in api_version else "api"
            call = Call(method="GET", path=f"/{root}/{api_version}", largest=_LARGEST)
            answer = await self._json(call, Label("get", "resources"))
            if isinstance(answer, Refusal) and answer.reason is not Reason.NOT_FOUND:
                return answer
            known = {} if isinstance(answer, Refusal) else _places_in(answer)
            if known:
                self._places[api_version] = (now, known)
            else:  # tenants can invent any number of such versions
                self._places.pop(api_version, None)
                self._unserved.note(api_version, now)
        return known.get(kind) or NoSuchKind(message=f"the server serves no {kind} of {api_version}")

    async def _json(self, call: Call, label: Label, read: Callable[[bytes], Any] = decoded) -> Any:  # noqa: ANN401 - JSON from outside, or a refusal
        answer = await self.sender.send(call, label, object())
        value = read(answer.body) if isinstance(answer, Answer) and answer.is_good else None
        if isinstance(value, Mapping | Refusal):
            return value
        if isinstance(answer, NoAnswer) or (isinstance(answer, Answer) and not answer.is_good):
            return refusal_of(answer, is_write=False, now=self.clock.now())
        return Refusal(reason=Reason.UNAVAILABLE, message="the answer is no JSON object")


def _lean(body: bytes) -> Any:  # noqa: ANN401 - JSON from outside, or a refusal
    """Return an object without large parts that do not describe a workload; a refusal if it is still too large."""
    if len(body) <= _LARGEST_STATUS:
        return decoded(body)
    try:
        parts = _PARTS.decode(body)
        metadata = _PARTS.decode(parts.get("metadata", b"{}"))
    except _ERRORS:
        return None
    metadata.pop("managedFields", None)
    if len(bytes(parts.get("status", b""))) > _LARGEST_STATUS:
        del parts["status"]
    parts["metadata"] = msgspec.Raw(msgspec.json.encode(metadata))
    kept = msgspec.json.encode(parts)
    if len(kept) > MOST_READ:
        found = f"found {len(kept) >> 10} KiB, expected at most {MOST_READ >> 10}"
        return Refusal(reason=Reason.REJECTED, message=f"the object is too large to be read: {found}")
    return decoded(kept)


def _places_in(answer: Mapping[str, Any]) -> Mapping[str, _Place]:
    return {
        str(each.get("kind")): _Place(str(each["name"]), bool(each.get("namespaced")))
        for each in mappings_of(answer, "resources")
        # Names with a slash are subresources of the same kind.
        if isinstance(each.get("name"), str) and "/" not in each["name"]
    }
