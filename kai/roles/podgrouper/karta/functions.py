"""The functions of jq that only read. An unknown function is an error of the query, and so is one that writes."""

import functools
import json
import math
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from kai.roles.podgrouper.karta.values import (
    QueryError,
    arithmetic,
    entries_of,
    is_truth,
    json_of,
    number,
    order,
    sort_key,
    spend,
    text_of,
    type_name,
)  # fmt: skip

# A repeated group may match one text in exponentially many ways: `(a+)+b` tries 2^40 of them on forty letters, and
# `re` cannot be interrupted.
_REPEATED_GROUP = re.compile(r"\)[*+{]")
_MOST_TRIES = 20_000_000
_LONGEST = 1000

Filter: TypeAlias = Callable[[object], Iterator[object]]
"""An argument of a function: a query to run on a value."""


def call(name: str, value: object, arguments: tuple[Filter, ...]) -> Iterator[object]:
    """Yield the results of function ``name`` on ``value``.

    Raises: QueryError when no function has that name and number of arguments, or it cannot take the value.
    """
    plain = _PLAIN.get(name)
    if plain is not None and not arguments:
        yield plain(value)
        return
    fed = _FED.get((name, len(arguments)))
    if fed is None:
        raise QueryError(f"there is no function {name}/{len(arguments)}")
    yield from fed(value, *arguments)


# Functions of the value alone ---------------------------------------------------------------------------------------


def _text(value: object, function: str) -> str:
    if not isinstance(value, str):
        raise QueryError(f"{function} needs a string, found {type_name(value)}")
    return value


def _items(value: object, function: str) -> list[object]:
    if not isinstance(value, list | tuple):
        raise QueryError(f"{function} needs an array, found {type_name(value)}")
    return list(value)


def _length(value: object) -> object:
    if value is None:
        return 0
    if isinstance(value, str | list | tuple | Mapping):
        return len(value)
    found = number(value)
    if found is None:
        raise QueryError(f"{type_name(value)} has no length")
    return abs(found)


def _keys(value: object) -> object:
    return [key for key, _ in entries_of(value)]


def _add(value: object) -> object:
    total: object = None
    for _, item in entries_of(value):
        total = arithmetic("+", total, item)
    return total


def _to_number(value: object) -> object:
    if number(value) is not None:
        return value
    try:
        found = json.loads(_text(value, "tonumber"))
    except ValueError:
        found = None
    if number(found) is None:
        raise QueryError(f"{json_of(value)} is not a number")
    return found


def _from_json(value: object) -> object:
    try:
        made: object = json.loads(_text(value, "fromjson"))
    # The text comes from a tenant, and the decoder of JSON recurses with its nesting.
    except (ValueError, RecursionError) as error:
        raise QueryError(f"not JSON: {error}") from error
    return made


def _to_entries(value: object) -> object:
    if not isinstance(value, Mapping):
        raise QueryError(f"to_entries needs an object, found {type_name(value)}")
    return [{"key": key, "value": item} for key, item in entries_of(value)]


def _from_entries(value: object) -> object:
    made = {}
    for entry in _items(value, "from_entries"):
        if not isinstance(entry, Mapping):
            raise QueryError("from_entries needs objects")
        key = next((entry[name] for name in ("key", "k", "name") if entry.get(name) is not None), None)
        made["null" if key is None else text_of(key)] = entry.get("value", entry.get("v"))
    return made


def _unique(value: object) -> object:
    return [group[0] for group in _runs(_items(value, "unique"), lambda item: item)]


def _flatten(value: object) -> list[object]:
    flat: list[object] = []
    for item in _items(value, "flatten"):
        spend()
        flat += _flatten(item) if isinstance(item, list | tuple) else [item]
    return flat


def _extreme(value: object, wanted: int) -> object:
    best: object = None
    for place, item in enumerate(_items(value, "min and max")):
        # As in jq: of equal items min returns the first and max the last.
        if place == 0 or order(item, best) == wanted or (wanted > 0 and order(item, best) == 0):
            best = item
    return best


def _rounded(value: object, how: Callable[[float], int]) -> object:
    found = number(value)
    # `math.floor` refuses NaN and infinity with errors of its own, which would leave the query as a crash.
    if found is None or not math.isfinite(found):
        raise QueryError(f"{type_name(value)} cannot be rounded")
    return how(found)


