"""Rows by age: oldest first, by uid where ages are equal; kept in order as rows come and go."""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from itertools import pairwise

import numpy as np

from kai.kernels.groups import find_places
from kai.kernels.struct import writable
from kai.model.rows import Float64s, Int64s
from kai.state.memory import Memory
from kai.state.table_version import TableVersion

_FEW = 64

Uid = Callable[[int], str]


def creation_order(created: Float64s, uid: Uid) -> Int64s:
    """Return int64[n]: rows by creation time, then uid. Text is only compared where times are equal."""
    order = np.argsort(created, kind="stable").astype(np.int64)
    same = np.flatnonzero(np.diff(created[order]) == 0)
    for first in same[np.concatenate([[True], np.diff(same) > 1])] if len(same) else ():
        last = first + 1
        while last < len(order) and created[order[last]] == created[order[first]]:
            last += 1
        order[first:last] = sorted(order[first:last].tolist(), key=uid)
    return order


def carried_order(memory: Memory, name: str, version: TableVersion, created: Float64s, uid: Uid) -> Int64s:
    """Return what ``creation_order`` returns, made of the order that ``memory`` has of the version before."""
    known = memory.recall(name)
    if isinstance(known, _Known):
        if known.mark is version.mark:
            return known.order
        if known.mark is version.before and len(version.fresh) <= _FEW + len(created) // 8:
            stays = version.has_kept_places and _stays(known, created, version.fresh, uid)
            order = known.order if stays else _moved(known.order, version, created, uid)
            memory.keep(name, _Known(version.mark, created, order))
            return order
    order = creation_order(created, uid)
    memory.keep(name, _Known(version.mark, created, order))
    return order


class _Known:
    def __init__(self, mark: object, created: Float64s, order: Int64s) -> None:
        self.mark, self.created, self.order = mark, created, order


def _stays(known: _Known, created: Float64s, rows: Int64s, uid: Uid) -> bool:
    """Return whether the order is the same with other objects in ``rows``: each belongs where the one before it was."""
    order, places = known.order, np.empty(len(rows), np.int64)
    if not find_places(writable(known.created), order, rows, places):
        return False
    # Each place with the one before it, of which one of the two has another object.
    later = np.concatenate([places[places > 0], places[places + 1 < len(order)] + 1])
    one, other = order[later - 1], order[later]
    if (created[one] > created[other]).any():
        return False
    same = created[one] == created[other]
    pairs = zip(one[same].tolist(), other[same].tolist(), strict=True)
    return all((uid(row), row) < (uid(next_row), next_row) for row, next_row in pairs)


def _moved(before: Int64s, version: TableVersion, created: Float64s, uid: Uid) -> Int64s:
    """Return the order without rows that are gone, and with fresh rows where they belong."""
    rows = version.fresh
    order = version.rows_now(len(before))[before]
    if len(created) - len(rows) < len(before):
        order = _without(order, np.flatnonzero(order < 0))
    fresh = rows[creation_order(created[rows], lambda at: uid(int(rows[at])))].tolist()
    if not fresh:
        return order
    first, last = _bounds(created, order, fresh)
    places = [
        start
        if start == end
        else start + bisect_left(order[start:end].tolist(), (uid(row), row), key=lambda other: (uid(other), other))
        for row, start, end in zip(fresh, first, last, strict=True)
    ]
    return _with(order, places, fresh)


def _without(order: Int64s, gone: Int64s) -> Int64s:
    """Return ``order`` without some places. A few are left out by copying what is between, without a look at each."""
    if len(gone) > _FEW:
        return np.delete(order, gone)
    return np.concatenate([order[first + 1 : end] for first, end in pairwise([-1, *gone.tolist(), len(order)])])


def _with(order: Int64s, places: list[int], rows: list[int]) -> Int64s:
    """Return ``order`` with ``rows`` before some places, ascending; a few as ``_without`` does."""
    if len(rows) > _FEW:
        return np.insert(order, places, rows)
    pieces: list[Int64s | list[int]] = []
    for row, (start, end) in zip(rows, pairwise([0, *places]), strict=True):
        pieces += [order[start:end], [row]]
    return np.concatenate([*pieces, order[places[-1] :]])


def _bounds(created: Float64s, order: Int64s, fresh: list[int]) -> tuple[list[int], list[int]]:
    """Return, for each of ``fresh``, where rows of its age begin and end in ``order``."""
    if len(fresh) > _FEW:
        times, keys = created[order], created[fresh]
        return np.searchsorted(times, keys, "left").tolist(), np.searchsorted(times, keys, "right").tolist()
    age = created.__getitem__
    return [bisect_left(order, age(row), key=age) for row in fresh], [
        bisect_right(order, age(row), key=age) for row in fresh
    ]
