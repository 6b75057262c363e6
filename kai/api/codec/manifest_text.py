"""Text to manifests: JSON, or YAML of any number of documents, with `kind: List` taken apart.

YAML is read as Kubernetes reads it: an unquoted time stays text, a number may have an exponent without a dot, and
unquoted y and n are booleans, as yes and no are.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import attrs
import msgspec
import yaml

from kai.api.memory import paused
from kai.api.values import BadValue
from kai.basics.errors import InputError

_DEEPEST: Final = 100
_LARGEST: Final = 10_000_000
# A value nested this deeply in block style has at least this many characters of indentation and dashes before it.
_DEEP_BLOCK: Final = re.compile(rf"[ \t?:-]{{{_DEEPEST},}}")
_ALIAS: Final = re.compile(r"[\s\[{,]\*[^\s*]")
BOOLEAN: Final = "tag:yaml.org,2002:bool"
LETTER: Final = re.compile(r"^[yYnN]$")
"""Unquoted text that kubectl reads as a boolean."""
_EXPONENT: Final = re.compile(r"^[-+]?[0-9]+[eE][-+]?[0-9]+$")


class TextError(InputError):
    """A text is neither JSON nor YAML, or repeats a key; ``line`` and ``column`` are 0 where they are not known."""

    def __init__(self, message: str, *, problem: str = "", line: int = 0, column: int = 0) -> None:
        super().__init__(message)
        self.problem = problem or message
        self.line = line
        self.column = column


@attrs.frozen
class Placed:
    """A manifest and its place: the index of the document in its text, and the keys that lead to it."""

    manifest: Mapping[str, Any]
    document: int
    path: tuple[str | int, ...] = ()


class _RepeatedKeyError(yaml.constructor.ConstructorError):
    """A key is repeated in one mapping: the YAML grammar allows it, the YAML specification does not."""


class _Loader(yaml.CSafeLoader):
    """The safe loader of libyaml with the scalars of Kubernetes; a repeated key is refused."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - as in the base class
        """Return a mapping.

        Raises: _RepeatedKeyError for a key that is written twice; a merged key may be overridden.
        """
        written = node.value  # merging replaces the list, and removes the merge keys from this one
        for key, _ in written:
            if (
                key.tag == BOOLEAN and len(key.value) == 1
            ):  # a key stays text whatever YAML makes of it, such as y of a chart's y axis
                key.tag = "tag:yaml.org,2002:str"
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        # Only a mapping that lost entries can have a key twice, so others need no second look.
        if len(mapping) != len(node.value):
            seen: set[object] = set()
            for key, _ in written:
                name = getattr(key, "value", None)
                if isinstance(name, str) and name in seen:
                    problem = f'found key "{name}" twice in one object, expected it once'
                    raise _RepeatedKeyError(None, None, problem, key.start_mark)
                seen.add(name)
        return mapping


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.bool_values = {**yaml.CSafeLoader.bool_values, "y": True, "n": False}
_Loader.add_implicit_resolver(BOOLEAN, LETTER, list("yYnN"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+0123456789"))


_STARTS: Final = {
    b"%PDF": "a PDF document",
    b"PK\x03\x04": "a zip file",
    b"PK\x05\x06": "a zip file",
    b"\x1f\x8b": "what gzip made",
    b"BZh91AY&SY": "what bzip2 made",
    b"\xfd7zXZ\0": "what xz made",
    b"\x28\xb5\x2f\xfd": "what zstd made",
    b"\x89PNG": "a PNG image",
    b"\xff\xd8\xff": "a JPEG image",
    b"\x7fELF": "a program",
}
"""First bytes of files that users pass by mistake."""
_TAR: Final = (257, b"ustar")
"""A tar archive begins with the name of its first file; its signature is at this offset."""
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes that occur in no text, except in UTF-16 and UTF-32."""
WANTED: Final = "YAML or JSON text"
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_BAD_CHARACTER: Final = re.compile("[^\\t\\n\\r\\x20-\\x7e\\x85\\xa0-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
"""Characters that YAML does not allow."""


def load_values(text: str | bytes, source: str) -> tuple[Any, ...]:
    """Return the values of all documents of a text, except empty ones.

    Raises: InputError, with `source` and the line, if it is neither JSON nor YAML.
    """
    seems = "" if isinstance(text, str) else other_than_text(text)
    if seems:
        problem = f"found {seems}, expected {WANTED}"
        raise TextError(f"{source}: {problem}", problem=problem)
    try:
        decoded = text if isinstance(text, str) else text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        problem = f"found {_encoded(error)}, expected UTF-8 text"
        raise TextError(f"{source}: {problem}", problem=problem) from None
    # A large text becomes very many objects that all stay.
    with paused():
        return _values(decoded, source)


def other_than_text(text: bytes) -> str:
    """Return the type of a file that is not text, by its first bytes; "" for a file that may be text."""
    for start, what in _STARTS.items():
        if text.startswith(start):
            return what
    at, mark = _TAR
    return "a tar archive" if text.startswith(mark, at) else ""


def _encoded(error: UnicodeDecodeError) -> str:
    """Return what a text is that is not UTF-8, by its bytes, else where the first invalid byte is."""
    text = error.object
    if text.startswith(_UTF_16):
        return "UTF-16 text, as PowerShell writes it"
    if _CONTROL.search(text):
        return f"binary data, byte {text[error.start]:#04x} at {error.start}"
    line = text.count(b"\n", 0, error.start) + 1
    return f"byte {text[error.start]:#04x} at {error.start}, on line {line}"


def _values(text: str, source: str) -> tuple[Any, ...]:
    if text.lstrip()[:1] in {"{", "["}:
        try:
            return (msgspec.json.decode(text),)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            pass  # flow-style YAML begins like JSON, and its errors name the line
    try:
        _refuse_traps(text, source)
        return tuple(value for value in yaml.load_all(text, Loader=_Loader) if value is not None)
    except yaml.YAMLError as error:
        raise _text_error(error, source, text) from None
    except ValueError as error:
        raise TextError(f"{source}: not YAML: {error}", problem=f"not YAML: {error}") from None


def _refuse_traps(text: str, source: str) -> None:
    """Refuse YAML that nests so deeply that libyaml would overflow the stack, or grows exponentially by aliases.

    Cost: a few scans of the text for signs of either; only if there are any, a pass over its events.
    """
    # Empty lists and objects nest nothing, and manifests have many.
    flow = text.count("[") + text.count("{") - text.count("[]") - text.count("{}")
    if flow < _DEEPEST and not _DEEP_BLOCK.search(text) and not _ALIAS.search(text):
        return
    sizes: list[int] = []
    anchors: list[str | None] = []
    known: dict[str, int] = {}
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.CollectionStartEvent):
            sizes.append(1)
            anchors.append(event.anchor)
            if len(sizes) > _DEEPEST:
                raise _refusal(source, event, f"found deeper nesting, expected at most {_DEEPEST} levels")
            continue
        if isinstance(event, yaml.CollectionEndEvent):
            size, anchor = sizes.pop(), anchors.pop()
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor in anchors:
                found = "found an alias inside of what it stands for"
                raise _refusal(source, event, f"{found}, expected aliases of something else")
            size, anchor = known.get(str(event.anchor), 1), None
        elif isinstance(event, yaml.ScalarEvent):
            size, anchor = 1, event.anchor
        else:
            known.clear()
            continue
        if anchor is not None:
            known[anchor] = size
        if sizes:
            sizes[-1] += size
        if size > _LARGEST:
            raise InputError(f"{source}: found aliases that multiply to {size} values, expected at most {_LARGEST}")


def _refusal(source: str, event: yaml.Event, problem: str) -> TextError:
    mark = event.start_mark
    line, column = getattr(mark, "line", -1) + 1, getattr(mark, "column", -1) + 1
    return TextError(f"{source}: {_place(line, column)}{problem}", problem=problem, line=line, column=column)


def load_documents(text: str | bytes, source: str) -> tuple[Mapping[str, Any], ...]:
    """Return the manifests of a text, with the items of a list in its place.

    Raises: InputError if the text is neither JSON nor YAML, or a document is not an object.
    """
    return tuple(placed.manifest for placed in place_documents(load_values(text, source), source))


def place_documents(values: Iterable[object], source: str) -> tuple[Placed, ...]:
    """Return the manifests in the values of a text with their places, each item of a list separately.

    Raises: BadValue if a document is not an object; its path leads there, its subject is the source.
    """
    with paused():
        return tuple(
            placed for document, value in enumerate(values) for placed in _manifests(value, document, (), source)
        )


def _manifests(value: object, document: int, path: tuple[str | int, ...], source: str) -> Iterator[Placed]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _manifests(item, document, (*path, index), source)
    elif not isinstance(value, Mapping):
        raise MisplacedError(value, document, path, source)
    elif _is_list(value):
        kind, version = str(value["kind"]).removesuffix("List"), value.get("apiVersion")
        for index, item in enumerate(value.get("items") or ()):
            if isinstance(item, Mapping) and kind and "kind" not in item:
                # The API server omits these from the items of a typed list.
                item = {"apiVersion": version, "kind": kind, **item}  # noqa: PLW2901 - the item, completed
            yield from _manifests(item, document, (*path, "items", index), source)
    else:
        yield Placed(value, document, path)


class MisplacedError(BadValue):
    """A document or list item is not an object."""

    def __init__(self, found: object, document: int, path: tuple[str | int, ...], source: str) -> None:
        super().__init__(found, "an object with apiVersion and kind", subject=source)
        self.document = document
        self.place = path


def _is_list(value: Mapping[str, Any]) -> bool:
    kind = value.get("kind")
    return isinstance(kind, str) and kind.endswith("List") and isinstance(value.get("items"), list | None)


def _text_error(error: yaml.YAMLError, source: str, text: str) -> TextError:
    problem = str(getattr(error, "problem", None) or "")
    mark = getattr(error, "problem_mark", None)  # libyaml has its own mark class
    line, column = getattr(mark, "line", -1) + 1, getattr(mark, "column", -1) + 1
    bad = None if line else _BAD_CHARACTER.search(text)
    if bad is not None:
        line, column = text.count("\n", 0, bad.start()) + 1, bad.start() - text.rfind("\n", 0, bad.start())
        problem = f"found character {ord(bad[0]):#04x}, which YAML does not allow"
    elif _is_tab(text, line, column):
        problem = "found a tab, expected blanks: YAML does not indent with tabs"
    said = problem if isinstance(error, _RepeatedKeyError) else f"not YAML: {problem or 'it cannot be read'}"
    return TextError(f"{source}: {_place(line, column)}{said}", problem=said, line=line, column=column)


def _place(line: int, column: int) -> str:
    """Return the message prefix for a place in the text; "" where it is not known."""
    return f"line {line}, column {column}: " if line else ""


def _is_tab(text: str, line: int, column: int) -> bool:
    """Return whether a tab precedes a place in its line's indentation."""
    lines = text.split("\n", line)
    before = lines[line - 1][:column] if 0 < line <= len(lines) else ""
    return before.endswith("\t") and not before.strip()