def _reverse(value: object) -> object:
    return value[::-1] if isinstance(value, str) else [] if value is None else _items(value, "reverse")[::-1]


_PLAIN: Mapping[str, Callable[[object], object]] = {
    "not": lambda value: not is_truth(value),
    "length": _length,
    "keys": _keys,
    "keys_unsorted": _keys,
    "add": _add,
    "any": lambda value: any(is_truth(item) for _, item in entries_of(value)),
    "all": lambda value: all(is_truth(item) for _, item in entries_of(value)),
    "type": type_name,
    "tostring": text_of,
    "tonumber": _to_number,
    "tojson": json_of,
    "fromjson": _from_json,
    "to_entries": _to_entries,
    "from_entries": _from_entries,
    "first": lambda value: next(iter(_items(value, "first")), None),
    "last": lambda value: next(iter(_items(value, "last")[-1:]), None),
    "sort": lambda value: sorted(_items(value, "sort"), key=sort_key),
    "unique": _unique,
    "flatten": _flatten,
    "reverse": _reverse,
    "min": lambda value: _extreme(value, -1),
    "max": lambda value: _extreme(value, 1),
    "floor": lambda value: _rounded(value, math.floor),
    "ceil": lambda value: _rounded(value, math.ceil),
    # jq rounds halves away from zero; `round` of Python rounds them to an even number.
    "round": lambda value: _rounded(value, lambda found: math.floor(abs(found) + 0.5) * (1 if found >= 0 else -1)),
    "abs": lambda value: abs(found) if (found := number(value)) is not None else _length(value),
    "ascii_downcase": lambda value: _text(value, "ascii_downcase").lower(),
    "ascii_upcase": lambda value: _text(value, "ascii_upcase").upper(),
    "trim": lambda value: _text(value, "trim").strip(),
}


# Functions that take queries ----------------------------------------------------------------------------------------


def _empty(_value: object) -> Iterator[object]:
    yield from ()


def _error(value: object, *messages: Filter) -> Iterator[object]:
    for message in messages[0](value) if messages else (value,):
        raise QueryError(text_of(message))
    yield from ()


def _select(value: object, condition: Filter) -> Iterator[object]:
    yield from (value for truth in condition(value) if is_truth(truth))


def _of_type(*types: str) -> Callable[[object], Iterator[object]]:
    def passed(value: object) -> Iterator[object]:
        yield from (value for name in types if type_name(value) == name)

    return passed


def _map(value: object, change: Filter) -> Iterator[object]:
    yield [result for _, item in entries_of(value) for result in change(item)]


def _map_values(value: object, change: Filter) -> Iterator[object]:
    changed = [(key, result) for key, item in entries_of(value) for result in islice(change(item), 1)]
    yield dict(changed) if isinstance(value, Mapping) else [result for _, result in changed]


def _with_entries(value: object, change: Filter) -> Iterator[object]:
    yield _from_entries([result for entry in _items(_to_entries(value), "with_entries") for result in change(entry)])


def _has(value: object, keys: Filter) -> Iterator[object]:
    for key in keys(value):
        place = number(key)
        if isinstance(value, Mapping) and isinstance(key, str):
            yield key in value
        elif isinstance(value, list | tuple) and place is not None:
            yield 0 <= place < len(value)
        else:
            raise QueryError(f"cannot tell whether {type_name(value)} has {json_of(key)}")


def _is_within(inner: object, outer: object) -> bool:
    spend()
    if isinstance(inner, str) and isinstance(outer, str):
        return inner in outer
    if isinstance(inner, Mapping) and isinstance(outer, Mapping):
        return all(key in outer and _is_within(item, outer[key]) for key, item in inner.items())
    if isinstance(inner, list | tuple) and isinstance(outer, list | tuple):
        return all(any(_is_within(item, other) for other in outer) for item in inner)
    return order(inner, outer) == 0


def _with_text(name: str, run: Callable[[str, str], object]) -> Callable[[object, Filter], Iterator[object]]:
    def ran(value: object, arguments: Filter) -> Iterator[object]:
        yield from (run(_text(value, name), _text(argument, name)) for argument in arguments(value))

    return ran


def _matches(value: str, pattern: str) -> bool:
    # Each repetition adds a power of the length to the time of a search; nested repetitions multiply.
    repetitions = sum(map(pattern.count, "*+{"))
    if _REPEATED_GROUP.search(pattern) or len(value) ** (repetitions + 1) > _MOST_TRIES or len(pattern) > _LONGEST:
        raise QueryError(f"the regular expression could take too long: {pattern[:100]}")
    try:
        return _compiled(pattern).search(value) is not None
    except (re.error, RecursionError) as error:
        raise QueryError(f"not a regular expression: {pattern}") from error


