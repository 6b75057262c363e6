"""A finding: a fault with its file, line and column, and the expected form.

The place of a value in its text is computed only when a finding needs it. Reading keeps no positions, which would cost
as much as reading itself. The text is parsed once more where a finding needs a place; JSON is close enough to YAML for
that.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import attrs
import yaml

from kai.api.values import BadValue
from kai.basics.errors import InputError, on_one_line
from kai.basics.parsing import part_of
from kai.manifests.codes import CODES, ERROR, REFUSAL

if TYPE_CHECKING:
    from collections.abc import Sequence

Path = tuple[str | int, ...]

_STRING = "tag:yaml.org,2002:str"
_MERGE = "tag:yaml.org,2002:merge"
_SEPARATOR = re.compile(r"^---(?=\s|$)", re.MULTILINE)
_FAR = 3
"""The most lines between two places for which the lines in between are shown."""


@attrs.frozen
class Place:
    """A line and a column, counted from 1, and a width in characters; 0, 0 for an unknown place."""

    line: int = 0
    column: int = 0
    width: int = 1


@attrs.define(eq=False, slots=False)
class Text:
    """A text with its name. ``content`` is decoded; positions are computed on demand."""

    name: str
    content: str

    def locate(self, document: int, path: Sequence[str | int], *, at_key: bool = False) -> Place:
        """Return the place of the value at ``path`` of a document, or of its key; else of the nearest key above it."""
        found = self._composed.get(document)
        if found is None:
            found = self._composed[document] = self._compose(document)
        above, node = found
        marked = node
        for depth, step in enumerate(path):
            pair = _step(node, step) if node is not None else None
            if pair is None:
                break
            key, node = pair
            wants_key = at_key or depth < len(path) - 1 or not isinstance(node, yaml.ScalarNode)
            marked = key if key is not None and wants_key else node
        return Place() if marked is None else _place_of(marked, above)

    def has(self, document: int, path: Sequence[str | int]) -> bool:
        """Return whether there is a value at a path."""
        return self._node(document, path) is not None

    def scalar(self, document: int, path: Sequence[str | int]) -> str:
        """Return the source text of a scalar, without quotes; "" if it is absent, or not a scalar."""
        node = self._node(document, path)
        return str(node.value) if isinstance(node, yaml.ScalarNode) else ""

    def written_key(self, document: int, path: Sequence[str | int]) -> str:
        """Return the source text of the last key of a path, if YAML does not read it as a string; else ""."""
        node = self._node(document, path[:-1]) if path else None
        pair = _step(node, path[-1]) if node is not None else None
        key = None if pair is None else pair[0]
        return str(key.value) if isinstance(key, yaml.ScalarNode) and key.tag not in (_STRING, _MERGE) else ""

    def odd_key(self, document: int, path: Sequence[str | int]) -> tuple[str, str] | None:
        """Return the first key of the mapping at a path that is not a string: as YAML reads it, and as written."""
        node = self._node(document, path)
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode) and key.tag not in (_STRING, _MERGE):
                return _as_read(key), str(key.value)
        return None

    def last_line(self, document: int, path: Sequence[str | int]) -> int:
        """Return the line on which the value at a path ends; 0 if it is absent."""
        node = self._node(document, path)
        if node is None:
            return 0
        end = node.end_mark
        return self._composed[document][0] + end.line + (1 if end.column else 0)

    def lines(self, first: int, last: int) -> tuple[tuple[int, str], ...]:
        """Return the lines from ``first`` to ``last``; only the last if they are far from each other."""
        if not last:
            return ()
        start = first if 0 < last - first <= _FAR else last
        return tuple((number, self._rows[number - 1]) for number in range(start, last + 1) if number <= len(self._rows))

    def _node(self, document: int, path: Sequence[str | int]) -> yaml.Node | None:
        self.locate(document, path)
        node = self._composed[document][1]
        for step in path:
            pair = _step(node, step) if node is not None else None
            if pair is None:
                return None
            node = pair[1]
        return node

    @cached_property
    def _rows(self) -> list[str]:
        return self.content.split("\n")

    @cached_property
    def _parts(self) -> list[tuple[int, str]]:
        """The documents of the text, each with the number of lines above it, without empty documents."""
        starts = [0, *(match.start() for match in _SEPARATOR.finditer(self.content)), len(self.content)]
        parts = [
            (self.content.count("\n", 0, start), self.content[start:end]) for start, end in itertools.pairwise(starts)
        ]
        # Documents are numbered as `load_values` returns them, which leaves empty ones out.
        return [part for part in parts if _holds_something(part[1])]

    @cached_property
    def _composed(self) -> dict[int, tuple[int, yaml.Node | None]]:
        return {}

    def _compose(self, document: int) -> tuple[int, yaml.Node | None]:
        above, part = self._parts[document] if document < len(self._parts) else (0, "")
        try:
            return above, yaml.compose(part, Loader=yaml.CSafeLoader)
        except (yaml.YAMLError, ValueError):
            return above, None


def _holds_something(part: str) -> bool:
    """Return whether a document has more than blanks, comments and a null."""
    rows = (row.removeprefix("---").strip() for row in part.split("\n"))
    return any(row and not row.startswith("#") and row not in {"...", "~", "null"} for row in rows)


def _step(node: yaml.Node, step: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
    """Return the key and the value of a step of a path."""
    if isinstance(node, yaml.SequenceNode):
        return (None, node.value[step]) if isinstance(step, int) and step < len(node.value) else None
    if not isinstance(node, yaml.MappingNode):
        return None
    merged: list[yaml.Node] = []
    for key, value in node.value:
        if key.value == step or (isinstance(step, str) and _as_read(key) == step):
            return key, value
        # Merged keys last: in YAML a mapping's own keys override them, wherever the merge stands.
        if key.tag == _MERGE:
            merged += value.value if isinstance(value, yaml.SequenceNode) else [value]
    return next((pair for each in merged if (pair := _step(each, step)) is not None), None)


def _as_read(key: yaml.Node) -> str:
    """Return the value that YAML reads for a key, as text: ``on`` is true, which is ``True`` in a path."""
    if not isinstance(key, yaml.ScalarNode) or key.tag == _STRING:
        return str(key.value)
    try:
        return str(yaml.safe_load(key.value))
    except (yaml.YAMLError, ValueError):
        return str(key.value)


def _place_of(node: yaml.Node, above: int) -> Place:
    start, end = node.start_mark, node.end_mark
    width = end.column - start.column if end.line == start.line else 1
    return Place(start.line + above + 1, start.column + 1, max(1, width))


Lines = tuple[tuple[int, str], ...]
Origin = tuple[str, int, Path]
"""The place of a document: the name of its text, its index there, and its path in a list."""


@attrs.frozen(kw_only=True)
class Finding:
    """A fault, its place, and the expected form. Lines and columns count from 1; 0 is unknown."""

    code: str
    message: str = attrs.field(converter=on_one_line)
    file: str
    line: int = 0
    column: int = 0
    width: int = 1
    """The number of characters at fault."""
    hint: str = ""
    """The text after the carets."""
    help: str = ""
    """The suggested replacement."""
    object: str = ""
    found: str = ""
    expected: str = ""
    excerpt: Lines = ()
    """Numbered lines of the file; the carets belong to the last."""
    origin: Origin | None = attrs.field(default=None, eq=False, repr=False)
    """The document at fault; None for a whole text."""

    @property
    def severity(self) -> str:
        """Return error or warning."""
        return CODES[self.code].severity

    @property
    def is_error(self) -> bool:
        """Whether the input cannot be used as it is."""
        return self.severity == ERROR

    @property
    def meaning(self) -> str:
        """Return refusal, wait or advice."""
        return CODES[self.code].meaning

    @property
    def is_refusal(self) -> bool:
        """Whether the object at fault is refused."""
        return self.meaning == REFUSAL

    def __str__(self) -> str:
        """Return place, code and message on one line."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.code} {self.message}"


