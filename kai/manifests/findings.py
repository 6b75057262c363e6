"""A finding: what is wrong in which file, at which line and column, and what would be right."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import attrs

from kai.api.values import BadValue
from kai.basics.parsing import part_of
from kai.errors import InputError, on_one_line
from kai.manifests.codes import CODES, ERROR, REFUSAL
from kai.manifests.positions import Path, Text

Lines = tuple[tuple[int, str], ...]
Origin = tuple[str, int, Path]
"""Where a document stands: the name of its text, its number there, and its place in a list."""


@attrs.frozen(kw_only=True)
class Finding:
    """What is wrong, where, and what would be right. Lines and columns count from 1; 0 is unknown."""

    code: str
    message: str = attrs.field(converter=on_one_line)
    file: str
    line: int = 0
    column: int = 0
    width: int = 1
    """How many characters are wrong."""
    hint: str = ""
    """What stands behind the carets."""
    help: str = ""
    """What to write in its place."""
    object: str = ""
    found: str = ""
    expected: str = ""
    excerpt: Lines = ()
    """Numbered lines of the file, the last of which is the one with the carets."""
    origin: Origin | None = attrs.field(default=None, eq=False, repr=False)
    """The document that it is about; None for a whole text."""

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
        """Whether the object that it is about is not taken as it is."""
        return self.meaning == REFUSAL

    def __str__(self) -> str:
        """Return place, code and message on one line."""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.code} {self.message}"


@attrs.frozen(eq=False)
class Document:
    """A manifest with the text that it stands in."""

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
        """Return a finding about what stands at ``path`` of the manifest; the line of ``also`` is shown before it."""
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
        """Return where it stands."""
        return self.text.name, self.number, self.path

    @property
    def is_kept(self) -> bool:
        """Return whether it comes from an API server, which has taken it already."""
        return bool(part_of(self.manifest, "metadata", "resourceVersion"))

    @property
    def title(self) -> str:
        """Return kind and name of the object, with its namespace where it says one; "" without a name."""
        metadata = self.manifest.get("metadata")
        names = metadata if isinstance(metadata, Mapping) else {}
        name = names.get("name") or names.get("generateName")
        if not name:
            return ""
        namespace = names.get("namespace")
        return f"{str(self.manifest.get('kind')).lower()} {f'{namespace}/' if namespace else ''}{name}"

    def bad_value(self, bad: BadValue, path: Path = ()) -> Finding:
        """Return a finding about a value that cannot be read, below ``path`` of the manifest."""
        field = field_of((*path, *bad.path) or (str(self.manifest.get("kind")),))
        is_unquoted = bad.wanted.startswith("a string") and not bad.found.startswith(("a ", "an ", "nothing"))
        # What YAML made of the word is not what was meant: yes became true.
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
    """Return what the last field of a path is called, with the place in its list: ``args[1]``."""
    name = max((at for at, step in enumerate(path) if isinstance(step, str)), default=0)
    return "".join([str(path[name]), *(f"[{index}]" for index in path[name + 1 :])])


class RefusedError(InputError):
    """An input has findings that keep it from being used."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        super().__init__(*(str(finding) for finding in findings))
        self.findings = tuple(findings)

    def __reduce__(self) -> tuple[type[Self], tuple[tuple[Finding, ...]]]:
        """Keep the findings on the way from another process, which else would be lost and the error with them."""
        return type(self), (self.findings,)

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Self | None:
        """Return the error for those findings that are errors; None if none is."""
        wrong = [finding for finding in findings if finding.is_error]
        return cls(wrong) if wrong else None
