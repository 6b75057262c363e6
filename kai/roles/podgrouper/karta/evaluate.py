"""Evaluation of the trees of ``kai.roles.podgrouper.karta.syntax`` on a value.

A query turns one value into any number of results. Values are those of JSON; maps are iterated in the order of their
keys, so that no result depends on the order in which an object was written.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeAlias

from kai.roles.podgrouper.karta import functions
from kai.roles.podgrouper.karta.syntax import WRITING, parse
from kai.roles.podgrouper.karta.values import (
    MOST_WORK,
    Array,
    Attempt,
    Binary,
    Binding,
    Call,
    Choice,
    ExhaustedError,
    Identity,
    Index,
    Iterate,
    Literal,
    Negation,
    Query,
    QueryError,
    Reduction,
    Slice,
    Table,
    Text,
    Variable,
    arithmetic,
    compare,
    entries_of,
    is_truth,
    limited,
    number,
    spend,
    spend_on,
    text_of,
    type_name,
)  # fmt: skip

MOST_RESULTS = 1000

_Variables: TypeAlias = Mapping[str, object]
_MAKERS = (Array, Binary, Call, Slice, Table)
"""Nodes whose results may be new values; the results of others are parts of existing values."""


def evaluate(expression: str, value: object) -> tuple[object, ...]:
    """Return every result of ``expression`` on ``value``.

    Raises: QuerySyntaxError for an invalid query; QueryError when it fails, or has too many results.
    """
    try:
        with limited(MOST_WORK):
            # Results are taken one by one: a query with a billion of them is cut off here and never run to its end.
            results = tuple(islice(_run(parse(expression), value, {}), MOST_RESULTS))
    # `DEEPEST` bounds the tree of a query. The values are bounded by nothing, and to compare or print them recurses
    # too.
    except (ExhaustedError, RecursionError):
        raise QueryError(f"the query does too much work: {expression[:100]}") from None
    if len(results) == MOST_RESULTS:
        raise QueryError(f"the query has {MOST_RESULTS} results or more")
    return results


def _run(tree: Query, value: object, variables: _Variables) -> Iterator[object]:
    """Yield the results of ``tree`` on ``value``."""
    spend()
    if isinstance(tree, Identity):
        yield value
    elif isinstance(tree, Literal):
        yield tree.value
    elif isinstance(tree, Variable):
        if tree.name not in variables:
            raise QueryError(f"${tree.name} is not defined")
        yield variables[tree.name]
    else:
        for result in _node(tree, value, variables):
            if isinstance(tree, _MAKERS):
                spend_on(result)
            yield result


@functools.singledispatch
def _node(tree: object, _value: object, _variables: _Variables) -> Iterator[object]:
    """Yield the results of a node with parts; a function for each kind of node is registered below."""
    raise QueryError(f"{type(tree).__name__} has no bound and is not allowed")


@_node.register
def _text(tree: Text, value: object, variables: _Variables) -> Iterator[object]:
    for parts in _product(tree.parts, value, variables):
        texts = [text_of(part) for part in parts]
        spend(sum(map(len, texts)) // 4)
        yield "".join(texts)


@_node.register
def _index(tree: Index, value: object, variables: _Variables) -> Iterator[object]:
    for target in _run(tree.target, value, variables):
        for key in _run(tree.key, value, variables):
            yield _item(target, key)


def _item(target: object, key: object) -> object:
    if target is None and (key is None or isinstance(key, str | int | float)):
        return None
    if isinstance(target, Mapping) and isinstance(key, str):
        return target.get(key)
    place = number(key)
    if isinstance(target, list | tuple) and place is not None:
        row = int(place // 1)
        return target[row] if -len(target) <= row < len(target) else None
    raise QueryError(f"{type_name(target)} has no item {text_of(key)}")


@_node.register
def _slice(tree: Slice, value: object, variables: _Variables) -> Iterator[object]:
    none = Literal(None)
    for target in _run(tree.target, value, variables):
        for low, high in _product((tree.low or none, tree.high or none), value, variables):
            yield _part(target, low, high)


def _part(target: object, low: object, high: object) -> object:
    ends = [None if end is None else number(end) for end in (low, high)]
    if target is None:
        return None
    if not isinstance(target, list | tuple | str) or (low is not None and ends[0] is None):
        raise QueryError(f"{type_name(target)} has no slices")
    return target[slice(*(None if end is None else int(end) for end in ends))]


@_node.register
def _iterate(tree: Iterate, value: object, variables: _Variables) -> Iterator[object]:
    for target in _run(tree.target, value, variables):
        for _, item in entries_of(target):
            spend()
            yield item


@_node.register
def _array(tree: Array, value: object, variables: _Variables) -> Iterator[object]:
    yield [] if tree.content is None else list(_run(tree.content, value, variables))


@_node.register
def _table(tree: Table, value: object, variables: _Variables) -> Iterator[object]:
    flat = tuple(part for entry in tree.entries for part in entry)
    for parts in _product(flat, value, variables):
        made = {}
        for key, item in zip(parts[::2], parts[1::2], strict=True):
            if not isinstance(key, str):
                raise QueryError(f"the key of a map cannot be {type_name(key)}")
            made[key] = item
        yield made


@_node.register
def _negation(tree: Negation, value: object, variables: _Variables) -> Iterator[object]:
    for operand in _run(tree.operand, value, variables):
        yield arithmetic("-", 0, operand)


@_node.register
def _binary(tree: Binary, value: object, variables: _Variables) -> Iterator[object]:
    run = _STREAMS.get(tree.operator)
    if run is not None:
        yield from run(tree, value, variables)
        return
    if tree.operator in WRITING:
        raise QueryError(f"`{tree.operator}` writes and is not allowed")
    # The right side is the outer loop, as in jq: `(1, 2) + (10, 20)` gives 11, 12, 21, 22.
    for right, left in _product((tree.right, tree.left), value, variables):
        yield (
            compare(tree.operator, left, right)
            if tree.operator[0] in "=!<>"
            else arithmetic(tree.operator, left, right)
        )


def _pipe(tree: Binary, value: object, variables: _Variables) -> Iterator[object]:
    for middle in _run(tree.left, value, variables):
        yield from _run(tree.right, middle, variables)


def _comma(tree: Binary, value: object, variables: _Variables) -> Iterator[object]:
    yield from _run(tree.left, value, variables)
    yield from _run(tree.right, value, variables)


def _alternative(tree: Binary, value: object, variables: _Variables) -> Iterator[object]:
    """Yield the left side's results except null, false and errors; the right side's if none are left."""
    found = False
    try:
        for result in _run(tree.left, value, variables):
            if is_truth(result):
                found = True
                yield result
    except QueryError:
        pass
    if not found:
        yield from _run(tree.right, value, variables)


def _logic(tree: Binary, value: object, variables: _Variables) -> Iterator[object]:
    decisive = tree.operator == "or"
    for left in _run(tree.left, value, variables):
        if is_truth(left) == decisive:
            yield decisive
        else:
            yield from (is_truth(right) for right in _run(tree.right, value, variables))


_STREAMS = {"|": _pipe, ",": _comma, "//": _alternative, "and": _logic, "or": _logic}
"""Operators that are not a function of every pair of a left and a right result."""


@_node.register
def _choice(tree: Choice, value: object, variables: _Variables) -> Iterator[object]:
    for condition in _run(tree.condition, value, variables):
        yield from _run(tree.chosen if is_truth(condition) else tree.other, value, variables)


@_node.register
def _attempt(tree: Attempt, value: object, variables: _Variables) -> Iterator[object]:
    try:
        yield from _run(tree.body, value, variables)
    except QueryError as problem:
        if tree.rescue is not None:
            yield from _run(tree.rescue, str(problem), variables)


@_node.register
def _binding(tree: Binding, value: object, variables: _Variables) -> Iterator[object]:
    for bound in _run(tree.source, value, variables):
        yield from _run(tree.body, value, {**variables, tree.name: bound})


@_node.register
def _reduction(tree: Reduction, value: object, variables: _Variables) -> Iterator[object]:
    for start in _run(tree.start, value, variables):
        state = start
        for bound in _run(tree.source, value, variables):
            # As in jq: of several results of the update the last one counts, and an update without a result leaves
            # null.
            *_, state = (None, *_run(tree.update, state, {**variables, tree.name: bound}))
        yield state


@_node.register
def _call(tree: Call, value: object, variables: _Variables) -> Iterator[object]:
    # A function, so that each filter keeps its own place: lambdas in a loop would all see the last one.
    def argument(place: int) -> functions.Filter:
        return lambda subject: _run(tree.arguments[place], subject, variables)

    filters = tuple(argument(place) for place in range(len(tree.arguments)))
    yield from functions.call(tree.name, value, filters)


def _product(trees: Sequence[Query], value: object, variables: _Variables) -> Iterator[tuple[object, ...]]:
    """Yield every combination of the results of ``trees``; the last one varies fastest."""
    if not trees:
        yield ()
        return
    for first in _run(trees[0], value, variables):
        for rest in _product(trees[1:], value, variables):
            yield (first, *rest)
