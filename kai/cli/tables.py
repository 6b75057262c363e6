"""Text in columns."""

import re
from collections.abc import Collection, Sequence

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
GAP = "  "


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> str:
    """Return rows with their cells under each other; columns in ``right`` are aligned to the right."""
    widths = [max(shown_width(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows)))]
    lines = []
    for row in rows:
        cells = [padded(cell, widths[at], right=at in right) for at, cell in enumerate(row)]
        lines.append(GAP.join(cells).rstrip())
    return "\n".join(lines)


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return ``text`` filled up with blanks; colour takes no room."""
    blanks = " " * max(0, width - shown_width(text))
    return blanks + text if right else text + blanks


def shown_width(text: str) -> int:
    """Return how many places ``text`` takes on the screen."""
    return len(_STYLE.sub("", text))