@functools.lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    """Return the compiled pattern of a Karta, without warnings that other Python versions may read it differently."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return re.compile(pattern)


def _join(value: object, separators: Filter) -> Iterator[object]:
    for separator in separators(value):
        parts = ["" if item is None else text_of(item) for item in _items(value, "join")]
        # Paid for before the text is made: by then it might be larger than the memory.
        spend(sum(map(len, parts)) // 4 + len(parts) * (1 + len(_text(separator, "join")) // 4))
        yield _text(separator, "join").join(parts)


def _runs(items: list[object], key: Callable[[object], object]) -> list[list[object]]:
    """Return ``items`` sorted by ``key``, grouped by equal keys."""
    runs: list[list[object]] = []
    for item in sorted(items, key=lambda item: sort_key(key(item))):
        if runs and order(key(runs[-1][0]), key(item)) == 0:
            runs[-1].append(item)
        else:
            runs.append([item])
    return runs


def _by(name: str, run: Callable[[list[list[object]]], object]) -> Callable[[object, Filter], Iterator[object]]:
    def ran(value: object, keys: Filter) -> Iterator[object]:
        yield run(_runs(_items(value, name), lambda item: list(keys(item))))

    return ran


def _any_of(value: object, condition: Filter) -> Iterator[object]:
    yield any(is_truth(result) for _, item in entries_of(value) for result in condition(item))


def _all_of(value: object, condition: Filter) -> Iterator[object]:
    yield all(is_truth(result) for _, item in entries_of(value) for result in condition(item))


def _contains(value: object, others: Filter) -> Iterator[object]:
    yield from (_is_within(other, value) for other in others(value))


def _inside(value: object, others: Filter) -> Iterator[object]:
    yield from (_is_within(value, other) for other in others(value))


def _first_of(value: object, query: Filter) -> Iterator[object]:
    yield from islice(query(value), 1)


def _last_of(value: object, query: Filter) -> Iterator[object]:
    yield from list(query(value))[-1:]


def _is_empty(value: object, query: Filter) -> Iterator[object]:
    yield not list(islice(query(value), 1))


_FED: Mapping[tuple[str, int], Callable[..., Iterator[object]]] = {
    ("empty", 0): _empty,
    ("error", 0): _error,
    ("error", 1): _error,
    ("values", 0): _of_type("boolean", "number", "string", "array", "object"),
    ("nulls", 0): _of_type("null"),
    ("booleans", 0): _of_type("boolean"),
    ("numbers", 0): _of_type("number"),
    ("strings", 0): _of_type("string"),
    ("arrays", 0): _of_type("array"),
    ("objects", 0): _of_type("object"),
    ("iterables", 0): _of_type("array", "object"),
    ("scalars", 0): _of_type("null", "boolean", "number", "string"),
    ("select", 1): _select,
    ("map", 1): _map,
    ("map_values", 1): _map_values,
    ("with_entries", 1): _with_entries,
    ("has", 1): _has,
    ("contains", 1): _contains,
    ("inside", 1): _inside,
    ("any", 1): _any_of,
    ("all", 1): _all_of,
    ("first", 1): _first_of,
    ("last", 1): _last_of,
    ("isempty", 1): _is_empty,
    ("startswith", 1): _with_text("startswith", str.startswith),
    ("endswith", 1): _with_text("endswith", str.endswith),
    ("ltrimstr", 1): _with_text("ltrimstr", str.removeprefix),
    ("rtrimstr", 1): _with_text("rtrimstr", str.removesuffix),
    ("split", 1): _with_text("split", lambda value, separator: arithmetic("/", value, separator)),
    ("test", 1): _with_text("test", _matches),
    ("join", 1): _join,
    ("sort_by", 1): _by("sort_by", lambda runs: [item for run in runs for item in run]),
    ("group_by", 1): _by("group_by", lambda runs: runs),
    ("unique_by", 1): _by("unique_by", lambda runs: [run[0] for run in runs]),
    ("min_by", 1): _by("min_by", lambda runs: runs[0][0] if runs else None),
    ("max_by", 1): _by("max_by", lambda runs: runs[-1][-1] if runs else None),
}
