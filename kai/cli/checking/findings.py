"""Findings as text: the place, the line with carets, and the expected value."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kai.answers.documents.listings import FindingItem
    from kai.manifests import Finding

_WIDEST = 140
"""Longer lines of a file are cut around the place."""


def finding_text(finding: "Finding") -> str:
    """Return a finding as lines: place, code and message; the excerpt; a help line."""
    lines = [str(finding) if finding.is_error else _as_warning(finding), *_excerpt(finding)]
    if finding.help:
        lines.append(f"  help: {finding.help}")
    return "\n".join(lines)


def github_text(finding: "Finding") -> str:
    """Return a finding as a workflow command of GitHub Actions, which shows it beside the line."""
    place = f",line={finding.line},col={finding.column}" if finding.line else ""
    said = f"{finding.message} ({finding.hint})" if finding.hint else finding.message
    message = said.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return f"::{finding.severity} file={finding.file}{place},title={finding.code}::{message}"


def finding_item(finding: "Finding") -> "FindingItem":
    """Return a finding as an item of a document."""
    from kai.answers.documents.listings import FindingItem

    return FindingItem(
        code=finding.code,
        severity=finding.severity,
        meaning=finding.meaning,
        message=finding.message,
        file=finding.file,
        line=finding.line or None,
        column=finding.column or None,
        object=finding.object or None,
        found=finding.found or None,
        expected=finding.expected or None,
        help=finding.help or None,
    )


def _as_warning(finding: "Finding") -> str:
    place, _, rest = str(finding).partition(f": {finding.code} ")
    return f"{place}: {finding.code} warning: {rest}"


def _excerpt(finding: "Finding") -> Iterator[str]:
    start = 0
    for number, row in finding.excerpt:
        shown = row.rstrip("\r")
        if len(shown) > _WIDEST:
            start = max(0, finding.column - _WIDEST // 2)
            shown = shown[start : start + _WIDEST]
        yield f"{number:>5} | {_visible(shown)}"
    if finding.excerpt and finding.column:
        carets = "^" * min(finding.width, _WIDEST // 2)
        yield f"{'':>5} | {' ' * (finding.column - 1 - start)}{carets} {finding.hint}".rstrip()


def _visible(row: str) -> str:
    """Return a row with characters replaced that would shift the carets or control the terminal."""
    return "".join(each if each.isprintable() else " " for each in row)
