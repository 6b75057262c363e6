"""Text in columns, fitted to the width of the terminal.

If a table is too wide, long texts are cut between words, then drawings are scaled down, then the least important
columns are dropped one by one. A width of 0 is no limit.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import attrs

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
GAP = "  "
MORE = "…"
_LEAST_BESIDE = 24
"""A long last cell starts beside the other columns only if this many characters remain, else on a line of its own."""
_BELOW = 6

Drawn: TypeAlias = Callable[[int], str]
"""A cell that is drawn in a given number of characters."""
Cell: TypeAlias = str | Drawn


@attrs.frozen(kw_only=True)
class Column:
    """A column of a table."""

    head: Cell
    right: bool = False
    drop: int = 0
    """Order of removal: the highest goes first; 0 is never dropped."""
    least: int = 0
    """Minimum width to which texts are cut and drawings scaled down. 0: cells are never changed."""
    most: int = 0
    """Maximum width of a drawing."""


def table(heads: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int = 0) -> str:
    """Return rows under their heads, in at most ``width`` characters where possible."""
    lines = [[column.head for column in heads], *rows]
    cells = [[line[at] for line in lines] for at in range(len(heads))]
    # Rows of a large table agree in most columns, so each distinct cell is measured, cut and padded once.
    distinct = [list(dict.fromkeys(each)) for each in cells]
    natural = [_natural(column, each) for column, each in zip(heads, distinct, strict=True)]
    shown, widths = _fitted(heads, natural, width)
    drawn = []
    for at in shown:
        cut, right = heads[at].least > 0 or width > 0, heads[at].right
        texts = {cell: padded(_cell(cell, widths[at], cut=cut), widths[at], right=right) for cell in distinct[at]}
        drawn.append([texts[cell] for cell in cells[at]])
    return "\n".join(GAP.join(line).rstrip() for line in zip(*drawn, strict=True))


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = (), width: int = 0) -> str:
    """Return rows as aligned columns; those in ``right`` are aligned to the right.

    In a row wider than ``width``, the last cell wraps onto lines below, indented to its start.
    """
    widths = [max(shown_width(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows)))]
    lines = []
    for row in rows:
        cells = [padded(cell, widths[at], right=at in right) for at, cell in enumerate(row)]
        line = GAP.join(cells).rstrip()
        lines.append(_continued(cells[:-1], row[-1], width) if 0 < width < shown_width(line) else line)
    return "\n".join(lines)


def _continued(cells: Sequence[str], last: str, width: int) -> str:
    """Return a row whose last cell wraps: beside the other cells, or below them if that is too narrow."""
    head = "".join(cell + GAP for cell in cells)
    start = shown_width(head)
    if width - start >= _LEAST_BESIDE:
        return head + wrapped(last, width - start).replace("\n", "\n" + " " * start)
    below = "\n" + " " * _BELOW
    if shown_width(head.rstrip()) > width:
        margin = " " * (len(head) - len(head.lstrip(" ")))
        head = margin + wrapped(head.strip(), width - len(margin), indent="  ").replace("\n", "\n" + margin)
    return head.rstrip() + below + wrapped(last, max(1, width - _BELOW)).replace("\n", below)


def _natural(column: Column, cells: Sequence[Cell]) -> int:
    """Return the width of the widest cell."""
    return max(column.most if callable(cell) else shown_width(cell) for cell in cells)


def _fitted(heads: Sequence[Column], natural: Sequence[int], width: int) -> tuple[list[int], list[int]]:
    """Return the shown columns, and the width of every column.

    A dropped column returns if it fits after wider ones were dropped too.
    """
    shown = list(range(len(heads)))
    while True:
        widths = list(natural)
        over = sum(widths[at] for at in shown) + len(GAP) * (len(shown) - 1) - width
        if width <= 0 or over <= 0:
            return _refilled(shown, heads, widths, width), widths
        for at in shown:
            spare = max(0, widths[at] - heads[at].least) if heads[at].least else 0
            widths[at] -= min(spare, over)
            over -= min(spare, over)
        if over <= 0:
            return _refilled(shown, heads, widths, width), widths
        # One at a time, then everything is fitted anew: a dropped column may leave room that others need not give up.
        gone = max(shown, key=lambda at: heads[at].drop)
        if heads[gone].drop <= 0:
            widths[shown[0]] = max(8, widths[shown[0]] - over)
            return shown, widths
        shown.remove(gone)


def _refilled(shown: list[int], heads: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the shown columns with those added back that still fit, the most important first."""
    if width <= 0:
        return shown
    out = list(shown)
    left = width - sum(widths[at] for at in out) - len(GAP) * (len(out) - 1)
    for at in sorted(set(range(len(heads))) - set(shown), key=lambda at: heads[at].drop):
        if widths[at] + len(GAP) <= left:
            left -= widths[at] + len(GAP)
            out.append(at)
    return sorted(out)


def _cell(cell: Cell, width: int, *, cut: bool) -> str:
    if callable(cell):
        return cell(width)
    return cut_text(cell, width) if cut else cell


def cut_text(text: str, width: int) -> str:
    """Return as much of a text as fits into ``width`` characters, cut between words where it has several."""
    if shown_width(text) <= width:
        return text
    plain = _STYLE.sub("", text)
    head = plain[: max(0, width - len(MORE))]
    # One character more than fits: where it is a blank, the last word is whole.
    words = plain[: len(head) + 1].rpartition(" ")[0].rstrip()
    if len(words) + 2 > width:
        words = words.rpartition(" ")[0].rstrip()
    return f"{words} {MORE}" if words else f"{head}{MORE}"


def wrapped(text: str, width: int, *, indent: str = "", between: str = " ") -> str:
    """Return a text wrapped at ``between``; lines except the first are indented.

    The first line keeps its leading blanks.
    """
    if width <= 0:
        return text
    words = text.lstrip(" ")
    first, *rest = words.split(between)
    lines, line = [], text[: len(text) - len(words)] + first
    for part in rest:
        longer = f"{line}{between}{part}"
        if shown_width(longer) > width:
            lines.append(line.rstrip())
            line = indent + part
        else:
            line = longer
    return "\n".join([*lines, line.rstrip()])


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return ``text`` padded with blanks; colour codes take no room."""
    blanks = " " * (width - shown_width(text))
    return blanks + text if right else text + blanks


def shown_width(text: str) -> int:
    """Return the width of ``text`` on the screen."""
    # Most cells have no colour, and a search for an escape character is faster than the regular expression.
    return len(_STYLE.sub("", text)) if "\x1b" in text else len(text)
