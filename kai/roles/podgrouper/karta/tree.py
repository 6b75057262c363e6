"""The nodes of a query's tree. ``syntax`` builds trees, ``evaluate`` runs them."""

from collections.abc import Iterator
from typing import TypeAlias

import attrs


@attrs.frozen
class Identity:
    """The value itself: ``.``."""


@attrs.frozen
class Descent:
    """Everything inside the value: ``..``."""


@attrs.frozen
class Literal:
    """A number, string, ``true``, ``false`` or ``null``."""

    value: object


@attrs.frozen
class Text:
    """A string with expressions inside."""

    parts: "tuple[Query, ...]"


@attrs.frozen
class Variable:
    """A variable: ``$name``."""

    name: str


@attrs.frozen
class Index:
    """An item: ``target[key]``, also written ``target.key``."""

    target: "Query"
    key: "Query"


@attrs.frozen
class Slice:
    """A part: ``target[low:high]``."""

    target: "Query"
    low: "Query | None"
    high: "Query | None"


@attrs.frozen
class Iterate:
    """Every item: ``target[]``."""

    target: "Query"


@attrs.frozen
class Array:
    """A list of all results: ``[content]``."""

    content: "Query | None"


@attrs.frozen
class Table:
    """A map: ``{key: value, ...}``."""

    entries: "tuple[tuple[Query, Query], ...]"


@attrs.frozen
class Negation:
    """A sign: ``-operand``."""

    operand: "Query"


@attrs.frozen
class Binary:
    """Two sides: ``left operator right``; the operators are those of ``_STRENGTH``."""

    operator: str
    left: "Query"
    right: "Query"


@attrs.frozen
class Choice:
    """A condition: ``if condition then chosen else other end``."""

    condition: "Query"
    chosen: "Query"
    other: "Query"


@attrs.frozen
class Attempt:
    """A try: ``try body catch rescue``, and ``body?``."""

    body: "Query"
    rescue: "Query | None"


@attrs.frozen
class Binding:
    """A name for a value: ``source as $name | body``."""

    source: "Query"
    name: str
    body: "Query"


@attrs.frozen
class Reduction:
    """A fold: ``reduce source as $name (start; update)``."""

    source: "Query"
    name: str
    start: "Query"
    update: "Query"


@attrs.frozen
class Call:
    """A function: ``name(argument; ...)``."""

    name: str
    arguments: "tuple[Query, ...]"


Query: TypeAlias = (
    Identity | Descent | Literal | Text | Variable | Index | Slice | Iterate | Array | Table | Negation | Binary
    | Choice | Attempt | Binding | Reduction | Call
)  # fmt: skip


def nodes(tree: Query) -> Iterator[Query]:
    """Yield every node of ``tree``."""
    pending: list[object] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, tuple):
            pending.extend(node)
        elif isinstance(node, Query):
            yield node
            pending.extend(attrs.astuple(node, recurse=False))
