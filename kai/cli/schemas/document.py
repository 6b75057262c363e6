"""What every document for machines begins with, as a class."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class Source:
    """Where a document was made from."""

    type: str
    cluster: str | None
    revision: str | None
    sha256: str | None
    complete: bool


@attrs.frozen(kw_only=True)
class Program:
    """Which kai made a document."""

    version: str


@attrs.frozen(kw_only=True)
class Document:
    """What every document begins with."""

    api_version: str
    kind: str
    generated_at: str
    source: Source | None
    program: Program