@attrs.frozen(eq=False)
class Document:
    """A manifest with the text that contains it."""

    manifest: Mapping[str, Any]
    text: Text
    number: int
    path: Path = ()

    def finding(
        self,
        code: str,
        message: str,
        path: Sequence[str | int],
        *,
        at_key: bool = False,
        also: Sequence[str | int] | None = None,
        **more: str,
    ) -> Finding:
        """Return a finding about the value at ``path`` of the manifest; the line of ``also`` is shown before it."""
        place = self.text.locate(self.number, (*self.path, *path), at_key=at_key)
        first = self.text.locate(self.number, (*self.path, *also)).line if also is not None else place.line
        return Finding(
            code=code,
            message=message,
            file=self.text.name,
            line=place.line,
            column=place.column,
            width=place.width,
            excerpt=self.text.lines(first, place.line),
            origin=self.origin,
            **more,
        )

    @property
    def origin(self) -> Origin:
        """Return its place."""
        return self.text.name, self.number, self.path

    @property
    def is_kept(self) -> bool:
        """Return whether it comes from an API server, which has accepted it already."""
        return bool(part_of(self.manifest, "metadata", "resourceVersion"))

    @property
    def title(self) -> str:
        """Return kind and name of the object, with its namespace if it names one; "" without a name."""
        metadata = self.manifest.get("metadata")
        names = metadata if isinstance(metadata, Mapping) else {}
        name = names.get("name") or names.get("generateName")
        if not name:
            return ""
        namespace = names.get("namespace")
        return f"{str(self.manifest.get('kind')).lower()} {f'{namespace}/' if namespace else ''}{name}"

    def bad_value(self, bad: BadValue, path: Path = ()) -> Finding:
        """Return a finding about an invalid value, below ``path`` of the manifest."""
        field = field_of((*path, *bad.path) or (str(self.manifest.get("kind")),))
        is_unquoted = bad.wanted.startswith("a string") and not bad.found.startswith(("a ", "an ", "nothing"))
        # YAML changed the type of the word: yes became true.
        at = (*self.path, *path, *bad.path)
        written = self.text.scalar(self.number, at) if is_unquoted else ""
        odd = self.text.odd_key(self.number, at) if is_unquoted else None
        return self.finding(
            "F001",
            f"{field}: found {bad.found}, expected {bad.wanted}",
            (*path, *bad.path) if odd is None else (*path, *bad.path, odd[0]),
            at_key=odd is not None,
            object=self.title,
            found=bad.found,
            expected=bad.wanted,
            hint=f"must be {bad.wanted}",
            help=f'{field}: "{written}"' if written else f'"{odd[1]}":' if odd is not None else "",
        )


def field_of(path: Sequence[str | int]) -> str:
    """Return the name of the last field of a path, with its index in a list: ``args[1]``."""
    name = max((at for at, step in enumerate(path) if isinstance(step, str)), default=0)
    return "".join([str(path[name]), *(f"[{index}]" for index in path[name + 1 :])])


class RefusedError(InputError):
    """An input has findings that prevent its use."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(*(str(finding) for finding in findings))
        self.findings = tuple(findings)

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Finding, ...]]]:
        """Include the findings when the error is pickled for another process; the default would lose them and fail."""
        return type(self), (self.findings,)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Self | None:
        """Return the error for the findings that are errors; None if there are none."""
        wrong = [finding for finding in findings if finding.is_error]
        return cls(wrong) if wrong else None
