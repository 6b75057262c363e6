"""The values and the syntax trees of queries.

First jq's operations on values: comparison, arithmetic, output. Each step has a cost, so that no query runs for ever.
Then the nodes of a tree: ``syntax`` builds trees, ``evaluate`` runs them.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cmp_to_key
from typing import TypeAlias

import attrs

from kai.basics.errors import InputError
from kai.basics.parsing import is_number


class QueryError(InputError):
    """A query fails on its value."""


class ExhaustedError(Exception):
    """A query exceeded its budget. No `try` of the query's own catches this."""


MOST_WORK = 200_000
"""The budget of one query: steps, items and quarters of characters; a comparison is a few steps."""
_COMPARISON = 4
MOST_BITS = 1024
"""The size of the largest integer that a query may compute."""

# A context variable and no parameter: comparisons pay too, and `sorted` calls them without one.
_WORK: ContextVar[list[int] | None] = ContextVar("work", default=None)


@contextmanager
def limited(work: int) -> Iterator[None]:
    """Give the body a budget of ``work``."""
    token = _WORK.set([work])
    try:
        yield
    finally:
        _WORK.reset(token)


def spend(work: int = 1) -> None:
    """Charge the budget.

    Raises: ExhaustedError when it is used up.
    """
    # There is no budget outside of a query: messages and keys are printed by the same functions.
    left = _WORK.get()
    if left is not None:
        left[0] -= work
        if left[0] < 0:
            raise ExhaustedError


def spend_on(value: object) -> None:
    """Charge the budget for a new value: for its items, not for their contents."""
    if isinstance(value, str):
        spend(1 + len(value) // 4)
    else:
        spend(1 + len(value) if isinstance(value, list | tuple | dict) else 1)


def type_name(value: object) -> str:
    """Return the name of the type of ``value`` in jq."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def is_truth(value: object) -> bool:
    """Return whether a condition is true: all values except null and false are."""
    return value is not None and value is not False


def number(value: object) -> int | float | None:
    """Return ``value`` if it is a number; booleans are not numbers."""
    return value if is_number(value) else None


def entries_of(value: object) -> Iterator[tuple[object, object]]:
    """Yield keys and items of a list or a map, a map in the order of its keys.

    Raises: QueryError for anything else.
    """
    if isinstance(value, Mapping):
        yield from sorted(value.items())
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    else:
        raise QueryError(f"{type_name(value)} has no items")


def order(left: object, right: object) -> int:
    """Return -1, 0 or 1: null < false < true < numbers < strings < arrays < objects."""
    spend(_COMPARISON)
    ranks = _rank(left), _rank(right)
    if ranks[0] != ranks[1]:
        return -1 if ranks[0] < ranks[1] else 1
    if isinstance(left, str) and isinstance(right, str):
        return (left > right) - (left < right)
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        # As in jq: first the keys as sorted lists, and only among equal keys the values.
        keys = [sorted(each) for each in (left, right)]
        return order(keys[0], keys[1]) or order([left[key] for key in keys[0]], [right[key] for key in keys[1]])
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        different = (found for found in map(order, left, right) if found)
        return next(different, (len(left) > len(right)) - (len(left) < len(right)))
    # null, false and true come here as well. Their ranks are equal, so each is compared with itself and 0 will do for
    # both.
    one, other = number(left) or 0, number(right) or 0
    return (one > other) - (one < other)


sort_key = cmp_to_key(order)


def compare(operator: str, left: object, right: object) -> bool:
    """Return the truth of a comparison."""
    found = order(left, right)
    return {
        "==": found == 0,
        "!=": found != 0,
        "<": found < 0,
        "<=": found <= 0,
        ">": found > 0,
        ">=": found >= 0,
    }[operator]


def arithmetic(operator: str, left: object, right: object) -> object:
    """Return the result of ``+ - * / %``.

    Raises: QueryError for types that the operator does not support, and for a division by zero.
    """
    numbers = number(left), number(right)
    if numbers[0] is not None and numbers[1] is not None:
        return _of_numbers(operator, numbers[0], numbers[1])
    if operator == "+":
        if left is None or right is None:
            return right if left is None else left
        if isinstance(left, str) and isinstance(right, str):
            return left + right
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            return {**left, **right}
        if isinstance(left, list | tuple) and isinstance(right, list | tuple):
            return [*left, *right]
    if operator == "-" and isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return [item for item in left if all(order(item, other) for other in right)]
    if operator == "/" and isinstance(left, str) and isinstance(right, str):
        return left.split(right) if right else list(left)
    raise QueryError(f"cannot calculate {type_name(left)} {operator} {type_name(right)}")


def text_of(value: object) -> str:
    """Return a string unchanged and any other value as JSON."""
    return value if isinstance(value, str) else json_of(value)


def json_of(value: object) -> str:
    """Return ``value`` as JSON on one line, maps in the order of their keys, whole numbers without a fraction."""
    return json.dumps(_plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _plain(value: object) -> object:
    spend_on(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        # As gojq prints them: `2.0 | tostring` is `2`. JSON has neither NaN nor infinity, and jq makes null of them.
        return int(value) if value.is_integer() and abs(value) < 10**17 else value if math.isfinite(value) else None
    return value


def _rank(value: object) -> int:
    return ("null", "false", "true", "number", "string", "array", "object").index(
        str(value).lower() if isinstance(value, bool) else type_name(value)
    )


def _of_numbers(operator: str, left: float, right: float) -> float:
    found = _calculated(operator, left, right)
    # Integers of Python have no largest value: 2, squared forty times, has 2^40 bits.
    if isinstance(found, int) and found.bit_length() > MOST_BITS:
        raise QueryError(f"the result of {operator} has more than {MOST_BITS} bits")
    return found


def _calculated(operator: str, left: float, right: float) -> float:
    try:
        if operator == "+":
            return left + right
        if operator == "-":
            return left - right
        if operator == "*":
            return left * right
        if operator == "/":
            return left / right
        dividend, divisor = int(left), abs(int(right))  # in jq the result has the sign of the dividend
        return dividend % divisor if dividend >= 0 else -(-dividend % divisor)
    except (ZeroDivisionError, OverflowError, ValueError) as error:
        raise QueryError(f"cannot calculate {left} {operator} {right}: {error}") from error


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
