"""Rows that a plugin is asked about stay as they are, whatever the plugin does to them.

Rows are arrays of the engine. Plugins hand them to kernels of their own, whose types are those of arrays that can be
written; so rows cannot be locked as what a session shows is. They are compared after each call instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
R = TypeVar("R")


def undisturbed(function: Callable[P, R], blame: Callable[[str], Exception]) -> Callable[P, R]:
    """Return ``function``, which puts back what it wrote to the arrays that it was given, and then raises ``blame``.

    Cost: a copy and a comparison of each array.
    """

    def ask(*args: P.args, **kwargs: P.kwargs) -> R:
        rows = [(each, each.copy()) for each in args if isinstance(each, np.ndarray) and each.flags.writeable]
        try:
            answer = function(*args, **kwargs)
        finally:
            written = _put_back(rows)
        if written:
            raise blame("wrote to the rows that it was asked about, expected a plugin that writes to its own arrays")
        return answer

    return ask


def _put_back(rows: list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]) -> bool:
    """Return whether an array differs from what it was; it is then as it was."""
    written = False
    for rows_now, before in rows:
        if not np.array_equal(rows_now, before):
            rows_now[...] = before
            written = True
    return written
