"""Reading JSON no further than needed: which object and version it is, and then the rest without what nobody reads.

Most of what a list or a stream brings is known already or is ``managedFields``; neither becomes Python values here.
"""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Final

import msgspec

from kai.api.caps import LARGE, kept
from kai.api.codec import structure_as
from kai.api.outline import decode_as
from kai.api.pod import Pod
from kai.api.quick import REFUSED, open_object, read_opened
from kai.cluster.shelf import Peek, Shelf, peek, version_of

_ERRORS: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class _Metadata(msgspec.Struct):
    """What is needed to tell an object and its version; anything may stand there."""

    name: Any = None
    namespace: Any = None
    uid: Any = None
    resource_version: Any = msgspec.field(default=None, name="resourceVersion")


class _Head(msgspec.Struct):
    metadata: _Metadata


class _Parts(msgspec.Struct, rename="camel"):
    """Where a pod wants to be, undecoded."""

    affinity: msgspec.Raw = msgspec.Raw()
    node_selector: msgspec.Raw = msgspec.Raw()
    tolerations: msgspec.Raw = msgspec.Raw()
    topology_spread_constraints: msgspec.Raw = msgspec.Raw()


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


_PAGES: Final = msgspec.json.Decoder(Page)
_LINES: Final = msgspec.json.Decoder(Line)
_HEADS: Final = msgspec.json.Decoder(_Head)
_PARTS: Final = msgspec.json.Decoder(_Parts)


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


def head_of(raw: msgspec.Raw) -> Peek | None:
    """Return key, UID and version of an object; None for something without a name."""
    try:
        found = _HEADS.decode(raw).metadata
    except _ERRORS:
        return None
    metadata = {"name": found.name, "namespace": found.namespace, "uid": found.uid}
    return peek({"metadata": {**metadata, "resourceVersion": found.resource_version}})


def take(shelf: Shelf[Any], raw: msgspec.Raw) -> Peek | None:
    """Put an object on its shelf, reading no more of it than is news; return which it is, None if it has no name."""
    opened = None
    with contextlib.suppress(*REFUSED):
        opened = open_object(shelf.cls, raw)
    metadata = None if opened is None else opened.metadata
    if metadata is None or not metadata.name:
        head = head_of(raw)
        if head is None or not shelf.knows(head):
            shelf.see(manifest_of(raw, shelf.cls))
        return head
    # Thousands of objects are in one namespace: it is one string for all of them.
    namespace = metadata.namespace = sys.intern(metadata.namespace)
    seen = Peek((namespace, metadata.name), metadata.uid, version_of(metadata.resource_version))
    shelf.take(seen, lambda: _read(shelf.cls, opened, raw))
    return seen


def _read(cls: type[Any], opened: object, raw: msgspec.Raw) -> Any:  # noqa: ANN401 - an object of the class
    """Return an object of which the metadata are read.

    Raises: InputError for a bad value.
    """
    if cls is Pod and _may_be_too_much(opened):
        return structure_as(cls, kept(manifest_of(raw, cls)))
    try:
        return read_opened(cls, opened)
    except REFUSED:
        return structure_as(cls, manifest_of(raw, cls))


def _may_be_too_much(opened: Any) -> bool:  # noqa: ANN401 - a struct that is made for the class
    """Say whether what a pod says about where it wants to be is long enough to exceed a cap."""
    spec = getattr(opened, "spec", None)
    if not isinstance(spec, msgspec.Raw) or len(spec) <= LARGE:
        return False
    try:
        parts = msgspec.structs.astuple(_PARTS.decode(spec))
    except _ERRORS:
        return True
    return sum(map(len, parts)) > LARGE


def manifest_of(raw: msgspec.Raw, cls: type[Any]) -> Any:  # noqa: ANN401 - JSON from outside; the codec says what it is
    """Return an object with what its class reads of it; None for what is no object."""
    try:
        manifest = decode_as(cls, raw)
    except _ERRORS:
        return None
    return manifest if isinstance(manifest, dict) else None
