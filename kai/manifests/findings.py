"""A finding: a fault with its file, line and column, and the expected form."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import attrs

from kai.api.values import BadValue
from kai.basics.errors import InputError, on_one_line
from kai.basics.parsing import part_of
from kai.manifests.codes import CODES, ERROR, REFUSAL
from kai.manifests.positions import Path, Text

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
