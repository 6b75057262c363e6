"""Text in columns, as wide as the terminal is.

Where a table is too wide, long texts are cut between words, what is drawn is drawn smaller, and then the columns that
matter least go, one after the other. A width of 0 is no limit.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

import attrs

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
GAP = "  "
MORE = "…"
_LEAST_BESIDE = 24
"""So many places are needed beside other columns before a long text begins on a line of its own."""
_BELOW = 6

Drawn: TypeAlias = Callable[[int], str]
"""A cell that is drawn in as many places as its column gets."""
Cell: TypeAlias = str | Drawn


@attrs.frozen(kw_only=True)
class Column:
    """A column of a table."""

    head: Cell
    right: bool = False
    drop: int = 0
    """The higher, the sooner the column goes; 0 stays."""
    least: int = 0
    """So many places are enough: texts are cut and drawings scaled down to it. 0: cells are never changed."""
    most: int = 0
    """So many places a drawing gets at most."""


def table(heads: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int = 0) -> str:
    """Return rows under their heads, in at most ``width`` places where that can be done."""
    lines = [[column.head for column in heads], *rows]
    cells = [[line[at] for line in lines] for at in range(len(heads))]
    # Thousands of rows agree in most columns: what is equal is measured, cut and filled up once.
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
    """Return rows with their cells under each other; columns in ``right`` are aligned to the right.

    Where a row is wider than ``width``, its last cell goes on below, under where it begins.
    """
    widths = [max(shown_width(row[at]) for row in rows if at < len(row)) for at in range(max(map(len, rows)))]
    lines = []
    for row in rows:
        cells = [padded(cell, widths[at], right=at in right) for at, cell in enumerate(row)]
        line = GAP.join(cells).rstrip()
        lines.append(_continued(cells[:-1], row[-1], width) if 0 < width < shown_width(line) else line)
    return "\n".join(lines)


def _continued(cells: Sequence[str], last: str, width: int) -> str:
    """Return a row whose last cell takes several lines: beside the others, or below them where that is too narrow."""
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
    """Return how many places the widest cell wants."""
    return max(column.most if callable(cell) else shown_width(cell) for cell in cells)


def _fitted(heads: Sequence[Column], natural: Sequence[int], width: int) -> tuple[list[int], list[int]]:
    """Return which columns are shown, and how wide each column is.

    A column that went because wider ones were still there comes back where it fits beside those that are left.
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
        gone = max(shown, key=lambda at: heads[at].drop)
        if heads[gone].drop <= 0:
            widths[shown[0]] = max(8, widths[shown[0]] - over)
            return shown, widths
        shown.remove(gone)


def _refilled(shown: list[int], heads: Sequence[Column], widths: Sequence[int], width: int) -> list[int]:
    """Return the columns that are shown, with those that fit beside them as they are; what matters most comes first."""
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
    """Return what of a text fits into so many places, cut between words where there is more than one."""
    if shown_width(text) <= width:
        return text
    plain = _STYLE.sub("", text)
    head = plain[: max(0, width - len(MORE))]
    words = plain[: len(head) + 1].rpartition(" ")[0].rstrip()
    if len(words) + 2 > width:
        words = words.rpartition(" ")[0].rstrip()
    return f"{words} {MORE}" if words else f"{head}{MORE}"


def wrapped(text: str, width: int, *, indent: str = "", between: str = " ") -> str:
    """Return a text on as many lines as it takes, broken where ``between`` stands; lines but the first are indented.

    The first keeps the blanks that it begins with.
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
    """Return ``text`` filled up with blanks; colour takes no room."""
    blanks = " " * (width - shown_width(text))
    return blanks + text if right else text + blanks


def shown_width(text: str) -> int:
    """Return how many places ``text`` takes on the screen."""
    # Most texts of a table of thousands have no colour, and to look for its first sign is quicker than to replace it.
    return len(_STYLE.sub("", text)) if "\x1b" in text else len(text)
