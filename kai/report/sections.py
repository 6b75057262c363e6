"""What a page is made of: sections with charts, each with its finding as a sentence and its numbers as a table."""

from __future__ import annotations

import attrs

from kai.report.drawing import Figure, Key


@attrs.frozen(kw_only=True)
class Table:
    """Numbers, one row after the other; the first column names the row."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: frozenset[int] = frozenset({0})
    """The columns that hold words; those of numbers are set to the right."""
    note: str = ""


@attrs.frozen(kw_only=True)
class Plot:
    """One chart with what it shows, in words."""

    title: str
    """What is different from the other charts of the section: the run, or the queue."""
    finding: str
    figure: Figure | None
    """None where there is nothing to draw."""
    table: Table | None = None


@attrs.frozen(kw_only=True)
class Section:
    """A question, and the charts that answer it."""

    name: str
    question: str
    about: str
    """How the charts are read, and what is left out of them."""
    plots: tuple[Plot, ...]
    keys: tuple[Key, ...] = ()
    table: Table | None = None
    """Of all charts together."""
    small: bool = False
    """Whether the charts stand beside each other where there is room."""
