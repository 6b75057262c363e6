"""Decodes lists and streams for the cache: pages, lines, and only the fields of an object that its class declares.

Half of the bytes of a list or a stream is ``managedFields``. No class declares it, so no Python value is made of it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

import msgspec

from kai.api.codec.structuring import decode_as
from kai.cluster.caching.tombstones import Peek, version_of

if TYPE_CHECKING:
    from kai.cluster.caching.assume_cache import AssumeCache

_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class ListMetadata(msgspec.Struct):
    """The metadata of a list."""

    version: str = msgspec.field(default="", name="resourceVersion")
    token: str = msgspec.field(default="", name="continue")


class Page(msgspec.Struct):
    """A page of a list, its objects not parsed."""

    metadata: ListMetadata
    items: list[msgspec.Raw] | None = None


class Line(msgspec.Struct):
    """A line of a stream: an event, its object not parsed."""

    type: str
    object: msgspec.Raw


class Names(msgspec.Struct):
    """Identity and version of an object."""

    name: str
    namespace: str = ""
    uid: str = ""
    version: str = msgspec.field(default="", name="resourceVersion")


class Head(msgspec.Struct):
    """An object whose identity and version alone are parsed."""

    metadata: Names


class NamesPage(msgspec.Struct):
    """A page of a list, with identity and version of its objects only."""

    metadata: ListMetadata
    items: list[Head] | None = None


_PAGES: Final = msgspec.json.Decoder(Page)
_LINES: Final = msgspec.json.Decoder(Line)
_NAMES_PAGES: Final = msgspec.json.Decoder(NamesPage)


def page_of(body: bytes) -> Page | None:
    """Return a page; None if the body is none."""
    try:
        return _PAGES.decode(body)
    except _ERRORS:
        return None


def line_of(line: bytes) -> Line | None:
    """Return a line of a stream; None if it is malformed."""
    try:
        return _LINES.decode(line)
    except _ERRORS:
        return None


def names_page_of(body: bytes) -> NamesPage | None:
    """Return a page of names; None if the body is none."""
    try:
        return _NAMES_PAGES.decode(body)
    except _ERRORS:
        return None


def known_in(cache: AssumeCache[Any], page: NamesPage) -> list[Peek] | None:
    """Return the objects that a page names; None unless the cache has each of them in this very version."""
    found = []
    for head in page.items or ():
        names = head.metadata
        seen = Peek((sys.intern(names.namespace), names.name), names.uid, version_of(names.version))
        # One unknown object is enough: its page has to be read whole.
        if not cache.knows(seen):
            return None
        found.append(seen)
    return found


def take(cache: AssumeCache[Any], raw: msgspec.Raw, *, is_listed: bool = False) -> Peek | None:
    """Put an object into its cache, which parses it only if it is new; return its identity, None if it has no name."""
    manifest = manifest_of(raw, cache.cls)
    metadata = manifest.get("metadata") if manifest is not None else None
    if type(metadata) is dict and type(metadata.get("namespace")) is str:
        # Thousands of objects share a namespace: intern it.
        metadata["namespace"] = sys.intern(metadata["namespace"])
    return cache.see_listed(manifest) if is_listed else cache.see(manifest)


def manifest_of(raw: msgspec.Raw, cls: type[Any]) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Return the fields of an object that its class declares; None if the value is no object."""
    try:
        manifest = decode_as(cls, raw)
    except _ERRORS:
        return None
    return manifest if isinstance(manifest, dict) else None
