"""From the bytes of lists and streams to the cache: pages, lines, and the keys of an object that its class declares.

Half of what a list or a stream brings is ``managedFields``, which no class declares and no Python value is made of.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kai.api.codec.json_decoding import decode_as
from kai.cluster.caching.tombstones import Peek, version_of

if TYPE_CHECKING:
    from kai.cluster.caching.assume_cache import AssumeCache

_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class ListMetadata(msgspec.Struct):
    """What is said about a list."""

    version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """A page of a list, its objects unread."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


class Line(msgspec.Struct):
    """A line of a stream: an event, its object unread."""

    type: str
    object: msgspec.Raw


class Names(msgspec.Struct):
    """Which object this is, and in which form."""

    name: str
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class Head(msgspec.Struct):
    """An object, all but its names unread."""

    metadata: Names


class NamesPage(msgspec.Struct):
    """A page of a list, its objects unread but for their names."""

    metadata: ListMetadata
    items: list[Head] | None = None


_PAGES: Final = msgspec.json.Decoder(Page)
_LINES: Final = msgspec.json.Decoder(Line)
_NAMES_PAGES: Final = msgspec.json.Decoder(NamesPage)


def page_of(body: bytes) -> Page | None:
    """Return a page; None for what is none."""
    try:
        return _PAGES.decode(body)
    except _ERRORS:
        return None


def line_of(line: bytes) -> Line | None:
    """Return a line of a stream; None for what is none."""
    try:
        return _LINES.decode(line)
    except _ERRORS:
        return None


def names_page_of(body: bytes) -> NamesPage | None:
    """Return a page of names; None for what is none."""
    try:
        return _NAMES_PAGES.decode(body)
    except _ERRORS:
        return None


def known_in(cache: AssumeCache[Any], page: NamesPage) -> list[Peek] | None:
    """Return which objects a page names; None unless each of them is in the cache in this very form."""
    found = []
    for head in page.items or ():
        names = head.metadata
        seen = Peek((sys.intern(names.namespace), names.name), names.uid, version_of(names.version))
        if not cache.knows(seen):
            return None
        found.append(seen)
    return found


def take(cache: AssumeCache[Any], raw: msgspec.Raw, *, is_listed: bool = False) -> Peek | None:
    """Put an object into its cache, reading it only if it is news; return which it is, None if it has no name."""
    manifest = manifest_of(raw, cache.cls)
    metadata = manifest.get("metadata") if manifest is not None else None
    if type(metadata) is dict and type(metadata.get("namespace")) is str:
        # Thousands of objects are in one namespace: it is one string for all of them.
        metadata["namespace"] = sys.intern(metadata["namespace"])
    return cache.see_listed(manifest) if is_listed else cache.see(manifest)


def manifest_of(raw: msgspec.Raw, cls: type[Any]) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Return an object with what its class reads of it; None for what is no object."""
    try:
        manifest = decode_as(cls, raw)
    except _ERRORS:
        return None
    return manifest if isinstance(manifest, dict) else None
